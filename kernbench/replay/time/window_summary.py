"""One window of a timeline by looking at all ops once: the busy time of every component at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kernbench.common.arrays import Array, Floats
from kernbench.common.progress import Progress, no_progress
from kernbench.trace import Trace

_CHUNK = 1 << 16  # ops that are looked at in one go


class Survey(NamedTuple):
    """Of each op class of each component, by class, a row: its number and node, and of every cell
    the busy ns and whether an op that takes no time is in it.
    """

    codes: Array
    nodes: Array
    busy: Floats
    moments: npt.NDArray[np.bool_]


def survey(
    trace: Trace,
    classes: npt.NDArray[np.uint8],
    t0: float,
    t1: float,
    columns: int,
    progress: Progress = no_progress,
) -> Survey:
    """``columns`` cells of [t0, t1) ns; ``classes`` are those of the ops, by row. 70 ns an op."""
    ops, nodes, n = trace.op_columns, len(trace.node_ids), len(classes)
    edges, parts = np.linspace(t0, t1, columns + 1), range(0, n, _CHUNK)

    def pairs(low: int) -> Array:
        part = slice(low, low + _CHUNK)
        return np.asarray(classes[part] * np.int64(nodes) + ops.component[part])

    counts = np.zeros((int(classes.max(initial=0)) + 1) * nodes, np.int64)
    for low in parts:
        progress(0.25 * low / n)
        counts += np.bincount(pairs(low), minlength=len(counts))
    found = np.flatnonzero(counts)
    first_cell = np.zeros(len(counts), np.int64)
    first_cell[found] = np.arange(len(found)) * columns
    busy, moments, whole = np.zeros((3, size := len(found) * columns))
    for low in parts:
        progress(0.25 + 0.75 * low / n)
        starts, ends = (x[low : low + _CHUNK] for x in (ops.t_start, ops.t_end))
        here = np.flatnonzero((starts < t1) & (ends >= t0))
        row, starts, ends = first_cell[pairs(low)[here]], starts[here], ends[here]
        at_once = (starts == ends) & (starts >= t0)
        starts, ends = np.maximum(starts, t0), np.minimum(ends, t1)
        first, last = (
            np.clip(np.searchsorted(edges, x, "right") - 1, 0, columns - 1)
            for x in (starts, ends)
        )
        moments += np.bincount((row + first)[at_once], minlength=size)
        one = first == last
        busy += np.bincount((row + first)[one], (ends - starts)[one], size)
        row, first, last = row[~one], first[~one], last[~one]  # those of several cells
        busy += np.bincount(row + first, edges[first + 1] - starts[~one], size)
        busy += np.bincount(row + last, ends[~one] - edges[last], size)
        whole += np.bincount(
            row + first + 1, minlength=size
        )  # from here on whole cells
        whole -= np.bincount(row + last, minlength=size)
    shape = len(found), columns
    busy = busy.reshape(shape) + np.cumsum(whole.reshape(shape), axis=1) * np.diff(
        edges
    )
    return Survey(*np.divmod(found, nodes), busy, moments.reshape(shape) > 0)
