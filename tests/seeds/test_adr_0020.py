"""ADR-0020, clause by clause, as somebody would rely on it who has the record alone.

Kernels (D1, D3, D8), components (D2, D4, D9), logs and verdicts (D5 to D7, D10, D11).
"""

import inspect
import random
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from kernbench import docs
from kernbench.ccl.install import install_ipcq
from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.dtypes import np_dtype
from kernbench.common.messages import COMMANDS, MsgBase, register_command
from kernbench.common.pe_commands import DmaReadCmd, MathCmd
from kernbench.components.base import ComponentBase, MemoryEndpoint
from kernbench.components.builtin import pe_cpu
from kernbench.components.builtin.hbm_ctrl import HbmCtrl
from kernbench.components.builtin.pe_cpu import PeCpu
from kernbench.components.builtin.pe_dma import PeDma
from kernbench.components.builtin.pe_gemm import PeGemm
from kernbench.components.builtin.pe_math import PeMath
from kernbench.components.builtin.pe_mmu import PeMmu
from kernbench.components.builtin.transit import Transit
from kernbench.components.registry import COMPONENTS
from kernbench.errors import (
    KernbenchError,
    KernelError,
    PendingDataError,
    VerificationError,
)
from kernbench.replay import ReplaySession
from kernbench.runtime_api import DPPolicy, run_bench
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.sim_engine.op_check import debug_check, first_over
from kernbench.sim_engine.op_log import OpRecord
from kernbench.sim_engine.verify import compare
from kernbench.topology import TopologySpec, build_topology, load_topology
from kernbench.topology.kinds import NODE_KINDS
from kernbench.topology.spec import ComponentSpec, ComponentsSpec, CubeMeshSpec, SipSpec
from kernbench.trace import Trace, TraceWriter
from kernbench.triton_emu.kernel_runner import KernelRunner

# == kernels: D1, D3, D8 ===============================================================

X = np.arange(64, dtype=np.float32)
SQUARE = np.arange(64, dtype=np.float32).reshape(8, 8)


@pytest.fixture(scope="session")
def run_kernel(one_cube):
    """run_kernel(kernel, *arrays, dtype=None): launches kernel(*pointers, tl=tl).

    ``.made`` is what the kernel returns, ``.log`` the op log of Phase 1, ``.calls`` the
    kernel's calls, and ``.data(i)`` tensor i after Phase 2.
    """

    def run_kernel(kernel, *arrays, dtype=None, recorder=None):
        engine = GraphEngine(one_cube, recorder=recorder)
        torch = Torch(engine)
        made = []

        def whole(*args, tl):
            made.append(kernel(*args, tl=tl))

        tensors = [torch.tensor(array, dtype) for array in arrays]
        torch.launch("k", whole, *tensors)
        engine.drain()
        return SimpleNamespace(
            made=made[0],
            engine=engine,
            log=engine.op_log,
            data=lambda i: tensors[i].numpy(),
        )

    return run_kernel


@pytest.fixture
def loaded(run_kernel):
    """loaded(value, dtype, look): what ``look(s, tl)`` gives of ``s``, loaded."""

    def loaded(value, dtype, look, shape=(1,)):
        def kernel(s_ptr, tl):
            return look(tl.load(s_ptr, shape, dtype), tl)

        array = np.asarray(value).reshape(shape).astype(np_dtype(dtype))
        return run_kernel(kernel, array, dtype=dtype).made

    return loaded


@pytest.fixture
def raises(run_kernel):
    """raises(kernel, *arrays): the text of the KernelError that ends the run."""

    def raises(kernel, *arrays, error=KernelError):
        with pytest.raises(error) as caught:
            run_kernel(kernel, *arrays)
        return str(caught.value)

    return raises


def calls(events):
    """The names of the calls that kernels made, in order."""
    return [args[3] for args in events.of("command") if args[2] >= 0]


def math_ops(log):
    return [record.op_name for record in log if record.op_kind == "math"]


class LazyPeCpu(PeCpu):
    """The PE_CPU of the record, which rests before each kernel."""

    nap_ns = 1000.0

    def run(self, env, msg):
        yield env.timeout(max(msg.target_start_ns - env.now, 0) + self.nap_ns)
        yield from super().run(env, msg)


def machine(cache, impl="pe_cpu"):
    """The default machine with one cube a SIP, and another PE_CPU."""
    components = replace(ComponentsSpec(), pe_cpu=ComponentSpec(impl))
    sip = replace(SipSpec(), cube_mesh=CubeMeshSpec(w=1, h=1))
    return build_topology(TopologySpec(sip=sip, components=components), cache)


# -- a loaded scalar is a number -------------------------------------------------------

COMPARISONS = {
    "s > 0.5": (lambda s: s > 0.5, lambda v: v > 0.5),
    "s >= 0.5": (lambda s: s >= 0.5, lambda v: v >= 0.5),
    "s < 0.5": (lambda s: s < 0.5, lambda v: v < 0.5),
    "s <= 0.5": (lambda s: s <= 0.5, lambda v: v <= 0.5),
    "s == 1": (lambda s: s == 1, lambda v: v == 1),
    "s != 1": (lambda s: s != 1, lambda v: v != 1),
    "1 == s": (lambda s: 1 == s, lambda v: v == 1),  # noqa: SIM300
    "np.float64(1) == s": (lambda s: np.float64(1) == s, lambda v: v == 1),
    "s == s": (lambda s: s == s, lambda v: v == v),
    "0 < s < 1": (lambda s: 0 < s < 1, lambda v: 0 < v < 1),
    "s > 0 and s < 1": (lambda s: s > 0 and s < 1, lambda v: v > 0 and v < 1),
    "s < 0 or s > 1": (lambda s: s < 0 or s > 1, lambda v: v < 0 or v > 1),
    "not s > 0.5": (lambda s: not s > 0.5, lambda v: not v > 0.5),
    "s in (1, 2)": (lambda s: s in (1, 2), lambda v: v in (1, 2)),
    "s not in [1, 2]": (lambda s: s not in [1, 2], lambda v: v not in [1, 2]),
    "min(s, 1) is s": (lambda s: min(s, 1) is s, lambda v: min(v, 1) is v),
}
FLOATS = ["f16", "bf16", "f32", "f64", "fp8_e4m3", "fp8_e5m2"]
INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_d3_a_loaded_scalar_compares_as_a_number(loaded, comparison):
    compare, expected = COMPARISONS[comparison]
    values = [0.0, 0.25, 0.5, 1.0, 2.0, -1.0, np.inf, np.nan]
    seen = [loaded(v, "f32", lambda s, _: bool(compare(s))) for v in values]
    assert seen == [expected(v) for v in values]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_d3_of_every_dtype_and_shape_of_one_element(loaded, dtype, shape):
    def look(s, tl):
        return bool(s == 1), bool(s > 0.5), bool(s < 1), float(s), int(s)

    assert loaded(1, dtype, look, shape) == (True, True, False, 1.0, 1)
    assert loaded(0, dtype, look, shape) == (False, False, True, 0.0, 0)


def test_d3_a_branch_on_a_loaded_scalar_is_taken_as_its_value_says(run_kernel):
    def kernel(flags_ptr, out_ptr, tl):
        for i in range(4):
            s = tl.load(flags_ptr + 4 * i, (1,), "f32")
            if s > 0.5:
                tl.store(out_ptr + 4 * i, s)

    flags = np.array([0.25, 0.75, 0.5, np.nan], np.float32)
    run = run_kernel(kernel, flags, np.zeros(4, np.float32))
    assert run.data(1).tolist() == [0, 0.75, 0, 0]


def test_d3_a_loop_runs_until_a_loaded_scalar_says_so(run_kernel):
    def kernel(chain_ptr, tl):
        at = tl.load(chain_ptr, (1,), "i32")
        seen = []
        while at != 0:
            seen.append(int(at))
            at = tl.load(chain_ptr + 4 * int(at), (1,), "i32")
        return seen

    chain = np.array([3, 0, 1, 4, 2], np.int32)
    assert run_kernel(kernel, chain).made == [3, 4, 2, 1]


@pytest.mark.parametrize(
    ("convert", "expected"),
    [
        (float, 3.0),
        (int, 3),
        (bool, True),
        (lambda s: list(range(int(s))), [0, 1, 2]),
        (lambda s: list(range(s)), [0, 1, 2]),
        (lambda s: "abcde"[s], "d"),
        (lambda s: [0, 1, 2, 3][s], 3),
        (lambda s: np.arange(9)[s], 3),
        (lambda s: "abcde"[:s], "abc"),
        (lambda s: s.item(), 3),
        (lambda s: s.tolist(), [3]),
        (lambda s: s.numpy().tolist(), [3]),
        (lambda s: s.size, 1),
        (lambda s: s[0] + 1, 4),
        (lambda s: list(s), [3]),
    ],
)
def test_d3_a_loaded_scalar_converts_as_a_number(loaded, convert, expected):
    assert loaded(3, "i32", lambda s, _: convert(s)) == expected


def test_d3_a_loaded_index_is_one_of_handles_addresses_and_shapes(run_kernel):
    def kernel(x_ptr, i_ptr, out_ptr, tl):
        x = tl.load(x_ptr, (8, 8), "f32")
        i = tl.load(i_ptr, (1,), "i32")
        n = tl.load(i_ptr + 4, (1,), "i32")
        tl.store(out_ptr, tl.load(x_ptr + n, (i,), "f32"))
        tl.store(out_ptr + 16, tl.reshape(tl.slice(x, (i, 0), (1, n)), (n,)))
        return x[i].tolist(), x[i, 1], x[i, :i].tolist(), x[-1, i], tl.cdiv(9, n)

    index = np.array([2, 4], np.int32)
    run = run_kernel(kernel, SQUARE, index, np.zeros(8, np.float32))
    assert run.made == (SQUARE[2].tolist(), 17, [16, 17], 58, 3)
    assert run.data(2).tolist() == [1, 2, 0, 0, 16, 17, 18, 19]


def test_d3_a_loaded_address_is_followed(run_kernel):
    def kernel(x_ptr, at_ptr, tl):
        offset = tl.load(at_ptr, (1,), "i64")
        return float(tl.load(x_ptr + offset, (1,), "f32"))

    assert run_kernel(kernel, X, np.array([20], np.int64)).made == 5


def test_d3_a_loaded_pointer_is_followed(simulate):
    seen = []

    def kernel(pointers, tl):
        target = tl.load(pointers, (1,), "i64")
        seen.append(tl.load(target, (4,), "f32").tolist())

    def bench(torch):
        x = torch.tensor(X)
        torch.launch("k", kernel, torch.tensor(np.array([x.ptr + 8])))

    simulate(bench)
    assert seen == [[2, 3, 4, 5]]


def test_d3_a_mask_of_loaded_data_selects_as_in_numpy(run_kernel):
    def kernel(x_ptr, i_ptr, m_ptr, tl):
        x = tl.load(x_ptr, (8,), "f32")
        some = tl.load(i_ptr, (3,), "i64")
        one = tl.load(m_ptr, (1,), "bool")
        return x[some].tolist(), x[x.numpy() > 5].tolist(), one[one].tolist()

    run = run_kernel(kernel, X, np.array([5, 2, 7]), np.array([True]))
    assert run.made == ([5, 2, 7], [6, 7], [True])


def test_d3_a_fraction_is_no_index_and_the_error_says_what_to_do(raises):
    def kernel(x_ptr, tl):
        "abc"[tl.load(x_ptr + 4, (1,), "f32")]

    text = raises(kernel, X)
    assert "TypeError" in text
    assert "f32[1]" in text
    assert "int(handle)" in text


def test_d3_a_fraction_is_no_address_and_the_error_says_what_to_do(raises):
    def kernel(x_ptr, tl):
        tl.load(tl.load(x_ptr, (1,), "f32"), (1,), "f32")

    assert "is no whole number; use a pointer that the kernel was" in raises(kernel, X)


@pytest.mark.parametrize("convert", [int, float, range, lambda s: "abc"[s]])
def test_d3_more_than_one_element_is_no_number(loaded, convert):
    with pytest.raises(KernelError, match=r"TypeError: .*f32\[2\].* has 2 elements"):
        loaded([1, 2], "f32", lambda s, _: convert(s), (2,))


@pytest.mark.parametrize(
    "look",
    [
        lambda x, tl: bool(x),
        lambda x, tl: bool(x > 0.5),
        lambda x, tl: 0 < x < 1,
        lambda x, tl: x == 1 or x == 2,
        lambda x, tl: x in (3, 4),
    ],
)
def test_d3_the_truth_of_more_than_one_element_is_ambiguous_as_in_numpy(loaded, look):
    with pytest.raises(KernelError) as caught:
        loaded([1, 2], "f32", look, (2,))
    text = str(caught.value)
    assert "ValueError: the truth value of <h" in text
    assert "is ambiguous, as it has 2 elements" in text
    assert "handle[0] > 0.5" in text
    assert "(handle.numpy() > 0.5).all()" in text


def test_d3_what_an_array_has_and_a_handle_has_not_is_named_with_numpy(raises):
    def kernel(x_ptr, tl):
        tl.load(x_ptr, (8,), "f32").argsort()

    text = raises(kernel, X)
    assert "AttributeError: 'TensorHandle' object has no attribute 'argsort'" in text
    assert "handle.numpy().argsort" in text


def test_d3_where_tl_has_it_that_is_named_too(raises):
    def kernel(x_ptr, tl):
        tl.load(x_ptr, (8,), "f32").sum()

    text = raises(kernel, X)
    assert "handle.numpy().sum of what was loaded, or tl.sum(handle)" in text


def test_d3_what_no_array_has_is_an_attribute_error_as_everywhere(loaded):
    def look(s, tl):
        with pytest.raises(AttributeError) as caught:
            s.colour  # noqa: B018
        return str(caught.value), hasattr(s, "T"), hasattr(s, "numpy")

    text = "'TensorHandle' object has no attribute 'colour'"
    assert loaded(1, "f32", look) == (text, False, True)


def test_d3_loaded_data_are_lists_arrays_and_numbers_on_demand(run_kernel):
    def kernel(x_ptr, tl):
        x = tl.load(x_ptr, (2, 3), "f32")
        array = x.numpy()
        return (
            x.size,
            len(x),
            x.tolist(),
            x.item(1, 2),
            list(x[0]),
            (type(array), array.dtype, array.shape, array.flags.writeable),
            3 in x[1],
        )

    assert run_kernel(kernel, X).made == (
        6,
        2,
        [[0, 1, 2], [3, 4, 5]],
        5,
        [0, 1, 2],
        (np.ndarray, np.float32, (2, 3), False),
        True,
    )


@pytest.mark.parametrize("look", [len, list])
def test_d3_a_tensor_without_axes_has_no_length(loaded, look):
    with pytest.raises(KernelError, match="TypeError"):
        loaded(1, "f32", lambda s, _: look(s), ())


def test_d3_handles_stay_keys_by_identity(run_kernel):
    def kernel(x_ptr, tl):
        a = tl.load(x_ptr, (1,), "f32")
        b = tl.load(x_ptr, (1,), "f32")
        names = {a: "a", b: "b"}
        assert a is not b
        assert a != "a"
        assert not a == None  # noqa: E711, SIM201
        return names[a], names[b], len({a, b, a})

    assert run_kernel(kernel, X).made == ("a", "b", 2)


@pytest.mark.parametrize("other", [np.array([0.0]), [0.0], (0.0,)])
def test_d3_an_array_is_no_operand_of_a_comparison_and_not_just_unequal(raises, other):
    def kernel(x_ptr, tl):
        if tl.load(x_ptr, (1,), "f32") == other:
            return

    problem = f"eq: operand {other!r} is neither a handle nor a number"
    assert problem in raises(kernel, X)


@pytest.mark.parametrize("number", [2**53 + 1, np.int64(2**53 + 1)])
def test_d3_a_number_that_a_command_cannot_hold_is_refused_not_rounded(raises, number):
    def kernel(x_ptr, tl):
        if tl.load(x_ptr, (1,), "i64") == number:
            return

    text = raises(kernel, np.array([2**53]))
    assert "eq: the number 9007199254740993 has no exact f64" in text


def test_d3_whole_numbers_of_64_bits_compare_exactly(loaded):
    def look(s, tl):
        return bool(s == 2**53), bool(s > 2**53)

    assert loaded(2**53 + 1, "i64", look) == (False, True)


def test_d3_a_branch_goes_as_the_op_of_the_comparison_does(run_kernel):
    def kernel(x_ptr, out_ptr, tl):
        s = tl.load(x_ptr, (1,), "f16")
        for i, other in enumerate((0.1, float(s), s)):
            same = s == other
            tl.store(out_ptr + i, same)
            seen.append(bool(same))

    seen = []
    out = np.array([False, False, False])
    run = run_kernel(kernel, np.array([0.1], np.float16), out)
    assert run.data(1).tolist() == seen == [False, True, True]


# -- what a comparison records, and costs ----------------------------------------------


def test_d3_a_comparison_stays_a_handle_and_feeds_where(run_kernel):
    def kernel(x_ptr, s_ptr, out_ptr, tl):
        x = tl.load(x_ptr, (8,), "f32")
        s = tl.load(s_ptr, (1,), "f32")
        large = s > 0.5
        assert (large.dtype, large.shape, large.ready) == ("bool", (1,), False)
        tl.store(out_ptr, tl.where(large, x, -x))

    run = run_kernel(kernel, X, np.array([0.25], np.float32), np.zeros(8, np.float32))
    assert run.data(2).tolist() == [-0.0, -1, -2, -3, -4, -5, -6, -7]
    assert math_ops(run.log) == ["gt", "neg", "where"]


def test_d3_the_truth_of_a_comparison_is_one_issue_of_the_cpu(
    run_kernel, events, one_cube
):
    def kernel(x_ptr, tl):
        large = tl.load(x_ptr, (1,), "f32") > 0.5
        if large:
            return

    run = run_kernel(kernel, X, recorder=events)
    assert calls(events) == ["load", "gt", "bool", "exit"]
    (truth,) = [args for args in events.of("command") if args[3] == "bool"]
    _cmd, _pe, _launch, _name, site, _awaits, t_issue, t_resume = truth
    assert site.line == inspect.getsourcelines(kernel)[1] + 2
    pe = one_cube.spec.pe
    assert t_resume - t_issue == pytest.approx(pe.cpu.issue_cycles / pe.clock_ghz)
    assert math_ops(run.log) == ["gt"]


def test_d3_the_truth_of_what_was_loaded_costs_nothing(run_kernel, events):
    def kernel(x_ptr, tl):
        s = tl.load(x_ptr, (1,), "f32")
        return bool(s), float(s), int(s), s[0] > 0.5, s.item()

    run_kernel(kernel, X, recorder=events)
    assert calls(events) == ["load", "exit"]


def test_d3_a_comparison_is_known_as_it_was_when_it_was_made(run_kernel):
    def kernel(x_ptr, tl):
        s = tl.load(x_ptr + 4, (1,), "f32")
        one = s == 1
        tl.mul(s, 2, out=s)
        return bool(one)

    assert run_kernel(kernel, X).made is True


def test_d3_a_comparison_written_over_its_operand_is_known(run_kernel):
    def kernel(x_ptr, tl):
        s = tl.load(x_ptr + 4, (1,), "f32")
        tl.gt(s, 2.0, out=s)
        return bool(s), bool(tl.reshape(s, ()))

    assert run_kernel(kernel, X).made == (False, False)


def test_d3_what_overwrites_a_comparison_makes_it_pending(raises):
    def kernel(x_ptr, tl):
        s = tl.load(x_ptr, (1,), "f32")
        flag = s > 0.5
        tl.ne(flag, s * 0, out=flag)
        bool(flag)

    assert "ne at" in raises(kernel, X, error=PendingDataError)


COMPUTED = {
    "a sum": lambda x, s, tl: bool(tl.sum(x)),
    "a sum, compared": lambda x, s, tl: bool(tl.sum(x) > 2),
    "a product": lambda x, s, tl: int(s * 4),
    "a difference as an index": lambda x, s, tl: x[s - 1],
    "a difference as a count": lambda x, s, tl: range(s - 1),
    "a comparison of comparisons": lambda x, s, tl: bool((s > 0) == (s > 1)),
    "a comparison as a number": lambda x, s, tl: int(s > 0),
    "a comparison as an array": lambda x, s, tl: (s > 0).numpy(),
    "its element": lambda x, s, tl: (s > 0)[0],
    "its list": lambda x, s, tl: (s > 0).tolist(),
    "a piece of a comparison": lambda x, s, tl: bool(tl.slice(x > 0, (0,), (1,))),
    "a copy of a comparison": lambda x, s, tl: bool(tl.cast(s > 0, "i32")),
}


@pytest.mark.parametrize("what", COMPUTED)
def test_d3_results_of_compute_are_pending_and_say_what_to_do(raises, what):
    def kernel(x_ptr, i_ptr, tl):
        x = tl.load(x_ptr, (8,), "f32")
        s = tl.load(i_ptr, (1,), "i32")
        COMPUTED[what](x, s, tl)

    text = raises(kernel, X, np.array([3], np.int32), error=PendingDataError)
    assert "computes it in Phase 2" in text
    assert "tensor.numpy() between launches" in text
    assert "int(handle)" in text


def test_d3_an_address_computed_by_ops_is_pending_and_by_numbers_is_not(run_kernel):
    def kernel(x_ptr, i_ptr, tl):
        i = tl.load(i_ptr, (1,), "i32")
        for address in (lambda: x_ptr + 4 * i, lambda: 4 * i + x_ptr):
            with pytest.raises(PendingDataError, match=r"int\(handle\) \* 4, "):
                tl.load(address(), (1,), "f32")
        return float(tl.load(x_ptr + 4 * int(i), (1,), "f32"))

    assert run_kernel(kernel, X, np.array([3], np.int32)).made == 3


def test_d3_a_comparison_of_a_load_under_way_is_not_known(raises):
    def kernel(x_ptr, tl):
        s = tl.load(x_ptr, (1,), "f32", wait=False)
        large = s > 0.5
        tl.wait(s)
        bool(large)

    assert "gt at" in raises(kernel, X, error=PendingDataError)


def test_d3_a_stored_comparison_is_loaded_as_pending(raises):
    def kernel(x_ptr, flag_ptr, tl):
        tl.store(flag_ptr, tl.load(x_ptr, (1,), "f32") > 0.5)
        bool(tl.load(flag_ptr, (1,), "bool"))

    text = raises(kernel, X, np.array([True]), error=PendingDataError)
    assert "the store of" in text


def test_d3_a_released_comparison_is_an_error(raises):
    def kernel(x_ptr, tl):
        with tl.scope():
            large = tl.load(x_ptr, (1,), "f32") > 0.5
        bool(large)

    assert "was released at the end of its tl.scope()" in raises(kernel, X)


def test_d3_an_assertion_takes_a_comparison_of_a_loaded_scalar(run_kernel, raises):
    def kernel(x_ptr, tl):
        tl.device_assert(tl.load(x_ptr + 4, (1,), "f32") == 1)

    def wrong(x_ptr, tl):
        tl.device_assert(tl.load(x_ptr + 4, (1,), "f32") == 2, "it is not 2")

    run_kernel(kernel, X)
    assert "device_assert failed: it is not 2" in raises(wrong, X)


BRANCH = """
import numpy as np
from kernbench.runtime_api.registry import bench

def kernel(x_ptr, s_ptr, out_ptr, tl):
    x = tl.load(x_ptr, (8,), "f32")
    s = tl.load(s_ptr, (1,), "f32")
    if s > 0.5:
        x = x * 2
    if s == 0.25:
        x = x + tl.where(s < 0, x, 1.0)
    tl.store(out_ptr, x)

@bench(name="branch", description="two branches on a loaded number")
def run(torch):
    x = torch.tensor(np.arange(8, dtype=np.float32), name="x")
    s = torch.tensor(np.array([0.25], np.float32), name="s")
    out = torch.empty((8,), "f32", name="out")
    torch.launch("branch", kernel, x, s, out)
    torch.expect(out, np.arange(8) + 1)
"""


@pytest.fixture
def branched(tmp_path):
    """A debugger on a recorded run of BRANCH."""
    bench = tmp_path / "branch.py"
    bench.write_text(BRANCH)
    run = run_bench(str(bench), trace=tmp_path / "trace", debug=True)
    assert run.ok
    return ReplaySession(Trace.open(tmp_path / "trace"))


def test_d3_a_recorded_branch_is_replayed_as_it_went(branched):
    names = [row.name for row in branched.rows(0, len(branched))]
    assert [n for n in names if n not in ("host_write", "dma_read", "dma_write")] == [
        "gt",
        "eq",
        "lt",
        "where",
        "add",
    ]
    branched.to_end()
    assert branched.outputs().ok
    assert branched.first_divergence().note == "rounding explains every op"
    behind = [link.op.name for link in branched.blame("out[3]").links]
    assert behind[:2] == ["dma_write", "add"]


def test_d3_the_time_of_a_branch_is_that_of_its_line(branched):
    spent = {row.text: row.kinds for row in branched.lines().rows}
    assert spent["if s > 0.5:"] == pytest.approx({"compute": 5, "issue": 2})
    assert branched.stalls().total["unexplained"] == 0
    path = branched.critical_path()
    assert sum(path.totals.values()) == pytest.approx(path.t1 - path.t0)
    assert path.totals["math"] == pytest.approx(25)


# -- D1: two phases --------------------------------------------------------------------


def test_d1_no_phase_runs_a_kernel_before_time_begins(simulate):
    """Kernels of two PEs take turns: none has ended before the other begins."""
    turns = []

    def kernel(x_ptr, tl):
        for turn in range(3):
            tl.load(x_ptr, (8,), "f32")
            turns.append((turn, tl.program_id(0)))

    def bench(torch):
        torch.launch("k", kernel, torch.tensor(X, dp=DPPolicy(num_pes=2, num_cubes=1)))

    run = simulate(bench)
    assert sorted(turns) == [(turn, pe) for turn in range(3) for pe in range(2)]
    assert [turn for turn, _ in turns] == [0, 0, 1, 1, 2, 2]
    assert run.engine.env.now > 0


def test_d1_a_kernel_sees_what_another_has_stored_in_the_meantime(simulate):
    seen = []

    def kernel(flag_ptr, x_ptr, tl):
        if tl.program_id(0) == 0:
            tl.load(x_ptr, (64,), "f32")
            tl.store(flag_ptr, tl.load(x_ptr + 4, (1,), "f32"))
            return
        flag = tl.load(flag_ptr, (1,), "f32")
        while flag == 0:
            seen.append(float(flag))
            flag = tl.load(flag_ptr, (1,), "f32")
        seen.append(float(flag))

    def bench(torch):
        both = DPPolicy(num_pes=2, num_cubes=1)
        x = torch.tensor(X, dp=both)
        flag = torch.zeros((1,), "f32", DPPolicy(num_pes=1, num_cubes=1))
        torch.launch("k", kernel, flag.ptr, x)

    simulate(bench)
    assert len(seen) > 1
    assert seen == [0.0] * (len(seen) - 1) + [1.0]


def test_d1_memory_takes_time_and_moves_real_data_in_phase_1(run_kernel):
    def kernel(x_ptr, y_ptr, tl):
        tl.store(y_ptr, tl.load(x_ptr, (64,), "f32"))

    run = run_kernel(kernel, X, np.zeros_like(X))
    moved = [r for r in run.log if r.op_name in ("dma_read", "dma_write")]
    assert [r.op_name for r in moved] == ["dma_read", "dma_write"]
    assert all(r.t_end > r.t_start for r in moved)
    assert moved[1].t_start >= moved[0].t_end
    at = moved[1].params["dst_addr"]
    assert run.engine.store.read("hbm", at, (64,), "f32").tolist() == X.tolist()


def test_d1_compute_takes_time_and_is_recorded_only(run_kernel):
    def kernel(x_ptr, y_ptr, tl):
        x = tl.load(x_ptr, (8, 8), "f32")
        tl.store(y_ptr, tl.dot(x, tl.exp(x * 0)))

    run = run_kernel(kernel, SQUARE, np.zeros_like(SQUARE))
    computed = [r for r in run.log if r.op_kind in ("gemm", "math")]
    assert [r.op_name for r in computed] == ["mul", "exp", "gemm_f32"]
    assert all(r.t_end > r.t_start for r in computed)
    (out,) = [r.params["dst_addr"] for r in run.log if r.op_name == "dma_write"]
    assert not run.engine.store.read("hbm", out, (8, 8), "f32").any()


def test_d1_phase_2_computes_from_the_log_outside_of_simulated_time(run_kernel):
    def kernel(x_ptr, y_ptr, tl):
        tl.store(y_ptr, tl.load(x_ptr, (64,), "f32") * 2)

    run = run_kernel(kernel, X, np.zeros_like(X))
    ended = run.engine.env.now
    executor = DataExecutor(run.log)
    executor.run()
    (out,) = [r.params["dst_addr"] for r in run.log if r.op_name == "dma_write"]
    assert executor.store.read("hbm", out, (64,), "f32").tolist() == (X * 2).tolist()
    assert run.engine.env.now == ended


def test_d1_a_kernel_branches_on_what_it_has_loaded(run_kernel):
    def kernel(x_ptr, y_ptr, tl):
        a = tl.load(x_ptr, (8, 8), "f32")
        if a[0][0] > 0.5:
            tl.store(y_ptr, a)

    ran = [run_kernel(kernel, SQUARE + first, SQUARE * 0) for first in (0, 1)]
    writes = [[r for r in run.log if r.op_name == "dma_write"] for run in ran]
    assert [len(found) for found in writes] == [0, 1]


def test_d1_phase_2_is_optional(run_kernel, one_cube):
    """Time is the same without a log, and so without what Phase 2 needs."""

    def kernel(x_ptr, tl):
        if tl.load(x_ptr + 4, (1,), "f32") == 1:
            tl.exp(tl.load(x_ptr, (64,), "f32"))

    engine = GraphEngine(one_cube, op_logger=None)
    torch = Torch(engine)
    torch.launch("k", kernel, torch.tensor(X))
    engine.drain()
    assert list(engine.op_log) == []
    assert engine.env.now == run_kernel(kernel, X).engine.env.now > 0


# -- D3: greenlets, and who does what --------------------------------------------------


def test_d3_a_kernel_is_a_plain_function_that_is_called(run_kernel):
    def helper(x_ptr, i, tl):
        return tl.load(x_ptr + 4 * i, (1,), "f32").item()

    def kernel(x_ptr, tl):
        return sorted(map(lambda i: helper(x_ptr, i, tl), (5, 2)))

    assert run_kernel(kernel, X).made == [2, 5]


def test_d3_a_kernel_that_is_a_generator_is_refused(simulate):
    def kernel(x_ptr, tl):
        yield tl.load(x_ptr, (1,), "f32")

    def bench(torch):
        torch.launch("k", kernel, torch.tensor(X))

    with pytest.raises(KernelError, match="is a generator"):
        simulate(bench)


def test_d3_the_kernel_sleeps_while_a_load_takes_its_time(run_kernel, events):
    def kernel(x_ptr, tl):
        tl.load(x_ptr, (64,), "f32")
        tl.load(x_ptr, (64,), "f32")

    run = run_kernel(kernel, X, recorder=events)
    first, second = [r for r in run.log if r.op_name == "dma_read"]
    (resumed, _) = [args[7] for args in events.of("command") if args[3] == "load"]
    assert first.t_start < first.t_end == resumed < second.t_start


def test_d3_what_comes_back_from_a_load_are_real_data(run_kernel):
    def kernel(x_ptr, tl):
        a = tl.load(x_ptr, (8, 8), "f32")
        return np.array(a), a[2][3], np.mean(a)

    array, one, mean = run_kernel(kernel, SQUARE).made
    assert array.tolist() == SQUARE.tolist()
    assert (one, mean) == (19, 31.5)


def test_d3_the_runner_is_run_with_a_clock_a_kernel_its_arguments_and_memory():
    parameters = list(inspect.signature(KernelRunner.run).parameters)
    assert parameters == ["self", "env", "kernel_fn", "args", "store"]


def test_d3_a_pe_cpu_of_another_class_calls_the_runner(layout_cache, simulate):
    """The record's own: it knows no greenlet and calls the runner only."""
    assert not hasattr(pe_cpu, "greenlet")
    seen = []

    def kernel(x_ptr, tl):
        if tl.load(x_ptr + 4, (1,), "f32") == 1:
            seen.append(tl.program_id(0))

    def bench(torch):
        torch.launch("k", kernel, torch.tensor(X))

    ours = simulate(bench, graph=machine(layout_cache))
    other = simulate(bench, graph=machine(layout_cache, f"{__name__}:LazyPeCpu"))
    assert seen == [0, 0]
    assert other.engine.env.now == pytest.approx(ours.engine.env.now + LazyPeCpu.nap_ns)


def test_d3_only_the_components_that_serve_a_command_record_it(run_kernel):
    def kernel(x_ptr, y_ptr, tl):
        x = tl.load(x_ptr, (8, 8), "f32")
        tl.store(y_ptr, tl.dot(x, x) + 1)

    run = run_kernel(kernel, SQUARE, np.zeros_like(SQUARE))
    recorded = [(r.op_name, r.component_id.rpartition(".")[2]) for r in run.log]
    assert [pair for pair in recorded if pair[0] != "host_write"] == [
        ("dma_read", "pe_dma"),
        ("gemm_f32", "pe_gemm"),
        ("add", "pe_math"),
        ("dma_write", "pe_dma"),
    ]


# -- D3, memory and compute: the rows of the table -------------------------------------


def test_d3_row_load_data_in_phase_1(run_kernel):
    def kernel(x_ptr, tl):
        return tl.load(x_ptr, (4,), "f32").tolist()

    assert run_kernel(kernel, X).made == [0, 1, 2, 3]


def test_d3_row_store_is_written_in_phase_1(run_kernel):
    def kernel(x_ptr, y_ptr, tl):
        tl.store(y_ptr, tl.load(x_ptr + 16, (4,), "f32"))
        return tl.load(y_ptr, (4,), "f32").tolist()

    assert run_kernel(kernel, X, np.zeros_like(X)).made == [4, 5, 6, 7]


COMPUTES = {
    "composite": (
        lambda a, out_ptr, tl: tl.composite(op="gemm", a=a, b=a, out_ptr=out_ptr),
        SQUARE @ SQUARE,
    ),
    "dot": (lambda a, out_ptr, tl: tl.dot(a, a), SQUARE @ SQUARE),
    "math": (lambda a, out_ptr, tl: tl.maximum(a, 7), np.maximum(SQUARE, 7)),
}


@pytest.mark.parametrize("what", COMPUTES)
def test_d3_row_compute_is_time_and_a_record_in_phase_1_and_numpy_in_phase_2(
    run_kernel, what
):
    compute, expected = COMPUTES[what]

    def kernel(x_ptr, out_ptr, tl):
        result = compute(tl.load(x_ptr, (8, 8), "f32"), out_ptr, tl)
        tl.wait(result)
        assert not result.ready
        if what != "composite":
            tl.store(out_ptr, result)

    run = run_kernel(kernel, SQUARE, np.zeros_like(SQUARE))
    assert {"gemm", "math"} & {r.op_kind for r in run.log}
    assert run.data(1).tolist() == expected.tolist()


# -- D3, stores are visible at issue ---------------------------------------------------


def test_d3_a_load_sees_what_was_stored_just_before(run_kernel):
    def kernel(x_ptr, y_ptr, tl):
        tl.store(y_ptr, tl.load(x_ptr + 28, (1,), "f32"), wait=False)
        if tl.load(y_ptr, (1,), "f32") == 7:
            return "seen"

    assert run_kernel(kernel, X, np.zeros_like(X)).made == "seen"


def test_d3_visibility_does_not_wait_for_the_time_that_a_store_takes(simulate):
    seen = {}

    def kernel(x_ptr, out_ptr, tl):
        if tl.program_id(0) == 0:
            tl.store(out_ptr, tl.load(x_ptr, (1 << 14,), "f32"))
            return
        last = out_ptr + 4 * ((1 << 14) - 1)
        while not tl.load(last, (1,), "f32") == 1:  # noqa: SIM201
            pass
        seen["at"] = engine.env.now

    def bench(torch):
        nonlocal engine
        engine = torch.engine
        both = DPPolicy(num_pes=2, num_cubes=1)
        x = torch.full((1 << 14,), 1, "f32", both)
        out = torch.zeros((1 << 14,), "f32", DPPolicy(num_pes=1, num_cubes=1))
        torch.launch("k", kernel, x, out.ptr)

    engine = None
    run = simulate(bench)
    (write,) = [r for r in run.log if r.op_name == "dma_write"]
    assert write.t_start < seen["at"] < write.t_end


# -- D3, what a result is --------------------------------------------------------------

RESULTS = {
    "composite": lambda x, y_ptr, tl: tl.composite(a=x, b=x, out_ptr=y_ptr),
    "composite, waited for": lambda x, y_ptr, tl: tl.composite(
        a=x, b=x, out_ptr=y_ptr, wait=True
    ),
    "dot": lambda x, y_ptr, tl: tl.dot(x, x),
    "math": lambda x, y_ptr, tl: tl.exp(x),
    "comparison": lambda x, y_ptr, tl: x > 0.5,
}
LOOKS = {
    "data": lambda h: h.data,
    "element": lambda h: h[0, 0],
    "array": lambda h: np.asarray(h),
    "numpy": lambda h: h.numpy(),
    "item": lambda h: h.item(0),
    "list": lambda h: h.tolist(),
    "float": lambda h: float(h),
    "int": lambda h: int(h),
    "index": lambda h: [0][h],
    "iteration": lambda h: list(h),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("what", RESULTS)
def test_d3_a_result_has_no_data_in_phase_1_even_after_wait(run_kernel, what, look):
    def kernel(x_ptr, y_ptr, tl):
        result = RESULTS[what](tl.load(x_ptr, (8, 8), "f32"), y_ptr, tl)
        for _ in range(2):
            assert not result.ready
            with pytest.raises(PendingDataError, match="computes it in Phase 2"):
                LOOKS[look](result)
            tl.wait(result)

    run_kernel(kernel, SQUARE, np.zeros_like(SQUARE))


def test_d3_wait_is_time_only(run_kernel, events):
    def kernel(x_ptr, y_ptr, tl):
        x = tl.load(x_ptr, (8, 8), "f32")
        done = tl.composite(a=x, b=x, out_ptr=y_ptr)
        tl.wait(done)
        return done.ready

    run = run_kernel(kernel, SQUARE, np.zeros_like(SQUARE), recorder=events)
    ((_, waited),) = [args[6:8] for args in events.of("command") if args[3] == "wait"]
    (composite,) = [r for r in run.log if r.op_kind == "gemm"]
    assert waited >= composite.t_end
    assert run.made is False


def test_d3_a_pending_result_is_stored_and_its_payload_comes_in_phase_2(run_kernel):
    def kernel(x_ptr, y_ptr, tl):
        tl.store(y_ptr, tl.load(x_ptr, (64,), "f32") + 1)
        return tl.load(y_ptr, (64,), "f32").ready

    run = run_kernel(kernel, X, np.zeros_like(X))
    assert run.made is False
    assert run.data(1).tolist() == (X + 1).tolist()


def test_d3_a_result_is_ready_in_phase_2(simulate):
    seen = []

    def first(x_ptr, y_ptr, tl):
        tl.store(y_ptr, tl.load(x_ptr, (64,), "f32") + 1)

    def second(y_ptr, tl):
        if tl.load(y_ptr + 4, (1,), "f32") == 2:
            seen.append("two")

    def bench(torch):
        x = torch.tensor(X)
        y = torch.empty((64,), "f32")
        torch.launch("first", first, x, y)
        assert y.numpy().tolist() == (X + 1).tolist()
        torch.launch("second", second, y)

    simulate(bench)
    assert seen == ["two"]


def test_d3_nothing_is_materialized_in_phase_1(run_kernel):
    """The extension that the record leaves for later: all ops run in Phase 2."""

    def kernel(x_ptr, y_ptr, tl):
        small = tl.load(x_ptr + 4, (1,), "f32")
        if small > 0.5:
            tl.store(y_ptr, tl.cast(small > 0.5, "f32"))

    run = run_kernel(kernel, X, np.zeros_like(X))
    assert math_ops(run.log) == ["gt", "gt", "cast"]
    assert not any("materialized_in_phase1" in r.params for r in run.log)
    assert run.data(1)[0] == 1


# -- D8: what kernels call -------------------------------------------------------------


def test_d8_the_calls_of_the_record_are_taken_as_it_writes_them(run_kernel):
    def kernel(x_ptr, y_ptr, tl):
        a = tl.load(x_ptr, (8, 8), "f32")
        done = tl.composite(op="gemm", a=a, b=a, out_ptr=y_ptr)
        tl.wait(done)
        tl.store(x_ptr, tl.dot(a, a))

    run = run_kernel(kernel, SQUARE, np.zeros_like(SQUARE))
    assert run.data(0).tolist() == run.data(1).tolist() == (SQUARE @ SQUARE).tolist()


def test_d8_commands_carry_what_phase_2_needs_and_no_kernel_gives(run_kernel):
    def kernel(x_ptr, tl):
        a = tl.load(x_ptr, (8, 8), "f16")
        tl.dot(a, tl.transpose(a))

    run = run_kernel(kernel, SQUARE.astype(np.float16))
    (gemm,) = [r.params for r in run.log if r.op_kind == "gemm"]
    assert (gemm["dtype_acc"], gemm["transpose_a"], gemm["transpose_b"]) == (
        "f32",
        False,
        True,
    )


# -- the non-goals ---------------------------------------------------------------------

NON_GOALS = {
    "handle.data": lambda h: h.data,
    "element access": lambda h: h[0],
    "truth": lambda h: bool(h),
    "truth of a comparison": lambda h: bool(h > 0.5),
    "a branch": lambda h: 1 if h else 0,
    "a loop": lambda h: [None for _ in range(h)],
}


@pytest.mark.parametrize("what", NON_GOALS)
def test_non_goal_control_flow_on_a_result_is_an_error_that_says_so(raises, what):
    def kernel(x_ptr, tl):
        total = tl.sum(tl.load(x_ptr, (8,), "f32"))
        tl.wait(total)
        NON_GOALS[what](total)

    text = raises(kernel, X, error=PendingDataError)
    assert "computes it in Phase 2; Phase 1 has no values of compute results" in text
    assert Path(__file__).name in text


def test_non_goal_a_branch_on_memory_is_supported(run_kernel):
    def kernel(x_ptr, tl):
        return [i for i in range(4) if tl.load(x_ptr + 4 * i, (1,), "f32") >= 2]

    assert run_kernel(kernel, X).made == [2, 3]


# == components: D2, D4, D9 ============================================================

MORE_NS = 300.0
TWO_SIPS = {"sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}
ONE_PE_A_SIP = DPPolicy(cube="row_wise", num_pes=1)
N = 64

x_of = np.linspace(-1, 1, N * N, dtype=np.float32).reshape(N, N)


def kernel(x, out, other, tl):
    """A composite, and math on what the other SIP sends; all lands in its own rows."""
    rank = tl.program_id(2)
    mine = N * N * 4 * rank
    block = tl.load(x + mine, (N, N), "f32")
    done = tl.composite(
        a=block,
        b=tl.ref(x + mine, (N, N), "f32"),
        out_ptr=out + mine,
        epilogue=["relu"],
    )
    tl.wait(done)
    tl.send("E", tl.exp(block), wait=False)
    tl.store(other + mine, tl.dot(tl.recv("W", (N, N), "f32"), block))


def bench(torch):
    both = np.concatenate([x_of, x_of])
    x = torch.tensor(both, "f32", dp=ONE_PE_A_SIP, name="x")
    out = torch.empty(both.shape, "f32", dp=ONE_PE_A_SIP, name="out")
    other = torch.empty(both.shape, "f32", dp=ONE_PE_A_SIP, name="other")
    torch.launch("k", kernel, x, out, other)
    torch.expect(out, np.concatenate([np.maximum(x_of @ x_of, 0)] * 2))
    torch.expect(other, np.concatenate([np.exp(x_of) @ x_of] * 2))


@pytest.fixture
def run(layout_cache):
    """run(bench, ring, **impls): on 2 SIPs of a cube, with queues between the SIPs."""

    def run(bench=bench, ring="tcm", **impls):
        chosen = {f"{kind}.impl": impl for kind, impl in impls.items()}
        graph = load_topology(None, TWO_SIPS | chosen, layout_cache)
        engine = GraphEngine(graph)
        torch = Torch(engine)
        install_ipcq(
            engine,
            world_size=2,
            rank_to_pe=[(0, 0, 0), (1, 0, 0)],
            neighbors=lambda rank: {"E": 1 - rank, "W": 1 - rank},
            buffer_kind=ring,
        )
        engine.run(lambda _: bench(torch))
        executor = DataExecutor(engine.op_log)
        executor.run()
        verdict = DataExecutor(engine.op_log).verify(torch.expectations)
        results = [
            executor.store.view(e.space, e.addr, e.array.shape, e.dtype).tobytes()
            for e in torch.expectations.values()
        ]
        return SimpleNamespace(
            end_ns=engine.env.now,
            ok=verdict.ok,
            results=results,
            log=engine.op_log,
            engine=engine,
        )

    return run


def slower(kind):
    """A subclass of what ships for a kind of node: what it does takes 300 ns more."""
    ours = COMPONENTS[NODE_KINDS[kind].impl]

    class Slower(ours):
        def run(self, env, msg):
            yield env.timeout(MORE_NS)
            yield from super().run(env, msg)

    return Slower


def timed(base):
    """A model that takes 300 ns for anything, and does nothing else."""

    class Timed(base):
        def run(self, env, msg):
            yield env.timeout(MORE_NS)

    return Timed


@pytest.fixture
def impl(monkeypatch):
    """impl(class) -> the name of it for ``impl:``, as of a class in a plugin."""

    def impl(model):
        monkeypatch.setitem(globals(), model.__name__, model)
        return f"{__name__}:{model.__name__}"

    return impl


def names(run):
    return sorted(record.op_name for record in run.log)


RUN_COUNTS = [kind for kind in NODE_KINDS if kind != "pe_mmu"]


@pytest.fixture(scope="module")
def shipped_ends():
    return {}


@pytest.mark.parametrize("kind", RUN_COUNTS)
def test_d9_the_run_of_any_kind_of_node_counts_and_results_stay(
    run, impl, kind, shipped_ends
):
    ring = "sram" if kind == "sram" else "tcm"
    if ring not in shipped_ends:
        shipped_ends[ring] = run(ring=ring)
    ours = shipped_ends[ring]
    theirs = run(ring=ring, **{kind: impl(slower(kind))})
    assert theirs.ok
    assert theirs.results == ours.results
    assert theirs.end_ns >= ours.end_ns + MORE_NS
    assert names(theirs) == names(ours)


def test_d9_a_run_that_could_never_be_called_is_refused_when_the_machine_is_built(
    run, impl
):
    with pytest.raises(KernbenchError, match=r"pe_mmu: its run is never called.*impl"):
        run(pe_mmu=impl(slower("pe_mmu")))


class OtherView(PeMmu):
    """An MMU that counts."""

    asked = 0

    def translate(self, va, nbytes, past_end=False):
        type(self).asked += 1
        return super().translate(va, nbytes, past_end)


def test_d9_what_the_error_says_to_implement_works(run):
    assert run(pe_mmu=f"{__name__}:OtherView").ok
    assert OtherView.asked > 0


TIME_ONLY = [
    *("router", "ucie", "ucie_conn", "io_noc", "switch", "hbm_ctrl", "sram"),
    *("pcie_ep", "io_cpu", "m_cpu", "pe_dma", "pe_gemm", "pe_math", "pe_fetch_store"),
]


@pytest.mark.parametrize("kind", TIME_ONLY)
def test_d9_a_class_that_knows_no_more_than_the_base_can_replace_ours(run, impl, kind):
    ring = "sram" if kind == "sram" else "tcm"
    theirs = run(ring=ring, **{kind: impl(timed(ComponentBase))})
    assert theirs.ok
    assert theirs.end_ns > MORE_NS


@pytest.mark.parametrize("kind", ["pe_cpu", "pe_scheduler", "pe_tcm", "pe_mmu"])
def test_d9_where_more_than_time_is_needed_the_error_says_what(run, impl, kind):
    ours = COMPONENTS[kind].__name__
    with pytest.raises(
        KernbenchError, match=f"of {kind}: it must subclass the built-in one, {ours}: "
    ):
        run(**{kind: impl(timed(ComponentBase))})


def test_d9_a_memory_without_any_time_is_refused_with_what_to_implement(run):
    for kind in ("hbm_ctrl", "sram"):
        with pytest.raises(KernbenchError, match=r"implement burst\(.*or.*run\(env"):
            run(**{kind: "transit"})


@pytest.mark.parametrize(
    ("kind", "left_out"),
    [
        ("pe_cpu", "without running kernel k"),
        ("pe_ipcq", "its payload was not sent"),
    ],
)
def test_d9_a_run_that_leaves_out_what_it_is_there_for_is_told_so(
    run, impl, kind, left_out
):
    model = impl(timed(COMPONENTS[kind]))
    with pytest.raises(
        KernbenchError, match=rf"{left_out}.*super\(\)\.run\(env, msg\)"
    ):
        run(**{kind: model})


def read_ns(graph, src_sip=0, dst_sip=0, nbytes=512):
    """How long a PE takes to load from HBM, on the idle machine."""
    engine = GraphEngine(graph)
    torch = Torch(engine)

    def load(x, tl):
        if tl.program_id(2) == src_sip:
            tl.load(x + dst_sip * nbytes, (nbytes // 4,), "f32")

    def bench(torch):
        x = torch.zeros((2, nbytes // 4), "f32", dp=ONE_PE_A_SIP)
        torch.launch("k", load, x)

    engine.run(lambda _: bench(torch))
    (record,) = (r for r in engine.op_log if r.op_name == "dma_read")
    return record.t_end - record.t_start


class SlowRouter(Transit):
    def run(self, env, msg):
        yield env.timeout(98.0)
        yield from super().run(env, msg)


class TinyRouter(ComponentBase):
    def run(self, env, msg):
        yield env.timeout(2.0)


class FixedHbm(ComponentBase):
    def run(self, env, msg):
        yield env.timeout(500.0)


class LateHbm(HbmCtrl):
    def run(self, env, msg):
        yield env.timeout(500.0)
        yield from super().run(env, msg)


class BySize(ComponentBase):
    def run(self, env, msg):
        yield env.timeout(msg.nbytes / 4)


class Endless(MemoryEndpoint):
    def burst(self, now, rows, owner):
        return now, 500.0, 0.0


@pytest.fixture
def load_ns(layout_cache):
    """load_ns(**impls): of 512 bytes from a PE's own HBM, or ``far``: the other SIP."""

    def load_ns(far=False, nbytes=512, **impls):
        chosen = {f"{k}.impl": f"{__name__}:{v.__name__}" for k, v in impls.items()}
        graph = load_topology(None, TWO_SIPS | chosen, layout_cache)
        return read_ns(graph, dst_sip=int(far), nbytes=nbytes)

    return load_ns


def test_d2_the_time_of_a_router_is_that_of_its_run_for_each_header(load_ns):
    ours = load_ns()
    # a request and its data each pass the one router between a PE and its slice
    assert load_ns(router=SlowRouter) == pytest.approx(ours + 2 * 98)
    assert load_ns(router=TinyRouter) == pytest.approx(ours)


def test_d2_a_run_sees_how_many_bytes_pass(load_ns):
    ours = load_ns() - 2 * 2
    assert load_ns(router=BySize) == pytest.approx(ours + (32 + 512) / 4)


def test_d2_the_time_of_a_memory_is_that_of_its_run(load_ns):
    ours = load_ns()
    assert load_ns(hbm_ctrl=LateHbm) == pytest.approx(ours + 500)
    # instead of 17 ns in the controller and of CL, since the host's write has left the
    # row open, and of two channels for 512 bytes: 4 accesses of 2 ns, and refreshes
    memory_ns = 17 + 4 * round(2 / (1 - 260 / 3900) * 1024) / 1024
    assert load_ns(hbm_ctrl=FixedHbm) == pytest.approx(ours - memory_ns + 500 + 2)
    assert load_ns(hbm_ctrl=Endless) == load_ns(hbm_ctrl=FixedHbm)


def test_d2_bursts_are_served_side_by_side_and_land_when_all_have(load_ns):
    ours = load_ns(nbytes=1 << 14)
    assert load_ns(nbytes=1 << 14, hbm_ctrl=LateHbm) == pytest.approx(ours + 500)


def test_d9_what_passes_a_pcie_end_point_pays_its_run(load_ns, impl):
    slow = slower("pcie_ep")
    impl(slow)
    ours = load_ns(far=True)
    # two end points there, and two back
    assert load_ns(far=True, pcie_ep=slow) == pytest.approx(ours + 4 * MORE_NS)


PLUGIN = """
from kernbench.components.base import ComponentBase

class Patient(ComponentBase):
    def run(self, env, msg):
        yield env.timeout(1000.0)
"""


def test_d9_the_router_of_a_plugin_is_used_by_kernbench_run(tmp_path):
    plugin = tmp_path / "patient_router.py"
    plugin.write_text(PLUGIN)
    options = {
        "params": {"m": 16, "k": 16, "n": 16, "pes": 1},
        "spec": {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1},
    }
    ours = run_bench("matmul", **options)
    options["spec"]["router.impl"] = "patient_router:Patient"
    theirs = run_bench("matmul", plugins=[plugin], **options)
    assert theirs.ok
    assert theirs.end_ns > ours.end_ns + 4 * 998


# -- a data op of no time --------------------------------------------------------------


class Instant(PeMath):
    """Math in no time."""

    def run(self, env, msg):
        yield from ()


class InstantGemm(PeGemm):
    def run(self, env, msg):
        yield env.timeout(0)


def test_d2_a_data_op_may_take_no_time(run, tmp_path):
    theirs = run(pe_math=f"{__name__}:Instant", pe_gemm=f"{__name__}:InstantGemm")
    assert theirs.ok
    served = [
        r for r in theirs.log if r.component_id.endswith((".pe_math", ".pe_gemm"))
    ]
    assert served
    assert all(0 < r.t_end - r.t_start < 0.002 for r in served)


def chain(ptr, out, tl):
    """Each op needs the one before, and the last is stored at once."""
    x = tl.load(ptr, (8, 8), "f32")
    for _ in range(20):
        x = tl.dot(x + 1.0, x * 0.5)
        x = x - x
        x = x + 2.0
    tl.store(out, x)


def test_d2_instant_ops_are_replayed_in_the_order_of_the_kernel(run, tmp_path):
    def bench(torch):
        one = DPPolicy(num_cubes=1, num_pes=1)
        x = torch.full((8, 8), 1.0, "f32", dp=one)
        out = torch.empty((8, 8), "f32", dp=one)
        torch.launch("k", chain, x, out)
        torch.expect(out, np.full((8, 8), 2.0, np.float32))

    assert run(
        bench, pe_math=f"{__name__}:Instant", pe_gemm=f"{__name__}:InstantGemm"
    ).ok


INSTANT_PLUGIN = """
from kernbench.components.builtin.pe_gemm import PeGemm

class Free(PeGemm):
    def run(self, env, msg):
        yield env.timeout(0)
"""


def test_d2_a_trace_of_instant_ops_is_replayed(tmp_path):
    plugin = tmp_path / "free_gemm.py"
    plugin.write_text(INSTANT_PLUGIN)
    trace = tmp_path / "out.msgpack"
    result = run_bench(
        "matmul",
        params={"m": 32, "k": 32, "n": 32, "pes": 1, "tile": 16},
        spec={
            "sips.count": 1,
            "cube_mesh.w": 1,
            "cube_mesh.h": 1,
            "pe_gemm.impl": "free_gemm:Free",
        },
        plugins=[plugin],
        trace=trace,
    )
    assert result.ok
    session = ReplaySession(Trace.open(trace))
    ops = session.trace.ops
    assert all(op.t_end > op.t_start for op in ops)
    # the path to the end goes through them, back to the command
    path = [ops[row].op_name for row in session.run_line("critical").ops]
    assert path[0] == "composite_gemm"
    assert {"TileToken/DMA_READ", "TileToken/GEMM"} <= {*path}
    assert path[-1] == "TileToken/DMA_WRITE"


# -- messages --------------------------------------------------------------------------


@dataclass(slots=True, eq=False, kw_only=True)
class IpcqMsg(MsgBase):
    """D4's example of a new type of message."""

    data_op: ClassVar[bool] = True
    ns: float = 5.0


class QuietMsg(MsgBase):
    """One that is no op unless it is said of an instance."""

    ns = 5.0


class Stranger:
    """Derived from nothing of ours."""

    data_op = True
    ns = 5.0


@dataclass(frozen=True)
class Sealed:
    """Derived from nothing of ours, and takes no attributes."""

    data_op: ClassVar[bool] = True


class Talker(PeMath):
    """A math unit that serves them too."""

    serves = (*PeMath.serves, IpcqMsg, QuietMsg, Stranger, Sealed)

    def run(self, env, msg):
        if isinstance(msg, PeMath.serves):
            yield from super().run(env, msg)
        else:
            yield env.timeout(msg.ns)


@pytest.fixture
def registered(monkeypatch):
    """registered(class, engine): as ``register_command``, for one test."""

    def registered(kind, engine="pe_math"):
        monkeypatch.setattr(kind, "served_by", "", raising=False)
        monkeypatch.setitem(COMMANDS, kind.__name__, "")
        register_command(kind, engine)

    return registered


@pytest.fixture
def talker(layout_cache):
    """A machine whose math units serve messages of a stranger."""
    impl = f"{__name__}:Talker"
    graph = load_topology(None, TWO_SIPS | {"pe_math.impl": impl}, layout_cache)
    return GraphEngine(graph)


def dispatched(engine, *messages):
    """The log of messages that the scheduler of a PE is given."""
    scheduler = engine.sim.component(engine.graph.at(0, 0, 0, "pe_scheduler"))
    for msg in messages:
        scheduler.dispatch(msg)
    engine.simulate()
    return [(r.op_kind, r.op_name, r.t_start, r.t_end) for r in engine.op_log]


def test_d4_a_new_type_of_message_is_dispatched_and_logged_once_registered(
    talker, registered
):
    registered(IpcqMsg)
    log = dispatched(talker, IpcqMsg(), IpcqMsg(ns=2.0))
    assert log == [("unknown", "IpcqMsg", 0, 5), ("unknown", "IpcqMsg", 5, 7)]


@pytest.mark.parametrize("kind", [IpcqMsg, Stranger])
def test_d4_a_kernel_issues_a_new_command(run, registered, kind):
    registered(kind)

    def lasting(ns):
        msg = kind()
        msg.ns = ns
        return msg

    def k(ptr, tl):
        tl.issue(lasting(50.0))
        tl.issue(lasting(70.0), wait=False)

    def bench(torch):
        torch.launch("k", k, torch.zeros((2,), dp=DPPolicy(num_cubes=1, num_pes=1)))

    theirs = run(bench, pe_math=f"{__name__}:Talker")
    ops = [r for r in theirs.log if r.op_name == kind.__name__]
    assert [r.t_end - r.t_start for r in ops] == pytest.approx([50, 70])
    assert ops[1].t_start > ops[0].t_end
    assert theirs.end_ns >= ops[1].t_end


def test_d4_one_that_is_not_registered_is_refused_at_the_line_of_the_kernel(run):
    def k(ptr, tl):
        tl.issue(IpcqMsg())

    def bench(torch):
        torch.launch("k", k, torch.zeros((2,), dp=DPPolicy(num_cubes=1, num_pes=1)))

    line = k.__code__.co_firstlineno + 1
    with pytest.raises(
        KernelError, match=rf":{line}: .*no engine serves IpcqMsg.*register_command"
    ):
        run(bench)


def test_d4_a_command_of_ours_can_be_given_to_another_engine(talker, monkeypatch):
    monkeypatch.setattr(MathCmd, "served_by", MathCmd.served_by)
    monkeypatch.setitem(COMMANDS, "MathCmd", MathCmd.served_by)
    register_command(MathCmd, "pe_nowhere")
    with pytest.raises(KernbenchError, match="no pe_nowhere"):
        dispatched(talker, MathCmd(op="exp", inputs=(), out=None))


@pytest.mark.parametrize("kind", [IpcqMsg, QuietMsg, Stranger])
@pytest.mark.parametrize("logged", [True, False])
def test_d4_data_op_of_an_instance_decides(talker, registered, kind, logged):
    registered(kind)
    msg = kind()
    msg.data_op = logged
    assert len(dispatched(talker, msg)) == int(logged)


def test_d4_data_op_of_an_instance_is_its_own(talker, registered):
    registered(QuietMsg)
    loud = QuietMsg()
    loud.data_op = True
    assert dispatched(talker, QuietMsg(), loud, QuietMsg()) == [
        ("unknown", "QuietMsg", 5, 10)
    ]


class Muted(PeDma):
    """Has its loads left out of the log."""

    def channel(self, msg):
        if isinstance(msg, DmaReadCmd):
            msg.data_op = False
        return super().channel(msg)


def test_d4_a_command_of_ours_can_be_silenced(run):
    def bench(torch):
        x = torch.zeros((2,), dp=DPPolicy(num_cubes=1, num_pes=1))
        torch.launch("k", lambda ptr, tl: tl.load(ptr, (2,)), x)

    ours = run(bench)
    theirs = run(bench, pe_dma=f"{__name__}:Muted")
    assert theirs.end_ns == ours.end_ns
    assert names(ours) == ["dma_read", "host_write"]
    assert names(theirs) == ["host_write"]


def test_d4_a_class_without_our_base_is_logged_as_any_other(talker, registered):
    registered(Stranger)
    log = dispatched(talker, Stranger(), Stranger())
    assert log == [("unknown", "Stranger", 0, 5), ("unknown", "Stranger", 5, 10)]


def test_d4_a_message_that_takes_no_attributes_is_refused_with_what_to_do(
    talker, registered
):
    registered(Sealed)
    with pytest.raises(KernbenchError, match=r"Sealed takes no attributes.*MsgBase"):
        dispatched(talker, Sealed())


def test_d4_the_example_of_the_documents_works(run, registered, impl):
    page = docs.page("architecture")
    example = textwrap.dedent(page[page.index("    class SortCmd") :].partition("`")[0])
    known = {"MsgBase": MsgBase, "PeMath": PeMath, "register_command": registered}
    exec(example, known)
    sort = known["SortCmd"]

    def bench(torch):
        x = torch.zeros((2,), dp=DPPolicy(num_cubes=1, num_pes=1))
        torch.launch("k", lambda ptr, tl: tl.issue(sort(9)), x)

    theirs = run(bench, pe_math=impl(known["Sorting"]))
    (op,) = (record for record in theirs.log if record.op_name == "SortCmd")
    assert op.t_end - op.t_start == pytest.approx(9)


class Announcing(PeGemm):
    """Has its own messages served by itself, before each product."""

    serves = (*PeGemm.serves, IpcqMsg)
    slots = 2

    def run(self, env, msg):
        if isinstance(msg, IpcqMsg):
            yield env.timeout(msg.ns)
            return
        yield from self._forward_txn(env, IpcqMsg())
        yield from super().run(env, msg)


def test_d4_a_component_issues_messages_of_its_own(run):
    theirs = run(pe_gemm=f"{__name__}:Announcing")
    assert theirs.ok
    own = [r for r in theirs.log if r.op_name == "IpcqMsg"]
    assert len(own) >= 4
    assert [r.t_end - r.t_start for r in own] == pytest.approx([5.0] * len(own))


# == logs and verdicts: D5 to D7, D10, D11 =============================================

F32 = np.float32


def math(op, inputs, dst, shape=(4,), t=0.0, deps=(), **more):
    params = {
        "op": op,
        "input_addrs": list(inputs),
        "input_shapes": [shape] * len(inputs),
        "dst_addr": dst,
        "shape_out": shape,
        "dtype": "f32",
        "axis": None,
        "addr_space": "tcm",
    }
    return OpRecord(t, t + 1, "pe_math", "math", op, params | more, list(deps))


def gemm(a, b, dst, m=2, k=2, n=2, t=0.0, deps=(), **more):
    params = {
        "src_a_addr": a,
        "src_b_addr": b,
        "dst_addr": dst,
        "shape_a": (m, k),
        "shape_b": (k, n),
        "shape_out": (m, n),
        "dtype_in": "f32",
        "dtype_acc": "f32",
        "dtype_out": "f32",
        "transpose_a": False,
        "transpose_b": False,
        "layout_a": "row_major",
        "layout_b": "row_major",
        "layout_out": "row_major",
        "addr_space": "tcm",
    }
    return OpRecord(t, t + 1, "pe_gemm", "gemm", "gemm_f32", params | more, list(deps))


def copy(name, src, dst, nbytes=16, t=0.0, deps=()):
    """``src`` and ``dst`` are (space, address)."""
    params = {
        "src_addr": src[1],
        "dst_addr": dst[1],
        "nbytes": nbytes,
        "src_space": src[0],
        "dst_space": dst[0],
    }
    return OpRecord(t, t + 1, "pe_dma", "memory", name, params, list(deps))


def memory(**arrays):
    """A store that holds f32 arrays: tcm_64=[…] is at address 64 of the TCM."""
    store = MemoryStore()
    for place, values in arrays.items():
        space, addr = place.split("_")
        store.write(space, int(addr), np.array(values, F32))
    return store


def executed(log, store):
    executor = DataExecutor(log, store)
    executor.run()
    return executor


def at(store, addr, count=4, space="tcm"):
    return store.view(space, addr, (count,), "f32").tolist()


# -- D5: what a record holds -----------------------------------------------------------


def test_d5_the_kind_decides_what_is_executed():
    log = [
        copy("dma_read", ("hbm", 0), ("tcm", 0)),
        gemm(0, 0, 64, t=1),
        math("exp", [64], 128, t=2),
        OpRecord(3, 4, "n", "unknown", "anything", {}),
    ]
    executor = executed(log, memory(hbm_0=[1, 2, 3, 4]))
    assert at(executor.store, 64) == [7, 10, 15, 22]
    assert np.allclose(at(executor.store, 128), np.exp([7, 10, 15, 22]), rtol=1e-6)
    assert executor.skipped == {"anything": 1}


@pytest.mark.parametrize("name", ["dma_read", "dma_write"])
def test_d5_memory_params_are_executed(name):
    store = memory(hbm_64=[1, 2, 3, 4])
    executed([copy(name, ("hbm", 64), ("sram", 128))], store)
    assert at(store, 128, space="sram") == [1, 2, 3, 4]


def test_d5_gemm_params_are_executed():
    a = np.arange(6, dtype=F32).reshape(2, 3)
    b = np.arange(12, dtype=F32).reshape(3, 4)
    store = memory(sram_0=a, sram_64=b)
    executed([gemm(0, 64, 256, 2, 3, 4, addr_space="sram")], store)
    assert np.array_equal(store.read("sram", 256, (2, 4)), a @ b)


def test_d5_gemm_dtypes_are_those_of_operands_sum_and_output():
    a = np.full((2, 256), 16, np.float16)
    store = MemoryStore()
    store.write("tcm", 0, a)
    store.write("tcm", 1024, a.T.copy())
    dtypes = {"dtype_in": "f16", "dtype_acc": "f32", "dtype_out": "f32"}
    executed([gemm(0, 1024, 4096, 2, 256, 2, **dtypes)], store)
    # 65,536 is more than an f16 holds
    assert at(store, 4096) == [65536] * 4


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_d5_transpose_flags_speak_of_matrices_as_stored(transpose_a, transpose_b):
    a = np.arange(6, dtype=F32).reshape(2, 3)
    b = np.arange(12, dtype=F32).reshape(3, 4)
    stored_a = a.T.copy() if transpose_a else a
    stored_b = b.T.copy() if transpose_b else b
    record = gemm(
        0,
        64,
        256,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        shape_a=stored_a.shape,
        shape_b=stored_b.shape,
        shape_out=(2, 4),
    )
    store = memory(tcm_0=stored_a, tcm_64=stored_b)
    executed([record], store)
    assert np.array_equal(store.read("tcm", 256), a @ b)


@pytest.mark.parametrize("layout_a", ["row_major", "col_major"])
@pytest.mark.parametrize("layout_b", ["row_major", "col_major"])
@pytest.mark.parametrize("transpose_a", [False, True])
def test_d5_col_major_operands_are_executed(layout_a, layout_b, transpose_a):
    a = np.arange(6, dtype=F32).reshape(2, 3)
    b = np.arange(12, dtype=F32).reshape(3, 4)
    given_a = a.T if transpose_a else a
    order = {"row_major": "C", "col_major": "F"}
    store = memory(
        tcm_0=given_a.ravel(order[layout_a]), tcm_64=b.ravel(order[layout_b])
    )
    record = gemm(
        0,
        64,
        256,
        shape_a=given_a.shape,
        shape_b=b.shape,
        shape_out=(2, 4),
        layout_a=layout_a,
        layout_b=layout_b,
        transpose_a=transpose_a,
    )
    executed([record], store)
    assert np.array_equal(store.read("tcm", 256), a @ b)
    assert record.params["layout_a"] == layout_a  # the caller's record is as it was


@pytest.mark.parametrize(
    ("name", "layout"),
    [("layout_out", "col_major"), ("layout_a", "blocked"), ("layout_b", None)],
)
def test_d5_any_other_layout_is_refused_by_name(name, layout):
    store = memory(tcm_0=[1, 2, 3, 4])
    with pytest.raises(VerificationError, match=rf"op 0 \(gemm_f32.*{name} is "):
        executed([gemm(0, 0, 64, **{name: layout})], store)
    assert not store.has("tcm", 64)


def test_d5_math_params_are_executed():
    store = memory(sram_0=[[1, 2], [3, 4]])
    total = math("sum", [0], 64, (2, 2), shape_out=(2,), axis=0, addr_space="sram")
    executed([total], store)
    assert at(store, 64, 2, "sram") == [4, 6]


def test_d5_the_operands_of_math_are_in_the_order_of_their_addresses():
    store = memory(tcm_0=[1, 0, 1, 0], tcm_64=[1, 2, 3, 4], tcm_128=[5, 6, 7, 8])
    executed(
        [math("where", [0, 64, 128], 256), math("sub", [64, 128], 320, t=1)], store
    )
    assert at(store, 256) == [1, 6, 3, 8]
    assert at(store, 320) == [-4, -4, -4, -4]


def test_d5_the_log_is_stably_ordered_by_start():
    store = memory(tcm_0=[1, 1, 1, 1])
    log = [
        math("add", [64, 0], 64, t=5),
        copy("dma_write", ("tcm", 0), ("tcm", 64), t=4),
        math("mul", [64, 64], 64, t=5),
    ]
    executed(log, store)
    assert at(store, 64) == [4, 4, 4, 4]


def test_d5_dependency_ids_hold_an_op_back_where_addresses_say_nothing():
    store = memory(tcm_0=[1, 1, 1, 1], tcm_64=[0, 0, 0, 0])
    log = [
        math("add", [0, 0], 64, t=0, deps=[1]),
        copy("dma_read", ("tcm", 0), ("hbm", 64), t=9),
    ]
    executor = DataExecutor(log, store)
    assert executor.step().op_name == "dma_read"
    assert executor.step().op_name == "add"


def test_d5_dependency_ids_overrule_what_addresses_say():
    store = memory(tcm_0=[1, 1, 1, 1], tcm_64=[3, 3, 3, 3])
    log = [
        copy("dma_read", ("tcm", 0), ("tcm", 128), t=0, deps=[1]),
        copy("dma_read", ("tcm", 64), ("tcm", 128), t=1),
    ]
    executed(log, store)
    assert at(store, 128) == [1, 1, 1, 1]


def test_d5_what_is_held_back_holds_back_who_reads_it():
    store = memory(tcm_0=[1, 1, 1, 1], tcm_64=[0, 0, 0, 0], hbm_0=[7, 7, 7, 7])
    log = [
        math("add", [0, 0], 64, t=0, deps=[2]),
        copy("dma_write", ("tcm", 64), ("hbm", 64), t=1),
        copy("dma_read", ("hbm", 0), ("tcm", 256), t=2),
    ]
    executed(log, store)
    assert at(store, 64, space="hbm") == [2, 2, 2, 2]


# -- D6: the executor ------------------------------------------------------------------


def test_d6_it_runs_on_the_store_that_it_is_given():
    store = memory(tcm_0=[1, 2, 3, 4])
    executor = executed([math("neg", [0], 64)], store)
    assert executor.store is store
    assert at(store, 64) == [-1, -2, -3, -4]


def test_d6_math_before_the_gemm_that_reads_it_at_one_instant():
    store = memory(tcm_0=[1, 2, 3, 4], tcm_64=[0, 0, 0, 0])
    executed([math("neg", [0], 64), gemm(64, 0, 128)], store)
    assert at(store, 128) == [-7, -10, -15, -22]


def test_d6_math_before_the_store_that_reads_it_at_one_instant():
    store = memory(tcm_0=[1, 2, 3, 4], tcm_64=[0, 0, 0, 0])
    executed([math("neg", [0], 64), copy("dma_write", ("tcm", 64), ("hbm", 0))], store)
    assert at(store, 0, space="hbm") == [-1, -2, -3, -4]


def test_d6_a_read_stays_before_the_later_write_at_one_instant():
    store = memory(tcm_0=[1, 2, 3, 4], tcm_64=[1, 0, 0, 1], hbm_0=[9, 9, 9, 9])
    log = [
        math("neg", [64], 128),
        gemm(0, 0, 64),
        math("neg", [0], 192),
        copy("dma_read", ("hbm", 0), ("tcm", 0)),
    ]
    executed(log, store)
    assert at(store, 128) == [-1, 0, 0, -1]
    assert at(store, 192) == [-1, -2, -3, -4]
    assert at(store, 64) == [7, 10, 15, 22]


def test_d6_the_last_write_of_the_log_wins_at_one_instant():
    store = memory(tcm_0=[1, 2, 3, 4])
    executed([math("neg", [0], 64), gemm(0, 0, 64)], store)
    assert at(store, 64) == [7, 10, 15, 22]
    executed([gemm(0, 0, 64), math("neg", [0], 64)], store)
    assert at(store, 64) == [-1, -2, -3, -4]


def test_d6_ranges_conflict_where_they_share_a_byte():
    store = memory(tcm_0=[1, 2, 3, 4], tcm_64=[0] * 8)
    executed([math("neg", [0], 64), gemm(76, 0, 128)], store)
    # the last element that was written, and three that were not
    assert at(store, 128) == [-4, -8, 0, 0]


def test_d6_ops_of_one_instant_that_share_no_bytes_are_memory_then_gemm_then_math():
    store = memory(tcm_0=[1, 2, 3, 4])
    log = [
        math("neg", [0], 64),
        gemm(0, 0, 128),
        copy("dma_read", ("tcm", 0), ("tcm", 192)),
    ]
    executor = DataExecutor(log, store)
    order = [executor.step().op_kind for _ in log]
    assert order == ["memory", "gemm", "math"]


def test_d6_bytes_that_only_a_load_of_the_same_instant_writes_are_loaded_first():
    store = memory(hbm_0=[1, 2, 3, 4])
    executed([math("neg", [0], 64), copy("dma_read", ("hbm", 0), ("tcm", 0))], store)
    assert at(store, 64) == [-1, -2, -3, -4]


SLOTS = 5


def step_of(kind, t, a, b, out):
    """A record of slots of one f32, and the same as a function of a list."""
    if kind == "math":
        record = math("add", [4 * a, 4 * b], 4 * out, (1, 1), t)
        return record, lambda m: m[a] + m[b]
    if kind == "gemm":
        return gemm(4 * a, 4 * b, 4 * out, 1, 1, 1, t), lambda m: m[a] * m[b]
    return copy("dma_read", ("tcm", 4 * a), ("tcm", 4 * out), 4, t), lambda m: m[a]


@pytest.mark.slow
@pytest.mark.parametrize("instants", [1, 2])
def test_d6_any_log_runs_as_one_op_after_the_other_in_the_order_of_the_log(instants):
    for seed in range(400):
        rng = random.Random(seed)
        steps = []
        for _ in range(rng.randint(2, 7)):
            kind = rng.choice(["math", "gemm", "memory"])
            t = float(rng.randrange(instants))
            a, b, out = (rng.randrange(SLOTS) for _ in range(3))
            steps.append((*step_of(kind, t, a, b, out), out))
        slots = [F32(x) for x in (1.5, 2, 3, -1, 5)]
        store = memory(tcm_0=slots)
        executed([record for record, _, _ in steps], store)
        for _, function, out in sorted(steps, key=lambda step: step[0].t_start):
            slots[out] = F32(function(slots))
        assert at(store, 0, SLOTS) == slots, seed


def test_d6_equal_independent_ops_give_the_same_bits_as_one_by_one():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((8, 16, 16)).astype(F32)
    log = [gemm(1024 * i, 0, 16384 + 1024 * i, 16, 16, 16) for i in range(8)]
    log += [math("exp", [16384 + 64 * i], 65536 + 64 * i, (16,), 1) for i in range(8)]
    stores = []
    for batch in (True, False):
        store = memory(tcm_0=a)
        DataExecutor(log, store, batch=batch).run()
        stores.append(store.view("tcm", 65536, (128,), "f32").tobytes())
    assert stores[0] == stores[1]


@pytest.mark.parametrize(
    "other", [{"transpose_b": True}, {"dtype_out": "f16"}, {"layout_b": "col_major"}]
)
def test_d6_ops_that_differ_in_a_flag_or_dtype_or_layout_share_nothing(other):
    rng = np.random.default_rng(1)
    a = rng.standard_normal((2, 8, 8)).astype(F32)
    log = [gemm(0, 256, 4096, 8, 8, 8), gemm(0, 256, 8192, 8, 8, 8, **other)]
    store = memory(tcm_0=a)
    executed(log, store)
    alone = memory(tcm_0=a)
    executed(log[1:], alone)
    dtype = other.get("dtype_out", "f32")
    found = store.view("tcm", 8192, (8, 8), dtype)
    assert found.tobytes() == alone.view("tcm", 8192, (8, 8), dtype).tobytes()
    assert np.array_equal(store.view("tcm", 4096, (8, 8), "f32"), a[0] @ a[1])


def test_d6_the_time_of_arrival_is_not_looked_at():
    store = memory(tcm_0=[1, 2, 3, 4])
    slow = math("neg", [0], 64, t=0)
    slow.t_end = 1000.0
    executed([slow, math("neg", [64], 128, t=1)], store)
    assert at(store, 128) == [1, 2, 3, 4]


# -- D7: the store ---------------------------------------------------------------------


def test_d7_write_and_read_hand_on_references():
    store = MemoryStore()
    data = np.ones((2, 2), np.float16)
    store.write("tcm", 0, data)
    assert store.read("tcm", 0, (2, 2), "f16") is data


def test_d7_a_write_at_the_same_address_overwrites_the_tensor():
    store = memory(tcm_0=[1, 2, 3, 4])
    store.write("tcm", 0, np.array([9, 8], F32))
    assert store.read("tcm", 0, (2,), "f32").tolist() == [9, 8]


@pytest.mark.parametrize(
    "dtype", ["f16", "bf16", "f32", "f64", "i8", "i32", "u8", "bool"]
)
def test_d7_dtypes_are_those_of_numpy(dtype):

    store = MemoryStore()
    data = np.ones(3, np_dtype(dtype))
    store.write("hbm", 0, data)
    assert store.read("hbm", 0, (3,), dtype).dtype == data.dtype


def test_d7_bytes_are_seen_by_a_view():
    store = memory(tcm_0=[1, 2])
    seen = store.read("tcm", 0, (8,), "u8")
    assert seen.tobytes() == np.array([1, 2], F32).tobytes()


def test_d7_another_dtype_reinterprets_and_other_bytes_are_an_error():
    store = memory(tcm_0=[1, 2])
    assert store.read("tcm", 0, (2,), "u32").tolist() == [0x3F800000, 0x40000000]
    with pytest.raises(ValueError, match="8 bytes"):
        store.read("tcm", 0, (3,), "f32")


def test_d7_only_contiguous_tensors_are_stored():
    with pytest.raises(KernbenchError, match="contiguous"):
        MemoryStore().write("tcm", 0, np.ones((4, 4))[:, ::2])


def test_d7_ranges_of_bytes_are_what_counts():
    store = memory(tcm_0=[1, 2, 3, 4], tcm_16=[5, 6, 7, 8])
    assert store.view("tcm", 12, (2,), "f32").tolist() == [4, 5]


# -- D10: Phase 2 is optional ----------------------------------------------------------


def doubles(x_ptr, y_ptr, tl):
    at = 4 * 8 * tl.program_id(0)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, (8,), "f32"))


def doubling(engine):
    """A bench that doubles 16 numbers on two PEs."""

    torch = Torch(engine)
    halves = DPPolicy(num_cubes=1, num_pes=2, pe="row_wise")
    x = torch.tensor(np.arange(16, dtype=F32), dp=halves, name="x")
    y = torch.empty((16,), "f32", dp=halves, name="y")
    torch.launch("doubles", doubles, x, y)


def test_d10_phase_1_alone_gives_times(one_cube):
    engine = GraphEngine(one_cube)
    engine.run(doubling)
    assert engine.get_timing_result().end_ns > 0


def test_d10_without_a_logger_there_is_no_log_and_the_times_are_the_same(one_cube):
    times = []
    for options in ({}, {"op_logger": None}):
        engine = GraphEngine(one_cube, **options)
        engine.run(doubling)
        times.append(engine.get_timing_result().end_ns)
    assert times[0] == times[1]
    assert list(engine.op_log) == []


def test_d10_an_engines_log_is_executed_and_verified_by_the_names_of_its_tensors(
    one_cube,
):
    engine = GraphEngine(one_cube)
    engine.run(doubling)
    executor = DataExecutor(engine.op_log, tensors=engine.tensors)
    executor.run()
    expected = 2 * np.arange(16)
    assert executor.verify(expected).ok
    report = executor.verify({"y": expected})
    assert report.ok
    (row,) = report.by_tensor()
    assert (row.tensor, row.elements) == ("y", 16)
    expected[11] = 0
    assert not executor.verify(expected).ok  # the tensor of the last output
    (row,) = executor.verify({"y": expected}).by_tensor()
    assert (row.ok, row.mismatches, row.first_bad) == (False, 1, (11,))


def product_log():
    return [
        copy("dma_read", ("hbm", 0), ("tcm", 0)),
        gemm(0, 0, 64, t=1),
        copy("dma_write", ("tcm", 64), ("hbm", 256), t=2),
    ]


RIGHT = np.array([[7, 10], [15, 22]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_d10_verify_takes_the_expected_output(dtype):
    executor = DataExecutor(product_log(), memory(hbm_0=[1, 2, 3, 4]))
    executor.run()
    assert executor.verify(RIGHT.astype(dtype)).ok
    assert executor.verify(RIGHT.tolist()).ok
    wrong = executor.verify(RIGHT + 1)
    assert not wrong.ok
    assert wrong.rows[0].mismatches == 4


def test_d10_verify_goes_on_to_the_end_by_itself():
    executor = DataExecutor(product_log(), memory(hbm_0=[1, 2, 3, 4]))
    assert executor.verify(RIGHT).ok
    assert executor.position == 3


def test_d10_the_expected_output_is_the_last_that_was_stored_to_hbm():
    log = [*product_log(), math("neg", [64], 128, t=3)]
    assert executed(log, memory(hbm_0=[1, 2, 3, 4])).verify(RIGHT).ok
    in_tcm = log[1:2] + log[3:]
    assert executed(in_tcm, memory(tcm_0=[1, 2, 3, 4])).verify(-RIGHT.ravel()).ok


def test_d10_verify_takes_a_mapping_of_arrays_by_address():
    executor = executed(product_log(), memory(hbm_0=[1, 2, 3, 4]))
    report = executor.verify({("tcm", 64): RIGHT, ("hbm", 0): [1, 2, 3, 4]})
    assert report.ok
    assert [row.name for row in report.rows] == ["tcm 0x40", "hbm 0x0"]
    assert not executor.verify({("tcm", 0): RIGHT}).ok


def test_d10_verify_takes_a_mapping_of_arrays_by_name():
    tensors = {"a": ("hbm", 0), "product": ("hbm", 256)}
    store = memory(hbm_0=[1, 2, 3, 4])
    executor = DataExecutor(product_log(), store, tensors=tensors)
    assert executor.verify({"product": RIGHT, "a": [1, 2, 3, 4]}).ok
    assert not executor.verify({"product": RIGHT, "a": [1, 2, 3, 5]}).ok


def test_d10_a_store_is_known_by_its_handle():
    log = product_log()
    log[2].params["handle_id"] = "h0.2"
    assert executed(log, memory(hbm_0=[1, 2, 3, 4])).verify({"h0.2": RIGHT}).ok


def test_d10_an_unknown_name_lists_the_known_ones():
    store = memory(hbm_0=[1, 2, 3, 4])
    executor = DataExecutor(product_log(), store, tensors={"a": ("hbm", 0)})
    with pytest.raises(VerificationError, match=r"where 'b' lies; known are a;"):
        executor.verify({"b": RIGHT})


def test_d10_an_output_of_another_size_says_what_to_give_instead():
    executor = executed(product_log(), memory(hbm_0=[1, 2, 3, 4]))
    with pytest.raises(VerificationError, match=r"16 bytes at hbm 0x100; give a map"):
        executor.verify(np.ones(5))


# -- D11: verification -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "bound"), [("f32", 1e-5), ("f16", 1e-3), ("bf16", 1e-2)]
)
def test_d11_the_tolerance_is_that_of_the_dtype(dtype, bound):

    tolerance = dtype_row(dtype).tolerance
    assert (tolerance.rtol, tolerance.atol) == (bound, bound)
    expected = np.array([1.0])
    assert compare(expected + 1.9 * bound, expected, tolerance).ok
    assert not compare(expected + 2.1 * bound, expected, tolerance).ok
    store = MemoryStore()
    store.write("hbm", 0, np.ones(4, np_dtype(dtype)))
    record = copy("dma_write", ("hbm", 0), ("hbm", 64), store.read("hbm", 0).nbytes)
    record.params |= {"shape": (4,), "dtype": dtype}
    executor = executed([record], store)
    assert executor.verify(np.full(4, 1 + bound)).ok
    assert not executor.verify(np.full(4, 1 + 4 * bound)).ok


def test_d11_integers_are_compared_exactly():
    store = MemoryStore()
    store.write("tcm", 0, np.array([1, 1 << 30], np.int32))
    record = math("add", [0, 0], 64, (2,), dtype="i32")
    executor = executed([record], store)
    assert executor.verify(np.array([2, -(1 << 31)])).ok
    assert not executor.verify(np.array([2, -(1 << 31) + 1])).ok


def test_d11_only_the_final_output_is_compared_by_default():
    log = product_log()
    report = executed(log, memory(hbm_0=[1, 2, 3, 4])).verify(RIGHT)
    assert [row.elements for row in report.rows] == [4]


def test_d11_debug_mode_compares_every_op():

    log = [*product_log(), math("neg", [64], 128, t=3)]
    store = memory(hbm_0=[1, 2, 3, 4])
    checks = [*debug_check(DataExecutor(log, store.snapshot()))]
    assert [c.op_name for c in checks] == ["dma_read", "gemm_f32", "dma_write", "neg"]
    assert first_over(checks) is None
    wrong = {**NUMPY_OPS, "neg": replace(NUMPY_OPS["neg"], function=np.abs)}
    checks = [*debug_check(DataExecutor(log, store.snapshot(), wrong))]
    assert first_over(checks).op_name == "neg"


# -- a simulation: its log and its trace ----------------------------------------------


def races(a_ptr, x_ptr, y_ptr, tl):
    """PE 0 stores what PE 1 reads from the same instant on, and needs longer."""
    a = tl.load(a_ptr + 65536 * tl.program_id(0), (128, 128), "f32")
    if tl.program_id(0) == 0:
        tl.store(x_ptr, a)
    else:
        tl.composite("neg", a=tl.ref(x_ptr, (1, 4), "f32"), out_ptr=y_ptr + 0)


@pytest.mark.parametrize("traced", [False, True])
def test_d6_a_run_judges_a_race_in_the_order_of_its_trace(one_cube, tmp_path, traced):
    def bench(engine):
        halves = DPPolicy(num_cubes=1, num_pes=2, pe="row_wise")
        torch = Torch(engine)
        a = torch.tensor(np.ones((256, 128), F32), dp=halves)
        x = torch.tensor(np.full((256, 128), 5, F32), dp=halves)
        y = torch.zeros((2, 4), "f32", dp=halves)
        torch.launch("races", races, a, x, y)
        found.append(y.numpy()[0].tolist())

    found = []
    recorder = TraceWriter(tmp_path / "t.msgpack") if traced else None
    engine = GraphEngine(one_cube, recorder=recorder, keep=not traced)
    engine.run(bench)
    starts = {r.op_name: r.t_start for r in engine.op_log if r.t_start > 0}
    assert starts["dma_write"] == starts["composite_math"]
    assert found == [[-1, -1, -1, -1]]
