"""Accesses of rows as columns, against every single byte."""

from itertools import product

import hypothesis.strategies as st
import numpy as np
from pace import for_all
from plain_rows import bytes_of, some_rows

from kernbench.common.rows import Rows
from kernbench.replay.data.hazards import (
    Timing,
    conflict,
    conflicting_pairs,
    outside,
    unwritten,
)
from kernbench.replay.data.intervals import IntervalIndex
from kernbench.replay.data.spread import shared_bytes, spread_of_addresses
from kernbench.sim_engine.access_columns import AccessColumns, Forms

END = 200
SPACES = ("hbm", "tcm")


def pitches(within):
    """Often 8, so that rows of several accesses lie between each other."""
    return st.sampled_from([8, 8, 8, within, within + 3]).map(lambda p: max(p, within))


ROWS = some_rows(
    END,
    axes=st.sampled_from([0, 1, 1, 1, 2]),
    counts=st.integers(1, 4),
    pitches=pitches,
)
ACCESS = st.tuples(st.integers(0, 1), st.integers(0, 1), ROWS)
LOGS = st.lists(ACCESS, max_size=14)


def columns(log):
    """An access an op, each of (mode, space, rows)."""
    table = []
    form = []
    for _, _, rows in log:
        planes = [(1, 0)] * (2 - len(rows.planes)) + list(rows.planes)
        cells = [rows.rows, rows.row_bytes, rows.pitch, *planes[0], *planes[1]]
        if not rows.is_one and cells not in table:
            table.append(cells)
        form.append(0 if rows.is_one else 1 + table.index(cells))
    cells = [(mode, space, rows.addr, rows.nbytes) for mode, space, rows in log]
    mode, space, addr, nbytes = np.array(cells, np.int64).reshape(-1, 4).T
    ops = np.arange(len(log))
    forms = Forms(np.array(table, np.int64).reshape(-1, 7))
    return AccessColumns(
        ops, mode, space, addr, nbytes, SPACES, np.array(form, np.uint8), forms
    )


@for_all(LOGS, st.integers(0, END), st.integers(1, 12), fast=20, whole=100)
def test_an_access_meets_a_range_if_it_has_a_byte_of_it(log, low, nbytes):
    touched = columns(log)
    every = np.arange(len(log))
    wanted = set(range(low, low + nbytes))
    expected = [bool(wanted & {*bytes_of(rows)}) for _, _, rows in log]
    assert touched.meets(every, low, low + nbytes).tolist() == expected
    index = IntervalIndex(touched)
    for number, space in enumerate(SPACES):
        mine = [i for i in every if expected[i] and log[i][1] == number]
        assert index.overlapping(space, low, nbytes).tolist() == mine


@for_all(LOGS, fast=20, whole=100)
def test_the_pieces_are_all_bytes_in_order(log):
    touched = columns(log)
    every = np.arange(len(log))
    found = [[] for _ in log]
    for of, addr, nbytes in zip(*touched.pieces(every), strict=True):
        found[of] += range(addr, addr + nbytes)
    assert found == [bytes_of(rows) for _, _, rows in log]
    spans = [max(bytes_of(rows)) + 1 - rows.addr for _, _, rows in log]
    assert touched.spans.tolist() == spans
    counts = np.bincount(touched.pieces(every).of, minlength=len(log))
    assert touched.piece_counts(every).tolist() == counts.tolist()


@for_all(LOGS, fast=20, whole=100)
def test_two_accesses_share_what_is_in_the_bytes_of_both(log):
    touched = columns(log)
    pairs = list(product(range(len(log)), repeat=2))
    a, b = np.array(pairs, np.int64).reshape(-1, 2).T
    shared = [{*bytes_of(log[i][2])} & {*bytes_of(log[j][2])} for i, j in pairs]
    assert touched.share(a, b).tolist() == [bool(both) for both in shared]
    for (i, j), both in zip(pairs, shared, strict=True):
        if both:
            expected = spread_of_addresses(np.array(sorted(both)))
            assert shared_bytes(log[i][2], log[j][2]) == expected
            assert expected.nbytes == len(both)


@for_all(LOGS, fast=20, whole=100)
def test_places_are_the_different_ones_among_the_accesses(log):
    touched = columns(log)
    first, which = touched.distinct_places()
    wanted = [(space, rows) for _, space, rows in log]
    assert len(first) == len(set(wanted))
    assert [wanted[i] for i in first[which]] == wanted


def each(lonely):
    """All that is wrong without another access."""
    return [lonely.hazard(number) for number in lonely.numbers.tolist()]


TIMES = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(-1, 1)),
    min_size=14,
    max_size=14,
)


@for_all(LOGS, TIMES, fast=20, whole=200)
def test_a_conflict_is_one_line_with_the_bytes_that_both_have(log, times):
    touched = columns(log)
    begins, takes, lane = np.array(times[: len(log)], float).reshape(-1, 3).T
    timing = Timing(begins, begins + takes, lane.astype(np.int64))
    expected = {}
    for a, b in product(range(len(log)), repeat=2):
        in_turn = (begins[a], a) < (begins[b], b)
        at_once = begins[b] < timing.ends[a]
        is_ordered = lane[a] == lane[b] >= 0
        one_writes = log[a][0] or log[b][0]
        both = {*bytes_of(log[a][2])} & {*bytes_of(log[b][2])}
        same_space = log[a][1] == log[b][1]
        meet = in_turn and at_once and same_space and not is_ordered
        if meet and one_writes and both:
            expected[b, a] = len(both), min(both), max(both) + 1
    pairs = conflicting_pairs(touched, timing).tolist()
    found = [conflict(touched, *pair) for pair in pairs]
    assert len(found) == len(expected)
    for h in found:
        nbytes = h.end - h.addr if h.spread is None else h.spread.nbytes
        assert expected[h.op, h.other] == (nbytes, h.addr, h.end)


@for_all(LOGS, fast=20, whole=200)
def test_of_rows_all_bytes_are_named_that_nobody_wrote(log):
    expected = {}
    written = [set(), set()]
    for op, (mode, space, rows) in enumerate(log):
        missing = sorted({*bytes_of(rows)} - written[space])
        if mode:
            written[space] |= {*bytes_of(rows)}
        elif missing:
            expected[op] = missing
    found = each(unwritten(columns(log)))
    assert [h.op for h in found] == list(expected)
    for h in found:
        missing = expected[h.op]
        assert h.addr == missing[0]
        if h.spread is not None:
            assert h.spread == spread_of_addresses(np.array(missing))


@for_all(LOGS, LOGS, fast=20, whole=200)
def test_rows_are_outside_if_they_leave_the_allocation_that_they_begin_in(log, shards):
    shards = [(0, space, Rows.one(r.addr, r.span)) for _, space, r in shards]
    expected = []
    for op, (_, space, rows) in enumerate(log):
        out = set()
        # of those that begin by then the one that reaches furthest
        ends = [
            s.addr + s.nbytes
            for _, other, s in shards
            if other == space and s.addr <= rows.addr
        ]
        for addr, nbytes in rows.each():
            if max(ends, default=0) < addr + nbytes:
                out |= set(range(addr, addr + nbytes))
        if out and shards:
            expected.append((op, len(out), min(out), max(out) + 1))
    found = [
        (h.op, h.spread.nbytes if h.spread else h.end - h.addr, h.addr, h.end)
        for h in each(outside(columns(log), columns(shards)))
    ]
    assert found == expected
