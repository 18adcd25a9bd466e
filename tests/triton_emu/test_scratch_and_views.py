"""Scratch (scopes, out=), views, operators, result dtypes, what a kernel reports."""

import inspect

import numpy as np
import pytest

from kernbench.errors import KernelError, PendingDataError
from kernbench.triton_emu.tl_context import TLContext

X = np.arange(48, dtype=np.float32).reshape(6, 8)
MIB = 1 << 20


@pytest.fixture
def gives(run_kernel):
    """gives(kernel, expected): runs kernel(x_ptr, tl) on X, compares its result."""

    def gives(kernel, expected, *more):
        def stored(*pointers, tl):
            made = kernel(*pointers[:-1], tl=tl)
            tl.store(pointers[-1], made)
            return made

        stored.__code__ = stored.__code__.replace(
            co_filename=kernel.__code__.co_filename
        )
        run = run_kernel(stored, X, *more, np.zeros(999))
        addr = run.engine.op_log[-1].params["dst_addr"]
        found = run.store.view("hbm", addr, run.made.shape, run.made.dtype)
        np.testing.assert_allclose(found, expected, 1e-5, 1e-5)
        return run

    return gives


def ops(run, kind="math"):
    return [r.params for r in run.engine.op_log if r.op_kind == kind]


def test_a_scope_releases_what_was_allocated_inside(run_kernel):
    def kernel(x, tl):
        kept = tl.zeros((16,), "f32")
        addresses = []
        for _ in range(9):
            with tl.scope():
                addresses.append(tl.zeros((MIB // 2,), "u8").addr)
                with tl.scope():
                    tl.zeros((MIB,), "u8")
        return kept.addr, addresses, tl.zeros((16,), "f32").addr

    kept, addresses, after = run_kernel(kernel, X).made
    assert set(addresses) == {kept + 64} == {after}


def test_a_handle_that_its_scope_released_is_refused(run_kernel):
    def kernel(x, tl):
        with tl.scope():
            h = tl.load(x, (8,), "f32")  # made
        tl.exp(h)

    line = inspect.getsourcelines(kernel)[1] + 2
    made = f"made at tests/triton_emu/test_scratch_and_views.py:{line}"
    message = f"exp: h0.1 ({made}) was released"
    with pytest.raises(KernelError) as raised:
        run_kernel(kernel, X)
    assert message in str(raised.value)
    assert "tl.scope()" in str(raised.value)


@pytest.mark.parametrize(
    "use", ["store", "wait", "reshape", "transpose", "data", "dot"]
)
def test_every_use_of_a_released_handle_is_refused(run_kernel, use):
    def kernel(x, tl):
        with tl.scope():
            h = tl.reshape(tl.load(x, (4, 2), "f32"), (2, 4))
        calls = {
            "store": lambda: tl.store(x, h),
            "reshape": lambda: tl.reshape(h, (8,)),
            "dot": lambda: tl.dot(h, tl.transpose(h)),
            "data": lambda: h.data,
        }
        calls.get(use, lambda: getattr(tl, use)(h))()

    with pytest.raises(KernelError, match="was released at the end"):
        run_kernel(kernel, X)


def test_a_load_that_lands_after_its_scope_does_not_overwrite_what_came_next(gives):
    def kernel(x, y, tl):
        with tl.scope():
            tl.load(x, (6, 8), "f32", wait=False)
        h = tl.load(y, (6, 8), "f32", wait=False)
        tl.load(x, (1,), "f32")
        tl.wait(h)
        assert h[0, 0] == 100
        return h

    gives(kernel, X + 100, X + 100)


def test_out_takes_the_result_and_allocates_nothing(gives):
    def kernel(x, tl):
        h = tl.load(x, (6, 8), "f32")
        total = tl.zeros((6, 8), "f32")
        for _ in range(3):
            assert tl.add(total, h, out=total) is total
        with pytest.raises(PendingDataError, match="add at"):
            total[0, 0]
        return total

    assert len({p["dst_addr"] for p in ops(gives(kernel, 3 * X))}) == 1


def test_out_rounds_to_its_own_dtype(gives):
    def kernel(x, tl):
        return tl.exp(tl.load(x, (8,), "f32"), out=tl.zeros((8,), "f16"))

    gives(kernel, np.exp(X[0]).astype(np.float16))


def test_out_of_a_dot_may_be_another_than_its_accumulator(gives):
    def kernel(x, tl):
        a = tl.load(x, (2, 2), "f32")
        acc = tl.load(x + 16, (2, 2), "f32")
        out = tl.zeros((2, 2), "f32")
        assert tl.dot(a, a, acc=acc, out=out) is out
        assert acc[0, 0] == 4
        return out

    a = X.reshape(-1)[:4].reshape(2, 2)
    gives(kernel, a @ a + a + 4)


WRONG = {
    "out of another shape": (
        lambda tl, h, x: tl.exp(h, out=tl.zeros((3,), "f32")),
        "cannot take the result: it must lie in scratch with shape (6, 8), "
        "and be no transpose",
    ),
    "out in HBM": (
        lambda tl, h, x: tl.exp(h, out=tl.ref(x, (6, 8), "f32")),
        "must lie in scratch",
    ),
    "out transposed": (
        lambda tl, h, x: tl.sum(h, out=tl.transpose(tl.zeros((6, 8)))),
        "and be no transpose",
    ),
    "no number": (
        lambda tl, h, x: tl.add(h, "1"),
        "operand '1' is neither a handle nor a number",
    ),
    "an array": (
        lambda tl, h, x: tl.add(h, np.ones(8)),
        "is neither a handle nor a number",
    ),
    "a copy of HBM": (
        lambda tl, h, x: tl.slice(tl.ref(x, (6, 8), "f32"), (0, 0), (6, 4)),
        "slice: operand <h0.2 f32[6, 8] in hbm, ready> is not in scratch; "
        "tl.load it first",
    ),
    "a store of a transposed ref": (
        lambda tl, h, x: tl.store(x, tl.transpose(tl.ref(x, (6, 8), "f32"))),
        "is not in scratch; tl.load it first",
    ),
    "bool minus": (
        lambda tl, h, x: -(h > 0),
        "neg of bool has no meaning; tl.cast the operands",
    ),
    "a shape too large": (
        lambda tl, h, x: tl.reshape(h, (7, 7)),
        "cannot reshape array of size 48",
    ),
    "axes twice": (
        lambda tl, h, x: tl.transpose(h, (0, 0)),
        "transpose of <h0.1 f32[6, 8] in tcm, ready>: repeated axis",
    ),
    "a block outside": (
        lambda tl, h, x: tl.slice(h, (5, 0), (2, 8)),
        "is not inside it",
    ),
    "a block from behind": (
        lambda tl, h, x: tl.slice(h, (-3, 0), (1, 8)),
        "is not inside it",
    ),
    "an empty block": (
        lambda tl, h, x: tl.slice(h, (0, 0), (0, 8)),
        "is not inside it",
    ),
    "too few starts": (
        lambda tl, h, x: tl.slice(h, (5,), (1,)),
        "slice of <h0.1 f32[6, 8]",
    ),
    "too many starts": (
        lambda tl, h, x: tl.slice(h, (0, 0, 0), (1, 1, 1)),
        "slice of <h0.1 f32[6, 8] in tcm, ready>: too many indices",
    ),
    "an empty range": (lambda tl, h, x: tl.arange(4, 4), "has an extent below 1"),
    "an accumulator transposed": (
        lambda tl, h, x: tl.dot(
            h, tl.transpose(h), acc=tl.transpose(tl.zeros((6, 6), "f32"))
        ),
        "and be no transpose",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_says_what_is_wrong(run_kernel, name):
    def kernel(x, tl):
        h = tl.load(x, (6, 8), "f32")
        WRONG[name][0](tl, h, x)

    with pytest.raises(KernelError) as raised:
        run_kernel(kernel, X)
    assert WRONG[name][1] in str(raised.value)


def test_contiguous_views_cost_no_op_and_share_the_bytes(run_kernel):
    def kernel(x, tl):
        h = tl.load(x, (6, 8), "f32")
        flat = tl.reshape(h, (-1,))
        row = tl.slice(h, (2, 0), (2, 8))
        part = tl.slice(h, (3, 1), (1, 4))
        column = tl.transpose(tl.reshape(row, (16, 1)))
        assert column.shape == (1, 16)
        assert np.array_equal(flat.data, X.reshape(-1))
        assert np.array_equal(row.data, X[2:4])
        assert np.array_equal(part.data, X[3:4, 1:5])
        assert np.array_equal(tl.transpose(h).data, X.T)
        tl.mul(part, 0, out=part)
        for pending in (h, flat, row, part):
            with pytest.raises(PendingDataError, match="mul at"):
                pending[0]
        assert tl.slice(h, (0, 0), (3, 8))[0, 1] == 1
        return len({handle.id for handle in (h, flat, row, part, column)})

    run = run_kernel(kernel, X)
    assert run.made == 1
    assert [p["op"] for p in ops(run)] == ["mul"]
    found = run.store.view("tcm", ops(run)[0]["dst_addr"] - 4 * 25, (6, 8), "f32")
    assert found[3].tolist() == [24, 0, 0, 0, 0, 29, 30, 31]


def test_a_view_of_a_load_is_usable_when_either_is_awaited(run_kernel):
    def kernel(x, tl):
        h = tl.load(x, (6, 8), "f32", wait=False)
        row = tl.slice(h, (1, 0), (1, 8))
        with pytest.raises(PendingDataError, match="wait=False"):
            row[0, 0]
        tl.wait(row)
        return h[1, 0], row[0, 0]

    assert run_kernel(kernel, X).made == (8, 8)


def test_a_transposed_operand_of_a_dot_is_a_flag(gives):
    def kernel(x, tl):
        h = tl.load(x, (6, 8), "f32")
        return tl.transpose(h) @ h

    run = gives(kernel, X.T @ X)
    (gemm,) = ops(run, "gemm")
    assert (gemm["transpose_a"], gemm["transpose_b"], gemm["shape_a"]) == (
        True,
        False,
        (6, 8),
    )
    assert (gemm["m"], gemm["k"], gemm["n"]) == (8, 6, 8)
    assert ops(run) == []


def test_a_transposed_ref_of_a_composite_is_a_flag(run_kernel):
    def kernel(x, out, tl):
        a = tl.ref(x, (6, 8), "f32")
        tl.wait(tl.composite(a=a, b=tl.transpose(a), out_ptr=out, tile=(4, 4, 4)))

    run = run_kernel(kernel, X, np.zeros((6, 6), np.float32))
    (gemm,) = ops(run, "gemm")
    assert gemm["transpose_b"]
    found = run.store.view("hbm", gemm["out_addr"], (6, 6), "f32")
    np.testing.assert_allclose(found, X @ X.T, 1e-5)


def test_a_transposed_bias_is_copied_first(run_kernel):
    def kernel(x, out, tl):
        a = tl.ref(x, (6, 8), "f32")
        bias = tl.transpose(tl.load(x, (6, 6), "f32"))
        tl.composite(
            a=a, b=tl.transpose(a), out_ptr=out, epilogue=[("bias", bias)], wait=True
        )

    run = run_kernel(kernel, X, np.zeros((6, 6), np.float32))
    found = run.store.view("hbm", ops(run, "gemm")[0]["out_addr"], (6, 6), "f32")
    np.testing.assert_allclose(
        found, X @ X.T + X.reshape(-1)[:36].reshape(6, 6).T, 1e-5
    )


@pytest.mark.parametrize("use", ["store", "math"])
def test_elsewhere_a_transpose_is_copied_first(gives, use):
    def kernel(x, tl):
        h = tl.transpose(tl.load(x, (6, 8), "f32"))
        return h if use == "store" else h * 1

    run = gives(kernel, X.T)
    assert ops(run)[0]["op"] == "copy"


def test_operators_make_the_calls(gives):
    def kernel(x, tl):
        h = tl.load(x, (6, 8), "f32")
        y = abs(-h) + np.float32(2) * h - 1 / (h + 1)
        small = (h < 9) == (h <= 8)
        return tl.where(small != (3 > h), y, 0.0) @ tl.transpose(h)  # noqa: SIM300

    gives(kernel, np.where(X >= 3, X + 2 * X - 1 / (X + 1), 0) @ X.T)


def test_handles_are_keys_of_sets_by_identity_and_differ_from_what_is_no_number(
    run_kernel,
):
    def kernel(x, tl):
        a = tl.load(x, (8,), "f32")
        b = tl.load(x, (8,), "f32")
        return len({a, b, a}), a == None, a != "a"  # noqa: E711

    assert run_kernel(kernel, X).made == (2, False, True)


def test_a_comparison_of_pending_data_is_pending(run_kernel):
    def kernel(x, tl):
        if tl.load(x, (1,), "f32") + 1 > 0.5:
            return

    with pytest.raises(
        PendingDataError, match=r"gt at .*tensor\.numpy\(\) between launches"
    ):
        run_kernel(kernel, X)


DTYPES = [
    ("f16", "f32", "f32"),
    ("f16", "bf16", "f32"),
    ("fp8_e4m3", "fp8_e5m2", "f16"),
    ("fp8_e4m3", "bf16", "bf16"),
    ("i64", "f16", "f16"),
    ("bool", "bf16", "bf16"),
    ("i8", "u8", "i16"),
    ("bool", "u8", "u8"),
    ("i32", "u64", "f64"),
    ("f16", 2.5, "f16"),
    ("i8", 300, "i8"),
    ("i8", 2.5, "f32"),
    ("bool", 2, "i32"),
    ("bool", True, "bool"),
]


@pytest.mark.parametrize(("a", "b", "expected"), DTYPES)
def test_the_dtype_of_a_result(run_kernel, a, b, expected):
    def kernel(x, tl):
        left = tl.zeros((2,), a)
        right = tl.zeros((2,), b) if isinstance(b, str) else b
        return {(left + right).dtype, (right + left).dtype}

    assert run_kernel(kernel, X).made == {expected}


def test_dtypes_of_ops_with_rules_of_their_own(run_kernel):
    def kernel(x, tl):
        ints = tl.zeros((2,), "i32")
        mask = tl.zeros((2,), "bool")
        return [
            tl.exp(ints).dtype,
            (ints / 2).dtype,
            tl.softmax(ints).dtype,
            tl.sum(mask).dtype,
            tl.sum(tl.zeros((2,), "i8")).dtype,
            (ints < 0.5).dtype,
            tl.where(mask, tl.zeros((2,), "f16"), 1.0).dtype,
            tl.where(mask, 1.0, 0.0).dtype,
            tl.where(mask, 1, 0).dtype,
        ]

    expected = ["f32", "f32", "f32", "i32", "i8", "bool", "f16", "f32", "i32"]
    assert run_kernel(kernel, X).made == expected


def test_what_a_kernel_prints_is_recorded_with_time_and_call(run_kernel, events):
    def kernel(x, tl):
        h = tl.load(x, (2,), "f32")
        tl.device_print("x =", h, h + 1, 7)

    run_kernel(kernel, X, recorder=events)
    ((t, cmd, level, text),) = events.of("text")
    assert (level, text) == ("print", "x = [0. 1.] <h0.2 f32[2] in tcm, pending> 7")
    (row,) = (args for args in events.of("command") if args[0] == cmd)
    assert row[1] == "sip0.cube0.pe0.pe_cpu"
    assert row[3] == "device_print"
    assert row[4].line == inspect.getsourcelines(kernel)[1] + 2
    assert row[6] == t > 0


def test_an_assertion_that_holds_records_its_call_only(run_kernel, events):
    def kernel(x, tl):
        tl.device_assert(tl.load(x, (6, 8), "f32").data >= 0, "never")
        tl.device_assert(tl.num_programs(0) == 1)

    run_kernel(kernel, X, recorder=events)
    assert events.of("text") == []
    assert [args[3] for args in events.of("command")].count("device_assert") == 2


def test_an_assertion_that_fails_is_recorded_then_raised(run_kernel, events):
    def kernel(x, tl):
        tl.device_assert(tl.load(x, (2,), "f32"), "all of x")

    line = inspect.getsourcelines(kernel)[1] + 1
    with pytest.raises(
        KernelError, match=rf"\.py:{line}: device_assert failed: all of x"
    ):
        run_kernel(kernel, X, recorder=events)
    ((_, cmd, level, text),) = events.of("text")
    assert (level, text) == ("assert", "all of x")
    assert [args[3] for args in events.of("command") if args[0] == cmd] == [
        "device_assert"
    ]


def test_an_assertion_on_a_compute_result_is_pending(run_kernel):
    def kernel(x, tl):
        tl.device_assert(tl.load(x, (2,), "f32") >= 0)

    with pytest.raises(PendingDataError, match="ge at"):
        run_kernel(kernel, X)


def test_calls_from_the_table_have_their_signature_and_text():
    shown = str(inspect.signature(TLContext.maximum))
    assert shown.startswith("(tl, a: 'Operand', b: 'Operand', out: 'Out' = None)")
    assert "keepdims" in inspect.signature(TLContext.sum).parameters
    assert TLContext.rsqrt.__doc__ == "1 / sqrt(x)."


def test_overflow_of_scratch_says_how_to_need_less(run_kernel):
    def kernel(x, tl):
        tl.zeros((3 * MIB,), "u8")

    with pytest.raises(
        KernelError, match=f"{3 * MIB} bytes.*use smaller tiles, out= or tl.scope"
    ):
        run_kernel(kernel, X)
