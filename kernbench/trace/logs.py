"""The logs of a trace: their mapped columns, and their rows as they were recorded.

A log lies in the file in frames of some thousand rows, each with all its columns. Here
they are put together again: a column of all frames, or rows of one frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from kernbench.common.arrays import Array, Ints
from kernbench.trace.columns import LOGS, ColumnSpec
from kernbench.trace.frames import Frame, FrameFile
from kernbench.trace.groups import ranges
from kernbench.trace.mapped import ListPointers, MappedColumn, Rows, Translate
from kernbench.trace.schema import Columns, read_columns

Tables: TypeAlias = Mapping[str, Sequence[Any]]
"""What the numbers in columns stand for, by the name of the table."""

_FRAMES_KEPT = 8  # of those that rows were looked up in


def map_columns(
    tag: str,
    frames: Sequence[Columns],
    data: Any,
    translate: Mapping[str, Translate],
) -> dict[str, MappedColumn[Any]]:
    """The columns of a log, of all ``frames`` of it in the mapping ``data``.

    The columns that ``translate`` names give what it makes of their values. Beside a
    column X of lists there is ``X_ptr``, which says where they begin and end.
    """
    mapped: dict[str, MappedColumn[Any]] = {}
    for name, column in LOGS[tag].items():
        views = [frame[name] for frame in frames]
        mapped[name] = MappedColumn(data, views, column.widest, translate.get(name))
        if column.many:
            counts = [frame[f"{name}_n"] for frame in frames]
            zero = np.zeros(1, np.uint8)
            mapped[f"{name}_ptr"] = ListPointers(data, [zero, *counts], np.int64)
    return mapped


class Logs:
    """The logs of a file, but for ops, whose frames hold more than a log.

    ``tables`` and ``row_here`` are called when they are first needed: the tables that
    columns refer to, and what makes rows of this reading of rows as recorded.

    Its caches are harmless to fill twice: what is in them is made of the file alone,
    and each entry is put there in one step.
    """

    def __init__(
        self,
        file: FrameFile,
        tables: Callable[[], Tables],
        row_here: Callable[[Array], Array],
    ) -> None:
        self._file = file
        self._tables = tables
        self._row_here = row_here
        self._frames: dict[str, list[Columns]] = {}
        self._columns: dict[str, dict[str, MappedColumn[Any]]] = {}
        self._key_ranges: dict[str, Ints] = {}
        self._frame_as_arrays = lru_cache(_FRAMES_KEPT)(self._read_frame_as_arrays)

    def read_frame(self, frame: Frame) -> Columns:
        """The columns of one frame, as views of the mapping; see ``read_columns``."""
        body = self._file.body(frame)
        return read_columns(frame.tag, frame.head, body, self._tables())

    def columns(self, tag: str) -> dict[str, MappedColumn[Any]]:
        """The columns of a log, by the names that its dataclass has for them."""
        if tag not in self._columns:
            self._columns[tag] = self._map(tag, self._frames_of(tag))
        return self._columns[tag]

    def _frames_of(self, tag: str) -> list[Columns]:
        if tag not in self._frames:
            self._frames[tag] = list(self._file.each(tag, self.read_frame))
        return self._frames[tag]

    def _map(self, tag: str, frames: Sequence[Columns]) -> dict[str, MappedColumn[Any]]:
        translate = {
            name: self._row_here
            for name, column in LOGS[tag].items()
            if column.joins == "ops"
        }
        return map_columns(tag, frames, self._file.map, translate)

    # -- rows --------------------------------------------------------------------------

    def rows_as_recorded(
        self, tag: str, rows: Rows = slice(None)
    ) -> Iterator[tuple[Any, ...]]:
        """Rows of a log as the writer was given them.

        Names stand in place of numbers, and lists in place of their values; the cells
        are in the order of ``LOGS[tag]``.
        """
        return self._cells(tag, self.columns(tag), rows)

    def rows_by_key(
        self, tag: str, key: str, wanted: Sequence[int]
    ) -> Iterator[tuple[Any, ...]]:
        """The rows whose column ``key`` has one of the ``wanted`` values, as recorded.

        Each log is looked up by one column only. Frames that can have no such row are
        left alone: a frame holds a stretch of the run, and so of these numbers.
        """
        lowest, highest = self._key_range_of_frames(tag, key)
        first = min(wanted)
        last = max(wanted)
        in_range = (lowest <= last) & (first <= highest)
        if first < 0:
            in_range[:] = True
        values = np.unique(wanted)
        for number in np.flatnonzero(in_range).tolist():
            frame = self._frame_as_arrays(tag, number)
            yield from self._cells(tag, frame, _places_of(values, frame[key]))

    def _key_range_of_frames(self, tag: str, key: str) -> Ints:
        """The lowest and the highest key in each frame, -1 left out: two rows."""
        if tag not in self._key_ranges:
            column = self.columns(tag)[key]
            keys = column[:].astype(np.int64)
            ranges = []
            for keys_of_frame in np.split(keys, column.firsts[1:])[:-1]:
                # As an unsigned number -1 is above all others.
                lowest = keys_of_frame.view(np.uint64).min(initial=1 << 62)
                highest = keys_of_frame.max(initial=-1)
                ranges.append((lowest, highest))
            self._key_ranges[tag] = np.array(ranges, np.int64).reshape(-1, 2).T
        return self._key_ranges[tag]

    def _read_frame_as_arrays(self, tag: str, number: int) -> dict[str, Array]:
        frames = self._frames_of(tag)[number : number + 1]
        return {name: column[:] for name, column in self._map(tag, frames).items()}

    def _cells(
        self,
        tag: str,
        columns: Mapping[str, MappedColumn[Any] | Array],
        rows: Rows,
    ) -> Iterator[tuple[Any, ...]]:
        """Rows of ``columns``, which are those of a log or of a frame of it."""
        cells: list[list[Any]] = []
        for name, column in LOGS[tag].items():
            values = columns[name]
            if column.many:
                pointers = columns[f"{name}_ptr"]
                bounds = zip(pointers[:-1][rows], pointers[1:][rows], strict=True)
                lists = [values[start:end].tolist() for start, end in bounds]
                cells.append([self._entries(column, numbers) for numbers in lists])
            else:
                cells.append(self._entries(column, values[rows].tolist()))
        return zip(*cells, strict=True)

    def _entries(self, column: ColumnSpec, numbers: list[Any]) -> list[Any]:
        """What numbers of a column stand for: entries of its table, or themselves."""
        if not column.table:
            return numbers
        table = self._tables()[column.table]
        return [table[number] for number in numbers]


def _places_of(values: Array, keys: Array) -> Ints:
    """Where any of ``values``, which ascend, stands in ``keys``.

    Keys mostly ascend as well: then only the places of the values are looked at.
    """
    if len(values) == 1:
        return np.flatnonzero(keys == values[0])
    if (keys[1:] < keys[:-1]).any():
        return np.flatnonzero(np.isin(keys, values))
    firsts = np.searchsorted(keys, values)
    counts = np.searchsorted(keys, values, side="right") - firsts
    return ranges(firsts, counts)
