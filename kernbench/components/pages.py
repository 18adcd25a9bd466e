"""Virtual to physical: the one page table of a machine.

A tensor's contiguous virtual range is mapped in sub-ranges, one a shard; a replicated
shard has several copies. Which of them a PE sees is decided by its ``PeMmu``.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass

from kernbench.common.phys_addr import VA_BASE
from kernbench.topology.graph import Place


@dataclass(frozen=True, slots=True, order=True)
class Mapping:
    """``nbytes`` of tensor ``name`` at virtual address ``va``.

    ``copies`` are the place and the physical address of each copy.
    """

    va: int
    nbytes: int
    name: str
    copies: tuple[tuple[Place, int], ...]

    @property
    def end(self) -> int:
        """The virtual address behind its last byte."""
        return self.va + self.nbytes


class PageTable:
    """All mapped ranges by virtual address; they never overlap."""

    def __init__(self) -> None:
        self._mappings: list[Mapping] = []

    def add(self, mapping: Mapping) -> None:
        """Map one more range."""
        insort(self._mappings, mapping)

    def find(self, va: int, past_end: bool = False) -> tuple[Mapping, int] | None:
        """The mapping that holds ``va``, and how many bytes it has from there on.

        None if there is none. With ``past_end`` a mapping goes on up to the next one.
        """
        following = bisect_right(self._mappings, va, key=lambda mapping: mapping.va)
        if following == 0:
            return None
        mapping = self._mappings[following - 1]
        end = mapping.end
        if past_end:
            end = 2 * VA_BASE
            if following < len(self._mappings):
                end = self._mappings[following].va
        if va >= end:
            return None
        return mapping, end - va

    def describe(self, addr: int) -> str:
        """The tensor that holds an address, virtual or physical, or the nearest one."""
        rows = []
        for mapping in self._mappings:
            starts = [pa for _, pa in mapping.copies]
            if addr >= VA_BASE:
                starts = [mapping.va]
            for start in starts:
                rows.append((start, start + mapping.nbytes, mapping.name))
        if not rows:
            return "nothing is mapped"

        def distance(row: tuple[int, int, str]) -> int:
            """Bytes between the address and a range; 0 inside of it."""
            low, high, _ = row
            return max(low - addr, addr - high + 1, 0)

        low, high, name = min(rows, key=distance)
        where = "in" if low <= addr < high else "nearest:"
        return f"{where} {name} [{low:#x}, {high:#x})"
