"""A new op is one row: it goes through the whole house, and nothing else is touched.

Each row here is put into the table for one test and taken out again.
"""

import ast
from math import prod
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kernbench.errors import KernelError
from kernbench.replay import ReplaySession
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.accesses import read_elements
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.sim_engine.op_calls import binary, reduction, unary
from kernbench.sim_engine.op_check import debug_check
from kernbench.sim_engine.op_dtypes import REAL
from kernbench.sim_engine.op_forms import REDUCTION
from kernbench.sim_engine.op_spec import OpSpec
from kernbench.trace import Trace
from kernbench.trace.writer import TraceWriter
from kernbench.triton_emu.math_calls import op_calls

A = np.array([[3, 5, 8], [7, 20, 9]], np.float32)
B = np.array([4, 12, 15], np.float32)
LEGS = [[5, 13, 17], [65**0.5, 544**0.5, 306**0.5]]

HYPOT = OpSpec(
    "hypot",
    np.hypot,
    2,
    binary,
    "sqrt(a * a + b * b).",
    dtype=REAL,
    cost_cycles=5,
    ulps=4,
)
PRODUCT = OpSpec(
    "product", np.prod, 1, reduction, "Product over ``axis``.", form=REDUCTION, ulps=3
)
SQUARE = OpSpec("square", np.square, 1, unary, "x * x.", epilogue=True, ulps=0.5)


@pytest.fixture
def added(monkeypatch):
    """added(row): puts a row into the table until the end of the test."""

    def added(row):
        monkeypatch.setitem(NUMPY_OPS, row.name, row)

    return added


@pytest.fixture
def recorded(one_cube, tmp_path):
    """recorded(kernel, *arrays): what a run leaves, and the session on its trace."""

    def recorded(kernel, *arrays):
        writer = TraceWriter(tmp_path / "trace")
        engine = GraphEngine(one_cube, recorder=writer)
        torch = Torch(engine)
        writer.begin({}, one_cube)

        def bench(_):
            tensors = [torch.tensor(x, name=f"x{i}") for i, x in enumerate(arrays)]
            torch.launch("k", kernel, *tensors)

        engine.run(bench)
        writer.end(engine.env.now)
        session = ReplaySession(Trace.open(writer.path))
        return SimpleNamespace(engine=engine, log=engine.op_log, session=session)

    return recorded


def op_of(log, name):
    """The position and the record of the one op of that name."""
    ((position, record),) = [(i, r) for i, r in enumerate(log) if r.op_name == name]
    return position, record


def output(record, store):
    params = record.params
    where = (params["dst_space"], params["dst_addr"])
    return store.view(*where, params["shape_out"], params["dtype"])


def hypot_kernel(a, b, tl):
    tl.hypot(tl.load(a, (2, 3), "f32"), b=tl.load(b, (3,), "f32"))


def test_a_kernel_calls_it_with_the_arguments_of_its_row(added, recorded):
    added(HYPOT)
    assert op_calls()["hypot"].help == "sqrt(a * a + b * b)."
    _, record = op_of(recorded(hypot_kernel, A, B).log, "hypot")
    assert record.params["shape_out"] == (2, 3)
    assert record.params["dtype"] == "f32"


def test_an_argument_too_few_is_an_error_that_names_it(added, recorded):
    added(HYPOT)

    def kernel(a, tl):
        tl.hypot(tl.load(a, (2, 3), "f32"))

    missing = r"TLContext.hypot\(\) missing 1 required positional argument: 'b'"
    with pytest.raises(KernelError, match=missing):
        recorded(kernel, A)


def test_its_dtype_rule_is_that_of_its_row(added, recorded):
    added(HYPOT)

    def kernel(a, tl):
        x = tl.load(a, (2, 3), "i32")
        tl.hypot(x, x)

    _, record = op_of(recorded(kernel, A.astype(np.int32)).log, "hypot")
    assert record.params["dtype"] == "f32"


def test_math_takes_the_time_of_its_row(added, recorded, one_cube):
    added(HYPOT)
    _, record = op_of(recorded(hypot_kernel, A, B).log, "hypot")
    pe = one_cube.spec.pe
    waves = -(-prod(A.shape) // pe.math.lanes)
    cycles = 5 * waves + pe.math.latency_cycles
    assert record.t_end - record.t_start == pytest.approx(cycles / pe.clock_ghz)


def test_phase_2_executes_it(added, recorded):
    added(HYPOT)
    run = recorded(hypot_kernel, A, B)
    executor = DataExecutor(run.log)
    executor.run()
    _, record = op_of(run.log, "hypot")
    np.testing.assert_allclose(output(record, executor.store), LEGS, rtol=1e-6)


def test_the_oracle_bounds_its_error_by_its_ulps(added, recorded):
    added(HYPOT)
    run = recorded(hypot_kernel, A, B)
    position, _ = op_of(run.log, "hypot")
    checks = {check.position: check for check in debug_check(DataExecutor(run.log))}
    assert not checks[position].over
    assert 0 < checks[position].bound < 2e-5


def test_the_oracle_finds_a_wrong_table(added, recorded):
    added(HYPOT)
    run = recorded(hypot_kernel, A, B)
    position, _ = op_of(run.log, "hypot")
    wrong = NUMPY_OPS | {"hypot": NUMPY_OPS["add"]}
    found = list(debug_check(DataExecutor(run.log, ops=wrong)))
    assert [check.position for check in found if check.over] == [position]


def test_each_element_is_made_of_those_that_its_form_says(added, recorded):
    added(HYPOT)
    _, record = op_of(recorded(hypot_kernel, A, B).log, "hypot")
    of_a, of_b = read_elements(record, np.array([4]))
    assert of_a.tolist() == [4]
    assert of_b.tolist() == [1]


def test_a_trace_shows_its_result_and_where_that_came_from(added, recorded):
    added(HYPOT)
    run = recorded(hypot_kernel, A, B)
    session = run.session
    position, record = op_of(session.trace.ops, "hypot")
    assert record.params["op"] == "hypot"
    diff = session.diff(position)
    np.testing.assert_allclose(diff.actual, LEGS, rtol=1e-6)
    assert diff.row.ok
    session.goto(position)
    element = record.params["dst_addr"] + 4 * 4
    blame = session.blame(f"tcm {element:#x}:4")
    latest = blame.links[0]
    assert latest.op.name == "hypot"
    assert [read.elements for read in latest.reads] == [1, 1]
    assert blame.suspect is None


def test_a_new_reduction_has_the_shape_and_the_elements_of_its_form(added, recorded):
    added(PRODUCT)

    def kernel(a, tl):
        tl.product(tl.load(a, (2, 3), "f32"), axis=1)

    run = recorded(kernel, A)
    _, record = op_of(run.log, "product")
    assert record.params["shape_out"] == (2,)
    assert [x.tolist() for x in read_elements(record, np.array([1]))] == [[3, 4, 5]]
    executor = DataExecutor(run.log)
    assert not any(check.over for check in debug_check(executor))
    assert output(record, executor.store).tolist() == [120, 1260]


def square_kernel(a, out, tl):
    x = tl.load(a, (2, 2), "f32")
    tl.composite(a=x, b=x, out_ptr=out, epilogue=["square"])


def test_a_new_epilogue_step_runs_on_the_sum(added, recorded):
    added(SQUARE)
    a = np.array([[1, 2], [0, 1]], np.float32)
    run = recorded(square_kernel, a, np.zeros((2, 2), np.float32))
    executor = DataExecutor(run.log)
    executor.run()
    _, record = op_of(run.log, "composite_gemm")
    found = executor.store.view("hbm", record.params["out_addr"], (2, 2), "f32")
    assert found.tolist() == [[1, 16], [0, 1]]


def test_a_new_epilogue_step_is_among_the_valid_ones(added, recorded):
    added(SQUARE)

    def kernel(a, tl):
        x = tl.load(a, (2, 3), "f32")
        tl.composite(a=x, b=tl.transpose(x), out_ptr=a, epilogue=[("square", 2)])

    valid = "'dequant', 'square'.*; relu, square take no argument, every other step one"
    with pytest.raises(KernelError, match=valid):
        recorded(kernel, A)


def test_a_name_that_is_in_no_row_is_no_call(recorded):
    def kernel(a, tl):
        tl.hypot(tl.load(a, (2, 3), "f32"), 1.0)

    with pytest.raises(KernelError, match="tl has no 'hypot'"):
        recorded(kernel, A)


PACKAGE = Path(__file__).parents[2] / "kernbench"
HOUSE = ("sim_engine", "triton_emu", "components", "trace", "replay")
NO_OP = {
    ("verify.py", "abs"),  # the head of a column
    ("questions.py", "where"),  # an option of a command
}


def names_in(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield path.name, node.value


@pytest.mark.slow
def test_no_op_is_named_outside_its_row():
    found = set()
    for room in HOUSE:
        for path in (PACKAGE / room).rglob("*.py"):
            if path.name != "numpy_ops.py":
                found |= {(file, name) for file, name in names_in(path)}
    assert {(file, name) for file, name in found if name in NUMPY_OPS} == NO_OP
