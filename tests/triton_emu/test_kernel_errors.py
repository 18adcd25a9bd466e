"""What a kernel must not do, and what its error says.

It names the PE, the kernel, the line and the values, and says what to do.
"""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest

from kernbench.errors import KernelError, PendingDataError, TcmOverflowError
from kernbench.runtime_api import DPPolicy


def line_of(function, text):
    """The line of a function's source on which ``text`` stands."""
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


@pytest.fixture
def fails(simulate):
    """fails(kernel, error): launches kernel(x_ptr, out_ptr); gives its error's text."""

    def fails(kernel, error=KernelError, bench=None):
        def launch(torch):
            x = torch.tensor(np.ones((8, 8), np.float32))
            out = torch.empty((8, 8), "f32")
            torch.launch("my launch", kernel, x, out)

        with pytest.raises(error) as raised:
            simulate(bench or launch)
        assert type(raised.value) is error
        return SimpleNamespace(text=str(raised.value), kernel=kernel)

    return fails


ACCESSES = {
    "index": lambda h: h[0],
    "truth": lambda h: bool(h),
    "float": lambda h: float(h),
    "int": lambda h: int(h),
    "array": lambda h: np.asarray(h),
    "data": lambda h: h.data,
}


@pytest.mark.parametrize("access", ACCESSES)
def test_a_compute_result_has_no_data_in_phase_1(fails, access):
    def kernel(x_ptr, out_ptr, tl):
        x = tl.load(x_ptr, (8, 8), "f32")
        y = tl.exp(x)  # made
        ACCESSES[access](y)

    error = fails(kernel, PendingDataError)
    assert f"test_kernel_errors.py:{line_of(kernel, '# made')}" in error.text
    assert "exp" in error.text
    assert "tensor.numpy()" in error.text


def test_waiting_for_a_composite_does_not_make_it_ready(fails):
    def kernel(x_ptr, out_ptr, tl):
        x = tl.ref(x_ptr, (8, 8), "f32")
        done = tl.composite(a=x, b=x, out_ptr=out_ptr)
        tl.wait(done)
        done[0, 0]

    assert "composite at" in fails(kernel, PendingDataError).text


def test_bytes_that_a_compute_result_will_fill_are_pending_too(fails):
    def kernel(x_ptr, out_ptr, tl):
        tl.store(out_ptr, tl.load(x_ptr, (8, 8), "f32") + 1)
        tl.load(out_ptr, (8, 8), "f32")[0, 0]

    error = fails(kernel, PendingDataError)
    assert "the store of" in error.text
    assert "tensor.numpy()" in error.text


def test_one_pending_byte_makes_the_whole_load_pending(fails):
    def kernel(x_ptr, out_ptr, tl):
        one = tl.sum(tl.load(x_ptr, (8, 8), "f32"))
        tl.store(x_ptr + 4 * 63, one)
        tl.load(x_ptr, (8, 8), "f32")[0, 0]

    fails(kernel, PendingDataError)


def test_a_ready_store_over_pending_bytes_makes_them_ready(simulate):
    def kernel(x_ptr, out_ptr, tl):
        x = tl.load(x_ptr, (8, 8), "f32")
        tl.store(out_ptr, x + 1)
        tl.store(out_ptr, x)
        assert tl.load(out_ptr, (8, 8), "f32")[0, 0] == 1

    def bench(torch):
        x = torch.tensor(np.ones((8, 8), np.float32))
        out = torch.empty((8, 8), "f32")
        torch.launch("k", kernel, x, out)

    assert simulate(bench).log


def test_a_load_not_awaited_is_unusable_and_says_to_wait(fails):
    def kernel(x_ptr, out_ptr, tl):
        x = tl.load(x_ptr, (8, 8), "f32", wait=False)  # made
        x[0, 0]

    error = fails(kernel, PendingDataError)
    assert f":{line_of(kernel, '# made')}" in error.text
    assert "tl.wait(handle)" in error.text


def test_a_load_that_has_landed_but_is_not_awaited_is_unusable_too(fails):
    def kernel(x_ptr, out_ptr, tl):
        x = tl.load(x_ptr, (8, 8), "f32", wait=False)
        tl.load(x_ptr, (8, 8), "f32")
        x[0, 0]

    assert "tl.wait(handle)" in fails(kernel, PendingDataError).text


def test_scratch_that_overflows_tells_the_sizes(fails):
    def kernel(x_ptr, out_ptr, tl):
        tl.load(x_ptr, (8, 8), "f32")
        tl.load(x_ptr, (1024, 1024), "f16")

    error = fails(kernel, TcmOverflowError)
    assert f"{2 * 2**20} bytes" in error.text
    assert f"{2 * 2**20 - 256} of {2 * 2**20} are left" in error.text


def test_what_a_kernel_raises_has_its_pe_kernel_and_line(fails):
    def kernel(x_ptr, out_ptr, tl):
        tl.load(x_ptr, (8, 8), "f32")
        raise ZeroDivisionError("mine")

    error = fails(kernel)
    line = line_of(kernel, "raise")
    assert "sip0.cube0.pe0.pe_cpu" in error.text
    assert "kernel my launch at tests/triton_emu/test_kernel_errors.py" in error.text
    assert f".py:{line}: ZeroDivisionError: mine" in error.text


def test_an_error_in_a_library_has_the_line_of_the_kernel(fails):
    def kernel(x_ptr, out_ptr, tl):
        np.concatenate([])  # numpy raises
        np.broadcast_shapes((2,), (3,))

    assert f":{line_of(kernel, '# numpy raises')}: ValueError" in fails(kernel).text

    def deeper(x_ptr, out_ptr, tl):
        np.stack([])  # raised by Python code of numpy

    assert f":{line_of(deeper, '# raised')}: ValueError" in fails(deeper).text


def test_an_unmapped_address_names_the_nearest_tensor(fails):
    def kernel(x_ptr, out_ptr, tl):
        tl.load(x_ptr + 4 * 60, (8, 8), "f32")  # past the end

    error = fails(kernel)
    assert f":{line_of(kernel, '# past')}: AddressError" in error.text
    assert "is in no tensor" in error.text
    assert "nearest: t0 [" in error.text


def test_a_physical_address_is_no_virtual_one(fails):
    def kernel(x_ptr, out_ptr, tl):
        tl.load(4096, (8, 8), "f32")

    assert "not a virtual address" in fails(kernel).text


def test_memory_never_written_is_an_error_that_says_so(fails):
    def kernel(x_ptr, out_ptr, tl):
        tl.load(out_ptr, (8, 8), "f32")  # of torch.empty

    error = fails(kernel)
    assert f":{line_of(kernel, '# of')}: MemoryStoreError" in error.text
    assert "never written" in error.text


@pytest.mark.parametrize("wait", [True, False])
def test_a_kernel_may_catch_an_error_and_go_on(simulate, wait):
    went_on = []

    def kernel(x_ptr, out_ptr, tl):
        with pytest.raises(ValueError, match="never written"):
            tl.load(out_ptr, (8, 8), "f32", wait=wait)
        tl.store(out_ptr, tl.load(x_ptr, (8, 8), "f32"))
        went_on.append(tl.load(out_ptr, (8, 8), "f32")[0, 0])

    def bench(torch):
        x = torch.tensor(np.ones((8, 8), np.float32))
        out = torch.empty((8, 8), "f32")
        torch.launch("k", kernel, x, out)

    simulate(bench)
    assert went_on == [1]


def two_shards(torch, kernel):
    dp = DPPolicy(pe="row_wise", num_cubes=1, num_pes=2)
    x = torch.tensor(np.ones((8, 8), np.float32), dp=dp)
    out = torch.empty((8, 8), "f32", dp)
    torch.launch("k", kernel, x, out)


def test_a_ref_across_shards_names_them(fails):
    def kernel(x_ptr, out_ptr, tl):
        tl.ref(x_ptr, (8, 8), "f32")

    error = fails(kernel, bench=lambda torch: two_shards(torch, kernel))
    assert "AddressError: ref of f32[8, 8]" in error.text
    assert "covers 2 shards (128 bytes at" in error.text


def test_an_element_cut_by_a_shard_is_refused(fails):
    def kernel(x_ptr, out_ptr, tl):
        tl.load(x_ptr + 2, (63,), "f32")

    error = fails(kernel, bench=lambda torch: two_shards(torch, kernel))
    assert "is not aligned to its 4-byte elements" in error.text


WRONG = {}


def wrong(message):
    """The function makes a call that is wrong; ``message`` is in its error."""

    def add(call):
        WRONG[call.__name__] = (call, message)
        return call

    return add


def square(tl, x, dtype="f32"):
    return tl.load(x, (4, 4), dtype)


def square_ref(tl, x):
    return tl.ref(x, (4, 4), "f32")


@wrong("overlaps an operand")
def output_over_an_operand(tl, x, o):
    a = square_ref(tl, x)
    b = square_ref(tl, x)
    tl.composite(a=a, b=b, out_ptr=x + 32, out_dtype="f32")


@wrong("unknown op 'conv'; valid: gemm, exp, ")
def unknown_op(tl, x, o):
    tl.composite("conv")


@wrong("integers with a number that is none; tl.load")
def composite_of_integers_and_a_fraction(tl, x, o):
    tl.composite("mul", a=tl.ref(x, (4,), "i32"), b=0.5, out_ptr=o)


@wrong("the output has shape (2, 2, 2), but tiles are of matrices")
def composite_of_three_axes(tl, x, o):
    tl.composite("exp", a=tl.ref(x, (2, 2, 2)), out_ptr=o)


@wrong("composite exp: 'a' is no handle")
def composite_of_a_text(tl, x, o):
    tl.composite("exp", a="a", out_ptr=o)


@wrong("operands a and b are needed")
def no_operands(tl, x, o):
    tl.composite(out_ptr=o)


@wrong("gemm of (4, 8) and (4, 8): needs (m, k) and (k, n)")
def shapes_of_a_gemm(tl, x, o):
    tl.dot(tl.load(x, (4, 8), "f32"), tl.load(x, (4, 8), "f32"))


@wrong("both operands need the same dtype")
def dtypes_of_a_gemm(tl, x, o):
    tl.dot(square(tl, x), square(tl, x, "f16"))


@wrong("operand a <h0.1 f32[4, 4] in hbm, ready> is not in scratch; tl.load it first")
def dot_in_hbm(tl, x, o):
    tl.dot(square_ref(tl, x), square(tl, x))


@wrong("tl.load it first")
def math_in_hbm(tl, x, o):
    tl.exp(square_ref(tl, x))


@wrong("at least one operand must be a handle")
def math_on_scalars(tl, x, o):
    tl.add(1, 2)


@wrong("TLContext.add() missing 1 required positional argument: 'b'")
def an_operand_too_few(tl, x, o):
    tl.add(square(tl, x))


@wrong("add of [(4, 4), (3,)]")
def shapes_that_do_not_broadcast(tl, x, o):
    square(tl, x) + tl.load(x, (3,), "f32")


@wrong("axis=1")
def an_axis_too_many(tl, x, o):
    tl.sum(tl.load(x, (4,), "f32"), axis=1)


@wrong("has an extent below 1")
def an_extent_of_0(tl, x, o):
    tl.load(x, (0, 4), "f32")


@wrong("unknown dtype 'f12'; valid:")
def an_unknown_dtype(tl, x, o):
    tl.load(x, (4,), "f12")


@wrong("axis 3: valid are 0 (PE)")
def an_axis_of_programs(tl, x, o):
    tl.program_id(3)


@wrong("store: 3.0 is no handle")
def storing_a_number(tl, x, o):
    tl.store(o, 3.0)


@wrong("must lie in scratch with shape (4, 4)")
def an_accumulator_of_another_shape(tl, x, o):
    a = square(tl, x)
    tl.dot(a, a, acc=tl.load(x, (4,), "f32"))


@wrong("out_dtype=f16")
def an_accumulator_of_another_dtype(tl, x, o):
    a = square(tl, x)
    tl.dot(a, a, acc=a, out_dtype="f16")


def composite(tl, x, o, *steps, **options):
    a = square_ref(tl, x)
    tl.composite("gemm", a, a, o, steps, **options)


@wrong("epilogue step 'gelu': valid are ('bias', 'relu', 'scale', 'dequant'")
def an_unknown_epilogue(tl, x, o):
    composite(tl, x, o, "gelu")


@wrong("epilogue step ([], 1): valid are ('bias', 'relu', 'scale', 'dequant'")
def an_epilogue_without_a_name(tl, x, o):
    composite(tl, x, o, ([], 1))


@wrong("no argument, every other step one")
def a_scale_by_nothing(tl, x, o):
    composite(tl, x, o, "scale")


@wrong("epilogue bias: <h0.2 f32[3] in tcm, ready> does not broadcast to (4, 4)")
def a_bias_that_does_not_broadcast(tl, x, o):
    a = square_ref(tl, x)
    bias = tl.load(x, (3,), "f32")
    tl.composite("gemm", a, a, o, [("bias", bias)])


@wrong("tile (0, 4, 4) must be (m, n, k), each at least 1")
def a_tile_of_nothing(tl, x, o):
    composite(tl, x, o, tile=(0, 4, 4))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_is_a_kernel_error_that_says_what_is_valid(fails, name):
    call, message = WRONG[name]

    def kernel(x_ptr, out_ptr, tl):
        call(tl, x_ptr, out_ptr)

    assert message in fails(kernel).text
