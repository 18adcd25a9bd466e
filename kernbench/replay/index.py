"""``Index``: what is expensive to find in a trace, found once and kept for all
questions.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.common.progress import Progress, no_progress
from kernbench.replay.data.blame import BlameIndex
from kernbench.replay.data.diff import DiffIndex
from kernbench.replay.data.grids import GridIndex
from kernbench.replay.data.history import History
from kernbench.replay.data.memory import MemoryIndex
from kernbench.replay.expr import compile
from kernbench.replay.ops import OpIndex
from kernbench.replay.time.critical import Critical
from kernbench.replay.time.loads import Loads
from kernbench.replay.time.machine_map import MachineMaps
from kernbench.replay.time.roofline import Work
from kernbench.replay.time.stalls import Stalls
from kernbench.replay.time.tiles import Composites
from kernbench.replay.time.timeline import Timelines
from kernbench.trace import Trace

_EXPRESSIONS = 8
"""Whose fitting ops are kept."""


class Index:
    """A trace and the caches of its answers. It knows no cursor.

    Each part is written by one lane of questions alone, and a lane is one thread:
    ``timelines`` by "timeline", ``tiles`` by "tiles", ``history``, ``memory``,
    ``diffs``, ``grids``, ``blame`` and ``fitting`` by "memory", the others by
    "columns". ``maps`` may be filled by any. What instant questions and moves read of
    them is made by ``prepare``, before the first is asked.

    ``marked_ops`` are the ops that a view of the timeline marks, by the view's name:
    rows of the log, by their start. Each is written by the lane that looks for it.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.timelines = Timelines(trace)
        self.ops = OpIndex(trace, self.timelines)
        self.tiles = Composites(trace)
        self.history = History(trace)
        self.memory = MemoryIndex(trace, self.history)
        self.diffs = DiffIndex(trace, self.history)
        self.grids = GridIndex(trace, self.history, self.memory, self.diffs)
        self.blame = BlameIndex(trace, self.history, self.memory, self.ops.row)
        self.stalls = Stalls(trace, self.timelines)
        self.loads = Loads(trace, self.timelines)
        self.maps = MachineMaps(trace)
        self.marked_ops: dict[str, Ints] = {}
        self._critical: Critical | None = None
        self._roofline: Work | None = None
        self._fitting: OrderedDict[str, Ints] = OrderedDict()

    def prepare(self) -> None:
        """Make what instant questions and moves need, so that none keeps a key
        waiting.
        """
        self.ops.prepare()
        if len(self.ops):
            self.timelines.ops_of(int(self.ops.components[0]))

    def fitting(self, expr: str) -> Ints:
        """The ops that fit an expression, ascending; UsageError points at its
        column.
        """
        found = self._fitting.get(expr)
        if found is None:
            found = np.flatnonzero(compile(expr).mask(self.trace, self.history))
            found.setflags(write=False)
            self._fitting[expr] = found
            if len(self._fitting) > _EXPRESSIONS:
                self._fitting.popitem(last=False)
        return found

    def critical(self, progress: Progress = no_progress) -> Critical:
        """The graph of what waited for what, from which the critical path is read."""
        if self._critical is None:
            self._critical = Critical(self.trace, self.timelines, progress)
        return self._critical

    def roofline(self, progress: Progress = no_progress) -> Work:
        """The FLOPs and bytes of every op."""
        if self._roofline is None:
            touched = self.history.touched
            self._roofline = Work(self.trace, touched, self.timelines, progress)
        return self._roofline

    @cached_property
    def launch_window(self) -> tuple[float, float]:
        """From the first launch's start to the last one's end, ns; of no launch the
        whole run.
        """
        return self.ops.launch_window()
