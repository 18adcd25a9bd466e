"""Hazards: every kind from a tiny log made by hand, and the search against all pairs of ops."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from replay_logs import PE0, PE1, Log, double, host_write, load, region, store

from kernbench.common.messages import HostReadCmd
from kernbench.replay.data.hazards import (
    EARLY_WRITER,
    LATE_WRITER,
    NEVER_WRITTEN,
    OUTSIDE,
    SNAPSHOT,
    TWO_WRITERS,
    Timing,
    conflicts,
    never_written,
    outside,
)
from kernbench.replay.text import as_text
from kernbench.sim_engine.accesses import AccessColumns


@pytest.fixture
def log(tmp_path, shipped):
    log = Log(tmp_path / "t", shipped)
    log.op(host_write(), 0, 1)
    return log


def found(log):
    """(kind, line of the op, line of the other, space, addr, nbytes); the host write is line 1."""
    return [
        (
            h.kind,
            int(h.op.site.split(":")[1]),
            h.other and int(h.other.site.split(":")[1]),
            h.space,
            h.addr,
            h.nbytes,
        )
        for h in log.session().hazards().rows
    ]


def test_a_read_before_the_load_of_its_operand_has_landed(log):
    log.op(load(0, 0), 10, 20)
    log.op(double(0, 64), 15, 25, engine="pe_math")
    assert found(log) == [(LATE_WRITER, 3, 2, "tcm", 0, 16)]


def test_a_read_that_starts_as_the_writer_ends_is_none(log):
    log.op(load(0, 0), 10, 20)
    log.op(double(0, 64), 20, 25, engine="pe_math")
    assert found(log) == []


def test_two_writes_of_the_same_bytes_at_one_time(log):
    log.op(load(0, 0), 10, 20)
    log.op(load(64, 8), 12, 18)
    assert found(log) == [(TWO_WRITERS, 3, 2, "tcm", 8, 8)]


def test_scratch_reused_under_a_store_that_still_reads_it(log):
    log.op(load(0, 0), 10, 20)
    log.op(store(0, 256), 30, 40)
    log.op(load(64, 0), 35, 45)
    assert found(log) == [(EARLY_WRITER, 4, 3, "tcm", 0, 16)]


def test_dmas_of_one_pe_are_in_order_on_hbm_and_those_of_two_are_not(log):
    log.op(load(0, 0), 10, 20)
    log.op(store(0, 256), 30, 40)
    log.op(load(256, 64), 35, 45)
    log.op(load(256, 1 << 20), 35, 45, pe=PE1)
    assert found(log) == [(LATE_WRITER, 5, 3, "hbm", 256, 16)]


def test_a_store_is_in_flight_from_the_issue_of_its_command_but_reads_from_its_start(
    log,
):
    log.op(load(0, 0), 10, 20)
    log.op(double(0, 64), 21, 30, engine="pe_math")
    log.op(load(256, 1 << 20), 24, 28, pe=PE1)
    log.op(store(64, 256), 30, 40, t_issue=22)
    assert found(log) == [(LATE_WRITER, 4, 5, "hbm", 256, 16)]


def test_host_ops_are_in_order_with_all_others(log):
    log.op(load(0, 0), 0.5, 20)
    log.op(store(0, 256), 20, 40)
    log.op(HostReadCmd(src=region("hbm", 256)), 30, 40)
    assert found(log) == []


def test_a_read_of_memory_never_written_names_the_bytes(log):
    log.op(load(0, 0), 10, 20)
    log.op(double(8, 64), 30, 35, engine="pe_math")
    assert found(log) == [(NEVER_WRITTEN, 3, None, "tcm", 16, 8)]


def test_bytes_that_are_only_written_later_count_as_never_written(log):
    log.op(double(0, 64), 5, 6, engine="pe_math")
    log.op(load(0, 0), 10, 20)
    assert found(log) == [(NEVER_WRITTEN, 2, None, "tcm", 0, 16)]


def test_an_access_past_the_end_of_its_shard(log):
    log.alloc("hbm", 0, 256)
    log.alloc("tcm", 0, 1 << 20)
    log.op(load(240, 0, 8), 10, 20)
    assert found(log)[1:] == [(OUTSIDE, 2, None, "hbm", 240, 32)]


def test_a_phase_1_snapshot_that_phase_2_does_not_confirm(tmp_path, shipped):
    log = Log(tmp_path / "t", shipped)
    log.op(host_write(), 0, 1)
    log.logger.record_copy(
        5,
        6,
        f"{PE0}.pe_dma",
        "hbm",
        0,
        "tcm",
        0,
        (4,),
        "f32",
        16,
        np.full(4, 9.0, np.float32),
    )
    (hazard,) = log.session().hazards().rows
    assert (hazard.kind, hazard.op.name) == (SNAPSHOT, "ipcq_copy")
    assert (hazard.space, hazard.addr, hazard.nbytes) == ("hbm", 0, 16)


def test_the_text_names_both_ops_their_lines_pes_and_times(log):
    log.op(load(0, 0), 10, 20)
    log.op(double(0, 64), 15, 25, engine="pe_math")
    text = as_text(log.session().hazards())
    parts = [LATE_WRITER, "tcm", "0x0", "16 bytes", "kernel.py:3", "kernel.py:2"]
    for part in [
        *parts,
        f"{PE0}.pe_math",
        f"{PE0}.pe_dma",
        "15.00",
        "25.00",
        "10.00",
        "20.00",
    ]:
        assert part in text


def test_tiles_are_left_out_and_a_recorded_bench_has_none(session):
    assert "TileToken/DMA_READ" in session.info().by_name
    assert session.hazards().rows == ()
    assert session.hazards().note == ""


# -- against all pairs --

SPACES = ("hbm", "tcm")
ACCESS = st.tuples(
    st.integers(0, 1),  # mode
    st.integers(0, 1),  # space
    st.integers(0, 40),
    st.one_of(st.integers(1, 8), st.integers(1, 80)),
    st.integers(0, 12),  # begins
    st.integers(1, 6),  # for
    st.integers(-1, 1),  # lane
)
LOGS = st.lists(st.tuples(st.integers(0, 3), ACCESS), max_size=24)


def columns(log):
    """Accesses of ops in a row; some share one with the access before."""
    ops = np.cumsum([new > 0 for new, _ in log], dtype=np.int64)
    mode, space, addr, nbytes, begins, takes, lane = (
        np.array([row for _, row in log], np.int64).reshape(-1, 7).T
    )
    touched = AccessColumns(ops, mode, space, addr, nbytes, SPACES)
    return touched, begins.astype(float), (begins + takes).astype(float), lane


@settings(max_examples=300)
@given(log=LOGS)
def test_conflicts_are_those_of_all_pairs(log):
    touched, begins, ends, lane = columns(log)
    rows = list(
        zip(*(c.tolist() for c in (*touched[:5], begins, ends, lane)), strict=True)
    )
    expected = set()
    for op1, mode1, space1, addr1, n1, t1, end1, lane1 in rows:
        for op2, mode2, space2, addr2, n2, t2, _, lane2 in rows:
            later = (t1, op1) < (t2, op2) and op1 != op2 and t2 < end1
            low, high = max(addr1, addr2), min(addr1 + n1, addr2 + n2)
            ordered = lane1 == lane2 >= 0
            if (
                later
                and space1 == space2
                and low < high
                and mode1 + mode2
                and not ordered
            ):
                kind = {(1, 0): LATE_WRITER, (1, 1): TWO_WRITERS, (0, 1): EARLY_WRITER}
                expected.add((kind[mode1, mode2], op2, op1, SPACES[space1], low, high))
    assert set(conflicts(touched, Timing(begins, ends, lane))) == expected


@settings(max_examples=300)
@given(log=LOGS)
def test_reads_of_bytes_never_written_are_those_of_byte_after_byte(log):
    touched, *_ = columns(log)
    rows = list(zip(*(c.tolist() for c in touched[:5]), strict=True))
    expected = []
    for op, mode, space, addr, nbytes in rows:
        written = {
            byte
            for other, w, s, a, n in rows
            if w and s == space and other < op
            for byte in range(a, a + n)
        }
        missing = [b for b in range(addr, addr + nbytes) if b not in written]
        if mode == 0 and missing:
            expected.append((op, SPACES[space], missing[0]))
    seen = never_written(touched)
    assert [(op, space, addr) for _, op, _, space, addr, _ in seen] == expected
    assert all(end > addr for *_, addr, end in seen)


@given(log=LOGS, shards=LOGS)
def test_what_is_outside_all_allocations_is_found(log, shards):
    touched, *_ = columns(log)
    allocs, *_ = columns(shards)
    boxes = list(zip(*(c.tolist() for c in allocs[2:5]), strict=True))
    expected = [
        (op, SPACES[space], addr, addr + nbytes)
        for op, _, space, addr, nbytes in zip(
            *(c.tolist() for c in touched[:5]), strict=True
        )
        if boxes  # of a trace that holds no allocation nothing is known
        and not any(
            s == space and b <= addr and addr + nbytes <= b + n for s, b, n in boxes
        )
    ]
    assert [(op, *place) for _, op, _, *place in outside(touched, allocs)] == expected
