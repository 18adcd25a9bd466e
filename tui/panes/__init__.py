"""The panes: one table, from which layout, actions, help, screen and docs are made.

To add a pane: one file beside this one, one row here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from kernbench.replay.index import Index
from kernbench.replay.time.op_classes import TILE_PREFIX
from kernbench.replay.time.tiles import NO_COMPOSITE
from kernbench.trace.hops import named
from tui.panes.base import Pane
from tui.panes.details import DetailsPane
from tui.panes.diff import DiffPane
from tui.panes.memory import MemoryPane
from tui.panes.ops import OpsPane
from tui.panes.route import RoutePane
from tui.panes.source import SourcePane
from tui.panes.stats import StatsPane
from tui.panes.texts import TextsPane, why_no_texts
from tui.panes.tiles import TilesPane
from tui.panes.timeline import TimelinePane

Slot = Literal["main", "details", "verdict", "other"]


def _has_something(index: Index) -> str:
    """Most panes have something to show of every trace."""
    return ""


def _why_no_tiles(index: Index) -> str:
    """No composite has ended, and no tile of one has run."""
    if len(index.tiles.positions) or named(index.trace, TILE_PREFIX).any():
        return ""
    return NO_COMPOSITE


@dataclass(frozen=True, slots=True)
class PaneRow:
    """One pane: its key among the panes, the number that shows it (0: none does), its
    title, what makes it, and its slot in the layouts: the main pane; the op's details,
    which only stand beside others; the verdict, which stands beside the main pane where
    there is room for all; or any other. What it ``shows`` is said in the documents.

    ``columns`` is how wide it wants to be where it shares a row. ``missing`` says why a
    trace has nothing for it; then it has no place.

    ``follows_focus`` and ``follows_window``: it depends on the focus, or on the times
    that the timeline shows.
    """

    key: str
    number: int
    title: str
    make: Callable[[Index], Pane[Any]]
    slot: Slot
    shows: str
    columns: int = 60
    missing: Callable[[Index], str] = _has_something
    follows_focus: bool = False
    follows_window: bool = False

    @property
    def name(self) -> str:
        """The number and the title."""
        return f"{self.number} {self.title}" if self.number else self.title


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
        "other",
        "the log around the cursor, all that is recorded of the op",
        columns=44,
    ),
    PaneRow(
        "tiles",
        3,
        "Tiles",
        TilesPane,
        "other",
        "the composites; of open ones a row a tile, with its stages and waits",
        columns=58,
        missing=_why_no_tiles,
    ),
    PaneRow(
        "memory",
        4,
        "Memory",
        MemoryPane,
        "other",
        "what memory holds at this op",
        columns=80,
    ),
    PaneRow(
        "route",
        5,
        "Route",
        RoutePane,
        "other",
        "a map of the machine, the op's path lit",
        columns=50,
        follows_focus=True,
        follows_window=True,
    ),
    PaneRow(
        "diff",
        6,
        "Diff",
        DiffPane,
        "verdict",
        "values beside their references",
        columns=82,
    ),
    PaneRow(
        "source",
        7,
        "Source",
        SourcePane,
        "other",
        "the kernel, with time and stalls by line",
        follows_focus=True,
    ),
    PaneRow(
        "stats",
        8,
        "Stats",
        StatsPane,
        "other",
        "what to look at first, and where time goes",
        columns=66,
        follows_focus=True,
    ),
    PaneRow(
        "texts",
        9,
        "Texts",
        TextsPane,
        "other",
        "what kernels printed and asserted, and warnings, with time and PE",
        columns=50,
        missing=why_no_texts,
    ),
    PaneRow(
        "details",
        0,
        "Op",
        DetailsPane,
        "details",
        "beside the others: what is recorded of the op, and its line",
        columns=42,
    ),
)
