"""Virtual to physical: one page table for the machine, and the view of it that each PE has.

A tensor's contiguous virtual range is mapped in sub-ranges, one a shard; a replicated shard has
several copies, of which a PE sees its own, else the nearest.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass

from kernbench.common.phys_addr import VA_BASE
from kernbench.components.base import ComponentBase
from kernbench.errors import AddressError

Place = tuple[int, int, int]  # sip, cube, pe


@dataclass(frozen=True, slots=True, order=True)
class Mapping:
    """``nbytes`` at virtual ``va``; ``copies`` are (place, physical address), ``name`` the
    tensor's.
    """

    va: int
    nbytes: int
    name: str
    copies: tuple[tuple[Place, int], ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """One physical piece of a virtual range: where it starts in the range, where it lies."""

    offset: int
    nbytes: int
    addr: int


class PageTable:
    """All mapped ranges by address; they never overlap."""

    def __init__(self) -> None:
        self._mappings: list[Mapping] = []

    def add(self, mapping: Mapping) -> None:
        """Map one more range."""
        insort(self._mappings, mapping)

    def find(self, va: int) -> Mapping | None:
        """The mapping that holds ``va``."""
        at = bisect_right(self._mappings, va, key=lambda m: m.va) - 1
        if at >= 0 and va < self._mappings[at].va + self._mappings[at].nbytes:
            return self._mappings[at]
        return None

    def nearest(self, va: int) -> str:
        """What lies nearest to an address that nothing is mapped at, for an error message."""
        at = bisect_right(self._mappings, va, key=lambda m: m.va) - 1
        around = self._mappings[max(at, 0) : at + 2]
        ranges = [f"{m.name} [{m.va:#x}, {m.va + m.nbytes:#x})" for m in around]
        return "; nearest: " + ", ".join(ranges) if ranges else "; nothing is mapped"


class PeMmu(ComponentBase):
    """Translates for its PE; part of the command's issue, so it costs no time of its own."""

    def translate(self, va: int, nbytes: int) -> list[Piece]:
        """The physical pieces of [va, va + nbytes); AddressError if a byte of it is not mapped."""
        pieces: list[Piece] = []
        at, end = va, va + nbytes
        while at < end:
            mapping = self.sim.pages.find(at)
            if mapping is None:
                kind = "virtual" if at >= VA_BASE else "(not a virtual address)"
                raise AddressError(
                    f"address {at:#x} {kind}, byte {at - va} of {nbytes}, is in no tensor"
                    f"{self.sim.pages.nearest(at)}"
                )
            size = min(end, mapping.va + mapping.nbytes) - at
            pieces.append(Piece(at - va, size, self._copy(mapping) + at - mapping.va))
            at += size
        return pieces

    def _copy(self, mapping: Mapping) -> int:
        here = self.node

        def distance(copy: tuple[Place, int]) -> tuple[bool, bool, bool, Place]:
            sip, cube, pe = copy[0]
            other_sip = sip != here.sip
            other_cube = other_sip or cube != here.cube
            return other_sip, other_cube, other_cube or pe != here.pe, copy[0]

        return min(mapping.copies, key=distance)[1]
