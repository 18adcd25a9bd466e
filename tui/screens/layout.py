"""Where the panes stand at each size of the screen: a pure function, the only one that knows."""

from __future__ import annotations

from dataclasses import dataclass

from textual.geometry import Region, Size

ALL = (1, 2, 3, 4, 5, 6, 7, 8)
_ONE_CELL = (
    5,
    7,
    8,
)  # Source and Stats stand behind Route where all others have a place
SMALLEST = (60, 16)


@dataclass(frozen=True, slots=True)
class Plan:
    """Regions of the panes shown; ``tabs`` is the strip's line, ``tabbed`` the panes behind it."""

    regions: dict[int, Region]
    tabs: Region | None = None
    tabbed: tuple[int, ...] = ()
    note: str = ""


def plan(size: Size, active: int, tab: int, maximised: bool) -> Plan:
    """The plan for a screen of ``size``, of which three lines are taken."""
    width, height = size.width, max(size.height - 3, 1)
    whole = Region(0, 0, width, height)
    if size.width < SMALLEST[0] or size.height < SMALLEST[1]:
        return Plan({active: whole}, note=f"small: wants {SMALLEST[0]}x{SMALLEST[1]}")
    if maximised:
        return Plan({active: whole}, note="z: all panes")
    if size.width >= 160 and size.height >= 42:
        return _grid(width, height, tab if tab in _ONE_CELL else 5)
    if size.width >= 110 and size.height >= 30:
        return _beside(width, height, tab if tab > 2 else 3)
    top = height * 9 // 21
    below = Region(0, top + 1, width, height - top - 1)
    return Plan(
        {1: Region(0, 0, width, top), tab: below}, Region(0, top, width, 1), ALL[1:]
    )


def _beside(width: int, height: int, tab: int) -> Plan:
    left, top = 36, height // 2
    right = width - left
    regions = {2: Region(0, 0, left, height), 1: Region(left, 0, right, top)}
    regions[tab] = Region(left, top + 1, right, height - top - 1)
    return Plan(regions, Region(left, top, right, 1), ALL[2:])


def _grid(width: int, height: int, tab: int) -> Plan:
    left, top = max(width * 11 // 50, 46), height * 2 // 5
    half, low = (width - left) // 2, (height - top) // 2
    x, rest, y = left + half, width - left - half, top + low
    regions = {2: Region(0, 0, left, height), 1: Region(left, 0, width - left, top)}
    regions |= {3: Region(left, top, half, low), 4: Region(x, top, rest, low)}
    regions |= {
        tab: Region(left, y + 1, half, height - y - 1),
        6: Region(x, y, rest, height - y),
    }
    return Plan(regions, Region(left, y, half, 1), _ONE_CELL)
