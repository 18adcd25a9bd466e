"""Per-component timelines: busy fractions from cumulative sums, at a cost that knows no number of
ops.

For each component and op class the sorted starts and ends with their running sums are kept; the
busy time up to t is sum of (t - start) over started ops less sum of (t - end) over ended ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kernbench.replay.tiles import STAGE_LETTERS
from kernbench.trace import Trace

Floats = npt.NDArray[np.float64]

# class letter -> what it stands for; in the order that ties are settled
CLASSES = {
    "G": "gemm",
    "M": "math",
    "R": "dma read",
    "W": "dma write",
    "F": "fetch",
    "S": "store",
    "H": "host transfer",
    "C": "composite",
    "?": "other",
}


def op_class(name: str, kind: int) -> str:
    """The class letter of an op, from its name and the rank of its kind."""
    if name.startswith(("composite_", "host_")):
        return name[0].upper()
    return STAGE_LETTERS.get(name.removeprefix("TileToken/").upper()) or "RGM?"[kind]


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One component over the window: per cell the busy fraction (0..1; lanes may exceed 1) and its
    class.
    """

    component: int
    node: str
    busy: Floats
    classes: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Rows over [t0, t1) in equal cells; ``cursor`` is the cell of the cursor's time, or None."""

    t0: float
    t1: float
    columns: int
    cursor: int | None
    rows: tuple[TimelineRow, ...]


class _Track:
    """Busy time of ops of one class on one component, as a function of t."""

    def __init__(self, starts: Floats, ends: Floats) -> None:
        self._edges = np.sort(starts), np.sort(ends)
        self._sums = [np.concatenate(([0.0], np.cumsum(edges))) for edges in self._edges]

    def busy_until(self, t: Floats) -> Floats:
        """Nanoseconds in service before each t, of all ops together."""
        begun, ended = (
            np.searchsorted(edges, t) * t - sums[np.searchsorted(edges, t)]
            for edges, sums in zip(self._edges, self._sums, strict=True)
        )
        busy: Floats = begun - ended
        return busy


class Timelines:
    """The tracks of a trace; ``components`` are the node indices that served an op, in id order of
    the machine.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        served = trace.op_columns.component
        order = np.argsort(served, kind="stable")
        self.components, firsts = np.unique(served[order], return_index=True)
        rows = np.split(order, firsts[1:])
        self._rows = dict(zip(self.components.tolist(), rows, strict=False))
        self._tracks: dict[int, dict[str, _Track]] = {}

    @cached_property
    def _letters(self) -> npt.NDArray[np.str_]:
        """The class letter of every row."""
        columns, strings = self._trace.op_columns, self._trace.strings
        pairs, which = np.unique(columns.name * 4 + columns.kind, return_inverse=True)
        letters = [op_class(strings[pair // 4], pair % 4) for pair in pairs.tolist()]
        return np.array(letters, "U1")[which]

    def letter(self, row: int) -> str:
        """The class letter of the op in a row."""
        return str(self._letters[row])

    def draw(
        self, components: list[int], t0: float, t1: float, columns: int, cursor_time: float | None
    ) -> Timeline:
        """``columns`` cells of [t0, t1) for each of ``components`` (node indices)."""
        edges = np.linspace(t0, t1, columns + 1)
        width = max((t1 - t0) / columns, 1e-12)
        cell = None
        if cursor_time is not None and t0 <= cursor_time < t1:
            cell = min(int((cursor_time - t0) / width), columns - 1)
        rows = tuple(self._draw_row(c, edges, width) for c in components)
        return Timeline(t0, t1, columns, cell, rows)

    def _draw_row(self, component: int, edges: Floats, width: float) -> TimelineRow:
        tracks = self._tracks.get(component)
        if tracks is None:
            tracks = self._tracks[component] = self._index(component)
        letters = [letter for letter in CLASSES if letter in tracks]
        node = self._trace.node_ids[component]
        if not letters:
            return TimelineRow(component, node, np.zeros(len(edges) - 1), " " * (len(edges) - 1))
        share = np.array([np.diff(tracks[x].busy_until(edges)) for x in letters]) / width
        share[share < 1e-9] = 0.0
        busy = share.sum(axis=0)
        best = share.argmax(axis=0)
        classes = "".join(letters[b] if f > 0 else " " for b, f in zip(best, busy, strict=True))
        return TimelineRow(component, node, busy, classes)

    def _index(self, component: int) -> dict[str, _Track]:
        rows, columns = self._rows.get(component, np.empty(0, np.intp)), self._trace.op_columns
        letters = self._letters[rows]
        parts = {letter: rows[letters == letter] for letter in CLASSES}
        return {
            letter: _Track(columns.t_start[mine], columns.t_end[mine])
            for letter, mine in parts.items()
            if len(mine)
        }
