"""Per-component timelines, at a cost that knows no number of ops: of each component and op class
the busy time until every start and end is kept; between them it is linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kernbench.replay.text import time_text
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
    """One component: per cell its busy fraction (of several lanes it may exceed 1) and class."""

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

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        cell = time_text((self.t1 - self.t0) / self.columns)
        lines = [f"{time_text(self.t0)} to {time_text(self.t1)}, {cell} a cell"]
        for row in self.rows:
            cells = zip(row.classes, row.busy, strict=True)
            strip = "".join(letter if busy >= 0.5 else letter.lower() for letter, busy in cells)
            lines.append(f"{row.node:<28} |{strip}|")
        return lines


class Timelines:
    """Draws a trace; ``components`` are the node indices that served an op, in id order."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.components = np.unique(trace.op_columns.component)
        self._tracks: dict[int, dict[str, tuple[Floats, Floats]]] = {}

    @cached_property
    def letters(self) -> npt.NDArray[np.str_]:
        """The class letter of every row."""
        columns, strings = self._trace.op_columns, self._trace.strings
        pairs, which = np.unique(columns.name * 4 + columns.kind, return_inverse=True)
        letters = [op_class(strings[pair // 4], pair % 4) for pair in pairs.tolist()]
        return np.array(letters, "U1")[which]

    def draw(
        self, components: list[int], t0: float, t1: float, columns: int, time: float | None
    ) -> Timeline:
        """``columns`` cells of [t0, t1) for each of ``components``; the cursor is at ``time``."""
        edges = np.linspace(t0, t1, columns + 1)
        width, cell = max((t1 - t0) / columns, 1e-12), None
        if time is not None and t0 <= time < t1:
            cell = min(int((time - t0) / width), columns - 1)
        return Timeline(
            t0, t1, columns, cell, tuple(self._row(c, edges, width) for c in components)
        )

    def _row(self, component: int, edges: Floats, width: float) -> TimelineRow:
        if component not in self._tracks:
            self._tracks[component] = self._index(component)
        letters, tracks = zip(*self._tracks[component].items(), strict=True)
        share = np.array([np.diff(np.interp(edges, *track)) for track in tracks]) / width
        share[share < 1e-9] = 0.0
        busy, best = share.sum(axis=0), share.argmax(axis=0)
        classes = "".join(letters[b] if f > 0 else " " for b, f in zip(best, busy, strict=True))
        return TimelineRow(self._trace.node_ids[component], busy, classes)

    def _index(self, component: int) -> dict[str, tuple[Floats, Floats]]:
        """By class: the times of all starts and ends, and the busy time of all ops until each."""
        columns, tracks = self._trace.op_columns, {}
        rows = np.flatnonzero(columns.component == component)
        letters = self.letters[rows]
        for letter in filter(set(letters.tolist()).__contains__, CLASSES):
            mine = rows[letters == letter]
            times = np.concatenate([columns.t_start[mine], columns.t_end[mine]])
            order = np.argsort(times)
            active = np.cumsum(np.where(order < len(mine), 1, -1))[:-1]
            busy = np.append(0.0, np.cumsum(active * np.diff(times[order])))
            tracks[letter] = times[order], busy
        return tracks or {" ": (np.zeros(1), np.zeros(1))}
