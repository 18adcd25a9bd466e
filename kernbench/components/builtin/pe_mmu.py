"""The MMU of a PE: its view of the page table of the machine."""

from kernbench.common.phys_addr import VA_BASE
from kernbench.components.base import ComponentBase
from kernbench.components.pages import Mapping
from kernbench.errors import AddressError
from kernbench.topology.graph import Place
from kernbench.triton_emu.calls import Piece


class PeMmu(ComponentBase):
    """Translates for its PE.

    That is part of a command's issue, so it costs no time of its own. Of a replicated
    shard a PE sees its own copy, or else the nearest.
    """

    def translate(self, va: int, nbytes: int, past_end: bool = False) -> list[Piece]:
        """The physical pieces of [va, va + nbytes), in order.

        AddressError if a byte of it is not mapped. With ``past_end`` a mapping goes on
        with the bytes behind it, up to the next one.
        """
        pieces = []
        at = va
        end = va + nbytes
        while at < end:
            found = self.sim.pages.find(at, past_end)
            if found is None:
                raise self._unmapped(at, va, nbytes)
            mapping, held = found
            addr = self._copy(mapping) + at - mapping.va
            pieces.append(Piece(at - va, min(held, end - at), addr))
            at += held
        return pieces

    def _unmapped(self, at: int, va: int, nbytes: int) -> AddressError:
        """The error for byte ``at`` of a range, which is in no tensor."""
        kind = "virtual" if at >= VA_BASE else "(not a virtual address)"
        where = f"address {at:#x} {kind}, byte {at - va} of {nbytes}, is in no tensor"
        return AddressError(f"{where}; {self.sim.pages.describe(at)}")

    def _copy(self, mapping: Mapping) -> int:
        """The address of the nearest copy: in this PE, cube or SIP, else the first."""
        here = self.node.place

        def distance(copy: tuple[Place, int]) -> tuple[int, Place]:
            """Smaller is nearer: more of SIP, cube and PE are shared, in this order."""
            place, _ = copy
            shared = 0
            while shared < 3 and place[shared] == here[shared]:
                shared += 1
            return -shared, place

        _, addr = min(mapping.copies, key=distance)
        return addr
