"""Questions that moves and panes ask: rows of the table that users are not offered.

Their answers are cut to what a screen can show, or are what a move has to know.
"""

from __future__ import annotations

from functools import partial

from kernbench.replay import questions
from kernbench.replay.command import ABOUT_OP, instant, job
from kernbench.replay.diagnosis.diagnose import diagnose_data, diagnose_time
from kernbench.replay.parsing import NoArguments
from kernbench.replay.views import (
    diff,
    grids,
    memory,
    ops,
    route,
    stats,
    tiles,
    timeline,
)

_job = partial(job, listed=False)
_instant = partial(instant, listed=False)

FITTING = _job(
    "fitting-ops",
    questions.Fitting,
    "ops that fit an expression",
    questions.fitting,
    "memory",
)
TOUCHING = _job(
    "touching-ops",
    questions.Touching,
    "ops that touch some bytes",
    questions.touching,
    "memory",
)
FINDINGS = _job(
    "found-ops",
    questions.Findings,
    "ops with hazards or wrong results",
    questions.findings,
    "memory",
)
DIAGNOSE_DATA = _job(
    "diagnose-data",
    NoArguments,
    "what is wrong",
    diagnose_data,
    "memory",
    title="what is wrong",
)
DIAGNOSE_TIME = _job(
    "diagnose-time",
    NoArguments,
    "what is slow, and what is odd",
    diagnose_time,
    "columns",
    title="what is slow",
)
OP_ROWS = _instant(
    "op-rows",
    ops.Positions,
    "some ops",
    ops.op_rows,
)
IN_SERVICE = _instant(
    "in-service",
    NoArguments,
    "ops in service at the time of an op",
    ops.in_service,
    ABOUT_OP,
)
HELD_ALLOCATIONS = _job(
    "held-allocations",
    memory.AllocationCount,
    "allocations that hold something at an op",
    memory.held_allocations,
    "memory",
    ABOUT_OP,
    title="what memory holds",
)
TENSOR_SUMMARY = _job(
    "tensor-summary",
    memory.TensorName,
    "a tensor at an op, without its numbers",
    memory.tensor_summary,
    "memory",
    ABOUT_OP,
    title="tensor",
)
TENSOR_CELL = _job(
    "tensor-cell",
    memory.CellIndex,
    "an element, where it is, and who wrote it last",
    memory.tensor_cell,
    "memory",
    ABOUT_OP,
    title="cell",
)
ACCESSES_TO = _job(
    "accesses-to",
    questions.Place,
    "which accesses touch some bytes",
    memory.accesses_to,
    "memory",
    title="history",
)
TOUCH_ROWS = _job(
    "touch-rows",
    memory.TouchNumbers,
    "some accesses with their ops",
    memory.touch_rows,
    "memory",
    title="history",
)
GRID_PART = _job(
    "grid-part",
    grids.GridWindow,
    "the elements in a window of a grid",
    grids.grid_part,
    "memory",
    ABOUT_OP,
    title="numbers",
)
GRID_HEAT = _job(
    "grid-heat",
    grids.GridBlocks,
    "the blocks of a heatmap",
    grids.grid_heat,
    "memory",
    ABOUT_OP,
    title="heat",
)
COMPARISON = _job(
    "comparison",
    diff.OutputName,
    "an op or output compared, without the numbers",
    diff.comparison,
    "memory",
    ABOUT_OP,
    title="diff",
)
JUDGEMENT = _job(
    "judgement",
    diff.JudgedAfter,
    "what rounding explains of an op's error",
    diff.judgement,
    "memory",
    ABOUT_OP,
)
FIRST_DIVERGENCE = _job(
    "first-divergence",
    NoArguments,
    "the first op off by more than rounding",
    diff.first_divergence,
    "memory",
    title="first divergence",
)
DIVERGENCE_TEXT = _job(
    "divergence-text",
    diff.TextWidth,
    "the same as text",
    diff.divergence_text,
    "memory",
    title="first divergence",
)
EXECUTES_SOON = _job(
    "executes-soon",
    NoArguments,
    "whether all ops can be executed unasked",
    diff.executes_soon,
    "memory",
    title="what memory holds",
)
CRITICAL_STEPS = _job(
    "critical-steps",
    questions.StepCount,
    "the critical path without its pieces",
    stats.critical_steps,
    "columns",
    title="critical path",
)
CELLS = _job(
    "cells",
    timeline.WindowRows,
    "cells of rows of the timeline",
    timeline.cells,
    "timeline",
    title="timeline",
)
TRAFFIC = _job(
    "traffic",
    NoArguments,
    "components that carry bytes",
    timeline.traffic,
    "traffic",
    title="traffic",
)
TRAFFIC_CELLS = _job(
    "traffic-cells",
    timeline.TrafficRows,
    "cells of rows of components that carry bytes",
    timeline.traffic_cells,
    "traffic",
    title="traffic",
)
CAUSES = _job(
    "causes",
    NoArguments,
    "what an op waited for, and what waited for it",
    timeline.causes,
    "tiles",
    ABOUT_OP,
    title="causes",
)
LANES = _job(
    "lanes",
    NoArguments,
    "the lanes of every component",
    timeline.lanes,
    "timeline",
)
CRITICAL_CELLS = _job(
    "critical-cells",
    timeline.WindowRows,
    "cells of rows of the timeline that are on the critical path",
    timeline.critical_cells,
    "columns",
    title="critical path",
)
HAZARD_CELLS = _job(
    "hazard-cells",
    timeline.WindowRows,
    "cells of rows of the timeline that have hazards",
    timeline.hazard_cells,
    "memory",
    title="hazards",
)
CRITICAL_OPS = _job(
    "critical-ops",
    NoArguments,
    "ops on the critical path",
    timeline.critical_ops,
    "columns",
    title="critical path",
)
HAZARD_OPS = _job(
    "hazard-ops",
    NoArguments,
    "ops that have hazards",
    timeline.hazard_ops,
    "memory",
    title="hazards",
)
SUMMARY = _job(
    "window-summary",
    timeline.WindowCells,
    "all ops of a window of the timeline, looked at once",
    timeline.summary,
    "timeline",
    title="timeline",
)
INDEXED_ROWS = _job(
    "indexed-rows",
    timeline.SomeRows,
    "rows of the timeline, indexed for any window",
    timeline.indexed,
    "timeline",
    title="timeline",
)
ACTIVITY_CELLS = _job(
    "activity-cells",
    timeline.ComponentCells,
    "busy shares of components and links, in cells",
    timeline.activity_cells,
    "traffic",
    title="activity",
)
TILE_OUTLINE = _job(
    "tile-outline",
    NoArguments,
    "where an op's composite is in the list",
    tiles.tile_outline,
    "tiles",
    ABOUT_OP,
    title="composites",
)
RUNNING_COMPOSITES = _job(
    "running-composites",
    tiles.TileTimes,
    "the composites in service in a window",
    tiles.running_composites,
    "tiles",
    title="tiles",
)
TILE_LINES = _job(
    "tile-lines",
    tiles.TilePlaces,
    "rows of the list of composites",
    tiles.tile_lines,
    "tiles",
    title="tiles",
)
MACHINE_MAP = _job(
    "machine-map",
    route.MapPlace,
    "the map of a part of the machine",
    route.machine_map,
    "tiles",
    title="routes",
)
MAP_LOAD = _job(
    "map-load",
    route.MapWindow,
    "how loaded the lines of a map are",
    route.map_load,
    "columns",
    title="link load",
)


INNER_COMMANDS = (
    FITTING,
    TOUCHING,
    FINDINGS,
    DIAGNOSE_DATA,
    DIAGNOSE_TIME,
    OP_ROWS,
    IN_SERVICE,
    HELD_ALLOCATIONS,
    TENSOR_SUMMARY,
    TENSOR_CELL,
    ACCESSES_TO,
    TOUCH_ROWS,
    GRID_PART,
    GRID_HEAT,
    COMPARISON,
    JUDGEMENT,
    FIRST_DIVERGENCE,
    DIVERGENCE_TEXT,
    EXECUTES_SOON,
    CRITICAL_STEPS,
    CELLS,
    TRAFFIC,
    TRAFFIC_CELLS,
    CAUSES,
    LANES,
    CRITICAL_CELLS,
    HAZARD_CELLS,
    CRITICAL_OPS,
    HAZARD_OPS,
    SUMMARY,
    INDEXED_ROWS,
    ACTIVITY_CELLS,
    TILE_OUTLINE,
    RUNNING_COMPOSITES,
    TILE_LINES,
    MACHINE_MAP,
    MAP_LOAD,
)
