"""Makes the pictures of the README and of the docs: run it as a program.

With a folder as its argument it makes pictures of four traces there, each on a small, a
middle and a large screen, in the dark and the light theme: 24, of 2.6 MB.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

from pilots import settled

from kernbench import docs
from tui.__main__ import open_session
from tui.app import KernbenchApp

TRACES = Path(__file__).parents[2] / "traces"
PICTURE = TRACES / "debugger.svg"
PICTURES = docs.FOLDER / "pictures"
"""Those of the other traces that are kept."""
SIZES = ((80, 24), (120, 40), (200, 50))
THEMES = ("dark", "light")


class Scene(NamedTuple):
    """What is looked at in a trace: an op, None where it opens, and keys."""

    trace: str
    op: int | None = None
    keys: tuple[str, ...] = ()


README = Scene("matmul", 75, ("3",))
SCENES = (
    README,
    Scene("flash_attention", 150, ("7",)),
    Scene("ccl_allreduce", 100, ("5",)),
    Scene("fault_wrong_root", None, ()),
)


KEPT = (
    (SCENES[1], SIZES[1], "dark"),
    (SCENES[2], SIZES[1], "light"),
    (SCENES[3], SIZES[0], "dark"),
)


def svg(
    scene: Scene = README, size: tuple[int, int] = (120, 40), theme: str = "dark"
) -> str:
    """The screen of a scene. Lines of the host are read from where it was recorded."""
    with chdir(TRACES.parent):
        return asyncio.run(_drawn(scene, size, theme))


async def _drawn(scene: Scene, size: tuple[int, int], theme: str) -> str:
    name = f"{scene.trace}.msgpack"
    app = KernbenchApp(open_session(TRACES / name, scene.op), name, theme=theme)
    async with app.run_test(size=size) as pilot:
        await pilot.press(*scene.keys)
        await settled(pilot)
        return app.export_screenshot(
            title=f"kernbench-tui traces/{name}", simplify=True
        )


def name_of(scene: Scene, size: tuple[int, int], theme: str) -> str:
    """The file of a picture."""
    width, height = size
    return f"{scene.trace}-{width}x{height}-{theme}.svg"


def write_kept() -> None:
    """Write the pictures that are kept."""
    PICTURE.write_text(svg(), encoding="utf-8")
    PICTURES.mkdir(exist_ok=True)
    for kept in KEPT:
        (PICTURES / name_of(*kept)).write_text(svg(*kept), encoding="utf-8")


def write_all(folder: Path) -> None:
    """Write the pictures of all scenes, sizes and themes into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for scene in SCENES:
        for size in SIZES:
            for theme in THEMES:
                path = folder / name_of(scene, size, theme)
                path.write_text(svg(scene, size, theme), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:]:
        write_all(Path(sys.argv[1]))
    else:
        write_kept()
