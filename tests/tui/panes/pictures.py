"""One pane of the snapshots of the screen: its region cut out of the files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SNAPSHOTS = Path(__file__).parents[1] / "snapshots"


@dataclass(frozen=True)
class Region:
    """Where the lines of a pane stand on the screen, without title and bar."""

    x: int
    y: int
    width: int
    height: int


SMALL = Region(0, 12, 80, 11)
"""Below the strip of tabs, at 80x24."""
MIDDLE = Region(38, 21, 82, 18)
"""On the right, below the strip of tabs, at 120x40."""
MAXIMISED = Region(0, 3, 80, 20)
"""All of the body but the title, at 80x24."""
UPPER_RIGHT = Region(125, 21, 75, 13)
"""Memory's own place at 200x50."""
LOWER_RIGHT = Region(125, 35, 75, 14)
"""Diff's own place at 200x50."""
SHARED = Region(48, 35, 75, 14)
"""The place that Route, Source and Stats share at 200x50."""


def shown(name: str, region: Region) -> list[str]:
    """The lines of a pane in a snapshot, without blanks at their ends."""
    text = (SNAPSHOTS / f"{name}.txt").read_text(encoding="utf-8")
    lines = text.splitlines()[region.y : region.y + region.height]
    return [line[region.x : region.x + region.width].rstrip() for line in lines]


def filled(lines: list[str], region: Region) -> list[str]:
    """The lines of a pane as its region shows them: cut, and blank lines below."""
    blank = [""] * (region.height - len(lines))
    return [line[: region.width].rstrip() for line in lines] + blank
