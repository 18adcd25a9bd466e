"""The panes: one table, from which layout, actions, help and screen are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernbench.replay.index import Index
from tui.panes.base import Pane
from tui.panes.ops import OpsPane
from tui.panes.route import RoutePane
from tui.panes.tiles import TilesPane
from tui.panes.timeline import TimelinePane


@dataclass(frozen=True, slots=True)
class PaneRow:
    """One pane: its key among the panes, the number that shows it, its title, what makes it.

    ``follows_focus`` and ``follows_window``: it depends on the focus, or on the times that
    the timeline shows.
    """

    key: str
    number: int
    title: str
    make: Callable[[Index], Pane[Any]]
    follows_focus: bool = False
    follows_window: bool = False


PANES = (
    PaneRow("timeline", 1, "Timeline", TimelinePane),
    PaneRow("ops", 2, "Ops", OpsPane),
    PaneRow("tiles", 3, "Tiles", TilesPane),
    PaneRow("route", 5, "Route", RoutePane, follows_focus=True, follows_window=True),
)
