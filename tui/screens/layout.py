"""Where the panes stand at each size of the screen: a pure function, the only one that
knows.

The timeline leads at every size. A pane that has nothing to show of a trace has no
place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from textual.geometry import Region, Size

from tui.panes import PANES

SMALLEST = (60, 16)
"""Columns and lines below which only one pane is shown."""
BORDERED = 100
"""Columns from which on panes have borders."""
_TAKEN_LINES = 3
"""Status and breadcrumb on top, the footer."""
_BESIDE = (118, 30)
_GRID = (196, 46)
_TABBED_COLUMNS = 82
"""Of the strip's pane beside the op's details: what is in it has 80, as on a small
screen.
"""
_LEAST_MAIN = 6
"""Lines of the main pane, however few rows it has."""
_LEAST_VERDICT = 12
"""Lines of the verdict beside it."""
_TEXTS = "texts"
_LIST = "ops"
_SHORT = 9
"""Lines of a list of ops that is so short that it stands below the op's details."""

NOTHING_KNOWN: Mapping[str, int] = {}

ALL = tuple(row.key for row in PANES if row.slot != "details")
"""The panes that can be the active one: all but the op's details."""
_MAIN = next(row.key for row in PANES if row.slot == "main")
_DETAILS = next(row.key for row in PANES if row.slot == "details")
_VERDICT = next(row.key for row in PANES if row.slot == "verdict")
_WIDE = {row.key: row.columns for row in PANES}


@dataclass(frozen=True, slots=True)
class Plan:
    """The regions of the panes in view, by key.

    ``tabs`` is the line of the strip, None where there is none, and ``tabbed`` are the
    panes behind it. ``bordered``: panes have borders, else title lines. ``note`` is
    said in the status line.
    """

    regions: dict[str, Region]
    tabs: Region | None = None
    tabbed: tuple[str, ...] = ()
    bordered: bool = False
    note: str = ""


def plan(
    size: Size,
    active: str,
    tab: str,
    maximised: bool,
    shown: Sequence[str] = ALL,
    needs: Mapping[str, int] = NOTHING_KNOWN,
) -> Plan:
    """The plan for a screen of ``size``, on which ``tab`` was the last pane behind a
    strip.

    ``shown`` are the panes that have something to show. Of some of them it is known
    that they need no more than so many lines, with what is around them.
    """
    width = size.width
    height = max(size.height - _TAKEN_LINES, 1)
    whole = Region(0, 0, width, height)
    if size.width < SMALLEST[0] or size.height < SMALLEST[1]:
        return Plan({active: whole}, note=f"small: wants {SMALLEST[0]}x{SMALLEST[1]}")
    bordered = width >= BORDERED
    if maximised:
        return Plan({active: whole}, bordered=bordered, note="z: all panes")
    others = tuple(key for key in ALL if key != _MAIN and key in shown)
    if size.width >= _GRID[0] and size.height >= _GRID[1]:
        return _grid(width, height, others, needs)
    shown_tab = tab if tab in others else others[0]
    if size.width >= _BESIDE[0] and size.height >= _BESIDE[1]:
        top = _main_height(height * 21 // 37, height, needs.get(_MAIN))
        return _stacked(width, height, top, shown_tab, others, beside=True)
    share = height * 10 // 21 if bordered else height * 9 // 21
    top = _main_height(share, height, needs.get(_MAIN))
    return _stacked(width, height, top, shown_tab, others, bordered=bordered)


def columns_alone(width: int) -> int:
    """Columns that a pane has for its picture if it is alone on the screen."""
    return width - 2 if width >= BORDERED else width


def _main_height(share: int, height: int, needed: int | None) -> int:
    """Lines of the main pane: its share, but no more than it needs."""
    if needed is None:
        return share
    return min(share, max(needed, min(_LEAST_MAIN, height // 3)))


def _stacked(
    width: int,
    height: int,
    top: int,
    tab: str,
    others: tuple[str, ...],
    beside: bool = False,
    bordered: bool = True,
) -> Plan:
    """The main pane above, all others behind a strip below, with the op's details
    ``beside`` where there is room.
    """
    wide = width
    regions = {_MAIN: Region(0, 0, width, top)}
    if beside:
        wide = max(_TABBED_COLUMNS, width * 2 // 3)
        regions[_DETAILS] = Region(wide, top, width - wide, height - top)
    regions[tab] = Region(0, top + 1, wide, height - top - 1)
    strip = Region(0, top, wide, 1)
    return Plan(regions, strip, others, bordered)


def _grid(
    width: int, height: int, others: tuple[str, ...], needs: Mapping[str, int]
) -> Plan:
    """The main pane and the verdict on top, the other panes in rows below.

    Texts stand below the ops; without texts a short list of ops stands below the main
    pane if there is room, or else below the details.
    """
    share = height * 2 // 5
    listed = needs.get(_LIST, height)
    is_short = listed <= _SHORT and _TEXTS not in others
    main = _main_height(share, height, needs.get(_MAIN))
    has_room = is_short and main + listed <= share
    if has_room:
        main += listed
    top = max(main, min(share, _LEAST_VERDICT))
    side = _WIDE[_VERDICT]
    regions = {
        _MAIN: Region(0, 0, width - side, top),
        _VERDICT: Region(width - side, 0, side, top),
    }
    below = [_DETAILS]
    below += [key for key in others if key not in (_VERDICT, _TEXTS)]
    if is_short:
        below.remove(_LIST)
    upper, lower = _in_two(below)
    half = (height - top + 1) // 2
    regions |= _row_of(upper, Region(0, top, width, half))
    regions |= _row_of(lower, Region(0, top + half, width, height - top - half))
    if is_short:
        _put_below(regions, _LIST, _MAIN if has_room else _DETAILS, listed)
    if _TEXTS in others:
        _put_below(regions, _TEXTS, _LIST, regions[_LIST].height // 3)
    return Plan(regions, bordered=True)


def _put_below(regions: dict[str, Region], key: str, above: str, lines: int) -> None:
    """Give a pane the last lines of another one's region."""
    x, y, wide, tall = regions[above]
    regions[above] = Region(x, y, wide, tall - lines)
    regions[key] = Region(x, y + tall - lines, wide, lines)


def _in_two(keys: Sequence[str]) -> tuple[list[str], list[str]]:
    """Panes in two rows that want about as many columns: the widest first, each where
    there is more room; in each row in their order.
    """
    rows: tuple[list[str], list[str]] = ([], [])
    for key in sorted(keys, key=lambda key: -_WIDE[key]):
        first, second = (sum(_WIDE[other] for other in row) for row in rows)
        rows[first > second].append(key)
    upper, lower = (sorted(row, key=list(keys).index) for row in rows)
    return upper, lower


def _row_of(keys: Sequence[str], room: Region) -> dict[str, Region]:
    """Panes side by side, each with its share of the columns that they want."""
    regions = {}
    wanted = sum(_WIDE[key] for key in keys)
    x = room.x
    so_far = 0
    for key in keys:
        so_far += _WIDE[key]
        end = room.x + room.width * so_far // wanted
        regions[key] = Region(x, room.y, end - x, room.height)
        x = end
    return regions
