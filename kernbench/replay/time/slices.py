"""The ops of a row that are long enough to be told apart in a window of time.

They are found at a cost that depends on how many there are, not on how many ops the
window has. Of each op the magnitude of its duration is noted once, in a byte; by that
the ops of a component are sorted when it is first drawn, so that the long ones of any
window lie in a few runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.common.arrays import Bools, Floats, Ints
from kernbench.common.progress import (
    PART,
    Progress,
    beside_if_many,
    no_progress,
    parts,
)
from kernbench.common.resumable import Resumable, Steps
from kernbench.replay.time.op_classes import CLASS_LETTERS
from kernbench.replay.time.op_index import OpIndex
from kernbench.replay.time.op_names import OpNames
from kernbench.replay.time.timeline import RowKey
from kernbench.trace import Trace

_FEW = 1 << 12
"""Ops of a window of which each is looked at."""
_FEW_OF_ONE = 1 << 6
"""The share of a component in them."""
_NAMED_AT_ONCE = 4
"""Ops that are named between two reports of progress."""
_NAMED_CELLS = 3
"""Cells that a slice has at least that carries a name."""


class Slice(NamedTuple):
    """An op as it is drawn: its position, from when to when it was in service (ns), the
    letter of its class and its name; empty: it is too short for one.

    ``shade`` is 0 or 1, so that ops which follow each other in a component differ.
    """

    op: int
    t0: float
    t1: float
    letter: str
    shade: int
    name: str


Magnitudes: TypeAlias = npt.NDArray[np.uint8]
"""By op the whole part of the logarithm to base 2 of its ns, at least 0."""


class _ByMagnitude(NamedTuple):
    """The ops of a component by the magnitude of their duration.

    ``places`` among the component's ops are sorted by magnitude, then ascend; those of
    magnitude i, which last from 2**i to 2**(i + 1) ns, lie from ``first[i]`` to
    ``first[i + 1]``. Shorter ones than 1 ns count as of magnitude 0.
    """

    places: npt.NDArray[np.uint32]
    first: Ints


class _Found(NamedTuple):
    """Ops of several rows: of each its position, its times (ns) and its row."""

    ops: Ints
    starts: Floats
    ends: Floats
    rows: Ints


class SliceIndex:
    """Finds slices, and names ops.

    Its tables are filled by one thread, the worker of "timeline". ``names`` may be
    asked by any: an entry of its tables is put there whole. In a window of up to
    ``few`` ops each is looked at.
    """

    def __init__(self, trace: Trace, ops: OpIndex, few: int = _FEW) -> None:
        self._trace = trace
        self._ops = ops
        self._few = few
        self.names = OpNames(trace)
        self._magnitudes = Resumable(self._noted)
        self._sorted: dict[int, _ByMagnitude] = {}

    def slices(
        self,
        rows: Sequence[RowKey],
        t0: float,
        t1: float,
        columns: int,
        progress: Progress = no_progress,
    ) -> tuple[tuple[Slice, ...], ...]:
        """Of each row the ops that last for at least a cell of [t0, t1) ns in
        ``columns`` equal cells, by their start.

        A row of one component shows its ops, or those in its lane; one of several
        components has none.
        """
        progress(0.0)
        cell_ns = (t1 - t0) / columns
        before, low, high = self._ops.window(t0, t1)
        row_of, is_lane = self._shown_rows(rows)
        progress(0.0)
        if high - low <= self._few:
            ops = np.concatenate([before, np.arange(low, high)])
        else:
            found = [before]
            shown = np.flatnonzero(row_of >= 0).tolist()
            for number, component in enumerate(shown):
                progress(number / len(shown))
                found.append(self._long_ops(component, low, high, cell_ns, progress))
            ops = np.sort(np.concatenate(found))
        found_ops = self._shown(ops, row_of, is_lane, rows, cell_ns)
        return self._made(found_ops, len(rows), cell_ns, progress)

    def _shown_rows(self, rows: Sequence[RowKey]) -> tuple[Ints, Bools]:
        """By node the first row that shows its ops, -1 for none; by row whether it is
        one of several that show the lanes of one component.
        """
        row_of = np.full(len(self._trace.node_ids), -1)
        is_lane = np.zeros(len(rows), np.bool_)
        for number in range(len(rows) - 1, -1, -1):
            components, lane = rows[number]
            is_lane[number] = lane is not None
            if len(components) == 1:
                row_of[components[0]] = number
        return row_of, is_lane

    def _shown(
        self,
        ops: Ints,
        row_of: Ints,
        is_lane: Bools,
        rows: Sequence[RowKey],
        cell_ns: float,
    ) -> _Found:
        """Those of some ops that a row shows and that are long enough."""
        log = self._trace.op_columns
        at = self._trace.order[ops]
        starts = log.t_start[at]
        ends = log.t_end[at]
        long_enough = ends - starts >= cell_ns
        ops = ops[long_enough]
        at = at[long_enough]
        starts = starts[long_enough]
        ends = ends[long_enough]
        nodes = log.component[at]
        row = row_of[nodes]
        mine = row >= 0
        if is_lane.any():
            slots = log.slot[at]
            by_lane = {}
            for number, (components, lane) in enumerate(rows):
                if lane is not None:
                    by_lane[components[0], lane] = number
            for i in np.flatnonzero(mine & is_lane[row]).tolist():
                row[i] = by_lane.get((int(nodes[i]), int(slots[i])), -1)
            mine = row >= 0
        return _Found(ops[mine], starts[mine], ends[mine], row[mine])

    def _made(
        self, found: _Found, rows: int, cell_ns: float, progress: Progress
    ) -> tuple[tuple[Slice, ...], ...]:
        """The slices of each of so many rows."""
        at = self._trace.order[found.ops]
        named = found.ends - found.starts >= _NAMED_CELLS * cell_ns
        names = [""] * len(at)
        wanted = np.flatnonzero(named)
        for part in parts(len(wanted), progress, _NAMED_AT_ONCE):
            texts = self.names.of(at[wanted[part]])
            for place, text in zip(wanted[part].tolist(), texts, strict=True):
                names[place] = text
        letters = [CLASS_LETTERS[code] for code in self._ops.class_codes(at).tolist()]
        shades = self._shades(found.ops)
        made: list[list[Slice]] = [[] for _ in range(rows)]
        cells = zip(
            found.rows.tolist(),
            found.ops.tolist(),
            found.starts.tolist(),
            found.ends.tolist(),
            letters,
            shades,
            names,
            strict=True,
        )
        for row, *slice_ in cells:
            made[row].append(Slice(*slice_))
        return tuple(tuple(slices) for slices in made)

    def _shades(self, ops: Ints) -> list[int]:
        """The shade of each of some ops: whether an even or odd number of ops of its
        component came before it.
        """
        nodes = self._trace.op_columns.component[self._trace.order[ops]]
        shades = np.zeros(len(ops), np.int64)
        for node in np.unique(nodes).tolist():
            mine = nodes == node
            served = self._ops.ops_of(node)
            asked = ops[mine].astype(served.dtype)
            shades[mine] = np.searchsorted(served, asked) & 1
        return list(shades.tolist())

    # -- long ops --

    def _long_ops(
        self, component: int, low: int, high: int, least_ns: float, progress: Progress
    ) -> Ints:
        """The ops of a component, from position ``low`` up to ``high``, that may last
        for ``least_ns``: all that do, and some that are up to half as long.
        """
        served = self._ops.ops_of(component)
        first, end = np.searchsorted(served, np.array([low, high], served.dtype))
        if end - first <= self._few // _FEW_OF_ONE:
            return served[first:end].astype(np.int64)
        least = int(np.log2(max(least_ns, 1.0)))
        by_magnitude = self._by_magnitude(component, progress)
        found = [np.empty(0, np.uint32)]
        edges = np.array([first, end], np.uint32)
        for magnitude in range(least, len(by_magnitude.first) - 1):
            begin, stop = by_magnitude.first[magnitude : magnitude + 2]
            if begin < stop:
                places = by_magnitude.places[begin:stop]
                a, b = np.searchsorted(places, edges)
                found.append(places[a:b])
        return served[np.concatenate(found)].astype(np.int64)

    def _by_magnitude(self, component: int, progress: Progress) -> _ByMagnitude:
        """Those of a component, sorted when they are first asked for."""
        known = self._sorted.get(component)
        if known is None:
            magnitudes = self._magnitudes.result(progress)
            served = self._ops.ops_of(component)
            sort = partial(_sorted_by, magnitudes[served])
            known = beside_if_many(len(served), sort, progress, 0.0)
            self._sorted[component] = known
        return known

    def _noted(self) -> Steps[Magnitudes]:
        """By op the magnitude of its duration."""
        order = self._trace.order
        log = self._trace.op_columns
        found = np.empty(len(order), np.uint8)
        for low in range(0, len(order), PART):
            yield low / len(order)
            at = order[low : low + PART]
            lasted = np.maximum(log.t_end[at] - log.t_start[at], 1.0)
            found[low : low + PART] = np.log2(lasted)
        return found


def _sorted_by(magnitudes: Magnitudes) -> _ByMagnitude:
    """Ops, in their order, by their magnitudes."""
    places = np.argsort(magnitudes, kind="stable").astype(np.uint32)
    counts = np.bincount(magnitudes)
    return _ByMagnitude(places, np.append(0, np.cumsum(counts)))
