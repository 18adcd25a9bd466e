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
_BY_NAME = {
    "TileToken/DMA_READ": "R",
    "TileToken/FETCH": "F",
    "TileToken/GEMM": "G",
    "TileToken/MATH": "M",
    "TileToken/STORE": "S",
    "TileToken/DMA_WRITE": "W",
    "dma_read": "R",
    "dma_write": "W",
    "host_write": "H",
    "host_read": "H",
    "ipcq_copy": "R",
    "ipcq_recv": "R",
}
_BY_KIND = {0: "R", 1: "G", 2: "M"}


def op_class(name: str, kind: int) -> str:
    """The class letter of an op, from its name and the rank of its kind."""
    if name.startswith("composite_"):
        return "C"
    return _BY_NAME.get(name) or _BY_KIND.get(kind, "?")


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


@dataclass(frozen=True, slots=True)
class _Track:
    """Busy time of one class on one component, as a function of t."""

    starts: Floats
    start_sums: Floats
    ends: Floats
    end_sums: Floats

    def busy_until(self, t: Floats) -> Floats:
        started, ended = np.searchsorted(self.starts, t), np.searchsorted(self.ends, t)
        since_start = started * t - self.start_sums[started]
        since_end = ended * t - self.end_sums[ended]
        busy: Floats = since_start - since_end
        return busy


class Timelines:
    """The tracks of a trace; ``components`` are the node indices that served an op, in id order of
    the machine.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        columns = trace.op_columns
        order = np.argsort(columns.component, kind="stable")
        sorted_components = columns.component[order]
        self.components, firsts = np.unique(sorted_components, return_index=True)
        bounds = [*firsts.tolist(), len(order)]
        self._rows = {
            int(c): order[bounds[i] : bounds[i + 1]] for i, c in enumerate(self.components)
        }
        self._tracks: dict[int, dict[str, _Track]] = {}

    @cached_property
    def _class_of_name(self) -> dict[int, str]:
        columns, strings = self._trace.op_columns, self._trace.strings
        pairs = {(int(n), int(k)) for n, k in zip(columns.name, columns.kind, strict=True)}
        return {name: op_class(strings[name], kind) for name, kind in sorted(pairs)}

    def letter(self, row: int) -> str:
        """The class letter of the op in a row."""
        return self._class_of_name[int(self._trace.op_columns.name[row])]

    def rows_of(self, component: int) -> npt.NDArray[np.intp]:
        """Row numbers of the ops of a component, in completion order."""
        return self._rows.get(component, np.empty(0, np.intp))

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
        rows = self.rows_of(component)
        columns = self._trace.op_columns
        names = columns.name[rows]
        tracks: dict[str, _Track] = {}
        letters = np.array([self._class_of_name[int(n)] for n in np.unique(names)])
        which = letters[np.searchsorted(np.unique(names), names)] if len(rows) else letters
        for letter in CLASSES:
            mine = rows[which == letter]
            if len(mine):
                starts = np.sort(columns.t_start[mine])
                ends = np.sort(columns.t_end[mine])
                sums = [np.concatenate(([0.0], np.cumsum(x))) for x in (starts, ends)]
                tracks[letter] = _Track(starts, sums[0], ends, sums[1])
        return tracks
