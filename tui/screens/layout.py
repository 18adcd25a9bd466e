"""Where the panes stand at each size of the screen: a pure function, the only one that
knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual.geometry import Region, Size

from tui.panes import PANES

SMALLEST = (60, 16)
"""Columns and lines below which only one pane is shown."""
_TAKEN_LINES = 3
"""Status and breadcrumb on top, the footer."""
_BESIDE = (110, 30)
_GRID = (160, 42)

ALL = tuple(row.key for row in PANES)
_MAIN = next(row.key for row in PANES if row.slot == "main")
_LIST = next(row.key for row in PANES if row.slot == "list")
_SHARED = tuple(row.key for row in PANES if row.slot == "shared")
_CELLS = {row.slot: row.key for row in PANES}


@dataclass(frozen=True, slots=True)
class Plan:
    """The regions of the panes in view, by key.

    ``tabs`` is the line of the strip, None where there is none, and ``tabbed`` are the
    panes behind it. ``note`` is said in the status line.
    """

    regions: dict[str, Region]
    tabs: Region | None = None
    tabbed: tuple[str, ...] = ()
    note: str = ""


def plan(size: Size, active: str, tab: str, maximised: bool) -> Plan:
    """The plan for a screen of ``size``, on which ``tab`` was the last pane behind a
    strip.
    """
    width = size.width
    height = max(size.height - _TAKEN_LINES, 1)
    whole = Region(0, 0, width, height)
    if size.width < SMALLEST[0] or size.height < SMALLEST[1]:
        return Plan({active: whole}, note=f"small: wants {SMALLEST[0]}x{SMALLEST[1]}")
    if maximised:
        return Plan({active: whole}, note="z: all panes")
    if size.width >= _GRID[0] and size.height >= _GRID[1]:
        return _grid(width, height, tab if tab in _SHARED else _SHARED[0])
    if size.width >= _BESIDE[0] and size.height >= _BESIDE[1]:
        others = tuple(key for key in ALL if key not in (_MAIN, _LIST))
        return _beside(width, height, tab if tab in others else others[0], others)
    others = tuple(key for key in ALL if key != _MAIN)
    return _stacked(width, height, tab if tab in others else others[0], others)


def _stacked(width: int, height: int, tab: str, others: tuple[str, ...]) -> Plan:
    """The main pane above, all others behind a strip below."""
    top = height * 9 // 21
    regions = {
        _MAIN: Region(0, 0, width, top),
        tab: Region(0, top + 1, width, height - top - 1),
    }
    return Plan(regions, Region(0, top, width, 1), others)


def _beside(width: int, height: int, tab: str, others: tuple[str, ...]) -> Plan:
    """The list on the left; on the right the main pane above the strip."""
    left = 36
    top = height // 2
    right = width - left
    regions = {
        _LIST: Region(0, 0, left, height),
        _MAIN: Region(left, 0, right, top),
        tab: Region(left, top + 1, right, height - top - 1),
    }
    return Plan(regions, Region(left, top, right, 1), others)


def _grid(width: int, height: int, tab: str) -> Plan:
    """The list on the left, the main pane on top, four cells below that; those that
    share a cell are behind a strip.
    """
    left = max(width * 11 // 50, 46)
    top = height * 2 // 5
    half = (width - left) // 2
    low = (height - top) // 2
    x = left + half
    y = top + low
    rest = width - left - half
    regions = {
        _LIST: Region(0, 0, left, height),
        _MAIN: Region(left, 0, width - left, top),
        _CELLS["upper left"]: Region(left, top, half, low),
        _CELLS["upper right"]: Region(x, top, rest, low),
        tab: Region(left, y + 1, half, height - y - 1),
        _CELLS["lower right"]: Region(x, y, rest, height - y),
    }
    return Plan(regions, Region(left, y, half, 1), _SHARED)
