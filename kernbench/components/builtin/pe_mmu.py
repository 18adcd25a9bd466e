"""Virtual to physical: one page table for the machine, and the view of it that each PE has.

A tensor's contiguous virtual range is mapped in sub-ranges, one a shard; a replicated shard has
several copies, of which a PE sees its own, else the nearest.
"""

from bisect import bisect_right, insort
from dataclasses import dataclass

from kernbench.common.phys_addr import VA_BASE
from kernbench.components.base import ComponentBase
from kernbench.errors import AddressError
from kernbench.topology.graph import Place
from kernbench.triton_emu.calls import Piece


@dataclass(frozen=True, slots=True, order=True)
class Mapping:
    """``nbytes`` of tensor ``name`` at virtual ``va``; copies are (place, physical address)."""

    va: int
    nbytes: int
    name: str
    copies: tuple[tuple[Place, int], ...]


class PageTable:
    """All mapped ranges by address; they never overlap."""

    def __init__(self) -> None:
        self._mappings: list[Mapping] = []

    def add(self, mapping: Mapping) -> None:
        """Map one more range."""
        insort(self._mappings, mapping)

    def find(self, va: int, past_end: bool = False) -> tuple[Mapping, int] | None:
        """The mapping that holds ``va``, and how many bytes it has from there on.

        With ``past_end`` a mapping goes on up to the next one.
        """
        at = bisect_right(self._mappings, va, key=lambda m: m.va)
        if not at:
            return None
        mapping = self._mappings[at - 1]
        end = mapping.va + mapping.nbytes
        if past_end:
            end = self._mappings[at].va if at < len(self._mappings) else 2 * VA_BASE
        return (mapping, end - va) if va < end else None

    def describe(self, addr: int) -> str:
        """The tensor that holds an address, virtual or physical, or the nearest to it."""
        rows = [
            (start, start + m.nbytes, m.name)
            for m in self._mappings
            for start in ([m.va] if addr >= VA_BASE else [pa for _, pa in m.copies])
        ]
        if not rows:
            return "nothing is mapped"
        low, high, name = min(
            rows, key=lambda row: max(row[0] - addr, addr - row[1] + 1, 0)
        )
        return (
            f"{'in' if low <= addr < high else 'nearest:'} {name} [{low:#x}, {high:#x})"
        )


class PeMmu(ComponentBase):
    """Translates for its PE; part of the command's issue, so it costs no time of its own."""

    def translate(self, va: int, nbytes: int, past_end: bool = False) -> list[Piece]:
        """The physical pieces of [va, va + nbytes); AddressError if a byte of it is not mapped.

        With ``past_end`` a mapping goes on with the bytes behind it, up to the next one.
        """
        pieces, at, end = [], va, va + nbytes
        while at < end:
            found = self.sim.pages.find(at, past_end)
            if found is None:
                kind = "virtual" if at >= VA_BASE else "(not a virtual address)"
                what = f"address {at:#x} {kind}, byte {at - va} of {nbytes}, is in no tensor"
                raise AddressError(f"{what}; {self.sim.pages.describe(at)}")
            mapping, held = found
            addr = self._copy(mapping) + at - mapping.va
            pieces.append(Piece(at - va, min(held, end - at), addr))
            at += held
        return pieces

    def _copy(self, mapping: Mapping) -> int:
        """Where the nearest copy is: in this PE, else cube, else SIP, else the first."""
        here = self.node.place

        def distance(copy: tuple[Place, int]) -> tuple[int, Place]:
            shared = next((i for i in range(3) if copy[0][i] != here[i]), 3)
            return -shared, copy[0]

        return min(mapping.copies, key=distance)[1]
