"""Pending bytes: ranges whose latest writer is a compute result that Phase 2 has yet to make.

Owns the interval map of simulator.md section 7. Knows no store and no command; ``op`` is whatever
describes the writer to a user.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class PendingRanges:
    """Disjoint ranges of bytes in each space, each with the op that will write it."""

    def __init__(self) -> None:
        self._ranges: dict[str, list[tuple[int, int, object]]] = {}  # (start, end, op), sorted

    def mark(self, space: str, addr: int, nbytes: int, op: object) -> None:
        """``op`` will write these bytes; what was pending there gives way. ``op`` is not None."""
        if nbytes > 0:
            at = self._cut(space, addr, addr + nbytes)
            self._ranges[space].insert(at, (addr, addr + nbytes, op))

    def clear(self, space: str, addr: int, nbytes: int) -> None:
        """These bytes are ready."""
        if nbytes > 0 and space in self._ranges:
            self._cut(space, addr, addr + nbytes)

    def find(self, space: str, addr: int, nbytes: int) -> object | None:
        """The op of the lowest pending byte in the range; None if all are ready."""
        ranges = self._ranges.get(space, [])
        at = bisect_right(ranges, addr, key=lambda r: r[1])
        if nbytes > 0 and at < len(ranges) and ranges[at][0] < addr + nbytes:
            return ranges[at][2]
        return None

    def ranges(self) -> list[tuple[str, int, int]]:
        """All pending (space, addr, nbytes), by space and address."""
        return [
            (space, start, end - start)
            for space in sorted(self._ranges)
            for start, end, _ in self._ranges[space]
        ]

    def _cut(self, space: str, low: int, high: int) -> int:
        """Remove [low, high); returns where a range that begins at ``low`` belongs."""
        ranges = self._ranges.setdefault(space, [])
        first = bisect_right(ranges, low, key=lambda r: r[1])
        last = bisect_left(ranges, high, key=lambda r: r[0])
        before = [(s, low, op) for s, _, op in ranges[first:last] if s < low]
        after = [(high, e, op) for _, e, op in ranges[first:last] if e > high]
        ranges[first:last] = before + after
        return first + len(before)
