"""Every pane as plain text, before and after a scripted session; a few in colour."""

from __future__ import annotations

import pytest

from kernbench.replay.commands import run_command
from tui.app import KernbenchApp

SCRIPT = ("G", "u", "N", "+", "+", "l")
PANES = ("timeline", "ops", "tiles", "memory", "route", "diff")


@pytest.mark.parametrize("keys", [(), SCRIPT], ids=["before", "after"])
@pytest.mark.parametrize("pane", range(1, 7), ids=PANES)
async def test_pane_at_80x24(pane, keys, drive, as_text_of, same_as_file) -> None:
    async with drive(80, 24, *keys, str(pane)) as pilot:
        name = f"{PANES[pane - 1]}-80x24-{'after' if keys else 'before'}"
        same_as_file(name, as_text_of(pilot.app))


@pytest.mark.parametrize("keys", [(), SCRIPT], ids=["before", "after"])
@pytest.mark.parametrize("size", [(120, 40), (200, 50)], ids=["120x40", "200x50"])
async def test_whole_screen(size, keys, drive, as_text_of, same_as_file) -> None:
    async with drive(*size, *keys) as pilot:
        name = f"screen-{size[0]}x{size[1]}-{'after' if keys else 'before'}"
        same_as_file(name, as_text_of(pilot.app))


async def test_one_pane_on_a_small_screen(drive, as_text_of, same_as_file) -> None:
    async with drive(50, 12, "3") as pilot:
        same_as_file("small-50x12", as_text_of(pilot.app))


async def test_ascii_needs_no_other_characters(drive, as_text_of) -> None:
    async with drive(200, 50, *SCRIPT, ascii_only=True) as pilot:
        assert as_text_of(pilot.app).isascii()


@pytest.mark.parametrize(
    "keys", [(), ("3", "n"), ("6", "z"), ("4", "j")], ids=["timeline", "tiles", "diff", "memory"]
)
def test_colours_and_focus(keys, session, snap_compare) -> None:
    run_command(session, "goto 100")
    app = KernbenchApp(session, "matmul.msgpack")
    assert snap_compare(app, terminal_size=(80, 24), press=keys)
