"""What memory holds at an op, and a tensor's numbers beside a plain product."""

import random
from pathlib import Path

import numpy as np
import pytest
from replay_logs import PE0, PE1, Log, double, host_write, load, store

from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.text import as_text
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

TRACES = Path(__file__).parents[3] / "traces"
SIZES = {"m": 96, "k": 80, "n": 100}  # of the recorded matmul
HALF = SIZES["n"] // 2
TWO_LAUNCHES = """
from kernbench.benches import bench

def kernel(x, y, n, tl):
    tl.store(y, tl.load(x, (n,), 'f32') + 1.0)

@bench(name='twice', description='two launches reuse one scratch address')
def run(torch):
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], 'f32', name='x')
    y = torch.empty((4,), 'f32', name='y')
    torch.launch('first', kernel, x, y, 4)
    torch.launch('second', kernel, y, x, 2)
    torch.expect(x, [3.0, 4.0, 3.0, 4.0])
"""


def product():
    """The matmul of the recorded bench, in f64."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((SIZES["m"], SIZES["k"]))
    b = rng.standard_normal((SIZES["k"], SIZES["n"])) / np.sqrt(SIZES["k"])
    wide = [x.astype(np.float16).astype(np.float64) for x in (a, b)]
    return wide[0] @ wide[1]


def positions(session, name):
    ops = session.trace.ops
    return [i for i in range(len(ops)) if ops[i].op_name == name]


@pytest.fixture
def composites(session):
    return positions(session, "composite_gemm")


# -- tensors --


def test_a_tensor_that_nobody_has_written_yet_has_no_numbers(session, composites):
    view = session.tensor("c", composites[0] - 1)
    assert not view.written.any()
    assert np.isnan([view.minimum, view.maximum, view.mean]).all()


def test_a_composite_writes_its_half_of_the_columns(session, composites):
    view = session.tensor("c", composites[0])
    name = session.trace.ops[composites[0]].component_id
    is_left = name.startswith("sip0.cube0.pe0")
    mine = slice(0, HALF) if is_left else slice(HALF, None)
    assert view.written[:, mine].all()
    assert view.changed[:, mine].all()
    assert view.written.sum() == view.changed.sum() == SIZES["m"] * HALF


def test_a_tensor_has_the_numbers_that_were_computed(session, composites):
    view = session.tensor("c", composites[1])
    wide = view.values.astype(np.float64)
    assert view.written.all()
    np.testing.assert_allclose(wide, product(), rtol=1e-3, atol=1e-3)
    assert view.minimum == wide.min()
    assert view.maximum == wide.max()
    assert view.mean == pytest.approx(wide.mean())


def test_an_unknown_tensor_is_refused_with_the_names(session):
    with pytest.raises(UsageError, match=r"no tensor 'd'.*a, b, c"):
        session.tensor("d")


def test_scratch_of_two_launches_is_told_apart(tmp_path):
    bench = tmp_path / "twice.py"
    bench.write_text(TWO_LAUNCHES)
    assert run_bench(str(bench), trace=tmp_path / "t").ok
    session = ReplaySession(Trace.open(tmp_path / "t"))
    ops = positions(session, "dma_read")
    addresses = {session.trace.ops[op].params["dst_addr"] for op in ops}
    assert len(addresses) == 1
    loaded = [session.tensor(session.index.memory.shown(op), op) for op in ops]
    assert [view.name.split("@")[0] for view in loaded] == ["h0.1", "h1.1"]
    assert [view.values.tolist() for view in loaded] == [[1, 2, 3, 4], [2, 3]]


def test_of_handles_at_the_same_bytes_only_the_one_that_has_them_is_listed(tmp_path):
    bench = tmp_path / "twice.py"
    bench.write_text(TWO_LAUNCHES)
    run_bench(str(bench), trace=tmp_path / "t")
    session = ReplaySession(Trace.open(tmp_path / "t"))
    # 0 host_write x; launch 0: 1 load h0.1, 2 add h0.2, 3 store; then the same of h1
    held = {}
    for op in range(len(session)):
        memory = session.memory(op)
        scratch = [e for e in memory.entries if e.shard.space == "tcm"]
        held[op] = {entry.tensor.split("@")[0] for entry in scratch}
        nbytes = sum(entry.shard.nbytes for entry in scratch)
        totals = {space: (count, size) for space, count, size in memory.spaces}
        assert totals.get("tcm", (0, 0)) == (len(scratch), nbytes)
        assert memory.total == len(memory.entries)
    assert held[3] == {"h0.1", "h0.2"}
    assert held[4] == {"h1.1", "h0.2"}
    assert held[6] == {"h1.1", "h1.2"}


@pytest.mark.slow
@pytest.mark.parametrize("bench", ["matmul", "mlp_tp"])
def test_answers_after_random_jumps_are_those_of_a_fresh_session(bench):
    def opened():
        return ReplaySession(Trace.open(TRACES / f"{bench}.msgpack"))

    stepped = opened()
    draw = random.Random(bench)
    expected = [e.tensor for e in stepped.trace.expects]
    others = [name for name in stepped.index.places.names if name not in expected]
    names = [*dict.fromkeys(expected), *others[:3]]
    near = -1
    for _ in range(25):
        near = draw.choice((near + 1, near - 1, draw.randrange(-1, len(stepped))))
        op = min(max(near, -1), len(stepped) - 1)
        name = draw.choice(names)
        fresh = opened()
        assert as_text(stepped.outputs(op)) == as_text(fresh.outputs(op))
        assert_same_view(stepped.tensor(name, op), opened().tensor(name, op))


def assert_same_view(seen, fresh):
    assert (seen.op, seen.name, seen.nans) == (fresh.op, fresh.name, fresh.nans)
    assert np.array_equal(seen.written, fresh.written)
    assert np.array_equal(seen.changed, fresh.changed)
    assert seen.values[seen.written].tobytes() == fresh.values[fresh.written].tobytes()
    figures = [(view.minimum, view.maximum, view.mean) for view in (seen, fresh)]
    assert figures[0] == pytest.approx(figures[1], nan_ok=True)


# -- allocations --


def test_memory_lists_what_holds_data_and_who_wrote_it(session, composites):
    memory = session.memory(composites[0])
    written = [e for e in memory.entries if e.writer == composites[0]]
    assert [e.tensor for e in written] == ["c"]
    assert memory.entries[0].touched
    assert {e.shard.tensor for e in memory.entries} == {"a", "b", "c"}
    copies = {e.tensor for e in memory.entries if e.shard.tensor == "a"}
    assert copies == {"a", "a@sip0.cube0.pe1.pe_cpu"}
    assert session.memory(-1).entries == ()


@pytest.fixture
def written(tmp_path, one_cube):
    """Ten scratch buffers, each loaded in turn, and the third loaded once more."""
    log = Log(tmp_path / "log", one_cube)
    log.alloc("hbm", 0, 512)
    for i in range(10):
        log.alloc("tcm", 64 * i, 64, f"s{i}")
    log.op(host_write(), 0, 5)
    for i in [*range(10), 2]:
        start = 10 + 10 * log.cmd
        log.op(load(0, 64 * i), start, start + 5)
    return log.session()


def shown(memory):
    return [entry.tensor.split("@")[0] for entry in memory.entries]


def test_the_op_s_own_allocations_come_first_then_those_written_last(written):
    last = len(written) - 1
    expected = ["x", "s2", "s9", "s8", "s7", "s6", "s5", "s4", "s3", "s1", "s0"]
    assert shown(written.memory(last)) == expected
    assert [entry.writer for entry in written.memory(last).entries][:3] == [0, 11, 10]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 11, 200])
def test_as_many_rows_as_are_asked_for_are_the_first_of_all(written, limit):
    for op in range(len(written)):
        whole = written.memory(op)
        some = written.memory(op, limit)
        assert some.entries == whole.entries[:limit]
        assert (some.total, some.spaces) == (whole.total, whole.spaces)


def test_totals_count_every_allocation_that_was_written(written):
    memory = written.memory(4, 1)
    assert memory.total == 5
    assert memory.spaces == (("hbm", 1, 512), ("tcm", 4, 256))


@pytest.fixture
def reused(tmp_path, one_cube):
    """0 host_write; 1 load a; 2 load b over half of a's bytes; 3 a load of PE1 that was
    issued before b was made, but began later; 4 load c over the other half of b's.
    """
    log = Log(tmp_path / "log", one_cube)
    log.alloc("hbm", 0, 512)
    log.op(host_write(), 0, 5)
    log.alloc("tcm", 0, 32, "a", cmd=2)
    log.op(load(0, 0, 8), 10, 15)
    log.op(load(0, 256), 40, 50, pe=PE1)
    log.alloc("tcm", 16, 32, "b", cmd=4, dtype="i32")
    log.op(load(0, 16, 8), 20, 30)
    log.alloc("tcm", 32, 16, "c", cmd=5)
    log.op(load(0, 32), 60, 70)
    return log.session()


def test_a_handle_that_lost_a_part_of_its_bytes_is_listed_no_more(reused):
    listed = [{*shown(reused.memory(op))} - {"x"} for op in range(5)]
    assert listed == [set(), {"a"}, {"b"}, {"b"}, {"c"}]
    bytes_in_tcm = [
        dict((space, held) for space, _, held in reused.memory(op).spaces).get("tcm", 0)
        for op in range(5)
    ]
    assert bytes_in_tcm == [0, 32, 32, 32, 16]


def test_every_handle_that_is_listed_can_be_asked_for_by_its_name(reused):
    for op in range(len(reused)):
        for entry in reused.memory(op).entries:
            assert reused.tensor(entry.tensor, op).written.any()


def test_who_has_bytes_does_not_change_while_older_calls_begin(reused):
    # Op 3 was issued before b was made, and began after b was loaded.
    held = reused.tensor(f"b@{PE0}", 3).values
    assert held.view("f4").tolist() == [*range(8)]
    with pytest.raises(UsageError, match=r"a@.* was released at op 2, and at op 3"):
        reused.tensor(f"a@{PE0}", 3)


def test_bytes_are_of_the_dtype_of_the_handle_that_has_them(reused):
    places = reused.index.places
    place = places.place("tcm 0x10:4")
    found = [places.dtype_of(place, op) for op in range(5)]
    assert found == ["u8", "f32", "i32", "i32", "i32"]


# -- what an op is about --


def test_an_op_is_about_what_it_writes_else_about_what_it_reads(tmp_path, one_cube):
    log = Log(tmp_path / "log", one_cube)
    log.alloc("tcm", 0, 16, "in")
    log.alloc("tcm", 64, 16, "out")
    log.op(host_write(), 0, 10)
    log.op(load(0, 0), 20, 30)
    log.op(double(0, 64), 40, 50, engine="pe_math")
    log.op(store(64, 256), 60, 70)
    session = log.session()
    names = [session.index.memory.shown(op) for op in range(-1, 4)]
    assert [name and name.split("@")[0] for name in names] == [
        None,
        None,
        "in",
        "out",
        "out",
    ]
    touched = [session.index.memory.touches(op) for op in range(-1, 4)]
    assert touched == [
        None,
        "hbm 0x0:512",
        "tcm 0x0:16",
        "tcm 0x40:16",
        "hbm 0x100:16",
    ]
