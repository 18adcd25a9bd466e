"""DMAs in rows whose gaps are written by other ops: everybody sees bytes, not spans.

The reference is a list of bytes that loops write one by one.
"""

import random
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
import pytest
from plain_rows import bytes_of
from replay_logs import PE0, PE1, Log, host_write, region

from kernbench.common.messages import Region
from kernbench.common.pe_commands import DmaReadCmd, DmaWriteCmd
from kernbench.common.rows import Rows
from kernbench.replay.data.hazards import (
    EARLY_WRITER,
    LATE_WRITER,
    TWO_WRITERS,
    conflict,
    conflicting_pairs,
    timing,
)
from kernbench.replay.data.history import History
from kernbench.replay.data.spread import Spread
from kernbench.replay.plain import as_data
from kernbench.replay.races.findings import TOGETHER
from kernbench.replay.text import as_text
from kernbench.sim_engine.accesses import access_columns, accesses
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.event_log import Shard
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.trace import Trace
from kernbench.trace.cut import cut

FLOAT = 4
HBM_FLOATS = 128
SCRATCH_FLOATS = 64


def descriptor(rng, addr, dims):
    """Rows of floats that step over gaps, sometimes with the axes turned."""
    within = rng.randint(1, 3)
    row_bytes = within * FLOAT
    axes = []
    for _ in range(dims):
        count = rng.randint(2, 3)
        pitch = within + rng.randint(0, 3)
        axes.insert(0, (count, pitch * FLOAT))
        within = pitch * count
    if rng.random() < 0.3:
        rng.shuffle(axes)
    return Rows.of(addr, tuple(axes), row_bytes)


def strided_store(src, rows):
    n = rows.nbytes // FLOAT
    strided = None if rows.is_one else rows
    return DmaWriteCmd(
        src=region("tcm", src, n), dst_addr=rows.addr, handle_id="h", strided=strided
    )


def strided_load(rows, dst):
    n = rows.nbytes // FLOAT
    strided = None if rows.is_one else rows
    src = Region("hbm", rows.addr, (n,), "f32", rows.nbytes, strided)
    return DmaReadCmd(src=src, dst=region("tcm", dst, n), handle_id="h")


class Case:
    """A trace of random DMAs, and what each byte was after each op."""

    def __init__(self, path, graph, seed):
        rng = random.Random(seed)
        self.memory = {}
        self.writer = {}
        self.states = []
        self.touched = []
        log = Log(path, graph)
        log.op(host_write(0, HBM_FLOATS), 0, 1)
        data = np.arange(HBM_FLOATS, dtype=np.float32).tobytes()
        self._ran([], [("hbm", i) for i in range(len(data))], data)
        log.op(host_write(0, SCRATCH_FLOATS, space="tcm"), 2, 3)
        data = data[: SCRATCH_FLOATS * FLOAT]
        self._ran([], [("tcm", i) for i in range(len(data))], data)
        for number in range(40):
            t0 = 10 * (number + 1)
            rows = descriptor(rng, 0, rng.randint(0, 3))
            if rows.span > HBM_FLOATS * FLOAT or rows.nbytes > SCRATCH_FLOATS * FLOAT:
                continue
            most = HBM_FLOATS - rows.span // FLOAT
            rows = rows.at(rng.randint(0, most) * FLOAT)
            at = rng.randint(0, SCRATCH_FLOATS - rows.nbytes // FLOAT) * FLOAT
            far = [("hbm", byte) for byte in bytes_of(rows)]
            near = [("tcm", at + i) for i in range(rows.nbytes)]
            if rng.random() < 0.7:
                log.op(strided_store(at, rows), t0, t0 + 5)
                self._ran(near, far, self._held(near))
            else:
                log.op(strided_load(rows, at), t0, t0 + 5)
                self._ran(far, near, self._held(far))
        log.writer.close()
        self.trace = Trace.open(path)

    def _held(self, places):
        return bytes(self.memory[place] for place in places)

    def _ran(self, reads, writes, data):
        number = len(self.states)
        for place, byte in zip(writes, data, strict=True):
            self.memory[place] = byte
            self.writer[place] = number
        self.states.append((dict(self.memory), dict(self.writer)))
        self.touched.append((reads, writes))


@pytest.fixture(params=range(6))
def case(request, tmp_path, small):
    return Case(tmp_path / "t", small, request.param)


def test_an_access_is_every_byte_of_its_rows_and_no_other(case):
    for op, (reads, writes) in enumerate(case.touched):
        found = {"r": [], "w": []}
        for mode, space, addr, nbytes in accesses(case.trace.ops[op]):
            found[mode] += [(space, addr + i) for i in range(nbytes)]
        assert found == {"r": reads, "w": writes}


def test_the_columns_of_a_trace_are_those_accesses(case):
    columns = access_columns(case.trace)
    found = [([], []) for _ in case.touched]
    pieces = columns.pieces(np.arange(len(columns.row)))
    for number, addr, nbytes in zip(*pieces, strict=True):
        space = columns.spaces[columns.space[number]]
        mine = found[columns.row[number]][columns.mode[number]]
        mine.extend((space, int(addr) + i) for i in range(nbytes))
    assert found == [(reads, writes) for reads, writes in case.touched]
    moved = [(len(reads), len(writes)) for reads, writes in case.touched]
    # one access a region, however many rows it has
    assert len(columns.row) == sum(bool(n) for both in moved for n in both)


def test_phase_2_leaves_the_gaps_alone(case):
    executor = DataExecutor(case.trace.ops, MemoryStore())
    for op, (memory, _) in enumerate(case.states):
        executor.run_until(op + 1)
        for space, count in (("hbm", HBM_FLOATS), ("tcm", SCRATCH_FLOATS)):
            nbytes = count * FLOAT
            if (space, 0) not in memory:
                continue
            held = executor.store.view(space, 0, (nbytes,), "u8").tobytes()
            assert held == bytes(memory[space, i] for i in range(nbytes))


def test_memory_at_any_op_is_what_was_written_byte_by_byte(case):
    history = History(case.trace)
    for op in random.Random(1).sample(range(len(case.states)), len(case.states)):
        memory, _ = case.states[op]
        for space, count in (("hbm", HBM_FLOATS), ("tcm", SCRATCH_FLOATS)):
            if (space, 0) in memory:
                nbytes = count * FLOAT
                held = history.at(op).view(space, 0, (nbytes,), "u8").tobytes()
                assert held == bytes(memory[space, i] for i in range(nbytes))


@pytest.mark.slow
def test_the_last_writer_of_a_byte_in_a_gap_is_not_who_stepped_over_it(case):
    history = History(case.trace)
    every = np.arange(HBM_FLOATS * FLOAT)
    for op, (_, writer) in enumerate(case.states):
        found = {}
        ops = []
        for last in history.last_writers("hbm", every, op):
            ops.append(last.op)
            found |= dict.fromkeys(last.addresses.tolist(), last.op)
        assert found == {addr: writer["hbm", addr] for addr in every.tolist()}
        assert len(ops) == len(set(ops))


def shifted(rows, floats):
    return rows.at(rows.addr + floats * FLOAT)


def hazards_of(path, graph, first, *others):
    """Hazards of a store of one PE and stores of another, in flight together."""
    log = Log(path, graph)
    log.op(host_write(0, HBM_FLOATS), 0, 1)
    log.op(host_write(0, SCRATCH_FLOATS, space="tcm"), 2, 3)
    log.op(strided_store(0, first), 10, 20, PE0)
    for number, other in enumerate(others):
        log.op(strided_store(0, other), 12 + number, 22 + number, PE1)
    log.writer.close()
    trace = Trace.open(path)
    touched = History(trace).touched
    pairs = conflicting_pairs(touched, timing(trace, touched)).tolist()
    found = [conflict(touched, *pair) for pair in pairs]
    return {(h.op, h.other, h.spread) for h in found}


def test_stores_into_each_others_gaps_are_no_hazard(tmp_path, small):
    rows = Rows(0, 4, 8, 32)
    assert hazards_of(tmp_path / "a", small, rows, shifted(rows, 2)) == set()
    assert hazards_of(tmp_path / "b", small, rows, shifted(rows, 1)) == {
        (3, 2, Spread(4, 32 * 3 + 8, 16, 4, 4, 32))
    }


def test_a_store_in_a_gap_is_told_from_a_longer_one_at_its_place(tmp_path, small):
    planes = Rows(0, 2, 8, 32, ((2, 128),))
    short = Rows.one(24, 8)
    longer = Rows.one(24, 16)
    assert hazards_of(tmp_path / "t", small, planes, short, longer) == {
        (4, 2, Spread(32, 40, 8, 1, 8, 0))
    }


class Access(NamedTuple):
    """What an op reads (mode "r") or writes ("w"): the addresses of all of its bytes.

    It is in flight from ``begins`` to before ``ends``. Those of one ``lane`` are in
    order; it is "" where they are not.
    """

    mode: str
    space: str
    mine: frozenset
    begins: int
    ends: int
    op: int
    lane: str


KINDS = {
    ("r", "w"): EARLY_WRITER,
    ("w", "r"): LATE_WRITER,
    ("w", "w"): TWO_WRITERS,
}


class Race:
    """Random DMAs of two PEs at random times, and every pair of them byte by byte.

    ``expected`` has a line for each two accesses in conflict. ``in_gaps`` counts those
    that would be, but for bytes that lie in gaps of each other.
    """

    def __init__(self, path, graph, seed):
        rng = random.Random(seed)
        log = Log(path, graph)
        log.op(host_write(0, HBM_FLOATS), 0, 1)
        log.op(host_write(0, SCRATCH_FLOATS, space="tcm"), 2, 3)
        touched = []
        rows = Rows.one(0, FLOAT)
        for op in range(2, 80):
            # no two start at once, so this is their canonical order
            starts = 20 + 4 * op
            ends = starts + rng.choice([1, 10, 40])
            pe = rng.choice([PE0, PE1])
            rows = self._beside(rng, rows)
            at = rng.randint(0, SCRATCH_FLOATS - rows.nbytes // FLOAT) * FLOAT
            far = frozenset(bytes_of(rows))
            near = frozenset(range(at, at + rows.nbytes))
            if rng.random() < 0.6:
                issued = starts - rng.choice([0, 0, 6, 15])
                log.op(strided_store(at, rows), starts, ends, pe, t_issue=issued)
                read = Access("r", "tcm", near, starts, ends, op, "")
                write = Access("w", "hbm", far, issued, ends, op, pe)
            else:
                log.op(strided_load(rows, at), starts, ends, pe)
                read = Access("r", "hbm", far, starts, ends, op, pe)
                write = Access("w", "tcm", near, starts, ends, op, "")
            touched += [read, write]
        self.session = log.session()
        self.expected = set()
        self.in_gaps = 0
        touched.sort(key=lambda access: (access.begins, access.op))
        for earlier, later in combinations(touched, 2):
            self._meet(earlier, later)

    @staticmethod
    def _beside(rng, last):
        """Rows of up to four dimensions, often the last ones moved into their gaps."""
        if rng.random() < 0.5:
            rows = shifted(last, rng.randint(1, 3))
            if rows.addr + rows.span <= HBM_FLOATS * FLOAT:
                return rows
        while True:
            rows = descriptor(rng, 0, rng.choice([0, 1, 2, 2, 3]))
            is_small = rows.nbytes <= SCRATCH_FLOATS * FLOAT
            if is_small and rows.span <= HBM_FLOATS * FLOAT:
                break
        most = min(HBM_FLOATS - rows.span // FLOAT, 12)
        return rows.at(rng.randint(0, most) * FLOAT)

    def _meet(self, earlier, later):
        """Add the hazard of two accesses, if it is one."""
        kind = KINDS.get((earlier.mode, later.mode))
        is_ordered = earlier.lane == later.lane != ""
        same_space = earlier.space == later.space
        at_once = later.begins < earlier.ends and earlier.op != later.op
        if kind is None or is_ordered or not same_space or not at_once:
            return
        both = earlier.mine & later.mine
        if both:
            line = (kind, later.op, earlier.op, later.space, *layout(both))
            self.expected.add(line)
            return
        low = max(min(earlier.mine), min(later.mine))
        high = min(max(earlier.mine), max(later.mine))
        self.in_gaps += low < high


def layout(addresses):
    """(first, bytes, rows, bytes a row, pitch) of bytes, as lines about them say."""
    starts = sorted(addr for addr in addresses if addr - 1 not in addresses)
    ends = sorted(addr + 1 for addr in addresses if addr + 1 not in addresses)
    sizes = [end - start for start, end in zip(starts, ends, strict=True)]
    apart = [after - before for before, after in pairwise(starts)]
    return starts[0], len(addresses), len(starts), same(sizes), same(apart)


def same(numbers):
    """The number that all of them are; 0 of none, or of different ones."""
    found = set(numbers)
    return found.pop() if len(found) == 1 else 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_hazards_are_those_of_every_byte_of_every_two_descriptors(
    tmp_path, small, seed
):
    race = Race(tmp_path / "t", small, seed)
    rows = [h for h in race.session.hazards().rows if h.kind == TOGETHER]
    found = set()
    for h in rows:
        where = (h.addr, h.nbytes, h.rows, h.row_bytes, h.pitch)
        found.add((h.what, h.op.op, h.other.op, h.space, *where))
    assert found == race.expected
    assert len(rows) == len(found)
    # what it is about: some share rows, and some have bytes in gaps only
    assert any(h.rows > 1 for h in rows)
    assert race.in_gaps


# -- what users are told of them --


ROWS_OF_SIXTEEN = Rows(0, 4, 8, 32)


def race(path, graph):
    """Two PEs store into the same four rows of a matrix of 16 rows of 8 at one time."""
    log = Log(path, graph)
    log.op(host_write(0, HBM_FLOATS), 0, 1)
    log.op(host_write(0, SCRATCH_FLOATS, space="tcm"), 2, 3)
    box = (0, 0), (HBM_FLOATS // 8, 8)
    writer = log.writer
    writer.alloc(Shard("y", "f32", "hbm", 0, 0, HBM_FLOATS * FLOAT, PE0, *box, 1))
    writer.alloc(Shard("s", "f32", "tcm", 0, 0, 256, PE0, (0,), (64,), 1))
    log.op(strided_store(0, ROWS_OF_SIXTEEN), 10, 20, PE0)
    log.op(strided_store(0, ROWS_OF_SIXTEEN), 12, 22, PE1)
    return log.session()


def test_a_race_of_rows_is_one_hazard_in_text_and_json(tmp_path, small):
    found = race(tmp_path / "t", small).hazards()
    assert not found.ok
    (row,) = found.rows
    assert (row.op.op, row.other.op, row.addr, row.nbytes) == (3, 2, 0, 32)
    (data,) = as_data(found)["rows"]
    assert (data["rows"], data["row_bytes"], data["pitch"]) == (4, 8, 32)
    text = " ".join(as_text(found).split())
    assert "32 bytes in 4 rows of 8, 32 apart, of hbm at 0x0 (y)" in text


def test_history_readers_and_writers_have_one_line_an_op(tmp_path, small):
    session = race(tmp_path / "t", small)
    whole = f"hbm 0x0:{HBM_FLOATS * FLOAT}"
    history = session.history_of(whole).rows
    assert [(h.kind, h.op.op, h.nbytes, h.rows) for h in history] == [
        ("write", 0, HBM_FLOATS * FLOAT, 1),
        ("write", 2, 32, 4),
        ("write", 3, 32, 4),
    ]
    session.goto(3)
    writers = session.who_wrote(whole).rows
    assert [(w.op.op, w.nbytes, w.rows) for w in writers] == [
        (0, HBM_FLOATS * FLOAT - 32, 4),
        (3, 32, 4),
    ]


def test_what_rows_write_is_named_as_a_box_of_their_tensor(tmp_path, small):
    session = race(tmp_path / "t", small)
    # 4 rows of 2 floats, 8 floats apart, of a tensor with rows of 8
    assert session.index.memory.touches(2).endswith("[0:4, 0:2]")
    assert session.index.memory.touches(0) == f"hbm 0x0:{HBM_FLOATS * FLOAT}"


def test_a_reader_of_a_gap_does_not_read_the_rows_around_it(tmp_path, small):
    log = Log(tmp_path / "t", small)
    log.op(host_write(0, HBM_FLOATS), 0, 1)
    log.op(strided_load(ROWS_OF_SIXTEEN, 0), 10, 20)
    session = log.session()
    session.goto(0)
    assert [r.op.op for r in session.who_reads("hbm 0x20:8").rows] == [1]
    assert session.who_reads("hbm 0x8:24").rows == ()


# -- cut and verify --


@pytest.mark.parametrize("seed", range(4))
def test_a_cut_keeps_the_allocations_of_rows_and_not_those_of_gaps(
    tmp_path, small, seed
):
    rng = random.Random(seed)
    behind = HBM_FLOATS * FLOAT  # where no address is one of HBM
    log = Log(tmp_path / "t", small)
    log.op(host_write(0, HBM_FLOATS), 0, 1)
    log.op(host_write(behind, SCRATCH_FLOATS, space="tcm"), 2, 3)
    for number in range(HBM_FLOATS // 4):
        log.alloc("hbm", number * 16, 16, f"x{number}", 1)
    rows = descriptor(rng, 0, rng.randint(1, 2))
    rows = rows.at(rng.randint(0, (HBM_FLOATS * FLOAT - rows.span) // FLOAT) * FLOAT)
    log.op(strided_store(behind, rows), 10, 20)
    gaps = sorted({*range(rows.addr, rows.addr + rows.span)} - {*bytes_of(rows)})
    for gap in gaps[::FLOAT]:
        log.op(strided_store(behind, Rows.one(gap, FLOAT)), 30 + gap, 31 + gap)
    log.writer.close()
    cut(tmp_path / "t", tmp_path / "part", 10, 20)
    part = Trace.open(tmp_path / "part")
    kept = {shard.tensor for shard in part.shards(range(len(part.alloc_columns.addr)))}
    assert kept == {f"x{addr // 16}" for addr in bytes_of(rows)}
    assert [op.params.get("rows", 1) for op in part.ops] == [rows.rows]
    assert accesses(part.ops[0]) == accesses(Trace.open(tmp_path / "t").ops[2])


@pytest.mark.parametrize("seed", range(4))
def test_verify_judges_what_strided_stores_left_byte_by_byte(tmp_path, small, seed):
    rng = random.Random(seed)
    log = Log(tmp_path / "t", small)
    log.op(host_write(0, HBM_FLOATS), 0, 1)
    log.op(host_write(0, SCRATCH_FLOATS, space="tcm"), 2, 3)
    held = np.arange(HBM_FLOATS, dtype=np.float32)
    for number in range(6):
        rows = descriptor(rng, 0, rng.randint(1, 3))
        if rows.span > HBM_FLOATS * FLOAT:
            continue
        most = (HBM_FLOATS * FLOAT - rows.span) // FLOAT
        rows = rows.at(rng.randint(0, most) * FLOAT)
        log.op(strided_store(0, rows), 10 + 10 * number, 15 + 10 * number)
        for value, byte in enumerate(bytes_of(rows)[::FLOAT]):
            held[byte // FLOAT] = value
    if seed == 3:
        held[0] += 1.0
    log.expect("y", 0, held)
    assert log.session().verify().ok == (seed != 3)
