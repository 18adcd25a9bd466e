"""ADR-0020 D1, D3 and D8: what whoever writes a kernel is promised, clause by clause.

Kernels here are written with the record in hand and nothing else.
"""

import inspect
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kernbench.common.dtypes import np_dtype
from kernbench.components.builtin import pe_cpu
from kernbench.components.builtin.pe_cpu import PeCpu
from kernbench.errors import KernelError, PendingDataError
from kernbench.replay import ReplaySession
from kernbench.runtime_api import DPPolicy, run_bench
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologySpec, build_topology
from kernbench.topology.spec import (
    ComponentSpec,
    ComponentsSpec,
    CubeMeshSpec,
    SipSpec,
)
from kernbench.trace import Trace
from kernbench.triton_emu.kernel_runner import KernelRunner

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
