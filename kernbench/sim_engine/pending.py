"""Pending bytes: ranges that a result will fill which Phase 2 has yet to compute.

Owns the interval map of docs/machine.md, "Pending bytes". Knows no store and no
command.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kernbench.common.rows import Rows

Holds: TypeAlias = Callable[[], "bool | None"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The op of what a comparison of ready data will write; ``why`` describes it.

    Its bytes are pending as any result's, but ``holds()`` says already whether it is
    true; None of more than one element.
    """

    why: str
    holds: Holds

    def __str__(self) -> str:
        return self.why


class _Range(NamedTuple):
    """Bytes [start, end) that ``op`` will write."""

    start: int
    end: int
    op: object


class PendingRanges:
    """Disjoint ranges in each space.

    ``op`` is whatever describes the writer to a user.
    """

    def __init__(self) -> None:
        # by address
        self._ranges: dict[str, list[_Range]] = {}

    def mark(self, space: str, addr: int, nbytes: int, op: object) -> None:
        """``op``, not None, will write these bytes, instead of any other."""
        self._replace(space, addr, nbytes, [_Range(addr, addr + nbytes, op)])

    def clear(self, space: str, addr: int, nbytes: int) -> None:
        """These bytes are ready."""
        self._replace(space, addr, nbytes, [])

    def find(self, space: str, addr: int, nbytes: int) -> object | None:
        """The op of the lowest pending byte in the range; None if all are ready."""
        lowest = self._lowest(space, addr, nbytes)
        return None if lowest is None else lowest.op

    def mark_rows(self, space: str, rows: Rows, op: object) -> None:
        """``op`` will write these rows; what lies between them stays as it is."""
        for addr, nbytes in rows.each():
            self.mark(space, addr, nbytes, op)

    def clear_rows(self, space: str, rows: Rows) -> None:
        """These rows are ready."""
        if self._lowest(space, rows.addr, rows.span) is None:
            return
        for addr, nbytes in rows.each():
            self.clear(space, addr, nbytes)

    def find_rows(self, space: str, rows: Rows) -> object | None:
        """The op of the first pending byte in the rows; None if all are ready."""
        lowest = self._lowest(space, rows.addr, rows.span)
        if lowest is None or rows.is_one:
            return None if lowest is None else lowest.op
        for addr, nbytes in rows.each():
            found = self.find(space, addr, nbytes)
            if found is not None:
                return found
        return None

    def end_of(self, space: str, addr: int) -> int | None:
        """Where the range that holds ``addr`` ends; None if that byte is ready."""
        lowest = self._lowest(space, addr, 1)
        return None if lowest is None else lowest.end

    def _lowest(self, space: str, addr: int, nbytes: int) -> _Range | None:
        """The lowest range that has a byte in [addr, addr + nbytes)."""
        if nbytes <= 0:
            return None
        ranges = self._ranges.get(space, [])
        at = bisect_right(ranges, addr, key=lambda r: r.end)
        if at == len(ranges) or ranges[at].start >= addr + nbytes:
            return None
        return ranges[at]

    def ranges(self) -> list[tuple[str, int, int]]:
        """All pending (space, addr, nbytes), by space and address."""
        found = []
        for space in sorted(self._ranges):
            for start, end, _ in self._ranges[space]:
                found.append((space, start, end - start))
        return found

    def _replace(self, space: str, low: int, nbytes: int, new: list[_Range]) -> None:
        """Put ``new`` in the place of what is pending in [low, low + nbytes)."""
        if nbytes <= 0:
            return
        high = low + nbytes
        ranges = self._ranges.setdefault(space, [])
        first = bisect_right(ranges, low, key=lambda r: r.end)
        last = bisect_left(ranges, high, key=lambda r: r.start)
        before = []
        after = []
        for start, end, op in ranges[first:last]:
            if start < low:
                before.append(_Range(start, low, op))
            if end > high:
                after.append(_Range(high, end, op))
        ranges[first:last] = before + new + after
