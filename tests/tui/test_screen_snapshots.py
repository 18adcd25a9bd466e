"""Every pane at every size as text, before and after some keys; some in colour."""

from __future__ import annotations

import pytest
import screenshot
from pace import first_fast
from pilots import piloted

from kernbench.replay.commands import STEP
from tui.__main__ import open_session
from tui.app import KernbenchApp
from tui.panes import PANES

MOVE = ("G",)
"""Panes are to have their answers here, since what Memory scrolls to depends on where
it was.
"""
SCRIPT = ("u", "N", "+", "+", "l", "m", "a")
SIZES = [(80, 24), (200, 50), (120, 40)]
SHOWN = [row for row in PANES if row.number and row.key != "texts"]
"""The panes that have something to show of the matmul, and can be picked."""
TITLE_OF = {row.number: row.title for row in SHOWN}
VIEWS_OF = {row.number: row.make.views for row in SHOWN}
WITH_VIEWS = [pane for pane, views in VIEWS_OF.items() if len(views) > 1]
FAULTS = {
    "hazards": ("fault_missing_wait", 3),
    "first divergence": ("fault_overflow", 5),
    "outputs": ("fault_wrong_root", 9),
}
"""Views of what goes wrong: of which trace, and at its last op."""
WRONG = [
    (pane, name) for pane, views in VIEWS_OF.items() for name in views if name in FAULTS
]
_SIZED = pytest.mark.parametrize(
    "size", first_fast(SIZES), ids=[f"{w}x{h}" for w, h in SIZES]
)


def file_name(pane: int, size: tuple[int, int], when: str) -> str:
    """The snapshot of a pane at a size."""
    width, height = size
    return f"{TITLE_OF[pane].lower()}-{width}x{height}-{when}"


@_SIZED
@pytest.mark.slow
async def test_panes_before(size, drive, settle, as_text_of, same_as_file) -> None:
    async with drive(*size) as pilot:
        for pane in TITLE_OF:
            await pilot.press(str(pane))
            await settle(pilot)
            same_as_file(file_name(pane, size, "before"), as_text_of(pilot.app))


@_SIZED
@pytest.mark.slow
async def test_panes_after(size, drive, settle, as_text_of, same_as_file) -> None:
    async with drive(*size, *MOVE) as pilot:
        await settle(pilot)
        await pilot.press(*SCRIPT)
        for pane in TITLE_OF:
            await pilot.press(str(pane))
            await settle(pilot)
            same_as_file(file_name(pane, size, "after"), as_text_of(pilot.app))


def view_file(pane: int, name: str) -> str:
    """The snapshot of another view of a pane."""
    return f"{TITLE_OF[pane]}-{name}-80x24".replace(" ", "-").lower()


@pytest.mark.parametrize("pane", WITH_VIEWS)
@pytest.mark.slow
async def test_other_views(pane, session, settle, as_text_of, same_as_file) -> None:
    """At a GEMM on the critical path."""
    session.goto(79)
    app = KernbenchApp(session, "matmul")
    async with piloted(app, (80, 24), str(pane), "z") as pilot:
        for name in VIEWS_OF[pane][1:]:
            await pilot.press("v")
            await settle(pilot)
            if name not in FAULTS:
                same_as_file(view_file(pane, name), as_text_of(app))


@pytest.mark.parametrize(("pane", "name"), WRONG)
@pytest.mark.slow
async def test_views_of_what_goes_wrong(
    pane, name, trace_path, settle, as_text_of, same_as_file
) -> None:
    trace, op = FAULTS[name]
    session = open_session(trace_path.with_name(f"{trace}.msgpack"), op)
    app = KernbenchApp(session, trace)
    async with piloted(app, (80, 24), str(pane), "z") as pilot:
        for _ in range(VIEWS_OF[pane].index(name)):
            await pilot.press("v")
            await settle(pilot)  # where a view was left when it was late shows later
        same_as_file(view_file(pane, name), as_text_of(app))


@_SIZED
async def test_what_to_make_faster(
    size, drive, settle, as_text_of, same_as_file
) -> None:
    """The view of Stats, beside the other panes, with a row picked."""
    async with drive(*size, "8", "V") as pilot:
        await settle(pilot)
        await pilot.press("j", "j", "j")
        width, height = size
        place = f"stats-what-if-{width}x{height}-picked"
        same_as_file(place, as_text_of(pilot.app))


async def test_one_pane_on_a_small_screen(
    drive, settle, as_text_of, same_as_file
) -> None:
    async with drive(50, 12, "3") as pilot:
        await settle(pilot)
        same_as_file("small-50x12", as_text_of(pilot.app))


async def test_maximised_pane(drive, settle, as_text_of, same_as_file) -> None:
    async with drive(80, 24, "2", "z") as pilot:
        await settle(pilot)
        same_as_file("maximised-80x24", as_text_of(pilot.app))


@pytest.mark.slow
async def test_ascii_needs_no_other_characters(drive, settle, as_text_of) -> None:
    """At the size that has six panes in view, and two behind a tab."""
    async with drive(200, 50, *MOVE, *SCRIPT, ascii_only=True) as pilot:
        for pane, views in VIEWS_OF.items():
            await pilot.press(str(pane))
            for _ in range(max(len(views), 1)):
                await settle(pilot)
                assert as_text_of(pilot.app).isascii()
                await pilot.press("v")


IN_COLOUR = {
    "timeline": ((80, 24), ()),
    "tiles": ((80, 24), ("3", "n")),
    "diff": ((80, 24), ("6", "z")),
    "memory": ((80, 24), ("4", "j")),
    "memory-heatmap": ((80, 24), ("4", "v", "v", "z")),
    "ops": ((80, 24), ("2", "j", "j")),
    "route": ((80, 24), ("5", "z")),
    "source": ((80, 24), ("7",)),
    "stats": ((80, 24), ("8", "z")),
    "critical-path": ((80, 24), ("1", "v", "v")),
    "command-line": ((80, 24), (":", *"goto 40")),
    "help": ((80, 24), ("?",)),
    "notice": ((80, 24), ("f3",)),
    "middle": ((120, 40), ("4",)),
    "large": ((200, 50), ("6",)),
}


@pytest.mark.parametrize("name", first_fast(IN_COLOUR))
def test_colours_and_focus(name, session, settle, snap_compare, monkeypatch) -> None:
    """The help is that of one command, so that it stays as long when some are added."""
    monkeypatch.setattr("tui.screens.help.listed", lambda: (STEP,))
    session.goto(100)
    size, keys = IN_COLOUR[name]

    async def play(pilot) -> None:
        await pilot.press(*keys)
        await settle(pilot)

    app = KernbenchApp(session, "matmul.msgpack")
    assert snap_compare(app, terminal_size=size, run_before=play)


def test_the_picture_in_the_readme_is_of_this_screen() -> None:
    again = f"python {screenshot.__file__} makes it again"
    assert screenshot.PICTURE.read_text(encoding="utf-8") == screenshot.svg(), again
    assert screenshot.PICTURE.stat().st_size < 300_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "kept", screenshot.KEPT, ids=[kept[0].trace for kept in screenshot.KEPT]
)
def test_the_pictures_in_the_docs_are_of_this_screen(kept) -> None:
    path = screenshot.PICTURES / screenshot.name_of(*kept)
    again = f"python {screenshot.__file__} makes it again"
    assert path.read_text(encoding="utf-8") == screenshot.svg(*kept), again
    assert path.stat().st_size < 150_000
