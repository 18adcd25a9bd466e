"""Questions about any trace with which every job of the table of commands is asked.

A job that takes arguments has a row in ``ARGUMENTS``; one that takes none needs no row.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kernbench.replay import questions
from kernbench.replay.command import Command
from kernbench.replay.commands import COMMANDS
from kernbench.replay.index import Index
from kernbench.replay.parsing import NoArguments
from kernbench.replay.query import Query, Session
from kernbench.replay.time.timeline import RowKey
from kernbench.replay.views import (
    diff,
    grids,
    memory,
    route,
    tiles,
    timeline,
)

JOBS = tuple(command for command in COMMANDS if command.kind == "job")
_COLUMNS = 200


class Subject(NamedTuple):
    """What of a trace the questions are about.

    ``tensor`` is the largest that the bench expects, ``t0`` and ``t1`` are from when to
    when launches ran, ns, and ``composites`` how many have ended.
    """

    path: str
    tensor: str
    t0: float
    t1: float
    components: tuple[int, ...]
    composites: int

    @classmethod
    def of(cls, index: Index) -> "Subject":
        """What the questions about this trace are about."""
        largest = max(index.trace.expects, key=lambda stated: stated.array.size)
        return cls(
            str(index.trace.path),
            largest.tensor,
            *index.launch_window,
            tuple(index.op_index.components.tolist()),
            len(index.tiles.positions),
        )

    @property
    def rows(self) -> tuple[RowKey, ...]:
        """A row of the timeline for each component, and one of all."""
        each = [RowKey((node,)) for node in self.components]
        return (*each, RowKey(self.components))

    @property
    def window(self) -> timeline.WindowRows:
        """All rows, while launches ran."""
        pes = (1,) * len(self.rows)
        return timeline.WindowRows(self.rows, pes, self.t0, self.t1, _COLUMNS)


ARGUMENTS: dict[str, Callable[[Subject], tuple[Any, ...]]] = {
    "ops": lambda of: (
        questions.Listed(),
        questions.Listed(where='comp ~ "*.pe_*" and dur > 10us'),
        questions.Listed(where="addr = 0x400"),
        questions.Listed(where="line > 30 and shape = 64x64"),
    ),
    "memory": lambda of: (questions.Tensor(), questions.Tensor(of.tensor)),
    "history": lambda of: (questions.Place(of.tensor),),
    "blame": lambda of: (questions.BlamePlace(of.tensor, 100),),
    "who-wrote": lambda of: (questions.Place(of.tensor),),
    "who-reads": lambda of: (questions.Place(of.tensor),),
    "route": lambda of: (questions.RouteOf(), questions.RouteOf("launch", 0)),
    "tiles": lambda of: (questions.Window(), questions.Window(of.t0, of.t1)),
    "timeline": lambda of: (questions.Window(),),
    "stalls": lambda of: (questions.PeWindow(),),
    "lines": lambda of: (questions.Pe(),),
    "texts": lambda of: (questions.TextsOf(), questions.TextsOf("sip0", 100)),
    "pes": lambda of: (questions.CallNumber(),),
    "critical": lambda of: (questions.StepCount(),),
    "links": lambda of: (questions.LoadWindow(),),
    "busiest": lambda of: (questions.BusiestCount(),),
    "bound": lambda of: (questions.OpBound(),),
    "whatif": lambda of: (
        questions.WhatIf(),
        questions.WhatIf(("pe.clock_ghz=2", "cube.hbm.channel_bw_gbs=64")),
    ),
    "compare": lambda of: (questions.OtherTrace(of.path, 5.0),),
    "activity": lambda of: (
        questions.ActivityWindow(),
        questions.ActivityWindow(components="*.hbm_ctrl.*"),
    ),
    "activity-cells": lambda of: (
        timeline.ComponentCells(of.components, of.t0, of.t1, _COLUMNS),
    ),
    "fitting-ops": lambda of: (questions.Fitting("dur > 10us"),),
    "touching-ops": lambda of: (
        questions.Touching(of.tensor, "rw"),
        questions.Touching(of.tensor, "w"),
    ),
    "found-ops": lambda of: (
        questions.Findings("hazards"),
        questions.Findings("checks"),
    ),
    "held-allocations": lambda of: (memory.AllocationCount(100),),
    "tensor-summary": lambda of: (memory.TensorName(""), memory.TensorName(of.tensor)),
    "tensor-cell": lambda of: (memory.CellIndex(of.tensor, 0, 0),),
    "accesses-to": lambda of: (questions.Place(of.tensor),),
    "touch-rows": lambda of: (memory.TouchNumbers(tuple(range(20))),),
    "grid-part": lambda of: (
        grids.GridWindow(grids.GridOf(of.tensor, False), 0, 0, 50, 50),
        grids.GridWindow(grids.GridOf(of.tensor, True), 0, 0, 50, 50),
    ),
    "grid-heat": lambda of: (
        grids.GridBlocks(grids.GridOf(of.tensor, False), 4, 4),
        grids.GridBlocks(grids.GridOf(of.tensor, True), 4, 4),
    ),
    "comparison": lambda of: (diff.OutputName(""), diff.OutputName(of.tensor)),
    "judgement": lambda of: (diff.JudgedAfter(False), diff.JudgedAfter(True)),
    "divergence-text": lambda of: (diff.TextWidth(100),),
    "critical-steps": lambda of: (questions.StepCount(100),),
    "cells": lambda of: (of.window,),
    "critical-cells": lambda of: (of.window,),
    "traffic-cells": lambda of: (
        timeline.TrafficRows(
            (of.components, *((c,) for c in of.components)), of.t0, of.t1, _COLUMNS
        ),
    ),
    "hazards": lambda of: (questions.RacesToProve(),),
    "hazard-cells": lambda of: (of.window,),
    "window-summary": lambda of: (timeline.WindowCells(of.t0, of.t1, _COLUMNS),),
    "indexed-rows": lambda of: (timeline.SomeRows(of.rows),),
    "running-composites": lambda of: (tiles.TileTimes(of.t0, of.t1),),
    "tile-lines": lambda of: (
        tiles.TilePlaces(tuple((i, None) for i in range(min(of.composites, 50)))),
        tiles.TilePlaces(((of.composites // 2, 0),)),
    ),
    "machine-map": lambda of: (route.MapPlace(()), route.MapPlace((0, 0))),
    "map-load": lambda of: (route.MapWindow((), of.t0, of.t1),),
}
"""By job with what arguments it is asked."""


def without_arguments() -> list[str]:
    """The jobs that could not be asked, by name."""
    return [
        job.name
        for job in JOBS
        if job.args is not NoArguments and job.name not in ARGUMENTS
    ]


def asked(job: Command, index: Index) -> Iterator[Query]:
    """The questions of a job: at the last composite, or else at the last op.

    The composite has the most to compare; all but a few ops come before it.
    """
    last = len(index.ops) - 1
    composites = index.tiles.positions
    op = int(composites[-1]) if len(composites) else last
    values = (NoArguments(),)
    if job.args is not NoArguments:
        values = ARGUMENTS[job.name](Subject.of(index))
    for args in values:
        yield job.query(Session(cursor=op), args)
