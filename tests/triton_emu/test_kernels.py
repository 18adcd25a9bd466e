"""What small kernels on one PE compute: their data after Phase 2 against numpy."""

import numpy as np
import pytest

from kernbench.errors import PendingDataError
from kernbench.runtime_api import DPPolicy

RNG = np.random.default_rng(7)
A = RNG.standard_normal((24, 40)).astype(np.float32)
B = (RNG.standard_normal((40, 16)) / np.sqrt(40)).astype(np.float32)
X = RNG.standard_normal((6, 8)).astype(np.float32)
Y = RNG.standard_normal((6, 8)).astype(np.float32)
ROW = RNG.standard_normal(8).astype(np.float32)
BIAS = RNG.standard_normal((1, 16)).astype(np.float32)


@pytest.fixture
def result(simulate, phase2):
    """result(kernel, *inputs, expected): runs kernel(*pointers, out_ptr)."""

    def result(kernel, *inputs, expected):
        expected = np.asarray(expected)

        def bench(torch):
            tensors = [torch.tensor(x) for x in inputs]
            out = torch.empty(expected.shape, "f32", name="out")
            torch.launch("k", kernel, *tensors, out)
            torch.expect(out, expected)

        report = phase2(simulate(bench))
        assert report.ok, report.as_text()

    return result


UNARY = {
    "exp": np.exp,
    "relu": lambda x: np.maximum(x, 0),
    "sum": np.sum,
    "max": np.max,
}


@pytest.mark.parametrize("name", UNARY)
def test_a_math_call_of_one_operand(result, name):
    def kernel(x_ptr, out_ptr, tl):
        tl.store(out_ptr, getattr(tl, name)(tl.load(x_ptr, X.shape, "f32")))

    result(kernel, X, expected=UNARY[name](X.astype(np.float64)))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (lambda x, y, tl: x + y, X + Y),
        (lambda x, y, tl: x - y, X - Y),
        (lambda x, y, tl: x * y, X * Y),
        (lambda x, y, tl: x / y, X / Y),
        (lambda x, y, tl: 2 + x, 2 + X),
        (lambda x, y, tl: 2 - x, 2 - X),
        (lambda x, y, tl: 2 * x, 2 * X),
        (lambda x, y, tl: 2 / x, 2 / X),
        (lambda x, y, tl: x - 1.5, X - 1.5),
        (lambda x, y, tl: tl.maximum(x, y), np.maximum(X, Y)),
        (lambda x, y, tl: tl.cast(tl.cast(x, "f16"), "f32"), X.astype(np.float16)),
        (lambda x, y, tl: tl.sum(x, axis=0), X.sum(0)),
        (lambda x, y, tl: tl.sum(x, axis=-1, keepdims=True), X.sum(1, keepdims=True)),
        (
            lambda x, y, tl: x - tl.max(x, axis=1, keepdims=True),
            X - X.max(1, keepdims=True),
        ),
    ],
)
def test_expressions_on_handles(result, expression, expected):
    def kernel(x_ptr, y_ptr, out_ptr, tl):
        x = tl.load(x_ptr, X.shape, "f32")
        y = tl.load(y_ptr, Y.shape, "f32")
        tl.store(out_ptr, expression(x, y, tl))

    result(kernel, X, Y, expected=expected)


def test_operands_broadcast_as_in_numpy(result):
    def kernel(x_ptr, row_ptr, out_ptr, tl):
        tl.store(
            out_ptr, tl.load(x_ptr, X.shape, "f32") * tl.load(row_ptr, ROW.shape, "f32")
        )

    result(kernel, X, ROW, expected=X * ROW)


def test_dot(result):
    def kernel(a_ptr, b_ptr, out_ptr, tl):
        tl.store(
            out_ptr,
            tl.dot(tl.load(a_ptr, A.shape, "f32"), tl.load(b_ptr, B.shape, "f32")),
        )

    result(kernel, A, B, expected=A.astype(np.float64) @ B)


def test_a_k_loop_accumulates_into_one_handle(result):
    def kernel(a_ptr, b_ptr, out_ptr, tl):
        acc = None
        for p in range(5):
            a = tl.load(a_ptr + p * 24 * 8 * 4, (24, 8), "f32")
            b = tl.load(b_ptr + p * 8 * 16 * 4, (8, 16), "f32")
            acc = tl.dot(a, b, acc=acc)
        tl.store(out_ptr, acc)

    blocks = np.ascontiguousarray(A.reshape(24, 5, 8).transpose(1, 0, 2))
    result(kernel, blocks, B, expected=A.astype(np.float64) @ B)


def test_an_accumulator_that_was_loaded_is_added_to_and_no_longer_ready(result):
    def kernel(a_ptr, c_ptr, out_ptr, tl):
        a = tl.load(a_ptr, (8, 8), "f32")
        acc = tl.load(c_ptr, (8, 8), "f32")
        tl.dot(a, a, acc=acc)
        with pytest.raises(PendingDataError, match="dot at"):
            acc[0]
        tl.store(out_ptr, acc)

    a = np.eye(8, dtype=np.float32) * 3
    c = np.ones((8, 8), np.float32)
    result(kernel, a, c, expected=a @ a + c)


@pytest.mark.parametrize("wait", [True, False])
def test_a_composite_of_refs_and_loads(result, wait):
    def kernel(a_ptr, b_ptr, out_ptr, tl):
        a = tl.ref(a_ptr, A.shape, "f32")
        b = tl.load(b_ptr, B.shape, "f32")
        done = tl.composite(a=a, b=b, out_ptr=out_ptr, tile=(16, 16, 16), wait=wait)
        tl.wait(done)

    result(kernel, A, B, expected=A.astype(np.float64) @ B)


STEPS = {
    "relu": (["relu"], lambda c: np.maximum(c, 0)),
    "scale": ([("scale", 3.0)], lambda c: 3 * c),
    "scale then relu": ([("scale", -1.0), "relu"], lambda c: np.maximum(-c, 0)),
    "bias of one number": ([("bias", 2.0)], lambda c: c + 2),
    "dequant": ([("dequant", 0.5, "output_tile")], lambda c: c / 2),
}


@pytest.mark.parametrize("name", STEPS)
def test_an_epilogue_runs_on_the_finished_output(result, name):
    steps, function = STEPS[name]

    def kernel(a_ptr, b_ptr, out_ptr, tl):
        a = tl.ref(a_ptr, A.shape, "f32")
        b = tl.ref(b_ptr, B.shape, "f32")
        tl.wait(
            tl.composite(a=a, b=b, out_ptr=out_ptr, epilogue=steps, tile=(16, 16, 16))
        )

    result(kernel, A, B, expected=function(A.astype(np.float64) @ B))


@pytest.mark.parametrize("make", ["ref", "load"])
@pytest.mark.parametrize("shape", [(1, 16), (16,)])
def test_a_bias_may_lie_in_hbm_or_in_scratch(result, make, shape):
    def kernel(a_ptr, b_ptr, bias_ptr, out_ptr, tl):
        a = tl.ref(a_ptr, A.shape, "f32")
        b = tl.ref(b_ptr, B.shape, "f32")
        bias = getattr(tl, make)(bias_ptr, shape, "f32")
        tl.wait(
            tl.composite(a=a, b=b, out_ptr=out_ptr, epilogue=[("bias", bias), "relu"])
        )

    expected = np.maximum(A.astype(np.float64) @ B + BIAS, 0)
    result(kernel, A, B, BIAS, expected=expected)


def test_a_k_tile_step_runs_on_every_partial_product(result):
    def kernel(a_ptr, b_ptr, out_ptr, tl):
        a = tl.ref(a_ptr, A.shape, "f32")
        b = tl.ref(b_ptr, B.shape, "f32")
        steps = [("relu", "k_tile"), ("scale", 2.0)]
        tl.wait(
            tl.composite(a=a, b=b, out_ptr=out_ptr, epilogue=steps, tile=(64, 64, 16))
        )

    wide_a = A.astype(np.float64)
    wide_b = B.astype(np.float64)
    parts = [wide_a[:, k : k + 16] @ wide_b[k : k + 16] for k in range(0, 40, 16)]
    result(kernel, A, B, expected=2 * sum(np.maximum(p, 0) for p in parts))


def test_the_result_of_a_composite_is_an_operand_of_the_next(result):
    square = B.T.copy() @ B  # 16 x 16

    def kernel(s_ptr, mid_ptr, out_ptr, tl):
        s = tl.ref(s_ptr, (16, 16), "f32")
        mid = tl.composite(a=s, b=s, out_ptr=mid_ptr)
        tl.wait(mid)
        tl.wait(tl.composite(a=mid, b=s, out_ptr=out_ptr))

    wide = square.astype(np.float64)
    result(kernel, square, np.zeros((16, 16), np.float32), expected=wide @ wide @ wide)


def test_control_flow_on_loaded_data(result):
    def kernel(x_ptr, out_ptr, tl):
        x = tl.load(x_ptr, X.shape, "f32")
        low = x
        for _ in range(int(abs(x[0, 0]) * 10) % 3 + 1):
            low = low + 1.0
        if float(np.asarray(x).sum()) > 1e9:
            low = low * 0
        tl.store(out_ptr, low)

    times = int(abs(X[0, 0]) * 10) % 3 + 1
    result(kernel, X, expected=X + times)


def test_a_pointer_that_was_loaded_is_followed(result):
    chain = np.array([3, 0, 1, 4, 2], np.int32)

    def kernel(chain_ptr, x_ptr, out_ptr, tl):
        at = 0
        for _ in range(3):
            at = int(tl.load(chain_ptr + 4 * at, (1,), "i32")[0])
        tl.store(out_ptr, tl.load(x_ptr + 32 * at, (8,), "f32"))

    at = 0
    for _ in range(3):
        at = chain[at]
    result(kernel, chain, X, expected=X[at])


def test_a_loaded_value_outlives_a_later_store_to_where_it_came_from(result):
    def kernel(x_ptr, out_ptr, tl):
        x = tl.load(x_ptr, X.shape, "f32")
        zero = x - x
        tl.store(x_ptr, zero)
        tl.store(out_ptr, x)

    result(kernel, X, expected=X)


def test_a_ready_store_is_visible_to_the_next_load(result):
    def kernel(x_ptr, y_ptr, out_ptr, tl):
        x = tl.load(x_ptr, X.shape, "f32")
        tl.store(y_ptr, x, wait=False)
        again = tl.load(y_ptr, X.shape, "f32")
        assert np.array_equal(again.data, X)
        tl.store(out_ptr, again)

    result(kernel, X, Y, expected=X)


def test_a_store_of_a_ref_copies_what_lies_there_now(result):
    def kernel(x_ptr, y_ptr, out_ptr, tl):
        y = tl.ref(y_ptr, Y.shape, "f32")
        tl.store(y_ptr, tl.load(x_ptr, X.shape, "f32"))
        tl.store(out_ptr, y)
        assert np.array_equal(tl.load(out_ptr, X.shape, "f32").data, X)

    result(kernel, X, Y, expected=X)


def test_a_load_that_waits_for_nothing_is_usable_after_its_wait(result):
    def kernel(x_ptr, out_ptr, tl):
        x = tl.load(x_ptr, X.shape, "f32", wait=False)
        assert not x.ready
        tl.wait(x)
        assert x.ready
        assert np.array_equal(x.data, X)
        assert len(x) == 6
        assert not x.data.flags.writeable
        tl.store(out_ptr, x)

    result(kernel, X, expected=X)


def test_a_load_across_shards_is_a_record_for_each(simulate, phase2):
    parts = np.arange(48, dtype=np.float32).reshape(12, 4)

    def kernel(x_ptr, out_ptr, tl):
        if tl.program_id(0) == 0:
            tl.store(out_ptr, tl.load(x_ptr, (12, 4), "f32"))

    def bench(torch):
        x = torch.tensor(parts, dp=DPPolicy(pe="row_wise", num_cubes=1, num_pes=3))
        out = torch.empty(
            (12, 4), "f32", DPPolicy(pe="row_wise", num_cubes=1, num_pes=3)
        )
        torch.launch("k", kernel, x, out)
        torch.expect(out, parts)

    run = simulate(bench)
    reads = [r for r in run.log if r.op_name == "dma_read"]
    writes = [r for r in run.log if r.op_name == "dma_write"]
    assert [r.params["shape"] for r in reads] == [(16,)] * 3
    assert len({r.params["src_addr"] for r in reads}) == len(writes) == 3
    assert len({r.params["handle_id"] for r in reads}) == 1
    assert phase2(run).ok


def test_pieces_that_land_out_of_order_make_one_ready_handle(simulate):
    seen = []
    near_last = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)

    def kernel(x_ptr, tl):
        if tl.program_id(0) == 7:  # its own shard, the last, is the nearest
            seen.append(np.array(tl.load(x_ptr, (64, 64), "f32")))

    def bench(torch):
        dp = DPPolicy(pe="row_wise", num_cubes=1)
        torch.launch("k", kernel, torch.tensor(near_last, dp=dp))

    run = simulate(bench)
    reads = [r for r in run.log if r.op_name == "dma_read"]
    assert len({r.t_end for r in reads}) > 1
    assert np.array_equal(seen[0], near_last)


def test_a_replicated_tensor_is_read_from_the_pes_own_copy(simulate):
    def kernel(x_ptr, tl):
        tl.load(x_ptr, X.shape, "f32")

    def bench(torch):
        torch.launch("k", kernel, torch.tensor(X, dp=DPPolicy(), name="x"))

    run = simulate(bench)
    reads = {
        r.component_id: r.params["src_addr"] for r in run.log if r.op_name == "dma_read"
    }
    graph = run.engine.graph
    own = {
        graph.at(*run.engine.place_of(addr), "pe_dma"): addr for addr in reads.values()
    }
    assert reads == own
    assert len(reads) == 2 * 2 * 8


def test_where_a_program_is_along_each_axis(simulate):
    places = []

    def kernel(x_ptr, scale, tl):
        ids = [tl.program_id(axis) for axis in range(3)]
        places.append((*ids, *(tl.num_programs(axis) for axis in range(3)), scale))

    def bench(torch):
        torch.launch("k", kernel, torch.zeros((3,), dp=DPPolicy(num_pes=5)), "scalar")

    simulate(bench)
    expected = [
        (pe, cube, sip, 5, 2, 2, "scalar")
        for sip in range(2)
        for cube in range(2)
        for pe in range(5)
    ]
    assert sorted(places) == sorted(expected)


def test_the_second_launch_loads_the_result_of_the_first(simulate, phase2):
    states = []

    def first(x_ptr, y_ptr, tl):
        tl.store(y_ptr, tl.load(x_ptr, X.shape, "f32") * 2)

    def second(y_ptr, out_ptr, tl):
        y = tl.load(y_ptr, Y.shape, "f32")
        states.append(y.ready)
        tl.store(out_ptr, y + 1)

    def bench(torch):
        x = torch.tensor(X)
        y = torch.empty(X.shape, "f32")
        out = torch.empty(X.shape, "f32")
        after = torch.empty(X.shape, "f32")
        torch.launch("first", first, x, y)
        torch.launch("second", second, y, out)
        assert np.array_equal(y.numpy(), X * 2)
        torch.launch("third", second, y, after)
        torch.expect(out, X * 2 + 1)
        torch.expect(after, X * 2 + 1)

    assert phase2(simulate(bench)).ok
    assert states == [False, True]


def test_scratch_starts_anew_with_each_kernel(simulate):
    half = 600 * 1024  # bytes; three do not fit the 2 MiB of scratch with a fourth

    def kernel(x_ptr, tl):
        for _ in range(3):
            tl.load(x_ptr, (half,), "u8")

    def bench(torch):
        x = torch.zeros((half,), "u8")
        torch.launch("one", kernel, x)
        torch.launch("two", kernel, x)

    addresses = [
        r.params["dst_addr"] for r in simulate(bench).log if r.op_name == "dma_read"
    ]
    assert len(addresses) == 6
    assert addresses[:3] == addresses[3:]


def test_math_takes_lanes_cost_and_latency(simulate):
    def kernel(x_ptr, tl):
        x = tl.load(x_ptr, (100, 10), "f32")
        tl.exp(x)
        x + 1
        tl.sum(x)

    def bench(torch):
        torch.launch("k", kernel, torch.zeros((100, 10), "f32"))

    times = {
        r.op_name: r.t_end - r.t_start
        for r in simulate(bench).log
        if r.op_kind == "math"
    }
    waves = -(-1000 // 64)  # 64 lanes; 4 cycles of latency; exp costs 4 an element
    assert times == pytest.approx(
        {"exp": 4 * waves + 4, "add": waves + 4, "sum": waves + 4}
    )
