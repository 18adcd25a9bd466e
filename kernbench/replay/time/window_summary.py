"""The busy time of every component in the cells of one window, by one look at all ops.

It takes some 70 ns an op. Afterwards no row of that window needs an index of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kernbench.common.arrays import Array, Bools, Floats, Ints
from kernbench.common.progress import PART, Progress, no_progress, parts, stage
from kernbench.trace import Trace
from kernbench.trace.groups import ranges


class WindowSummary(NamedTuple):
    """One row for each class that a component served, sorted by component, then class.

    By row ``codes`` are places in CLASSES and ``nodes`` node indices; ``busy`` (ns) and
    ``moments`` (is there an op that took no time?) have a column for each cell.
    """

    codes: Ints
    nodes: Ints
    busy: Floats
    moments: Bools

    def rows_of(self, components: Sequence[int]) -> Ints:
        """The rows of some components, by class."""
        firsts = np.searchsorted(self.nodes, components)
        ends = np.searchsorted(self.nodes, components, side="right")
        rows = ranges(firsts, ends - firsts)
        return np.asarray(rows[np.argsort(self.codes[rows], kind="stable")])


def window_summary(
    trace: Trace,
    codes: npt.NDArray[np.uint8],
    t0: float,
    t1: float,
    columns: int,
    progress: Progress = no_progress,
    part: int = PART,
) -> WindowSummary:
    """All components over ``columns`` equal cells of [t0, t1) ns.

    ``codes`` are the classes of all ops, by row; ``part`` rows are looked at in one go.
    """
    ops = trace.op_columns
    component = ops.component
    classes = int(codes.max(initial=0)) + 1
    count = len(codes)
    pairs = classes * len(trace.node_ids)  # of a node and a class

    def pair_of(rows: slice) -> Array:
        """One number for the component and the class of each op in ``rows``."""
        return np.asarray(component[rows].astype(np.int64) * classes + codes[rows])

    served = np.zeros(pairs, np.int64)
    for rows in parts(count, stage(progress, 0.0, 0.25), part):
        served += np.bincount(pair_of(rows), minlength=pairs)
    found = np.flatnonzero(served)

    first_cell = np.zeros(pairs, np.int64)
    first_cell[found] = np.arange(len(found)) * columns
    cells = _Cells(np.linspace(t0, t1, columns + 1), len(found))
    for rows in parts(count, stage(progress, 0.25, 1.0), part):
        starts = ops.t_start[rows]
        ends = ops.t_end[rows]
        inside = np.flatnonzero((starts < t1) & (ends >= t0))
        row = first_cell[pair_of(rows)[inside]]
        cells.add(row, starts[inside], ends[inside])
    found_nodes, found_codes = np.divmod(found, classes)
    return WindowSummary(found_codes, found_nodes, cells.busy(), cells.moments())


class _Cells:
    """Sums over the cells between ``edges`` of so many rows, as one flat array each."""

    def __init__(self, edges: Floats, rows: int) -> None:
        self._edges = edges
        self._shape = rows, len(edges) - 1
        size = rows * (len(edges) - 1)
        self._busy = np.zeros(size)
        self._moments = np.zeros(size, np.int64)
        # From each cell on so many more ops (or fewer) are in service for all of it.
        self._whole = np.zeros(size, np.int64)

    def add(self, row: Array, starts: Array, ends: Array) -> None:
        """Add ops that overlap the window; ``row`` is the first cell of each one's."""
        edges = self._edges
        takes_no_time = (starts == ends) & (starts >= edges[0])
        starts = np.maximum(starts, edges[0])
        ends = np.minimum(ends, edges[-1])
        first = self._cell_of(starts)
        last = self._cell_of(ends)
        np.add.at(self._moments, (row + first)[takes_no_time], 1)

        one_cell = first == last
        within = (row + first)[one_cell]
        np.add.at(self._busy, within, (ends - starts)[one_cell])

        several = ~one_cell
        row = row[several]
        first = first[several]
        last = last[several]
        np.add.at(self._busy, row + first, edges[first + 1] - starts[several])
        np.add.at(self._busy, row + last, ends[several] - edges[last])
        np.add.at(self._whole, row + first + 1, 1)
        np.subtract.at(self._whole, row + last, 1)

    def busy(self) -> Floats:
        """The busy ns of each cell, a row a row."""
        whole = np.cumsum(self._whole.reshape(self._shape), axis=1)
        return self._busy.reshape(self._shape) + whole * np.diff(self._edges)

    def moments(self) -> Bools:
        """Whether an op that took no time is in a cell, a row a row."""
        return self._moments.reshape(self._shape) > 0

    def _cell_of(self, times: Array) -> Array:
        cells = np.searchsorted(self._edges, times, "right") - 1
        return np.clip(cells, 0, self._shape[1] - 1)
