"""What single panes show in the snapshots of the whole screen."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

SNAPSHOTS = Path(__file__).parents[1] / "snapshots"
SIZES = ("80x24", "120x40", "200x50")


class Place(NamedTuple):
    """Where the lines of a pane, without its title, are on the screen."""

    x: int
    y: int
    width: int
    height: int


PLACES = {
    ("timeline", "80x24"): Place(0, 3, 80, 8),
    ("timeline", "120x40"): Place(38, 3, 82, 17),
    ("timeline", "200x50"): Place(48, 3, 152, 17),
    ("tiles", "80x24"): Place(0, 12, 80, 11),
    ("tiles", "120x40"): Place(38, 21, 82, 18),
    ("tiles", "200x50"): Place(48, 21, 75, 13),
    ("route", "80x24"): Place(0, 12, 80, 11),
    ("route", "120x40"): Place(38, 21, 82, 18),
    ("route", "200x50"): Place(48, 35, 75, 14),
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
    return line[place.x : place.x + place.width].rstrip()
