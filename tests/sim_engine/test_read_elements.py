"""Which elements an element is made of: exactly those whose change changes it."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from op_cases import OP_CASES
from phase2_logs import load, math_op, recorded, region

from kernbench.common.pe_commands import CompositeCmd, Epilogue, GemmCmd
from kernbench.sim_engine.accesses import (
    read_elements,
    regions,
    taken_elements,
    takes_by_index,
)
from kernbench.sim_engine.data_executor import execute
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.sim_engine.op_forms import ELEMENTWISE, REDUCTION

SELECTS = sorted(name for name, case in OP_CASES.items() if case.selects)
ARITHMETIC = sorted(
    name
    for name, op in NUMPY_OPS.items()
    if op.form == ELEMENTWISE and not OP_CASES[name].selects
)


def outcome(record, operands):
    store = MemoryStore()
    for r, data in zip(regions(record).reads, operands, strict=True):
        store.write(r.space, r.addr, data)
    execute(record, store)
    out = regions(record).write
    return store.view(out.space, out.addr, out.shape, out.dtype).reshape(-1).copy()


def influence(record, seed=0):
    """For each operand a mask (element, element of the output): what changes what."""
    rng = np.random.default_rng(seed)
    operands = [rng.uniform(1, 2, r.shape) for r in regions(record).reads]
    before = outcome(record, operands)
    masks = []
    for x in operands:
        rows = []
        for i in range(x.size):
            kept = x.flat[i]
            x.flat[i] = x.flat[i] + 0.5
            rows.append(outcome(record, operands) != before)
            x.flat[i] = kept
        masks.append(np.array(rows))
    return masks


def claimed(record):
    masks = [
        np.zeros(
            (int(np.prod(r.shape)), int(np.prod(regions(record).write.shape))), bool
        )
        for r in regions(record).reads
    ]
    for e in range(masks[0].shape[1]):
        for mask, elements in zip(
            masks, read_elements(record, np.array([e])), strict=True
        ):
            mask[elements, e] = True
    return masks


def assert_exact(record):
    for seen, said in zip(influence(record), claimed(record), strict=True):
        np.testing.assert_array_equal(said, seen)


def places(shapes):
    return [
        region("tcm", 4096 * i, tuple(shape), "f64") for i, shape in enumerate(shapes)
    ]


extents = st.lists(st.integers(1, 3), max_size=3).map(tuple)


@st.composite
def broadcasts(draw, count):
    """Shapes that broadcast to one another, and the shape of all."""
    whole = draw(extents)
    shapes = []
    for _ in range(count):
        axes = [draw(st.sampled_from([1, n])) for n in whole]
        shapes.append(tuple(axes[draw(st.integers(0, len(axes))) :]))
    return shapes, np.broadcast_shapes(*shapes)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), name=st.sampled_from(ARITHMETIC))
def test_an_elementwise_element_is_made_of_those_that_broadcast_to_it(data, name):
    shapes, whole = data.draw(broadcasts(NUMPY_OPS[name].arity))
    *inputs, out = places([*shapes, whole])
    assert_exact(math_op(name, inputs, out))


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple),
    name=st.sampled_from(["sum", "softmax"]),
    axis=st.none() | st.integers(-3, 2),
    keepdims=st.booleans(),
)
def test_a_reduced_element_is_made_of_its_line(shape, name, axis, keepdims):
    axis = None if axis is None else axis % len(shape)
    out = shape
    if name == "sum":
        out = np.sum(np.zeros(shape), axis=axis, keepdims=keepdims).shape
    x, y = places([shape, out])
    record = math_op(name, [x], y, axis=axis, keepdims=keepdims)
    for seen, said in zip(influence(record), claimed(record), strict=True):
        assert not (seen & ~said).any()
        if name == "sum" or shape[-1 if axis is None else axis] > 1:
            np.testing.assert_array_equal(said, seen)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple),
    name=st.sampled_from(["sort", "cumsum"]),
    axis=st.none() | st.integers(-3, 2),
)
def test_an_element_of_an_ordered_line_is_made_of_its_line(shape, name, axis):
    axis = None if axis is None else axis % len(shape)
    x, y = places([shape, shape])
    record = math_op(name, [x], y, axis=axis)
    for seen, said in zip(influence(record), claimed(record), strict=True):
        assert not (seen & ~said).any()
        if name == "cumsum":
            np.testing.assert_array_equal(said, seen)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple),
    length=st.integers(1, 4),
    axis=st.integers(-3, 2),
    seed=st.integers(0, 99),
)
def test_a_gathered_element_is_made_of_its_line_and_its_index(
    shape, length, axis, seed
):
    axis %= len(shape)
    wanted = list(shape)
    wanted[axis] = length
    x, index, out = places([shape, wanted, wanted])
    rng = np.random.default_rng(seed)
    data = rng.uniform(1, 2, shape)
    at = rng.integers(0, shape[axis], wanted).astype(np.float64)
    record = math_op("gather", [x, index], out, axis=axis)
    before = outcome(record, [data, at])
    of_x, of_index = claimed(record)
    np.testing.assert_array_equal(of_index, np.eye(at.size, dtype=bool))
    for i in range(data.size):
        moved = data.copy()
        moved.flat[i] += 1
        changed = outcome(record, [moved, at]) != before
        assert not (changed & ~of_x[i]).any()
    # the whole line: there is an index for which each of its elements counts
    for i in range(shape[axis]):
        everywhere = np.full(wanted, float(i))
        moved = data + 1
        other = outcome(record, [moved, everywhere])
        assert (other != outcome(record, [data, everywhere])).all()
    assert of_x.sum() == shape[axis] * at.size
    # by what the index holds there it is one element: the one whose change changes it
    assert takes_by_index(record)
    for element in range(at.size):
        wanted = np.array([element])
        (taken,) = taken_elements(record, wanted, at.reshape(-1)[wanted]).tolist()
        moved = data.copy()
        moved.flat[taken] += 1
        changed = outcome(record, [moved, at]) != before
        assert changed[element]
    # and by one that no op could take by it is the whole line, as of a damaged trace
    wanted = np.array([0])
    for beyond in (-1 - data.size, data.size):
        line = taken_elements(record, wanted, np.array([beyond]))
        assert line.tolist() == read_elements(record, wanted)[0].tolist()


@settings(max_examples=40, deadline=None)
@given(data=st.data(), name=st.sampled_from(SELECTS))
def test_what_an_op_selects_from_is_named_whole(data, name):
    op = NUMPY_OPS[name]
    if op.form == REDUCTION:
        shapes = [(2, 3)]
        whole = (2,)
        more = {"axis": 1}
    else:
        shapes, whole = data.draw(broadcasts(op.arity))
        more = {}
    *inputs, out = places([*shapes, whole])
    record = math_op(name, inputs, out, **more)
    for seen, said in zip(influence(record), claimed(record), strict=True):
        assert not (seen & ~said).any()


@settings(max_examples=40, deadline=None)
@given(
    batch=broadcasts(2),
    sizes=st.tuples(*[st.integers(1, 3)] * 3),
    turned=st.tuples(st.booleans(), st.booleans()),
    acc=st.booleans(),
)
def test_an_element_of_a_product_is_made_of_a_row_and_a_column(
    batch, sizes, turned, acc
):
    (first, second), whole = batch
    m, k, n = sizes
    a, b, out = places(
        [
            (*first, *((k, m) if turned[0] else (m, k))),
            (*second, *((n, k) if turned[1] else (k, n))),
            (*whole, m, n),
        ]
    )
    cmd = GemmCmd(
        a=a,
        b=b,
        out=out,
        m=m,
        k=k,
        n=n,
        transpose_a=turned[0],
        transpose_b=turned[1],
        acc=region("hbm", 0, out.shape, "f64") if acc else None,
    )
    assert_exact(recorded(cmd))


def test_an_epilogue_spreads_its_operands_over_the_product():
    a, b, out = places([(3, 4), (4, 2), (3, 2)])
    row = region("hbm", 0, (2,), "f64")
    column = region("hbm", 512, (3, 1), "f64")
    steps = (
        Epilogue("scale", "k_tile", operand=column),
        Epilogue("bias", operand=row),
        Epilogue("scale", scalar=0.5),
    )
    assert_exact(
        recorded(
            CompositeCmd(
                op="gemm",
                a=a,
                b=b,
                out=out,
                m=3,
                k=4,
                n=2,
                tile=(2, 2, 2),
                epilogue=steps,
            )
        )
    )


def test_a_copy_moves_every_element_to_its_place():
    record = load(0, 64, (2, 3))
    assert [x.tolist() for x in read_elements(record, np.array([1, 4]))] == [[1, 4]]


@pytest.mark.parametrize("scalars", [(), (3.0, -1.0, 1.0)])
def test_a_strided_copy_reads_where_it_walks(scalars):
    x, out = places([(6,), (2, 3)])
    assert_exact(
        math_op(
            "copy",
            [x],
            out,
            scalars=scalars,
            scalar_positions=(1, 2, 3)[: len(scalars)],
        )
    )


def test_what_has_no_operand_is_made_of_nothing():
    (out,) = places([(2, 2)])
    full = math_op("full", [], out, scalars=(1.0,), scalar_positions=(0,))
    assert read_elements(full, np.array([0, 3])) == []
