"""Sequences whose items are made when they are asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from typing import SupportsIndex, TypeVar, overload

import numpy as np

from kernbench.trace.frames import Decode, Frame, FrameFile
from kernbench.trace.schema import Columns, whole

T = TypeVar("T")

_FREE_ENTRIES = 1 << 18
"""A table may have so many entries, and one more for each byte of the file."""


class LazySequence(Sequence[T]):
    """A sequence of ``length`` items, each made by ``get`` whenever it is asked for."""

    def __init__(self, length: int, get: Callable[[int], T]) -> None:
        self._length = length
        self.get = get
        """Makes the item of a valid index, and checks nothing."""

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> T | list[T]:
        # A range knows negative indices, and raises IndexError as a list would.
        places = range(self._length)[index]
        if isinstance(places, int):
            return self.get(places)
        return [self.get(place) for place in places]


class GrowingTable(LazySequence[T]):
    """A table that grows by frames, as that of all strings.

    The head of each frame says how many entries it adds and the number of the first,
    so the table is as long as the heads say, and a frame is decoded when one of its
    entries is first asked for. An entry whose frame is damaged reads as
    ``missing(index)``; so does any index that ``get`` is asked for.

    What is decoded is kept. Threads that ask for the same frame at the same time may
    both decode it, with the same result.
    """

    def __init__(
        self,
        file: FrameFile,
        tag: str,
        decode: Decode[Sequence[T]],
        missing: Callable[[int], T],
    ) -> None:
        super().__init__(0, self._entry)
        self._missing = missing
        self._firsts: list[int] = []  # the number of the first entry of each frame

        def place(frame: Frame) -> Frame:
            first = whole(frame.head["first"])
            whole(first - self._length)  # no entry has two frames
            end = whole(first + whole(frame.head["n"]), _FREE_ENTRIES + file.size)
            self._firsts.append(first)
            self._length = end
            return frame

        frames = list(file.each(tag, place, body=False))

        @cache
        def entries(number: int) -> Sequence[T]:
            return file.read(frames[number], decode) or ()

        self._entries = entries

    def _entry(self, index: int) -> T:
        number = bisect_right(self._firsts, index) - 1
        if number < 0:
            return self._missing(index)
        offset = index - self._firsts[number]
        entries = self._entries(number)
        if offset >= len(entries):
            return self._missing(index)
        return entries[offset]

    def known(self) -> int:
        """How many entries there are up to the first that is lost.

        It decodes every frame.
        """
        known = 0
        for number, first in enumerate(self._firsts):
            entries = self._entries(number)
            if first == known:
                known += len(entries)
        return known


def lists_of(columns: Columns, name: str) -> LazySequence[tuple[int, ...]]:
    """The list column ``name`` of a frame: a tuple for each row."""
    values = columns[name]
    lengths = columns[f"{name}_n"]
    ends = np.cumsum(lengths, dtype=np.int64)
    starts = ends - lengths

    def values_of(row: int) -> tuple[int, ...]:
        return tuple(values[starts[row] : ends[row]].tolist())

    return LazySequence(len(ends), values_of)
