"""Tensors on the machine, launches, barriers and expectations."""

import re
from itertools import pairwise

import numpy as np
import pytest

from kernbench.common.messages import HostWriteCmd, Region
from kernbench.common.phys_addr import VA_BASE
from kernbench.errors import MemoryStoreError, UsageError, VerificationError
from kernbench.runtime_api import DPPolicy
from kernbench.runtime_api.torch import TensorPtr, Torch
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine

X = np.arange(64, dtype=np.float32).reshape(8, 8)
ROWS = DPPolicy(pe="row_wise", num_cubes=1)


@pytest.fixture
def torch(small):
    return Torch(GraphEngine(small))


def doubled(x_ptr, y_ptr, tl):
    tl.store(y_ptr, tl.load(x_ptr, (8, 8), "f32") * 2)


@pytest.mark.parametrize(
    "dp",
    [
        None,
        DPPolicy(),
        ROWS,
        DPPolicy(cube="row_wise"),
        DPPolicy(cube="column_wise", pe="row_wise"),
    ],
)
def test_what_was_written_is_read_back_whatever_the_policy(torch, dp):
    assert np.array_equal(torch.tensor(X, dp=dp).numpy(), X)


@pytest.mark.parametrize(
    "name", ["", "x[0]", "x@sip0.cube0.pe0.pe_cpu", "hbm 0x40", "h0.1", "ipcq.0.E"]
)
def test_a_name_that_could_mean_something_else_is_refused(torch, name):
    with pytest.raises(UsageError, match=f"tensor name {re.escape(repr(name))}: .*;"):
        torch.empty((4,), "f32", name=name)


@pytest.mark.parametrize("name", ["x", "h0", "layer0.w", "h0.1.grad", "größe-2"])
def test_any_other_name_is_taken_as_it_is(torch, name):
    assert torch.empty((4,), "f32", name=name).name == name


def test_data_are_copied_when_given(torch):
    mine = X.copy()
    tensor = torch.tensor(mine)
    mine[:] = -1
    assert np.array_equal(tensor.numpy(), X)


def test_data_are_rounded_to_the_dtype(torch):
    tensor = torch.tensor([1 / 3, 2 / 3], "f16")
    assert (tensor.dtype, tensor.shape) == ("f16", (2,))
    assert np.array_equal(tensor.numpy(), np.array([1 / 3, 2 / 3], np.float16))


def test_full_zeros_and_a_scalar(torch):
    assert np.array_equal(
        torch.full((2, 3), 7, "i32").numpy(), np.full((2, 3), 7, np.int32)
    )
    assert np.array_equal(torch.zeros((4,)).numpy(), np.zeros(4, np.float16))
    assert torch.tensor(2.5).numpy() == 2.5


def test_empty_is_memory_that_nothing_was_written_to(torch):
    tensor = torch.empty((4,))
    with pytest.raises(MemoryStoreError, match="never written"):
        tensor.numpy()
    assert torch.engine.op_log == []


def test_shards_follow_each_other_in_virtual_memory(torch):
    tensor = torch.tensor(X, dp=ROWS)
    assert tensor.ptr == VA_BASE
    assert [s.va - tensor.ptr for s in tensor.shards] == [i * 32 for i in range(8)]
    assert [s.origin for s in tensor.shards] == [(i, 0) for i in range(8)]
    assert [torch.engine.place_of(s.addr) for s in tensor.shards] == [
        (0, 0, i) for i in range(8)
    ]


def test_copies_of_a_replica_share_their_virtual_address(torch):
    tensor = torch.tensor(X, dp=DPPolicy())
    assert {s.va for s in tensor.shards} == {tensor.ptr}
    assert len({s.addr for s in tensor.shards}) == 2 * 2 * 8


def test_tensors_never_overlap_in_virtual_or_physical_memory(torch):
    tensors = [torch.tensor(np.zeros(n, np.uint8)) for n in (1, 4096, 4097, 3)]
    for key in ("va", "addr"):
        spans = sorted((getattr(t.shards[0], key), t.shards[0].nbytes) for t in tensors)
        assert all(a + n <= b for (a, n), (b, _) in pairwise(spans))


def test_a_pointer_keeps_its_dtype_when_moved():
    moved = 8 + (TensorPtr(1000, "f16") + 4)
    assert (moved, moved.dtype, moved.itemsize) == (1012, "f16", 2)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (-1, 2)])
def test_an_extent_below_one_is_refused(torch, shape):
    with pytest.raises(UsageError, match="has an extent below 1"):
        torch.empty(shape)


def test_a_slice_that_is_full_tells_what_is_left(torch):
    gib = 2**30
    torch.empty((5 * gib,), "u8")
    with pytest.raises(
        UsageError, match=rf"slice of sip 0 cube 0 pe 0: {gib} of {6 * gib} bytes"
    ):
        torch.empty((2 * gib,), "u8", name="big")
    assert torch.empty((gib,), "u8").shards[0].addr == 5 * gib


def test_a_name_is_taken_once(torch):
    torch.empty((1,), name="a")
    with pytest.raises(UsageError, match="a tensor named 'a' exists"):
        torch.empty((1,), name="a")


def test_an_unknown_dtype_lists_the_valid_ones(torch):
    with pytest.raises(UsageError, match="unknown dtype 'f12'; valid: f16"):
        torch.empty((1,), "f12")


def test_a_launch_runs_where_every_tensor_has_a_shard(simulate):
    ran = []

    def kernel(a_ptr, b_ptr, tl):
        ran.append((tl.program_id(2), tl.program_id(1), tl.program_id(0)))

    def bench(torch):
        a = torch.zeros((3,), dp=DPPolicy(pe="row_wise"))  # 3 PEs of each of 4 cubes
        b = torch.zeros((6,), dp=DPPolicy(cube="row_wise", num_cubes=3))
        torch.launch("k", kernel, a, b)

    simulate(bench)
    assert sorted(ran) == [
        (s, c, p) for s, c in ((0, 0), (0, 1), (1, 0)) for p in range(3)
    ]


def test_a_launch_needs_a_tensor_and_a_common_pe(torch):
    with pytest.raises(UsageError, match="'k': no tensor among its arguments"):
        torch.launch("k", doubled, 3)
    far = torch.zeros((4,), dp=DPPolicy(cube="row_wise", num_pes=1), name="far")
    near = torch.zeros((8,), dp=DPPolicy(pe="row_wise", num_cubes=1), name="near")
    torch.launch(
        "k", lambda *args, tl: None, far, near
    )  # both have a shard on the first PE
    other = Torch(GraphEngine(torch.engine.graph))
    a = other.zeros((1,), name="a")
    b = other.zeros((1,), name="b")
    a.shards[:] = other.zeros((8,), dp=ROWS).shards[1:]
    with pytest.raises(UsageError, match="no PE holds a shard of each of a, b; align"):
        other.launch("k", doubled, a, b)


def test_numpy_is_a_barrier_in_the_middle_of_a_run(simulate, phase2):
    def bench(torch):
        x = torch.tensor(X)
        y = torch.empty((8, 8), "f32")
        z = torch.empty((8, 8), "f32")
        torch.launch("k", doubled, x, y)
        assert np.array_equal(y.numpy(), 2 * X)
        torch.launch("k", doubled, y, z)
        assert np.array_equal(z.numpy(), 4 * X)
        assert np.array_equal(z.numpy(), 4 * X)
        torch.expect(z, 4 * X)

    run = simulate(bench)
    assert phase2(run).ok
    assert [r.op_name for r in run.log].count("host_read") == 3


def test_numpy_of_a_replica_is_its_first_copy(simulate):
    got = []

    def kernel(x_ptr, tl):
        tl.store(x_ptr, tl.load(x_ptr, (1,), "f32") + tl.program_id(0))

    def bench(torch):
        x = torch.zeros((1,), "f32", DPPolicy(num_cubes=1))
        torch.launch("k", kernel, x)
        got.append(x.numpy()[0])

    simulate(bench)
    assert got == [0]


def test_expect_judges_every_copy_of_a_replica(simulate, phase2):
    def kernel(x_ptr, tl):
        tl.store(x_ptr, tl.load(x_ptr, (1,), "f32") + tl.program_id(0))

    def bench(torch):
        x = torch.zeros((1,), "f32", DPPolicy(num_cubes=1), name="x")
        torch.launch("k", kernel, x)
        torch.expect(x, [0.0])

    report = phase2(simulate(bench))
    assert [row.ok for row in report.rows] == [True] + 7 * [False]
    (row,) = report.by_tensor()
    assert (row.name, row.mismatches) == ("x", 7)


def test_expect_is_judged_at_its_call_so_a_tensor_may_be_reused(simulate, phase2):
    def bench(torch):
        x = torch.tensor(X)
        y = torch.empty((8, 8), "f32")
        torch.launch("k", doubled, x, y)
        torch.expect(y, 2 * X, name="once")
        torch.launch("k", doubled, y, y)
        torch.expect(y, 4 * X, name="twice")

    report = phase2(simulate(bench))
    assert [(row.name, row.ok) for row in report.by_tensor()] == [
        ("once", True),
        ("twice", True),
    ]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_tensor_named_as_a_shard_of_another_hides_none_of_it(
    simulate, phase2, is_first
):
    wrong = X.copy()
    wrong[0, 3] += 1

    def bench(torch):
        sharded = torch.tensor(X, dp=ROWS, name="x")
        whole = torch.tensor(X, name="x.0")
        if is_first:
            torch.expect(whole, X)
        torch.expect(sharded, wrong)
        if not is_first:
            torch.expect(whole, X)

    run = simulate(bench)
    expected = {"x": wrong, "x.0": X}
    if is_first:
        expected = {"x.0": X, "x": wrong}
    by_name = DataExecutor(run.log, tensors=run.engine.tensors).verify(expected)
    for report in (phase2(run), by_name):
        rows = [row for row in report.rows if row.mismatches]
        assert [row.first_bad for row in rows] == [(0, 3)]
        assert sum(row.elements for row in report.rows) == 2 * 64


def test_expect_refuses_another_shape_and_a_name_that_is_taken(torch):
    x = torch.tensor(X, name="x")
    with pytest.raises(VerificationError, match=r"'x': the reference has shape \(8,\)"):
        torch.expect(x, X[0])
    torch.expect(x, X)
    with pytest.raises(VerificationError, match="'x': the name is taken; give another"):
        torch.expect(x, X)


@pytest.mark.parametrize("bound", [-1e-3, np.nan, np.inf])
@pytest.mark.parametrize("which", ["rtol", "atol"])
def test_expect_refuses_a_tolerance_that_is_none(torch, which, bound):
    x = torch.tensor(X, name="x")
    with pytest.raises(VerificationError, match=f"'x': {which}={bound}: must be 0"):
        torch.expect(x, X, **{which: bound})


@pytest.mark.parametrize("number", [128, -129, np.nan, np.inf])
def test_expect_refuses_a_number_that_an_integer_dtype_has_not(torch, number):
    x = torch.zeros((2,), "i8", name="x")
    what = f"'x': the reference has {number} at \\[1\\], and i8 has no such number"
    with pytest.raises(VerificationError, match=what):
        torch.expect(x, np.array([0, number]))


LARGEST = {"f16": 65504.0, "bf16": 3.3895e38, "f32": 3.4028e38, "fp8_e4m3": 448.0}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", LARGEST)
def test_a_reference_that_is_too_large_for_its_dtype_is_told(torch, dtype):
    """Rounded it is infinite or NaN, and so is what overflows: that would pass."""
    x = torch.zeros((2, 2), dtype, name="x")
    torch.expect(x, np.full((2, 2), LARGEST[dtype]), name="fits")
    torch.expect(x, np.array([[0, np.inf], [np.nan, 1]]), name="never_finite")
    assert not torch.notes
    high = 4 * LARGEST[dtype]
    torch.expect(x, np.array([[0, high], [-high, 1]]), name="high")
    (note,) = torch.notes
    taken = "nan" if dtype.startswith("fp8") else "inf"
    assert f"'high': {dtype} has no such number as 2 of the 4 given, the first" in note
    assert f"{high} at [0, 1], which is taken as {taken}; an output that" in note


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("dtype", "number", "taken"),
    [("f16", 7e4, "inf"), ("f16", 70_000, "inf"), ("i8", 300, "44"), ("u8", -1, "255")],
)
def test_data_that_their_dtype_has_not_are_told(torch, dtype, number, taken):
    torch.tensor([1, number], dtype, name="x")
    torch.full((2, 2), number, dtype, name="y")
    text = f"{dtype} has no such number as"
    assert torch.notes == [
        f"tensor 'x': {text} 1 of the 2 given, the first of them {number} at [1], "
        f"which is taken as {taken}",
        f"tensor 'y': {text} 4 of the 4 given, the first of them {number} at [0, 0], "
        f"which is taken as {taken}",
    ]


def test_a_verdict_says_where_its_reference_is_not_finite(simulate, phase2):
    def square(x_ptr, tl):
        x = tl.load(x_ptr, (4,), "f16")
        tl.store(x_ptr, x * x)

    def bench(torch):
        numbers = np.array([1.0, 300.0, -2.0, -400.0])
        x = torch.tensor(numbers, "f16", name="x")
        torch.launch("square", square, x)
        torch.expect(x, numbers**2)

    run = simulate(bench)
    report = phase2(run)
    assert report.ok
    text = " ".join(report.as_text().split())
    assert "x: the reference itself is not finite at 2 of 4 elements" in text
    assert "(0 NaN, 2 infinite)" in text


def test_a_sum_that_wraps_is_not_what_was_expected(simulate):
    def kernel(x_ptr, tl):
        x = tl.load(x_ptr, (2,), "i8")
        tl.store(x_ptr, x + x)

    def bench(torch):
        numbers = np.array([1, 100])
        x = torch.tensor(numbers, "i8", name="x")
        torch.launch("k", kernel, x)
        torch.expect(x, 2 * numbers)

    with pytest.raises(VerificationError, match=r"200 at \[1\].*\.astype\('int8'\)"):
        simulate(bench)


def test_a_reference_may_wrap_itself_or_be_cut_off_behind_the_point(torch):
    torch.expect(torch.zeros((1,), "i8"), np.array([200]).astype("int8"))
    torch.expect(torch.zeros((1,), "i8"), [-128.9])


def test_expect_tells_the_recorder_each_shard(simulate, events):
    def bench(torch):
        torch.expect(torch.tensor(X, dp=ROWS, name="x"), X, rtol=0.5)

    simulate(bench, recorder=events)
    rows = events.of("expect")
    assert [(name, shard.index) for name, shard, *_ in rows] == [
        ("x", i) for i in range(8)
    ]
    assert all(
        np.array_equal(array, X[i : i + 1])
        for i, (_, _, array, _, _) in enumerate(rows)
    )
    assert {tolerance.rtol for *_, tolerance, _ in rows} == {0.5}
    assert {after for *_, after in rows} == {8}


def test_numpy_without_an_op_log_says_so(small):
    torch = Torch(GraphEngine(small, op_logger=None))
    with pytest.raises(UsageError, match="needs the op log"):
        torch.tensor(X).numpy()


def test_a_host_write_over_a_pending_result_makes_it_ready(simulate):
    seen = []

    def kernel(x_ptr, y_ptr, tl):
        seen.append(tl.load(y_ptr, (8, 8), "f32").ready)

    def bench(torch):
        x = torch.tensor(X)
        y = torch.empty((8, 8), "f32")
        torch.launch("k", doubled, x, y)
        torch.launch("k", kernel, x, y)
        (shard,) = y.shards
        region = Region(shard.space, shard.addr, shard.shape, shard.dtype, shard.nbytes)
        write = HostWriteCmd(dst=region, data=X)
        place = torch.engine.place_of(shard.addr)
        torch.engine.host_write([(place, write)], torch.engine.sim.sites.here())
        torch.launch("k", kernel, x, y)

    simulate(bench)
    assert seen == [False, True]
