"""What single panes show in the snapshots of the whole screen."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pictures import place_of

from tui.draw import UNICODE
from tui.draw import cut as fitted

SNAPSHOTS = Path(__file__).parents[1] / "snapshots"
SIZES = ("80x24", "120x40", "200x50")


class Place(NamedTuple):
    """Where the lines of a pane, without its title, are on the screen."""

    x: int
    y: int
    width: int
    height: int


def _place(key: str, size: str) -> Place:
    width, _, height = size.partition("x")
    region = place_of(key, int(width), int(height))
    return Place(region.x, region.y, region.width, region.height)


PLACES = {
    (key, size): _place(key, size)
    for key in ("timeline", "tiles", "route")
    for size in SIZES
}
MAXIMISED = Place(0, 3, 80, 20)
"""At 80x24."""


def on_screen(name: str, place: Place) -> str:
    """The lines of a pane in a snapshot, without the blanks at the end of each and of
    all.
    """
    path = SNAPSHOTS / f"{name}.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    lines = lines[place.y : place.y + place.height]
    cut = [line[place.x : place.x + place.width].rstrip() for line in lines]
    return "\n".join(cut).rstrip("\n")


def title_on_screen(name: str, place: Place) -> str:
    """The title above those lines."""
    path = SNAPSHOTS / f"{name}.txt"
    line = path.read_text(encoding="utf-8").splitlines()[place.y - 1]
    return line[place.x : place.x + place.width].rstrip("─ ")


def cut(text: str, place: Place) -> str:
    """What a pane shows of a text that is wider than its place."""
    lines = [fitted([(line, "")], place.width, UNICODE) for line in text.splitlines()]
    return "\n".join("".join(part for part, _ in line).rstrip() for line in lines)
