"""Hazards: every kind from a tiny log by hand, and the search against all pairs."""

from typing import NamedTuple

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
    conflict,
    conflicting_pairs,
    outside,
    unwritten,
)
from kernbench.replay.text import as_text
from kernbench.sim_engine.access_columns import AccessColumns


@pytest.fixture
def log(tmp_path, shipped):
    log = Log(tmp_path / "t", shipped)
    log.op(host_write(), 0, 1)
    return log


def line_of(row):
    """The kernel line of an op, its number in the log from 1; None for no op."""
    return row and int(row.site.split(":")[1])


def found(log):
    """(what, line of the op, of the other, space, addr, nbytes) of every hazard.

    The host write is line 1.
    """
    rows = log.session().hazards().rows
    return [
        (h.what or h.kind, line_of(h.op), line_of(h.other), h.space, h.addr, h.nbytes)
        for h in rows
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


def test_two_hazards_of_the_same_bytes_are_in_the_order_of_their_kinds(log):
    log.alloc("hbm", 0, 512)
    log.alloc("tcm", 0, 128)
    log.op(double(256, 64), 10, 20, engine="pe_math")
    assert found(log) == [
        (OUTSIDE, 2, None, "tcm", 256, 16),
        (NEVER_WRITTEN, 2, None, "tcm", 256, 16),
    ]


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
    parts += [f"{PE0}.pe_math", f"{PE0}.pe_dma", "15.00", "25.00", "10.00", "20.00"]
    for part in parts:
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
    """Accesses of ops in a row, of which some share one with the access before."""
    ops = np.cumsum([is_new > 0 for is_new, _ in log], dtype=np.int64)
    cells = np.array([access for _, access in log], np.int64).reshape(-1, 7).T
    mode, space, addr, nbytes, begins, takes, lane = cells
    touched = AccessColumns(ops, mode, space, addr, nbytes, SPACES)
    ends = (begins + takes).astype(float)
    return touched, Timing(begins.astype(float), ends, lane)


class Access(NamedTuple):
    """An access of a log, beside its columns."""

    op: int
    mode: int
    space: int
    addr: int
    nbytes: int
    begins: float
    ends: float
    lane: int

    @property
    def end(self):
        return self.addr + self.nbytes


def rows(touched, timing):
    columns = (*touched[:5], *timing)
    return [Access(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]


KINDS = {(1, 0): LATE_WRITER, (1, 1): TWO_WRITERS, (0, 1): EARLY_WRITER}


def plain_conflict(a, b):
    """The conflict of ``a`` with ``b``, which begins later; None if there is none."""
    in_turn = (a.begins, a.op) < (b.begins, b.op) and a.op != b.op
    at_once = b.begins < a.ends
    low = max(a.addr, b.addr)
    high = min(a.end, b.end)
    shares = a.space == b.space and low < high
    is_ordered = a.lane == b.lane >= 0
    if not (in_turn and at_once and shares) or is_ordered or not a.mode + b.mode:
        return None
    return KINDS[a.mode, b.mode], b.op, a.op, SPACES[a.space], low, high


@pytest.mark.slow
@settings(max_examples=100)
@given(log=LOGS)
def test_conflicts_are_those_of_all_pairs(log):
    touched, timing = columns(log)
    accesses = rows(touched, timing)
    expected = {plain_conflict(a, b) for a in accesses for b in accesses} - {None}
    pairs = conflicting_pairs(touched, timing).tolist()
    assert {conflict(touched, *pair)[:6] for pair in pairs} == expected


@pytest.mark.slow
@settings(max_examples=100)
@given(log=LOGS)
def test_reads_of_bytes_never_written_are_those_of_byte_after_byte(log):
    touched, timing = columns(log)
    accesses = rows(touched, timing)
    expected = []
    for read in accesses:
        written = set()
        for write in accesses:
            if write.mode and write.space == read.space and write.op < read.op:
                written |= {*range(write.addr, write.end)}
        missing = sorted({*range(read.addr, read.end)} - written)
        if read.mode == 0 and missing:
            expected.append((read.op, SPACES[read.space], missing[0]))
    found = unwritten(touched)
    seen = [found.hazard(number) for number in found.numbers.tolist()]
    assert [(hazard.op, hazard.space, hazard.addr) for hazard in seen] == expected
    assert all(hazard.end > hazard.addr for hazard in seen)


@pytest.mark.slow
@given(log=LOGS, shards=LOGS)
def test_what_is_outside_all_allocations_is_found(log, shards):
    touched, timing = columns(log)
    boxes = rows(*columns(shards))
    expected = []
    for access in rows(touched, timing):
        is_inside = any(
            box.space == access.space
            and box.addr <= access.addr
            and access.end <= box.end
            for box in boxes
        )
        if boxes and not is_inside:  # without allocations nothing is known
            place = SPACES[access.space], access.addr, access.end
            expected.append((access.op, *place))
    allocs, _ = columns(shards)
    found = outside(touched, allocs)
    seen = [found.hazard(number) for number in found.numbers.tolist()]
    assert [(h.op, h.space, h.addr, h.end) for h in seen] == expected
