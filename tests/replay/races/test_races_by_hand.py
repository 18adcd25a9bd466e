"""Races of small programs: each is one finding, whatever the timing."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from two_pes import first_line, lines_of, text_of

from kernbench.benches.faults import missing_wait
from kernbench.cli import main
from kernbench.replay import ReplaySession
from kernbench.replay.races.findings import OUTSIDE, TOGETHER, UNORDERED
from kernbench.replay.text import as_text
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace
from kernbench.trace.cut import cut


@pytest.fixture
def hazards(tmp_path):
    """The findings of a kernel, given by its lines, on two PEs."""

    def found(*lines, **options):
        (tmp_path / "by_hand.py").write_text(text_of(*lines))
        run_bench(str(tmp_path / "by_hand.py"), trace=tmp_path / "t", **options)
        return ReplaySession(Trace.open(tmp_path / "t")).hazards()

    return found


@pytest.mark.parametrize("between", [0, 2, 4, 8, 64])
def test_a_load_that_nobody_waits_for_is_the_same_finding_whatever_lies_between(
    hazards, between
):
    found = hazards(
        "other = tl.full((64,), 1.0, 'f32')",
        "got = tl.load(x + pe * 256, (64,), 'f32', wait=False)",
        f"for _ in range({between}): other + other",
        "got + got",
    )
    (row,) = found.rows
    assert row.kind == (TOGETHER if between < 64 else UNORDERED)
    assert lines_of(row) == [1, 3]
    assert row.tensor.endswith(f"by_hand.py:{first_line() + 1}")
    assert row.count == 2  # of both PEs
    assert not found.ok


@pytest.mark.parametrize("between", [0, 2, 4, 8, 64])
@pytest.mark.slow
def test_the_shipped_missing_wait_is_found_whatever_lies_between(between, tmp_path):
    source = Path(missing_wait.__file__).read_text()
    store = "    tl.store(y_ptr, x + x)"
    busy = f"    for _ in range({between}): other + other\n"
    other = '    other = tl.full((64,), 1.0, "f32")\n'
    load = "    x = tl.load("
    text = source.replace(store, busy + store).replace(load, other + load)
    (tmp_path / "busy.py").write_text(text)
    run_bench(str(tmp_path / "busy.py"), trace=tmp_path / "t")
    (row,) = ReplaySession(Trace.open(tmp_path / "t")).hazards().rows
    lines = text.splitlines()
    named = [lines[int(site.rpartition(":")[2]) - 1] for site in row.sites]
    assert named[0].startswith(load)
    assert named[1].startswith(store)
    assert (row.count, row.op.name, row.is_race) == (1, "add", True)


def test_a_load_that_is_waited_for_is_none(hazards):
    found = hazards(
        "got = tl.load(x + pe * 256, (64,), 'f32', wait=False)",
        "tl.wait(got)",
        "got + got",
    )
    assert found.rows == ()


@pytest.mark.parametrize("adds", [0, 20])
def test_two_pes_that_store_one_row_race_at_once_and_100_ns_apart(hazards, adds):
    found = hazards(
        "one = tl.full((64,), 1.0, 'f32')",
        f"for _ in range({adds} * pe): one + one",
        "tl.store(x, one)",
    )
    (row,) = found.rows
    assert row.kind == (UNORDERED if adds else TOGETHER)
    assert (lines_of(row), row.tensor) == ([2, 2], "x")


@pytest.mark.parametrize("late", [0, 1])
def test_a_producer_without_a_message_to_its_consumer(hazards, late):
    found = hazards(
        "one = tl.full((64,), 1.0, 'f32')",
        f"for _ in range(200 * (pe == {late})): one + one",
        "if pe == 0: tl.store(x, one)",
        "if pe == 1: tl.load(x, (64,), 'f32')",
    )
    (row,) = found.rows
    assert row.kind == UNORDERED
    assert lines_of(row) == ([2, 3] if late else [3, 2])
    assert row.tensor == "x"


@pytest.mark.parametrize("recv", ["tl.recv('W', (1,), 'f32')", "late()"])
def test_a_message_orders_what_was_stored_before_it(hazards, recv):
    found = hazards(
        "one = tl.full((64,), 1.0, 'f32')",
        "def late(): tl.wait(tl.recv_async('W', (1,), 'f32'))",
        "if pe == 0: tl.store(x, one)",
        "if pe == 0: tl.send('E', tl.full((1,), 0.0, 'f32'), wait=False)",
        f"if pe == 1: {recv}",
        "if pe == 1: tl.load(x, (64,), 'f32')",
    )
    assert found.rows == ()


def test_a_message_sent_before_the_store_has_ended_orders_nothing(hazards):
    found = hazards(
        "one = tl.full((64,), 1.0, 'f32')",
        "if pe == 0: tl.store(x, one, wait=False)",
        "if pe == 0: tl.send('E', tl.full((1,), 0.0, 'f32'))",
        "if pe == 1: tl.recv('W', (1,), 'f32')",
        "if pe == 1: tl.load(x, (64,), 'f32')",
    )
    (row,) = found.rows
    assert lines_of(row) == [1, 4]


def test_a_recv_that_nobody_waited_for_tells_nothing(hazards):
    found = hazards(
        "one = tl.full((64,), 1.0, 'f32')",
        "if pe == 0: tl.store(x, one)",
        "if pe == 0: tl.send('E', tl.full((1,), 0.0, 'f32'))",
        "if pe == 1: tl.recv_async('W', (1,), 'f32')",
        "for _ in range(200 * pe): one + one",
        "if pe == 1: tl.load(x, (64,), 'f32')",
    )
    (row,) = found.rows
    assert (row.kind, lines_of(row)) == (UNORDERED, [1, 5])


def test_what_is_sent_may_be_overwritten_by_its_pe_and_by_who_received_it(hazards):
    found = hazards(
        "if pe == 0: tl.send('E', tl.ref(x, (64,), 'f32'), wait=False)",
        "if pe == 1: tl.recv('W', (64,), 'f32')",
        "one = tl.full((64,), 1.0, 'f32')",
        "if pe == 1: tl.store(x, one)",
    )
    assert found.rows == ()


def pairs_of_lines(found):
    return sorted(sorted(lines_of(row)) for row in found.rows)


TELL = (
    "if pe == 0: tl.send('E', one)",
    "if pe == 1: tl.recv('W', (8, 8), 'f32')",
    "if pe == 1: tl.store(x, one)",
)
"""PE 0 says that it is done, and PE 1 stores where PE 0 was."""


def test_a_load_under_way_races_with_the_store_of_another_pe_behind_a_write(hazards):
    found = hazards(
        "one = tl.full((8, 8), 1.0, 'f32')",
        "if pe == 0: tl.load(x, (64,), 'f32', wait=False)",
        "if pe == 0: tl.composite(a=one, b=one, out_ptr=x, wait=True)",
        *TELL,
    )
    assert pairs_of_lines(found) == [[1, 2], [1, 5]]


def test_a_store_that_only_a_load_has_seen_races_with_that_of_another_pe(hazards):
    """The load sees the store before it has ended, which is all that is promised."""
    found = hazards(
        "one = tl.full((8, 8), 1.0, 'f32')",
        "if pe == 0: tl.store(x, one, wait=False)",
        "if pe == 0: tl.load(x, (64,), 'f32')",
        *TELL,
    )
    assert pairs_of_lines(found) == [[1, 5]]


def test_races_of_the_same_lines_are_one_finding_with_a_count(hazards):
    found = hazards(
        "one = tl.full((64,), 1.0, 'f32')",
        "for _ in range(50): tl.store(x, one)",
    )
    (row,) = found.rows
    assert row.count > 50
    assert f"{row.count:,} times" in as_text(found).splitlines()[0]


def test_where_not_every_pair_is_compared_that_is_said(hazards):
    found = hazards(
        "one = tl.full((64,), 1.0, 'f32')",
        "for _ in range(150): tl.store(x, one)",
    )
    assert len(found.rows) == 1
    said = as_text(found)
    assert "there are more: of bytes that many ops use only neighbours" in said


def test_a_strided_load_that_ends_in_the_next_tensor_leaves_its_own(hazards):
    found = hazards(
        "if pe: tl.load(x + 256, (16, 2), 'f32', strides=(8, 1))",
        warn_memory=True,
    )
    (row,) = found.rows
    assert (row.kind, row.op.name, lines_of(row)) == (OUTSIDE, "dma_read", [0])
    # rows of 8 bytes, 32 apart: of 16 the tensor's 256 bytes hold 8
    assert (row.rows, row.row_bytes, row.pitch) == (8, 8, 32)
    assert row.tensor == "y"


def test_a_race_that_did_not_meet_ends_the_command_with_1(hazards, tmp_path):
    hazards(
        "got = tl.load(x + pe * 256, (64,), 'f32', wait=False)",
        "other = tl.full((64,), 1.0, 'f32')",
        "for _ in range(64): other + other",
        "got + got",
    )
    done = CliRunner().invoke(main, ["trace", "hazards", str(tmp_path / "t")])
    assert done.exit_code == 1
    assert done.output.startswith(UNORDERED)


def test_a_part_of_a_run_says_that_only_what_met_was_looked_for(hazards, tmp_path):
    hazards("tl.load(x + pe * 256, (64,), 'f32')")
    cut(tmp_path / "t", tmp_path / "part", 0.0, 1e6)
    text = as_text(ReplaySession(Trace.open(tmp_path / "part")).hazards())
    assert "not checked: what did not meet in this part of a run" in text


RANKS = """
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import bench

MACHINE = {
    "system.sips.count": 2,
    "sip.cube_mesh.w": 1,
    "sip.cube_mesh.h": 1,
    "cube.pes": 1,
    "cube.memory_map.slices_per_cube": 1,
}


def kernel(own, shared, count, tl):
    one = tl.full((64,), 1.0, "f32")
    for _ in range(count):
        one + one
    tl.store(shared, one)


def rank(number, shared, barrier, torch):
    torch.distributed.init_process_group()
    own = torch.zeros((64,), "f32", name="own")
    if number:
        torch.launch("first", kernel, own, shared, 0)
    if barrier:
        torch.distributed.barrier()
    if not number:
        torch.launch("second", kernel, own, shared, 500)


@bench(name="ranks", description="two ranks", machine=lambda **_: MACHINE)
def run(torch, barrier: int = 0):
    shared = torch.zeros((64,), "f32", name="shared")
    torch.multiprocessing.spawn(rank, args=(shared.ptr, barrier, torch))
"""


@pytest.mark.parametrize("barrier", [0, 1])
@pytest.mark.slow
def test_launches_of_two_ranks_are_in_order_by_a_barrier_alone(tmp_path, barrier):
    (tmp_path / "ranks.py").write_text(RANKS)
    params = {"barrier": barrier}
    run_bench(str(tmp_path / "ranks.py"), params=params, trace=tmp_path / "t")
    found = ReplaySession(Trace.open(tmp_path / "t")).hazards()
    assert found.ok == bool(barrier)
    assert found.unchecked.startswith("transfers of the host while kernels of another")
    if not barrier:
        (row,) = found.rows
        assert (row.kind, row.tensor) == (UNORDERED, "shared")


ON_ONE_PE = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

ONE = DPPolicy(num_cubes=1, num_pes=1)
MACHINE = {"system.sips.count": 2, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}


def put(x, y, tl):
    one = tl.full((64,), 1.0, "f32")
    tl.store(x, one + one)


def get(x, y, tl):
    tl.store(y, tl.load(x) + 1)


def worker(rank, torch, x, y, barrier, bytes_before):
    if bytes_before:
        torch.zeros((bytes_before if rank else 4,), "u8", name="w")
    if rank == 0:
        torch.launch("put", put, x, y)
    if barrier:
        torch.distributed.barrier()
    if rank == 1:
        torch.launch("get", get, x, y)


@bench(name="one_pe", description="", machine=lambda **_: MACHINE)
def run(torch, barrier: int = 0, bytes_before: int = 0):
    torch.distributed.init_process_group(backend="ahbm")
    x = torch.zeros((64,), "f32", ONE, name="x")
    y = torch.zeros((64,), "f32", ONE, name="y")
    torch.multiprocessing.spawn(worker, (torch, x, y, barrier, bytes_before), 2)
"""


def hazards_on_one_pe(folder, **params):
    (folder / "one_pe.py").write_text(ON_ONE_PE)
    run_bench(str(folder / "one_pe.py"), params=params, trace=folder / "t")
    return ReplaySession(Trace.open(folder / "t")).hazards()


def test_kernels_of_two_ranks_on_one_pe_are_in_no_order(tmp_path):
    """The PE serves one after the other, but which first is nobody's promise: with a
    larger tensor before it the other one comes first, and y is another.

    Scratch, which both take from its beginning, is each kernel's own.
    """
    (row,) = hazards_on_one_pe(tmp_path).rows
    assert (row.kind, row.tensor) == (UNORDERED, "x")


def test_a_barrier_orders_kernels_of_two_ranks_on_one_pe(tmp_path):
    assert hazards_on_one_pe(tmp_path, barrier=1).ok


def test_launches_that_may_be_of_either_rank_are_told(tmp_path):
    """They are not under way together, and touch the tensors of the bench alone."""
    found = hazards_on_one_pe(tmp_path, bytes_before=1 << 16)
    assert "which rank asked for launch 0, 1, of no tensor of a rank" in found.unchecked
    found = hazards_on_one_pe(tmp_path, bytes_before=1 << 16, barrier=1)
    assert "which rank" not in found.unchecked
