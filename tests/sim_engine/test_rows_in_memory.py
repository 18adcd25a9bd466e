"""Rows of a memory store and of pending ranges, against every single byte."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from plain_rows import bytes_of, some_rows

from kernbench.common.rows import Rows
from kernbench.errors import MemoryStoreError, TraceFormatError
from kernbench.sim_engine.accesses import access_columns, accesses
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import OpRecord
from kernbench.sim_engine.pending import PendingRanges
from kernbench.trace import Trace, TraceWriter

END = 400


ROWS = some_rows(
    END,
    axes=st.integers(0, 3),
    counts=st.integers(1, 3),
    pitches=lambda within: st.integers(within, within + 4),
)
WRITES = st.lists(ROWS, max_size=8)


@pytest.mark.slow
@given(WRITES, ROWS, st.booleans())
def test_a_store_holds_what_was_written_to_each_byte(writes, wanted, is_filled):
    store = MemoryStore()
    held = {}
    if is_filled:
        store.write("hbm", 0, np.zeros(END, np.uint8))
        held = dict.fromkeys(range(END), 0)
    for number, rows in enumerate(writes):
        data = (np.arange(rows.nbytes) + 17 * number).astype(np.uint8)
        store.patch_rows("hbm", rows, data)
        held |= dict(zip(bytes_of(rows), data.tolist(), strict=True))
    mine = bytes_of(wanted)
    if all(byte in held for byte in mine):
        found = store.view_rows("hbm", wanted, (len(mine),), "u8")
        assert found.tolist() == [held[byte] for byte in mine]
    else:
        with pytest.raises(MemoryStoreError, match="was never written"):
            store.view_rows("hbm", wanted, (len(mine),), "u8")
    for byte in range(END):
        if byte in held:
            assert store.view("hbm", byte, (1,), "u8")[0] == held[byte]
        else:
            assert store.gap("hbm", byte, 1) == byte


def test_rows_are_written_into_no_array_that_somebody_else_holds():
    store = MemoryStore()
    mine = np.zeros(64, np.uint8)
    store.write("hbm", 0, mine)
    before = store.snapshot()
    store.patch_rows("hbm", Rows(0, 4, 4, 16), np.ones(16, np.uint8))
    assert not mine.any()
    assert not before.view("hbm", 0, (64,), "u8").any()


@pytest.mark.slow
@given(st.lists(st.tuples(st.booleans(), ROWS), max_size=8), ROWS)
def test_pending_are_the_bytes_of_rows_and_not_those_between(steps, wanted):
    pending = PendingRanges()
    held = {}
    for number, (is_marked, rows) in enumerate(steps):
        if is_marked:
            pending.mark_rows("hbm", rows, number)
        else:
            pending.clear_rows("hbm", rows)
        for byte in bytes_of(rows):
            held[byte] = number if is_marked else None
    found = {held.get(byte) for byte in bytes_of(wanted)} - {None}
    assert (pending.find_rows("hbm", wanted) in found) if found else True
    assert (pending.find_rows("hbm", wanted) is None) == (not found)
    for byte in range(END):
        assert pending.find("hbm", byte, 1) == held.get(byte)


BAD = {
    "rows of other bytes": (
        {"rows": 3, "row_bytes": 16, "pitch": 32},
        "48 bytes of an",
    ),
    "rows that overlap": ({"rows": 4, "row_bytes": 16, "pitch": 8}, "overlap"),
    "no rows": ({"rows": 0, "row_bytes": 16, "pitch": 32}, "are no rows"),
    "a text": ({"rows": "4", "row_bytes": 16, "pitch": 32}, "are no rows"),
    "no pitch": ({"rows": 4, "row_bytes": 16}, "lack 'pitch'"),
    "three planes": (
        {"rows": 1, "row_bytes": 8, "pitch": 0, "planes": ((2, 9), (2, 18), (2, 36))},
        "are no rows",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_params_that_are_no_rows_are_one_error(name, tmp_path):
    more, why = BAD[name]
    params = {
        "src_space": "hbm",
        "src_addr": 0,
        "dst_space": "tcm",
        "dst_addr": 0,
        "shape": (4, 4),
        "dtype": "f32",
        "nbytes": 64,
    }
    record = OpRecord(0.0, 1.0, "n", "memory", "dma_read", params | more)
    with pytest.raises(TraceFormatError, match=why):
        accesses(record)
    writer = TraceWriter(tmp_path / "t")
    writer.op(0, record, 0, 0, [], [])
    writer.close()
    with pytest.raises(TraceFormatError):
        access_columns(Trace.open(tmp_path / "t"))
