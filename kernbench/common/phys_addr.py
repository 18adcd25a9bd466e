"""Physical addresses: 51 bits, one integer for every byte of the machine.

Layout (docs/machine.md, "Addresses"), from the top:

    bits 50..47   sip
    bits 46..42   die: 0..15 are cubes, 16..20 IO chiplets
    bits 41..0    local offset

Where bit 41 is clear the local offset is a byte of the cube's HBM. Where it is set the
address is a resource of the cube: unit type in bits 40..38, PE in bits 37..34, byte
offset in bits 33..0. Virtual addresses start at ``VA_BASE``, above every physical one,
so that none of them can pass for the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from kernbench.errors import AddressError

_SIP_SHIFT = 47
_DIE_SHIFT = 42
_DIE_MASK = 0x1F
_WINDOW_BITS = 42  # of the local offset
_RESOURCE_BIT = 1 << 41
_UNIT_SHIFT = 38
_UNIT_MASK = 0x7
_PE_SHIFT = 34
_PE_MASK = 0xF
_OFFSET_BITS = 34

ADDRESS_BITS = 51
MAX_SIPS = 16
MAX_CUBES = 16
MAX_DIES = 21
MAX_PES = 16
VA_BASE = 1 << 52


class UnitType(IntEnum):
    """What a resource address points at; ``IO`` has no memory to end a route at."""

    PE = 0
    SRAM = 1
    MCPU = 2
    IO = 3


def _check(field: str, value: int, limit: int) -> None:
    """AddressError if ``value`` is not from 0 to below ``limit``."""
    if not 0 <= value < limit:
        raise AddressError(
            f"{field}={value:#x} is out of range; valid: 0 to {limit - 1:#x}"
        )


@dataclass(frozen=True, slots=True)
class PhysAddr:
    """One decoded address.

    ``kind`` is "hbm" (byte ``hbm_offset`` of the HBM of a cube), "pe_resource" (byte
    ``offset`` of a unit of a cube) or "io" (byte ``offset`` of an IO chiplet, which is
    a die of 16 or above). Fields that a kind does not use keep their defaults.
    """

    sip_id: int
    die_id: int
    kind: str
    hbm_offset: int = 0
    unit_type: UnitType | None = None
    pe_id: int = 0
    offset: int = 0

    def encode(self) -> int:
        """The address as an integer; AddressError names a field out of range."""
        _check("sip_id", self.sip_id, MAX_SIPS)
        _check("die_id", self.die_id, MAX_DIES)
        is_io_die = self.die_id >= MAX_CUBES
        if (self.kind == "io") != is_io_die:
            cubes = f"0 to {MAX_CUBES - 1} for cubes"
            ios = f"{MAX_CUBES} to {MAX_DIES - 1} for kind 'io'"
            raise AddressError(
                f"die_id={self.die_id} of a {self.kind!r} address; "
                f"valid: {cubes}, {ios}"
            )
        die = self.sip_id << _SIP_SHIFT | self.die_id << _DIE_SHIFT
        if self.kind == "hbm":
            _check("hbm_offset", self.hbm_offset, _RESOURCE_BIT)
            return die | self.hbm_offset
        if self.kind == "io":
            _check("offset", self.offset, 1 << _WINDOW_BITS)
            return die | self.offset
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
        unit = int(self.unit_type) << _UNIT_SHIFT | self.pe_id << _PE_SHIFT
        return die | _RESOURCE_BIT | unit | self.offset

    @classmethod
    def decode(cls, value: int) -> PhysAddr:
        """The inverse of ``encode``; AddressError for what encodes nothing."""
        _check("address", value, 1 << ADDRESS_BITS)
        sip = value >> _SIP_SHIFT
        die = value >> _DIE_SHIFT & _DIE_MASK
        _check("die_id", die, MAX_DIES)
        local = value & ((1 << _WINDOW_BITS) - 1)
        if die >= MAX_CUBES:
            return cls(sip, die, "io", offset=local)
        if not local & _RESOURCE_BIT:
            return cls(sip, die, "hbm", local)
        unit = local >> _UNIT_SHIFT & _UNIT_MASK
        _check("unit_type", unit, len(UnitType))
        return cls(
            sip,
            die,
            "pe_resource",
            unit_type=UnitType(unit),
            pe_id=local >> _PE_SHIFT & _PE_MASK,
            offset=local & ((1 << _OFFSET_BITS) - 1),
        )

    @classmethod
    def hbm_addr(cls, sip_id: int, die_id: int, hbm_offset: int) -> PhysAddr:
        """Byte ``hbm_offset`` of the HBM of one cube; AddressError if out of range."""
        return cls(sip_id, die_id, "hbm", hbm_offset)._valid()

    @classmethod
    def pe_hbm_addr(
        cls, sip_id: int, die_id: int, pe_id: int, offset: int, slice_bytes: int
    ) -> PhysAddr:
        """Byte ``offset`` of the HBM slice of one PE.

        Slices are ``slice_bytes`` each; AddressError if the offset lies outside of one.
        """
        _check("pe_id", pe_id, MAX_PES)
        _check("offset", offset, slice_bytes)
        return cls.hbm_addr(sip_id, die_id, pe_id * slice_bytes + offset)

    @classmethod
    def pe_tcm_addr(cls, sip_id: int, die_id: int, pe_id: int, offset: int) -> PhysAddr:
        """Byte ``offset`` of the TCM of one PE; AddressError if out of range."""
        return cls._resource(sip_id, die_id, UnitType.PE, pe_id, offset)

    @classmethod
    def sram_addr(cls, sip_id: int, die_id: int, offset: int) -> PhysAddr:
        """Byte ``offset`` of the SRAM of one cube; AddressError if out of range."""
        return cls._resource(sip_id, die_id, UnitType.SRAM, 0, offset)

    @classmethod
    def mcpu_addr(cls, sip_id: int, die_id: int, offset: int) -> PhysAddr:
        """Byte ``offset`` of the M_CPU of one cube; AddressError if out of range."""
        return cls._resource(sip_id, die_id, UnitType.MCPU, 0, offset)

    @classmethod
    def _resource(
        cls, sip_id: int, die_id: int, unit: UnitType, pe_id: int, offset: int
    ) -> PhysAddr:
        """The address of a byte of a unit of a cube; AddressError if out of range."""
        return cls(sip_id, die_id, "pe_resource", 0, unit, pe_id, offset)._valid()

    def _valid(self) -> PhysAddr:
        """The address itself, once it has been seen to encode."""
        self.encode()
        return self
