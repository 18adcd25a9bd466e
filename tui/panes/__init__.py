"""The panes: one table, from which layout, actions, help, screen and docs are made.

To add a pane: one file beside this one, one row here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from kernbench.replay.index import Index
from tui.panes.base import Pane
from tui.panes.diff import DiffPane
from tui.panes.memory import MemoryPane
from tui.panes.ops import OpsPane
from tui.panes.route import RoutePane
from tui.panes.source import SourcePane
from tui.panes.stats import StatsPane
from tui.panes.tiles import TilesPane
from tui.panes.timeline import TimelinePane

Slot = Literal["main", "list", "upper left", "upper right", "lower right", "shared"]


@dataclass(frozen=True, slots=True)
class PaneRow:
    """One pane: its key among the panes, the number that shows it, its title, what
    makes it, and its slot in the layouts: the main pane, the list, a cell of its own
    where there is room for all, or the cell that the others share. What it ``shows`` is
    said in the documents.

    ``follows_focus`` and ``follows_window``: it depends on the focus, or on the times
    that the timeline shows.
    """

    key: str
    number: int
    title: str
    make: Callable[[Index], Pane[Any]]
    slot: Slot
    shows: str
    follows_focus: bool = False
    follows_window: bool = False


PANES = (
    PaneRow(
        "timeline",
        1,
        "Timeline",
        TimelinePane,
        "main",
        "a row a component over time, lanes where ops overlap",
    ),
    PaneRow(
        "ops",
        2,
        "Ops",
        OpsPane,
        "list",
        "the log around the cursor, all that is recorded of the op",
    ),
    PaneRow(
        "tiles",
        3,
        "Tiles",
        TilesPane,
        "upper left",
        "the composites; of open ones a row a tile, with its stages and waits",
    ),
    PaneRow(
        "memory",
        4,
        "Memory",
        MemoryPane,
        "upper right",
        "what memory holds at this op",
    ),
    PaneRow(
        "route",
        5,
        "Route",
        RoutePane,
        "shared",
        "a map of the machine, the op's path lit",
        follows_focus=True,
        follows_window=True,
    ),
    PaneRow(
        "diff",
        6,
        "Diff",
        DiffPane,
        "lower right",
        "values beside their references",
    ),
    PaneRow(
        "source",
        7,
        "Source",
        SourcePane,
        "shared",
        "the kernel, with time and stalls by line",
        follows_focus=True,
    ),
    PaneRow(
        "stats",
        8,
        "Stats",
        StatsPane,
        "shared",
        "where time goes",
        follows_focus=True,
    ),
)
