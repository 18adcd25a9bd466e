"""Per-component timelines, at a cost that knows no number of ops: of each component and op class
the busy time until every change of its level is kept; between two of them it is linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kernbench.replay.groups import Groups
from kernbench.replay.text import time_text
from kernbench.replay.tiles import STAGE_LETTERS
from kernbench.sim_engine.memory_store import Array
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
_LETTERS = "".join(CLASSES)
_STEP, _STEPS = 64, (32, 16, 8, 4, 2, 1)
_BLOCK = 512  # ops that share one note of the latest end among them


def op_class(name: str, kind: int) -> str:
    """The class letter of an op, from its name and the rank of its kind."""
    if name.startswith(("composite_", "host_")):
        return name[0].upper()
    if name == "ipcq_copy":
        return "W"  # another PE's DMA pushes it
    return STAGE_LETTERS.get(name.removeprefix("TileToken/").upper()) or "RGM?"[kind]


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One component, or one lane of it: per cell busy fraction (of several lanes it may exceed 1)
    and class; a cell of ops that take no time has a class and no busy fraction.
    """

    node: str
    busy: Floats
    classes: str
    lane: int | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Rows over [t0, t1) in equal cells; ``cursor`` is the cell of the cursor's time, or None."""

    t0: float
    t1: float
    columns: int
    cursor: int | None
    rows: tuple[TimelineRow, ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        cell = time_text((self.t1 - self.t0) / self.columns)
        lines = [f"{time_text(self.t0)} to {time_text(self.t1)}, {cell} a cell"]
        for row in self.rows:
            cells = zip(row.classes, row.busy, strict=True)
            strip = "".join(letter if busy >= 0.5 else letter.lower() for letter, busy in cells)
            name = row.node if row.lane is None else f"{row.node} {row.lane}"
            lines.append(f"{name:<28} |{strip}|")
        return lines


class _Tracks(NamedTuple):
    """What a row is drawn from: of each class the busy time until each time (the last is infinity).

    ``times`` and ``busy`` hold one class after the other, from ``base`` to ``top`` + 1; ``coarse``
    are some of the times, to be searched first; ``moments`` when ops that take no time happened.
    """

    codes: npt.NDArray[np.uint8]
    times: Floats
    busy: Floats
    base: Array
    top: Array
    coarse: list[Floats]
    moments: list[Floats]

    def until(self, edges: Floats) -> Floats:
        """The busy time until ``edges``, by class: np.interp, at a third of its cache misses."""
        times, busy, top = self.times, self.busy, self.top
        found = [coarse.searchsorted(edges, "right") - 1 for coarse in self.coarse]
        at = self.base + np.array(found) * _STEP
        for step in _STEPS:
            then = np.minimum(at + step, top)
            at = np.where(times[then] <= edges, then, at)
        t0, b0 = times[at], busy[at]
        slope = (busy[at + 1] - b0) / (times[at + 1] - t0)
        return np.asarray(b0 + np.maximum(edges - t0, 0.0) * slope)


class Timelines:
    """Draws a trace, row by row; of a component it indexes the ops when it is first drawn."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._tracks: dict[tuple[int, int | None], _Tracks] = {}
        self._slots: dict[int, list[int]] = {}

    @cached_property
    def components(self) -> Array:
        """The node indices that served an op, ascending."""
        return np.flatnonzero(np.bincount(self._trace.op_columns.component))

    @cached_property
    def _by_component(self) -> Groups:
        trace = self._trace
        code = "u2" if len(trace.node_ids) <= 1 << 16 else "u4"  # the sort of two bytes is a radix
        return Groups(trace.op_columns.component.astype(code)[trace.order])

    def ops_of(self, component: int) -> Array:
        """The positions of what a component served, ascending."""
        return self._by_component.of(component)

    def slots_of(self, component: int) -> list[int]:
        """The lanes in which it served them, ascending."""
        if component not in self._slots:
            rows = self._trace.order[self.ops_of(component)]
            self._slots[component] = np.unique(self._trace.op_columns.slot[rows]).tolist()
        return self._slots[component]

    def lanes(self, component: int) -> int:
        """How many rows its lanes take."""
        return len(self.slots_of(component))

    @cached_property
    def _codes(self) -> npt.NDArray[np.uint8]:
        """The number of the class of each name and kind: at 4 * name + kind."""
        columns, strings = self._trace.op_columns, self._trace.strings
        found = np.zeros(4 * len(strings), np.uint8)
        found[columns.name * 4 + columns.kind] = 1
        for pair in np.flatnonzero(found).tolist():
            found[pair] = _LETTERS.index(op_class(strings[pair // 4], pair % 4))
        return found

    def codes(self, rows: Array) -> npt.NDArray[np.uint8]:
        """The classes of ``rows``, as numbers of CLASSES."""
        columns = self._trace.op_columns
        return np.asarray(self._codes[columns.name[rows] * 4 + columns.kind[rows]])

    @cached_property
    def _latest(self) -> Floats:
        """The latest end in each block of positions."""
        ends = self._trace.op_columns.t_end[self._trace.order]
        return np.maximum.reduceat(ends, np.arange(0, len(ends), _BLOCK)) if len(ends) else ends

    def in_flight(self, position: int, time: float) -> list[int]:
        """Of ops up to ``position`` those that end after ``time`` ns, in canonical order."""
        blocks = np.flatnonzero(self._latest[: position // _BLOCK + 1] > time)
        places = (blocks[:, None] * _BLOCK + np.arange(_BLOCK)).ravel()
        places = places[: np.searchsorted(places, position, side="right")]
        ends = self._trace.op_columns.t_end[self._trace.order[places]]
        return list(places[ends > time].tolist())

    def draw(
        self,
        components: list[int],
        t0: float,
        t1: float,
        columns: int,
        time: float | None,
        lanes: bool = False,
    ) -> Timeline:
        """``columns`` cells of [t0, t1) for each of ``components``, or for each lane of them.

        The cursor is at ``time``.
        """
        edges = np.linspace(t0, t1, columns + 1)
        width, cell = max((t1 - t0) / columns, 1e-12), None
        if time is not None and t0 <= time < t1:
            cell = min(int((time - t0) / width), columns - 1)
        rows = [(c, slot) for c in components for slot in (self.slots_of(c) if lanes else [None])]
        return Timeline(t0, t1, columns, cell, tuple(self._row(*row, edges, width) for row in rows))

    def _row(self, component: int, lane: int | None, edges: Floats, width: float) -> TimelineRow:
        tracks = self._tracks.get((component, lane))
        if tracks is None:
            tracks = self._tracks[component, lane] = self._index(component, lane)
        until = tracks.until(edges)
        share = (until[:, 1:] - until[:, :-1]) / width
        share[share < 1e-9] = 0.0
        busy, letters = share.sum(axis=0), tracks.codes[share.argmax(axis=0)]
        letters[busy == 0] = ord(" ")
        for code, moments in zip(tracks.codes[::-1], tracks.moments[::-1], strict=True):
            if len(moments):
                places = np.searchsorted(moments, edges)
                letters[(places[1:] > places[:-1]) & (busy == 0)] = code
        return TimelineRow(self._trace.node_ids[component], busy, letters.tobytes().decode(), lane)

    def _index(self, component: int, lane: int | None) -> _Tracks:
        columns, parts = self._trace.op_columns, []
        rows = self._trace.order[self.ops_of(component)]
        if lane is not None:
            rows = rows[columns.slot[rows] == lane]
        codes = self.codes(rows)
        classes = np.flatnonzero(np.bincount(codes))
        for code in classes:
            mine = rows[codes == code]
            starts, ends = columns.t_start[mine], columns.t_end[mine]
            times = np.concatenate([starts, ends])
            order = np.argsort(times, kind="stable")
            times, level = times[order], np.cumsum(np.where(order < len(starts), 1, -1))
            busy = np.append(0.0, np.cumsum(level[:-1] * np.diff(times)))
            last = np.flatnonzero(np.append(np.diff(times) > 0, True))
            bends = last[np.append(True, np.diff(level[last]) != 0)]
            coarse = np.append(-np.inf, times[bends[_STEP::_STEP]])
            bent = np.append(times[bends], np.inf), np.append(busy[bends], busy[-1])
            parts.append((*bent, coarse, starts[starts == ends]))
        times, busy, coarses, moments = zip(*parts, strict=True)
        ends = np.cumsum([len(part) for part in times])[:, None]
        base = np.append(0, ends[:-1])[:, None]
        letters = np.frombuffer(_LETTERS.encode(), np.uint8)[classes]
        whole = np.concatenate(times), np.concatenate(busy)
        return _Tracks(letters, *whole, base, ends - 2, [*coarses], [*moments])
