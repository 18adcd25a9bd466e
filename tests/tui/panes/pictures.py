"""One pane of the snapshots of the screen: its region cut out of the files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from textual.geometry import Size

from tui.draw import UNICODE, cut
from tui.screens.layout import ALL, plan
from tui.widgets.pane_view import room_in

SNAPSHOTS = Path(__file__).parents[1] / "snapshots"


@dataclass(frozen=True)
class Region:
    """Where the lines of a pane stand on the screen, without title and bar."""

    x: int
    y: int
    width: int
    height: int


SHOWN = tuple(key for key in ALL if key != "texts")
"""The panes that have something to show of the matmul."""


def place_of(key: str, width: int, height: int, maximised: bool = False) -> Region:
    """Where the lines of a pane stand on a screen of the matmul."""
    made = plan(Size(width, height), key, key, maximised, SHOWN)
    x, y, _, _ = made.regions[key]
    titled = key not in made.tabbed
    room = room_in(made.regions[key], titled, made.bordered)
    return Region(x + made.bordered, _ABOVE + y + titled, room.width, room.height)


_ABOVE = 2
"""The status line and the breadcrumb."""
SMALL = place_of("diff", 80, 24)
"""Below the strip of tabs, at 80x24."""
MIDDLE = place_of("diff", 120, 40)
"""Below the strip of tabs, at 120x40."""
MAXIMISED = place_of("diff", 80, 24, maximised=True)
"""All of the body but the title, at 80x24."""


def shown(name: str, region: Region) -> list[str]:
    """The lines of a pane in a snapshot, without blanks at their ends."""
    text = (SNAPSHOTS / f"{name}.txt").read_text(encoding="utf-8")
    lines = text.splitlines()[region.y : region.y + region.height]
    return [line[region.x : region.x + region.width].rstrip() for line in lines]


def filled(lines: list[str], region: Region) -> list[str]:
    """The lines of a pane as its region shows them: cut, and blank lines below."""
    blank = [""] * (region.height - len(lines))
    shown = [cut([(line, "")], region.width, UNICODE) for line in lines]
    return ["".join(part for part, _ in line).rstrip() for line in shown] + blank
