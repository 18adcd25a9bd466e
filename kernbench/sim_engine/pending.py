"""Pending bytes: ranges whose latest writer is a compute result that Phase 2 has yet to make.

Owns the interval map of simulator.md section 7. Knows no store and no command.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TypeAlias

Range: TypeAlias = tuple[int, int, object]  # start, end, op


class PendingRanges:
    """Disjoint ranges in each space; ``op`` is whatever describes the writer to a user."""

    def __init__(self) -> None:
        self._ranges: dict[str, list[Range]] = {}  # sorted

    def mark(self, space: str, addr: int, nbytes: int, op: object) -> None:
        """``op``, not None, will write these bytes; what was pending there gives way."""
        self._replace(space, addr, nbytes, [(addr, addr + nbytes, op)])

    def clear(self, space: str, addr: int, nbytes: int) -> None:
        """These bytes are ready."""
        self._replace(space, addr, nbytes, [])

    def find(self, space: str, addr: int, nbytes: int) -> object | None:
        """The op of the lowest pending byte in the range; None if all are ready."""
        return self._lowest(space, addr, nbytes)[2]

    def end_of(self, space: str, addr: int) -> int | None:
        """Where the pending range that holds ``addr`` ends; None if that byte is ready."""
        return self._lowest(space, addr, 1)[1]

    def _lowest(
        self, space: str, addr: int, nbytes: int
    ) -> Range | tuple[None, None, None]:
        ranges = self._ranges.get(space, [])
        at = bisect_right(ranges, addr, key=lambda r: r[1])
        found = nbytes > 0 and at < len(ranges) and ranges[at][0] < addr + nbytes
        return ranges[at] if found else (None, None, None)

    def ranges(self) -> list[tuple[str, int, int]]:
        """All pending (space, addr, nbytes), by space and address."""
        return [
            (space, start, end - start)
            for space in sorted(self._ranges)
            for start, end, _ in self._ranges[space]
        ]

    def _replace(self, space: str, low: int, nbytes: int, new: list[Range]) -> None:
        if nbytes <= 0:
            return
        ranges, high = self._ranges.setdefault(space, []), low + nbytes
        first = bisect_right(ranges, low, key=lambda r: r[1])
        last = bisect_left(ranges, high, key=lambda r: r[0])
        before = [(s, low, op) for s, _, op in ranges[first:last] if s < low]
        after = [(high, e, op) for _, e, op in ranges[first:last] if e > high]
        ranges[first:last] = before + new + after
