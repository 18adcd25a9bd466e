import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.common.phys_addr import (
    ADDRESS_BITS,
    MAX_CUBES,
    MAX_DIES,
    MAX_PES,
    MAX_SIPS,
    VA_BASE,
    PhysAddr,
    UnitType,
)
from kernbench.errors import AddressError

sips = st.integers(0, MAX_SIPS - 1)
cubes = st.integers(0, MAX_CUBES - 1)
resources = st.builds(
    PhysAddr,
    sips,
    cubes,
    st.just("pe_resource"),
    unit_type=st.sampled_from(UnitType),
    pe_id=st.integers(0, MAX_PES - 1),
    offset=st.integers(0, 2**34 - 1),
)
hbm = st.builds(
    PhysAddr, sips, cubes, st.just("hbm"), hbm_offset=st.integers(0, 2**41 - 1)
)
io = st.builds(
    PhysAddr,
    sips,
    st.integers(MAX_CUBES, MAX_DIES - 1),
    st.just("io"),
    offset=st.integers(0, 2**42 - 1),
)


@given(hbm | resources | io)
def test_every_address_survives_encoding(address):
    assert PhysAddr.decode(address.encode()) == address


@given(st.integers(0, 2**ADDRESS_BITS - 1))
def test_an_integer_that_decodes_encodes_to_itself(value):
    try:
        address = PhysAddr.decode(value)
    except AddressError:
        return
    assert address.encode() == value


@given(hbm | resources | io)
def test_no_physical_address_is_a_virtual_one(address):
    assert 0 <= address.encode() < 2**ADDRESS_BITS < VA_BASE


def test_the_fields_lie_where_the_layout_says():
    address = PhysAddr.pe_tcm_addr(sip_id=3, die_id=5, pe_id=7, offset=0x40)
    assert address.encode() == 3 << 47 | 5 << 42 | 1 << 41 | 7 << 34 | 0x40


def test_a_pe_slice_begins_at_its_share_of_the_hbm():
    assert (
        PhysAddr.pe_hbm_addr(0, 1, 3, 16, slice_bytes=1 << 30).hbm_offset
        == (3 << 30) + 16
    )


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: PhysAddr.hbm_addr(16, 0, 0), "sip_id"),
        (lambda: PhysAddr.hbm_addr(-1, 0, 0), "sip_id"),
        (lambda: PhysAddr.hbm_addr(0, 16, 0), "die_id"),
        (lambda: PhysAddr.hbm_addr(0, 0, 1 << 41), "hbm_offset"),
        (lambda: PhysAddr.pe_hbm_addr(0, 0, 16, 0, 1 << 30), "pe_id"),
        (lambda: PhysAddr.pe_hbm_addr(0, 0, 0, 1 << 30, 1 << 30), "offset"),
        (lambda: PhysAddr.pe_tcm_addr(0, 0, 16, 0), "pe_id"),
        (lambda: PhysAddr.pe_tcm_addr(0, 0, 0, 1 << 34), "offset"),
        (lambda: PhysAddr.sram_addr(0, 21, 0), "die_id"),
        (lambda: PhysAddr.mcpu_addr(0, 0, -1), "offset"),
        (lambda: PhysAddr(0, 16, "hbm").encode(), "die_id"),
        (lambda: PhysAddr(0, 15, "io").encode(), "die_id"),
        (lambda: PhysAddr(0, 0, "tape", unit_type=UnitType.PE).encode(), "kind"),
        (lambda: PhysAddr(0, 0, "pe_resource").encode(), "unit_type"),
        (lambda: PhysAddr.decode(-1), "address"),
        (lambda: PhysAddr.decode(1 << ADDRESS_BITS), "address"),
        (lambda: PhysAddr.decode(21 << 42), "die_id"),
        (lambda: PhysAddr.decode(1 << 41 | 7 << 38), "unit_type"),
    ],
)
def test_what_is_out_of_range_is_named(make, field):
    with pytest.raises(AddressError, match=field):
        make()
