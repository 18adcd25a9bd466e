"""Timelines: rows of components over a window of time, in cells.

Any window is drawn at a cost that does not depend on the number of ops: rows are read
off curves of busy time (tracks.py), or off the summary of a window (window_summary.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Bools, Floats, Ints
from kernbench.common.paged import LARGE, paged
from kernbench.common.progress import (
    Progress,
    beside_if_many,
    computed_beside,
    no_progress,
    stage,
)
from kernbench.replay.text import time_text
from kernbench.replay.time.op_classes import CLASS_LETTERS, COMPOSITE
from kernbench.replay.time.op_index import OpIndex
from kernbench.replay.time.tracks import Ops, Tracks, tracks_of
from kernbench.replay.time.window_summary import WindowSummary, window_summary
from kernbench.trace import Trace

_BEND_BYTES = 8
"""Of an instant of a track in a file: its time in one, what was busy in another."""
_GLYPHS = np.frombuffer(CLASS_LETTERS.encode(), np.uint8)


class RowKey(NamedTuple):
    """What a row shows: all that some components served, or one lane of a component.

    ``components`` are node indices; ``lane`` None means all lanes.
    """

    components: tuple[int, ...]
    lane: int | None = None


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One row of a timeline, a value a cell.

    ``busy`` is the share of the cell in which ops were in service; it exceeds 1 where
    several are at a time. ``classes`` has the letter of the class that was busy for
    longest; in a row of several components a composite is shown only where none of its
    parts is. A cell whose ops took no time has a letter, and is busy for none of it.
    """

    node: str
    busy: Floats
    classes: str
    lane: int | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Rows over [t0, t1) ns in ``columns`` equal cells.

    ``cursor`` is the cell of the cursor's time, None if that is not in the window.
    """

    t0: float
    t1: float
    columns: int
    cursor: int | None
    rows: tuple[TimelineRow, ...]

    def lines(self, width: int) -> list[str]:
        """As text: a letter a cell, small where it is busy for less than half of it."""
        cell = time_text((self.t1 - self.t0) / self.columns)
        lines = [f"{time_text(self.t0)} to {time_text(self.t1)}, {cell} a cell"]
        names = []
        for row in self.rows:
            names.append(row.node if row.lane is None else f"{row.node} {row.lane}")
        widest = max(map(len, names), default=0)
        for row, name in zip(self.rows, names, strict=True):
            cells = []
            for letter, busy in zip(row.classes, row.busy, strict=True):
                cells.append(letter if busy >= 0.5 else letter.lower())
            lines.append(f"{name:<{widest}} |{''.join(cells)}|")
        return lines


@dataclass(frozen=True, slots=True)
class Limits:
    """What a ``TimelineIndex`` keeps, and from how many ops on it does something else.

    ``bends``: kept of a class in a row of more than ``parts`` components. In a window
    of at most ``few`` ops such a row is counted from these, exactly, and so is one that
    has no index yet.
    ``parts``: components of which a row is drawn as their sum, without its own index.
    ``kept_bends``: in all rows together, but for those in files; beyond it those rows
    are dropped that are not being drawn and have at most ``light`` ops, so that they
    are soon indexed again.
    ``filed_bends``: of rows that are indexed unasked, from which on they go into files.
    ``summaries``: windows of which the summary is kept.
    """

    bends: int = 1 << 15
    few: int = 1 << 13
    parts: int = 16
    kept_bends: int = 3 << 21
    light: int = 1 << 17
    filed_bends: int = LARGE // _BEND_BYTES
    summaries: int = 4


class Unindexed(NamedTuple):
    """Rows that would have to be indexed first, and how many ops that looks at."""

    rows: tuple[RowKey, ...]
    ops: int


class _FewOps(NamedTuple):
    """The ops that overlap a window: their rows of the log, and who served them."""

    rows: Ints
    components: Ints


class _Summed(NamedTuple):
    """The summary of a window, and the rows that were drawn of it so far."""

    summary: WindowSummary
    drawn: dict[RowKey, TimelineRow]


class _Window(NamedTuple):
    """What all rows of one picture share: the edges of its cells, ns.

    ``ops`` is None where they are not few, ``summed`` where there is no summary.
    """

    edges: Floats
    ops: _FewOps | None
    summed: _Summed | None


class _Cells(NamedTuple):
    """The cells of one row, a row a class: ``codes`` ascend, and may repeat.

    ``busy`` is in ns; ``moments`` says whether an op that took no time is there.
    """

    codes: Ints
    busy: Floats
    moments: Bools


class TimelineIndex:
    """Draws rows; indexes the ops of a row when it is first drawn.

    Its tables are filled by one thread, the worker of lane "timeline": by
    ``index_rows`` and ``summarize``, and by ``draw_rows`` where rows are still missing.
    The screen's thread may draw beside it. An entry is put into its table when it is
    whole, with a single assignment, so a reader finds it or does not; where it does
    not, it makes an equal one. A computation that is cancelled leaves whole entries.
    """

    def __init__(
        self, trace: Trace, ops: OpIndex, limits: Limits | None = None
    ) -> None:
        self._trace = trace
        self._ops = ops
        self._limits = limits or Limits()
        self._tracks: dict[RowKey, Tracks] = {}
        self._filed: set[RowKey] = set()
        self._bends = 0  # of tracks in memory, or more: counted again before dropping
        self._summaries: dict[tuple[float, float, int], _Summed] = {}

    # -- the index --

    @property
    def indexed(self) -> frozenset[RowKey]:
        """The rows that have an index."""
        return frozenset(self._tracks.copy())

    def unindexed(
        self,
        rows: Sequence[RowKey],
        window: tuple[float, float, int] | None = None,
    ) -> Unindexed:
        """Which of ``rows`` have to be indexed before they are drawn.

        ``window`` (t0, t1, columns) is the one that is meant; None stands for any.
        """
        wanted = [row for row in rows if row not in self._tracks]
        if window is not None and self.has_summary(*window):
            wanted = [row for row in wanted if row.lane is not None]
        found = []
        parts = set[RowKey]()
        for row in wanted:
            missing = [part for part in self._parts(row) if part not in self._tracks]
            if missing:
                found.append(row)
                parts.update(missing)
        ops = self._ops.count_of([node for part in parts for node in part.components])
        if found and not self._ops.prepared:
            ops += len(self._ops)
        return Unindexed(tuple(found), ops)

    def index_rows(
        self, rows: Sequence[RowKey], progress: Progress = no_progress
    ) -> None:
        """Index the ops of ``rows``; afterwards any window of them is drawn at once.

        What is much goes into files bit by bit, so that it may be all rows of a trace.
        """
        parts = dict.fromkeys(part for row in rows for part in self._parts(row))
        missing = [part for part in parts if part not in self._tracks]
        new: dict[RowKey, Tracks] = {}
        bends = 0
        for number, part in enumerate(missing):
            low = number / len(missing)
            share = stage(progress, low, low + 1 / len(missing))
            new[part] = self._tracks_of_part(part, share)
            bends += new[part].bends
            if bends >= self._limits.filed_bends:
                computed_beside(partial(self._file, new), share, 1.0)
                self._bends -= bends
                new = {}
                bends = 0
        self._drop_light_rows(rows)

    def _file(self, new: Mapping[RowKey, Tracks]) -> None:
        """Put the tracks of some rows into files."""
        tracks = [track for found in new.values() for track in found.tracks]
        times = paged(np.concatenate([track.times for track in tracks]))
        busy = paged(np.concatenate([track.busy for track in tracks]))
        bounds = np.append(0, np.cumsum([len(track.times) for track in tracks]))
        filed = iter(
            track._replace(times=times[low:high], busy=busy[low:high])
            for track, (low, high) in zip(tracks, pairwise(bounds), strict=True)
        )
        for part, found in new.items():
            mine = tuple(islice(filed, len(found.tracks)))
            self._tracks[part] = found._replace(tracks=mine)
        self._filed.update(new)

    def has_summary(self, t0: float, t1: float, columns: int) -> bool:
        """Whether all components are summed up over the cells of that window."""
        return (t0, t1, columns) in self._summaries

    def summarize(
        self, t0: float, t1: float, columns: int, progress: Progress = no_progress
    ) -> None:
        """Look at all ops once; afterwards any row of that window is drawn at once."""
        codes = self._ops.class_codes(progress=stage(progress, 0.0, 0.2))
        found = window_summary(
            self._trace, codes, t0, t1, columns, stage(progress, 0.2, 1.0)
        )
        summaries = self._summaries | {(t0, t1, columns): _Summed(found, {})}
        newest = [*summaries.items()][-self._limits.summaries :]
        self._summaries = dict(newest)

    def forget(self) -> None:
        """Drop the index of every row."""
        self._tracks = {}
        self._filed = set()
        self._bends = 0

    # -- drawing --

    def draw_rows(
        self,
        rows: Sequence[RowKey],
        t0: float,
        t1: float,
        columns: int,
        progress: Progress = no_progress,
    ) -> tuple[TimelineRow, ...]:
        """``columns`` equal cells of [t0, t1) ns for each of ``rows``.

        Rows that have no index get one first, unless the window has few ops.
        """
        progress(0.0)
        window = self._window(t0, t1, columns)
        if window.ops is None:
            missing = self.unindexed(rows, (t0, t1, columns)).rows
            progress(0.0)
            self._index(missing, stage(progress, 0.0, 0.5))
        drawn = []
        for number, row in enumerate(rows):
            progress(0.5 + 0.5 * number / len(rows))
            drawn.append(self._drawn(row, window))
        self._drop_light_rows(rows)
        return tuple(drawn)

    def _window(self, t0: float, t1: float, columns: int) -> _Window:
        """The window that all rows of a picture are drawn of."""
        edges = np.linspace(t0, t1, columns + 1)
        summed = self._summaries.get((t0, t1, columns))
        before, low, high = self._ops.window(t0, t1)
        if high - low > self._limits.few:
            return _Window(edges, None, summed)
        rows = self._trace.order[np.concatenate([before, np.arange(low, high)])]
        components = self._trace.op_columns.component[rows]
        return _Window(edges, _FewOps(rows, components), summed)

    def _drawn(self, row: RowKey, window: _Window) -> TimelineRow:
        """One row; what is drawn of a summary is kept with it."""
        if window.summed is None or row.lane is not None:
            return self._draw(row, window)
        found = window.summed.drawn.get(row)
        if found is None:
            found = self._draw(row, window)
            window.summed.drawn[row] = found
        return found

    def _draw(self, row: RowKey, window: _Window) -> TimelineRow:
        """One row: its classes, summed up over its components, and the longest each."""
        node = self._trace.node_ids[row.components[0]]
        more = len(row.components) - 1
        if more:
            node += f" and {more} more"
        columns = len(window.edges) - 1
        cells = self._cells(row, window)
        if not len(cells.codes):
            busy = np.zeros(columns)
            busy.setflags(write=False)
            return TimelineRow(node, busy, " " * columns, row.lane)

        # Of several components a class comes several times: sum it up.
        begins = np.ones(len(cells.codes), np.bool_)
        np.not_equal(cells.codes[1:], cells.codes[:-1], out=begins[1:])
        first = np.flatnonzero(begins)
        codes = cells.codes[first]
        moments = np.logical_or.reduceat(cells.moments, first)
        width = max(window.edges[1] - window.edges[0], 1e-12)
        # Rounded, so that shares which differ by rounding only are ties.
        share = np.round(np.add.reduceat(cells.busy, first) / width, 9)
        if more:
            # What a composite consists of is in the row too: it shows where alone.
            others = codes != COMPOSITE
            share[~others] *= ~share[others].any(axis=0)
        busy = share.sum(axis=0)
        glyphs = np.full(columns, ord(" "), np.uint8)
        for code, there in zip(codes[::-1], moments[::-1], strict=True):
            glyphs[there] = _GLYPHS[code]
        longest = np.zeros(columns)
        for code, busy_with in zip(codes, share, strict=True):
            longer = busy_with > longest
            glyphs[longer] = _GLYPHS[code]
            longest[longer] = busy_with[longer]
        busy.setflags(write=False)
        return TimelineRow(node, busy, glyphs.tobytes().decode(), row.lane)

    def _cells(self, row: RowKey, window: _Window) -> _Cells:
        """The cells of a row: from the summary of the window, or from its tracks.

        A track gives the busy time of a cell as that until its end less that until its
        start. Where the window has few ops, and bends were left out or there are no
        tracks yet, these ops are counted.
        """
        if window.summed is not None and row.lane is None:
            summary = window.summed.summary
            mine = summary.rows_of(row.components)
            return _Cells(
                summary.codes[mine], summary.busy[mine], summary.moments[mine]
            )
        if window.ops is not None and not self._has_exact_tracks(row):
            tracks = self._tracks_among(row, window.ops)
        else:
            tracks = self._tracks_of(row, no_progress)
        codes = np.array([track.code for track in tracks.tracks], np.int64)
        until_edge = np.empty((len(codes), len(window.edges)))
        begun = np.empty(until_edge.shape, np.int64)
        for number, track in enumerate(tracks.tracks):
            until_edge[number] = np.interp(window.edges, track.times, track.busy)
            begun[number] = np.searchsorted(track.moments, window.edges)
        return _Cells(
            codes,
            until_edge[:, 1:] - until_edge[:, :-1],
            begun[:, 1:] > begun[:, :-1],
        )

    # -- tracks --

    def _index(self, rows: Sequence[RowKey], progress: Progress) -> None:
        """Make the tracks of ``rows``, where there are none."""
        for number, row in enumerate(rows):
            low = number / len(rows)
            self._tracks_of(row, stage(progress, low, low + 1 / len(rows)))

    def _parts(self, row: RowKey) -> tuple[RowKey, ...]:
        """The rows whose tracks make up a row: its components' if they are few."""
        if row.lane is None and len(row.components) <= self._limits.parts:
            return tuple(RowKey((component,)) for component in row.components)
        return (row,)

    def _has_exact_tracks(self, row: RowKey) -> bool:
        """Whether a row is indexed, and no bend was left out."""
        found = [self._tracks.get(part) for part in self._parts(row)]
        return all(tracks is not None and tracks.exact for tracks in found)

    def _tracks_of(self, row: RowKey, progress: Progress) -> Tracks:
        """All tracks of a row, by class."""
        known = self._tracks.get(row)
        if known is not None:
            return known
        parts = self._parts(row)
        found = []
        for number, part in enumerate(parts):
            low = number / len(parts)
            share = stage(progress, low, low + 1 / len(parts))
            found.append(self._tracks_of_part(part, share))
        if len(found) == 1:
            return found[0]
        tracks = [track for part in found for track in part.tracks]
        return Tracks(tuple(sorted(tracks, key=attrgetter("code"))), True)

    def _tracks_of_part(self, row: RowKey, progress: Progress) -> Tracks:
        """The tracks of a row with an index of its own, made where there are none."""
        known = self._tracks.get(row)
        if known is not None:
            return known
        progress(0.0)
        size = self._ops.count_of(row.components)
        served = beside_if_many(size, partial(self._served, row), progress, 0.0)
        most = self._limits.bends if len(row.components) > 1 else None
        found = tracks_of(self._trace, served, most, stage(progress, 0.1, 1.0))
        self._tracks[row] = found
        self._bends += found.bends
        return found

    def _served(self, row: RowKey) -> Ops:
        """The ops that a row shows."""
        ops = [self._ops.ops_of(component) for component in row.components]
        positions = ops[0] if len(ops) == 1 else np.sort(np.concatenate(ops))
        served = self._trace.order[positions]
        if row.lane is not None:
            served = served[self._trace.op_columns.slot[served] == row.lane]
        return Ops(served, self._ops.class_codes(served))

    def _tracks_among(self, row: RowKey, ops: _FewOps) -> Tracks:
        """The exact tracks of those among a few ops that belong to a row."""
        wanted = np.zeros(len(self._trace.node_ids), bool)
        wanted[list(row.components)] = True
        mine = ops.rows[wanted[ops.components]]
        if row.lane is not None:
            mine = mine[self._trace.op_columns.slot[mine] == row.lane]
        some = Ops(mine, self._ops.class_codes(mine))
        return tracks_of(self._trace, some, None, no_progress)

    def _drop_light_rows(self, wanted: Sequence[RowKey]) -> None:
        """If too much is kept, drop rows that are not wanted and soon indexed again."""
        if self._bends <= self._limits.kept_bends:
            return
        kept = set[RowKey]().union(*map(self._parts, wanted))
        for row in self._tracks.copy():
            light = self._ops.count_of(row.components) <= self._limits.light
            if light and row not in kept and row not in self._filed:
                self._tracks.pop(row, None)
        kept_now = self._tracks.copy().items()
        in_memory = [tracks for row, tracks in kept_now if row not in self._filed]
        self._bends = sum(tracks.bends for tracks in in_memory)
