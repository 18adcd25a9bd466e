"""Per-component timelines, at a cost that knows no number of ops: of each component and op class
the busy time until every change of its level is kept; between two of them it is linear.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.common.arrays import Array, Floats
from kernbench.common.progress import Progress, no_progress
from kernbench.replay.text import time_text
from kernbench.replay.time.tiles import STAGE_LETTERS
from kernbench.replay.time.window_summary import Survey, survey
from kernbench.trace import Trace
from kernbench.trace.groups import Groups

Row: TypeAlias = tuple[
    tuple[int, ...], int | None
]  # components, and the one lane meant, or None

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
_CODES = np.frombuffer(_LETTERS.encode(), np.uint8)
_BLOCK = 512  # ops that share one note of the latest end among them
_BENDS = (
    1 << 15
)  # of a class that a row of several components keeps; it is linear between
_FEW = 1 << 13  # ops of a window; of fewer such a row is indexed anew, with all
_LIGHT, _KEPT = (
    1 << 17,
    3 << 21,
)  # ops of a row that may be forgotten; bends that are kept
_PARTS = 16  # components of which a row is the sum of theirs; of more it has an index of its own
_SURVEYS = 4  # windows that are kept


def op_class(name: str, kind: int) -> str:
    """The class letter of an op, from its name and the rank of its kind."""
    if name.startswith(("composite_", "host_")):
        return name[0].upper()
    if name == "ipcq_copy":
        return "W"  # another PE's DMA pushes it
    return STAGE_LETTERS.get(name.removeprefix("TileToken/").upper()) or "RGM?"[kind]


def _parts(row: Row) -> set[Row]:
    """The rows that a row is the sum of: itself, or those of its components if they are few."""
    components, lane = row
    few = lane is None and len(components) <= _PARTS
    return {((c,), None) for c in components} if few else {row}


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One component, one lane of it, or several components: per cell busy fraction (of several
    lanes it may exceed 1) and class, composites last; a cell of ops that take no time has a class
    and no busy fraction.
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
        names = [x.node if x.lane is None else f"{x.node} {x.lane}" for x in self.rows]
        wide = max(map(len, names), default=0)
        for row, name in zip(self.rows, names, strict=True):
            cells = zip(row.classes, row.busy, strict=True)
            strip = "".join(
                letter if busy >= 0.5 else letter.lower() for letter, busy in cells
            )
            lines.append(f"{name:<{wide}} |{strip}|")
        return lines


class _Track(NamedTuple):
    """The busy time of one class, by number, until each time that it bends, ns, linear between.

    ``moments`` are when ops that take no time happened.
    """

    code: int
    times: Floats
    busy: Floats
    moments: Floats


class Timelines:
    """Draws a trace, row by row; of a row it indexes the ops when it is first drawn."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._tracks: dict[
            Row, tuple[list[_Track], bool]
        ] = {}  # and whether all bends are kept
        self._bends = 0  # of all tracks
        self._surveys: dict[tuple[float, float, int], Survey] = {}
        self._slots: dict[int, list[int]] = {}

    @cached_property
    def _counts(self) -> Array:
        """How many ops each node served."""
        return np.bincount(
            self._trace.op_columns.component, minlength=len(self._trace.node_ids)
        )

    @cached_property
    def components(self) -> Array:
        """The node indices that served an op, ascending."""
        return np.flatnonzero(self._counts)

    @cached_property
    def _by_component(self) -> Groups:
        trace = self._trace
        code = (
            "u2" if len(trace.node_ids) <= 1 << 16 else "u4"
        )  # the sort of two bytes is a radix
        return Groups(trace.op_columns.component.astype(code)[trace.order])

    def ops_of(self, component: int) -> Array:
        """The positions of what a component served, ascending."""
        return self._by_component.of(component)

    def slots_of(self, component: int) -> list[int]:
        """The lanes in which it served them, ascending."""
        if component not in self._slots:
            rows = self._trace.order[self.ops_of(component)]
            self._slots[component] = np.unique(
                self._trace.op_columns.slot[rows]
            ).tolist()
        return self._slots[component]

    @cached_property
    def _classes(self) -> npt.NDArray[np.uint8]:
        """The number of the class of each op, by row."""
        columns, strings = self._trace.op_columns, self._trace.strings
        pairs = columns.name * 4 + columns.kind
        found = np.zeros(4 * len(strings), np.uint8)
        found[pairs] = 1
        for pair in np.flatnonzero(found).tolist():
            found[pair] = _LETTERS.index(op_class(strings[pair // 4], pair % 4))
        return np.asarray(found[pairs])

    def codes(self, rows: Array) -> npt.NDArray[np.uint8]:
        """The classes of ``rows``, as numbers of CLASSES."""
        return np.asarray(self._classes[rows])

    @cached_property
    def _latest(self) -> Floats:
        """The latest end in each block of positions."""
        ends = self._trace.op_columns.t_end[self._trace.order]
        return (
            np.maximum.reduceat(ends, np.arange(0, len(ends), _BLOCK))
            if len(ends)
            else ends
        )

    def in_flight(self, position: int, time: float) -> list[int]:
        """Of ops up to ``position`` those that end after ``time`` ns, in canonical order."""
        blocks = np.flatnonzero(self._latest[: position // _BLOCK + 1] > time)
        places = (blocks[:, None] * _BLOCK + np.arange(_BLOCK)).ravel()
        places = places[: np.searchsorted(places, position, side="right")]
        ends = self._trace.op_columns.t_end[self._trace.order[places]]
        return list(places[ends > time].tolist())

    def draw_rows(
        self, rows: Sequence[Row], t0: float, t1: float, columns: int
    ) -> tuple[TimelineRow, ...]:
        """``columns`` cells of [t0, t1) for each of ``rows``."""
        edges, near = np.linspace(t0, t1, columns + 1), self._near(t0, t1)
        known = self._surveys.get((t0, t1, columns))
        drawn = tuple(self._row(row, edges, near, known) for row in rows)
        self._forget({*rows})
        return drawn

    def missing(
        self, rows: Sequence[Row], window: tuple[float, float, int] | None = None
    ) -> tuple[tuple[Row, ...], int]:
        """The rows that ``draw_rows`` of a window has to index first, and how many ops there are
        to look at for that.
        """
        known = window is not None and self.surveyed(*window)
        wanted = [row for row in rows if not (known and row[1] is None)]
        found = tuple(row for row in wanted if not self._tracks.keys() >= _parts(row))
        parts = set[Row]().union(*map(_parts, found)) - self._tracks.keys()
        ops = sum(int(self._counts[list(components)].sum()) for components, _ in parts)
        sort = bool(found) and "_by_component" not in self.__dict__
        return found, ops + sort * len(self._trace.order)

    def prime(self, rows: Sequence[Row], progress: Progress = no_progress) -> None:
        """Index what is to be drawn."""
        for i, row in enumerate(rows):
            progress(i / len(rows))
            self._made(row)
        self._forget({*rows})

    def surveyed(self, t0: float, t1: float, columns: int) -> bool:
        """Whether all components are known in that window."""
        return (t0, t1, columns) in self._surveys

    def survey(
        self, t0: float, t1: float, columns: int, progress: Progress = no_progress
    ) -> None:
        """Look at all ops once: then no row of this window needs an index of its own."""
        found = survey(self._trace, self._classes, t0, t1, columns, progress)
        kept = [*self._surveys.items()][1 - _SURVEYS :]
        self._surveys = {**dict(kept), (t0, t1, columns): found}

    def _made(self, row: Row) -> tuple[list[_Track], bool]:
        """The tracks of a row by class, and whether all bends are kept."""
        parts = [self._part(part) for part in _parts(row)]
        if len(parts) == 1:
            return parts[0]
        tracks = (track for part, _ in parts for track in part)
        return sorted(tracks, key=attrgetter("code")), True

    def _part(self, row: Row) -> tuple[list[_Track], bool]:
        """The tracks of a row that is indexed as one, made if they are not there."""
        if (known := self._tracks.get(row)) is None:  # of any thread
            (components, lane), parts = row, [self.ops_of(c) for c in row[0]]
            ops = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
            served = self._trace.order[ops]
            if lane is not None:
                served = served[self._trace.op_columns.slot[served] == lane]
            known = self._index(served, _BENDS if len(components) > 1 else np.inf)
            self._tracks[row] = known
            self._bends += sum(len(track.times) for track in known[0])
        return known

    def _forget(self, wanted: set[Row]) -> None:
        """If too much is kept, drop what is not ``wanted`` and is indexed again in some ms."""
        if self._bends > _KEPT:
            kept = [*self._tracks.items()]  # of any thread
            for row in {row for row, _ in kept}.difference(*map(_parts, wanted)):
                if self._counts[list(row[0])].sum() <= _LIGHT:
                    self._tracks.pop(row, None)
            left = [*self._tracks.values()]
            self._bends = sum(
                len(track.times) for tracks, _ in left for track in tracks
            )

    def _near(self, t0: float, t1: float) -> tuple[Array, Array] | None:
        """The rows of the ops of [t0, t1) ns and their components, if they are few."""
        columns, order = self._trace.op_columns, self._trace.order
        low, high = (
            bisect_left(order, t, key=columns.t_start.__getitem__) for t in (t0, t1)
        )
        if high - low > _FEW:
            return None
        early = np.array(self.in_flight(low - 1, t0), np.int64)
        rows = order[np.concatenate([early, np.arange(low, high)])]
        return rows, columns.component[rows]

    def _row(
        self,
        row: Row,
        edges: Floats,
        near: tuple[Array, Array] | None,
        known: Survey | None,
    ) -> TimelineRow:
        (components, lane), cells = row, len(edges) - 1
        more = f" and {len(components) - 1} more" * (len(components) > 1)
        node, width = (
            self._trace.node_ids[components[0]] + more,
            max(edges[1] - edges[0], 1e-12),
        )
        if known is not None and lane is None:
            mine = np.isin(known.nodes, components)
            codes, share, moments = (
                known.codes[mine],
                known.busy[mine],
                known.moments[mine],
            )
        else:
            codes, share, moments = self._drawn(row, edges, near)
        if not len(codes):
            return TimelineRow(node, np.zeros(cells), " " * cells, lane)
        first = np.flatnonzero(np.diff(codes, prepend=-1))  # of its class
        codes, moments = codes[first], np.logical_or.reduceat(moments, first)
        share = np.round(
            np.add.reduceat(share, first) / width, 9
        )  # equal ones are ties
        if more:
            rest = codes != _LETTERS.index(
                "C"
            )  # what composites consist of is in the row too
            share[~rest] *= ~share[rest].any(axis=0)
        busy, letters = share.sum(axis=0), _CODES[codes[share.argmax(axis=0)]]
        at_once = np.where(
            moments.any(axis=0), _CODES[codes[moments.argmax(axis=0)]], ord(" ")
        )
        letters = np.where(busy == 0, at_once, letters)
        return TimelineRow(node, busy, letters.tobytes().decode(), lane)

    def _drawn(
        self, row: Row, edges: Floats, near: tuple[Array, Array] | None
    ) -> tuple[Array, Floats, Array]:
        """By its tracks: the classes, ascending, and of each the busy ns of every cell, and
        whether an op that takes no time is in it.
        """
        tracks, exact = self._made(row)
        if not exact and near is not None:
            wanted = np.zeros(len(self._trace.node_ids), bool)
            wanted[list(row[0])] = True
            tracks, _ = self._index(near[0][wanted[near[1]]])
        busy = [np.diff(np.interp(edges, track.times, track.busy)) for track in tracks]
        counts = [np.diff(np.searchsorted(track.moments, edges)) for track in tracks]
        return (
            np.array([x.code for x in tracks], np.int64),
            np.array(busy),
            np.array(counts) > 0,
        )

    def _index(self, rows: Array, most: float = np.inf) -> tuple[list[_Track], bool]:
        """The tracks of some ops, of ``most`` bends a class, and whether those are all."""
        columns, tracks, exact = self._trace.op_columns, list[_Track](), True
        codes = self.codes(rows)
        for code in np.flatnonzero(np.bincount(codes)).tolist():
            mine = rows[codes == code]
            starts, ends = columns.t_start[mine], columns.t_end[mine]
            times = np.concatenate([starts, ends])
            order = np.argsort(times, kind="stable")
            times, level = times[order], np.cumsum(np.where(order < len(starts), 1, -1))
            busy = np.append(0.0, np.cumsum(level[:-1] * np.diff(times)))
            last = np.flatnonzero(np.append(np.diff(times) > 0, True))
            bends = last[np.append(True, np.diff(level[last]) != 0)]
            if len(bends) > most:
                bends = bends[
                    np.linspace(0, len(bends) - 1, int(most)).astype(np.int64)
                ]
                exact = False
            tracks.append(
                _Track(code, times[bends], busy[bends], starts[starts == ends])
            )
        return tracks, exact
