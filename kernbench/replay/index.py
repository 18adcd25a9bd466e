"""``Index``: what is expensive to find in a trace, found once and kept for all
questions.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property

from kernbench.common.arrays import Ints
from kernbench.common.progress import (
    Progress,
    computed_beside,
    no_progress,
    stage,
)
from kernbench.replay.data.blame import BlameIndex
from kernbench.replay.data.copies import CopyIndex
from kernbench.replay.data.departure import DepartureIndex
from kernbench.replay.data.diff import DiffIndex
from kernbench.replay.data.grids import GridIndex
from kernbench.replay.data.history import History
from kernbench.replay.data.memory import MemoryIndex
from kernbench.replay.data.outputs import OutputIndex
from kernbench.replay.data.places import PlaceIndex
from kernbench.replay.data.touches import TouchIndex
from kernbench.replay.data.unread import UnreadIndex
from kernbench.replay.expr import compile
from kernbench.replay.ops import OpFacts
from kernbench.replay.races.findings import Hazards
from kernbench.replay.texts import TextIndex
from kernbench.replay.time.activity import ActivityIndex
from kernbench.replay.time.critical import CriticalIndex
from kernbench.replay.time.energy import EnergyIndex
from kernbench.replay.time.fetches import FetchIndex
from kernbench.replay.time.loads import LoadIndex
from kernbench.replay.time.machine_map import MachineMaps
from kernbench.replay.time.op_index import OpIndex
from kernbench.replay.time.roofline import RooflineIndex
from kernbench.replay.time.routes import prepare_routes
from kernbench.replay.time.slices import SliceIndex
from kernbench.replay.time.spans import running_between
from kernbench.replay.time.stalls import StallIndex
from kernbench.replay.time.tiles import TileIndex
from kernbench.replay.time.timeline import TimelineIndex
from kernbench.replay.whatif.index import WhatIfIndex
from kernbench.replay.whatif.proof import Rerun
from kernbench.sim_engine.access_columns import AccessColumns
from kernbench.trace import Trace

_EXPRESSIONS = 8
"""Whose fitting ops are kept."""


class Index:
    """A trace and the caches of its answers. It knows no cursor.

    Each part is written by one lane of questions alone, and a lane is one thread:
    ``timelines`` and ``slices`` by "timeline", ``tiles`` by "tiles", what is about
    data (``history``, ``places``, ``touches``, ``memory``, ``copies``, ``diffs``,
    ``outputs``, ``departures``, ``grids``, ``blame``, ``unread``, ``hazards``) and
    ``fitting`` by "memory", ``activity`` by "traffic", the others by "columns".
    ``maps`` and ``texts`` may be filled by any. What instant questions and moves read
    of them is made by ``prepare``, before the first is asked.

    ``rerun`` runs the trace again, which whoever opens it may give; None: nothing does.

    ``marked_ops`` are the ops that a view of the timeline marks, by the view's name:
    rows of the log, by their start. Each is written by the lane that looks for it.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.op_index = OpIndex(trace)
        self.ops = OpFacts(trace, self.op_index)
        self.texts = TextIndex(trace)
        self.timelines = TimelineIndex(trace, self.op_index)
        self.slices = SliceIndex(trace, self.op_index)
        self.tiles = TileIndex(trace, self.op_index)
        self.history = History(trace)
        self.places = PlaceIndex(trace, self.history)
        self.touches = TouchIndex(self.history, self.ops.rows_of)
        self.memory = MemoryIndex(trace, self.op_index, self.history, self.places)
        self.copies = CopyIndex(self.history, self.places)
        self.diffs = DiffIndex(trace, self.op_index, self.history)
        self.outputs = OutputIndex(trace, self.history)
        self.departures = DepartureIndex(trace, self.history, self.outputs, self.diffs)
        self.grids = GridIndex(
            trace, self.history, self.memory, self.outputs, self.diffs
        )
        self.blame = BlameIndex(trace, self.history, self.places, self.ops.rows_of)
        self.unread = UnreadIndex(trace, self.history, self.ops.rows_of)
        self.hazards = Hazards(trace, self.history, self.places, self.ops)
        self.stalls = StallIndex(trace, self.op_index)
        self.loads = LoadIndex(trace, self.op_index)
        self.activity = ActivityIndex(trace, self.op_index)
        self.maps = MachineMaps(trace)
        self.marked_ops: dict[str, Ints] = {}
        self.critical = CriticalIndex(trace, self.op_index)
        self.roofline = RooflineIndex(trace, self.op_index, self._touched)
        self.energy = EnergyIndex(trace, self._touched)
        self.fetches = FetchIndex(trace, self._touched)
        self.rerun: Rerun | None = None
        self.whatif = WhatIfIndex(trace)
        self._fitting: OrderedDict[str, Ints] = OrderedDict()

    def prepare(self, progress: Progress = no_progress) -> None:
        """Make what instant questions and moves need, so that none keeps a key waiting.

        A loader calls it before it shows anything.
        """
        self.op_index.prepare(stage(progress, 0.0, 0.5))
        self.ops.prepare(stage(progress, 0.5, 0.6))
        self.texts.prepare(stage(progress, 0.6, 0.65))
        computed_beside(lambda: self.launch_window, progress, 0.65)
        self.tiles.prepare(stage(progress, 0.7, 0.8))
        prepare_routes(self.trace, stage(progress, 0.8, 1.0))

    def _touched(self, progress: Progress) -> AccessColumns:
        self.history.prepare(progress)
        return self.history.touched

    def fitting(self, expr: str, progress: Progress = no_progress) -> Ints:
        """The ops that fit an expression, ascending; UsageError points at its
        column.
        """
        found = self._fitting.get(expr)
        if found is None:
            found = compile(expr).ops(self.trace, self.history, progress)
            found.setflags(write=False)
            self._fitting[expr] = found
            if len(self._fitting) > _EXPRESSIONS:
                self._fitting.popitem(last=False)
        return found

    def misspelt(self, expr: str) -> str:
        """What in an expression that no op fits may be misspelt; "" for nothing."""
        return compile(expr).misspelt(self.trace, self.history)

    @cached_property
    def launch_window(self) -> tuple[float, float]:
        """From when to when launches ran, ns; of no launch the whole run. Never empty.

        A launch that has not ended runs until the trace ends; of a part of a trace it
        is within that.
        """
        first, last = running_between(self.trace)
        if last <= first:  # launches of nothing, of which nothing is a share
            last = first + 1.0
        return first, last
