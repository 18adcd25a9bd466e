"""Physical addresses: 51 bits, one integer for every byte of the machine.

Layout (simulator.md section 2), from the top: ``sip`` bits 50..47, ``die`` bits 46..42 (0..15 are
cubes, 16..20 IO chiplets), local offset bits 41..0. Bit 41 clear is HBM; set, a resource of the
cube: unit type in bits 40..38, PE in bits 37..34, byte offset in bits 33..0. Virtual addresses
start at ``VA_BASE``, above every physical one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from kernbench.errors import AddressError

_SIP_SHIFT, _DIE_SHIFT, _WINDOW_BITS = 47, 42, 42
_RESOURCE_BIT = 1 << 41
_UNIT_SHIFT, _PE_SHIFT, _OFFSET_BITS = 38, 34, 34
ADDRESS_BITS = 51
MAX_SIPS, MAX_CUBES, MAX_DIES, MAX_PES = 16, 16, 21, 16
VA_BASE = 1 << 52


class UnitType(IntEnum):
    """What a resource address points at; ``IO`` has no memory that a route can end at."""

    PE = 0
    SRAM = 1
    MCPU = 2
    IO = 3


def _check(field: str, value: int, limit: int) -> None:
    if not 0 <= value < limit:
        raise AddressError(
            f"{field}={value:#x} is out of range; valid: 0 to {limit - 1:#x}"
        )


@dataclass(frozen=True, slots=True)
class PhysAddr:
    """One decoded address; ``kind`` is "hbm" (see ``hbm_offset``), "pe_resource" or "io".

    A die of 16 or above is an IO chiplet; its addresses are of kind "io" and hold only ``offset``.
    """

    sip_id: int
    die_id: int
    kind: str
    hbm_offset: int = 0
    unit_type: UnitType | None = None
    pe_id: int = 0
    offset: int = 0

    def encode(self) -> int:
        """The address as an integer; AddressError names a field that is out of range."""
        _check("sip_id", self.sip_id, MAX_SIPS)
        _check("die_id", self.die_id, MAX_DIES)
        if (self.kind == "io") != (self.die_id >= MAX_CUBES):
            valid = f"0 to {MAX_CUBES - 1} for cubes, {MAX_CUBES} to {MAX_DIES - 1} for kind 'io'"
            raise AddressError(
                f"die_id={self.die_id} of a {self.kind!r} address; valid: {valid}"
            )
        high = self.sip_id << _SIP_SHIFT | self.die_id << _DIE_SHIFT
        if self.kind == "hbm":
            _check("hbm_offset", self.hbm_offset, _RESOURCE_BIT)
            return high | self.hbm_offset
        if self.kind == "io":
            _check("offset", self.offset, 1 << _WINDOW_BITS)
            return high | self.offset
        if self.kind != "pe_resource":
            raise AddressError(
                f"kind={self.kind!r} is unknown; valid: hbm, pe_resource, io"
            )
        if self.unit_type is None:
            raise AddressError(
                f"a 'pe_resource' address needs a unit_type; valid: {[*UnitType]}"
            )
        _check("pe_id", self.pe_id, MAX_PES)
        _check("offset", self.offset, 1 << _OFFSET_BITS)
        unit = int(self.unit_type) << _UNIT_SHIFT
        return high | _RESOURCE_BIT | unit | self.pe_id << _PE_SHIFT | self.offset

    @classmethod
    def decode(cls, value: int) -> PhysAddr:
        """The inverse of ``encode``; AddressError for an integer that encodes nothing."""
        _check("address", value, 1 << ADDRESS_BITS)
        sip, die = value >> _SIP_SHIFT, value >> _DIE_SHIFT & 0x1F
        _check("die_id", die, MAX_DIES)
        local = value & ((1 << _WINDOW_BITS) - 1)
        if die >= MAX_CUBES:
            return cls(sip, die, "io", offset=local)
        if not local & _RESOURCE_BIT:
            return cls(sip, die, "hbm", local)
        unit = local >> _UNIT_SHIFT & 0x7
        _check("unit_type", unit, len(UnitType))
        pe, offset = local >> _PE_SHIFT & 0xF, local & ((1 << _OFFSET_BITS) - 1)
        return cls(sip, die, "pe_resource", 0, UnitType(unit), pe, offset)

    @classmethod
    def hbm_addr(cls, sip_id: int, die_id: int, hbm_offset: int) -> PhysAddr:
        """Byte ``hbm_offset`` of the HBM of one cube."""
        return cls(sip_id, die_id, "hbm", hbm_offset)._valid()

    @classmethod
    def pe_hbm_addr(
        cls, sip_id: int, die_id: int, pe_id: int, offset: int, slice_bytes: int
    ) -> PhysAddr:
        """Byte ``offset`` of the HBM slice of one PE; slices are ``slice_bytes`` each."""
        _check("pe_id", pe_id, MAX_PES)
        _check("offset", offset, slice_bytes)
        return cls.hbm_addr(sip_id, die_id, pe_id * slice_bytes + offset)

    @classmethod
    def pe_tcm_addr(cls, sip_id: int, die_id: int, pe_id: int, offset: int) -> PhysAddr:
        """Byte ``offset`` of the TCM of one PE."""
        return cls(
            sip_id, die_id, "pe_resource", 0, UnitType.PE, pe_id, offset
        )._valid()

    @classmethod
    def sram_addr(cls, sip_id: int, die_id: int, offset: int) -> PhysAddr:
        """Byte ``offset`` of the SRAM of one cube."""
        return cls(sip_id, die_id, "pe_resource", 0, UnitType.SRAM, 0, offset)._valid()

    @classmethod
    def mcpu_addr(cls, sip_id: int, die_id: int, offset: int) -> PhysAddr:
        """Byte ``offset`` of the M_CPU window of one cube."""
        return cls(sip_id, die_id, "pe_resource", 0, UnitType.MCPU, 0, offset)._valid()

    def _valid(self) -> PhysAddr:
        self.encode()
        return self
