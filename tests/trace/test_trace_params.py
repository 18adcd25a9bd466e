"""params of ops: what went in comes out, type by type."""

import math
from itertools import count

import numpy as np
import pytest
from hypothesis import strategies as st
from pace import for_all
from recordings import assert_same, record_ops

from kernbench.common.dtypes import DTYPES
from kernbench.errors import TraceFormatError
from kernbench.sim_engine.op_log import OpRecord
from kernbench.sim_engine.op_params import check_params
from kernbench.trace import Trace, TraceWriter

NUMBER = count()

arrays = st.builds(
    lambda dtype, shape, seed: (
        np.random.default_rng(seed)
        .integers(0, 2, (*shape, dtype.itemsize), np.uint8)
        .view(dtype.numpy)
        .reshape(shape)
    ),
    st.sampled_from(sorted(DTYPES.values(), key=lambda row: row.name)),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.integers(0, 5),
)
leaves = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=5),
    arrays,
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple),
    max_leaves=8,
)


def is_recorded(dicts):
    """Whether params are such as machines record: those of known names are sound."""
    try:
        check_params(dicts)
    except TraceFormatError:
        return False
    return True


params = st.dictionaries(st.text(max_size=6), values, max_size=6).filter(is_recorded)


def recorded(path, dicts):
    writer = TraceWriter(path)
    for row, one in enumerate(dicts):
        record = OpRecord(
            float(row), row + 1.0, "pe0.pe_dma", "memory", "dma_read", one
        )
        writer.op(row, record, row, 0, [], [])
    writer.close()
    return Trace.open(path)


@for_all(st.lists(params, min_size=1, max_size=6), fast=10, whole=60)
def test_any_params_come_back_as_they_went_in(tmp_path, dicts):
    trace = recorded(tmp_path / f"{next(NUMBER)}.msgpack", dicts)
    assert trace.check() == []
    for record, wanted in zip(trace.ops, dicts, strict=True):
        assert_same(record.params, wanted)


@for_all(st.lists(params, min_size=1, max_size=2), fast=10, whole=60)
def test_ops_whose_params_are_the_same_objects_have_them_each(tmp_path, dicts):
    shared = [*dicts, *dicts, *dicts]
    trace = recorded(tmp_path / f"{next(NUMBER)}.msgpack", shared)
    assert trace.check() == []
    for record, wanted in zip(trace.ops, shared, strict=True):
        assert_same(record.params, wanted)


def test_every_kind_of_op_comes_back_as_it_was_logged(tmp_path):
    writer = TraceWriter(tmp_path / "x.msgpack")
    recording = record_ops(writer)
    writer.close()
    trace = Trace.open(tmp_path / "x.msgpack")
    for row, wanted in enumerate(recording.records):
        assert_same(trace.params(row), wanted.params)
        got = trace.ops[trace.position[row]]
        assert (got.op_kind, got.op_name) == (wanted.op_kind, wanted.op_name)
        assert (got.component_id, got.t_start) == (wanted.component_id, wanted.t_start)


def test_an_array_is_kept_as_it_was_when_the_op_ended(tmp_path):
    array = np.zeros(4, np.float32)
    writer = TraceWriter(tmp_path / "x.msgpack")
    record = OpRecord(0.0, 1.0, "a", "memory", "dma_write", {"snapshot": array})
    writer.op(0, record, 0, 0, [], [])
    array[:] = 1
    writer.close()
    assert not Trace.open(tmp_path / "x.msgpack").params(0)["snapshot"].any()


def test_numpy_scalars_come_back_as_python_numbers(tmp_path):
    given = {"i": np.int32(3), "f": np.float32(0.5), "b": np.bool_(True)}
    assert_same(
        recorded(tmp_path / "x.msgpack", [given]).params(0),
        {"i": 3, "f": 0.5, "b": True},
    )


def test_other_types_under_one_name_come_back_in_one_chunk(tmp_path):
    values = [
        1,
        np.int64(2),
        1 << 80,
        {"a": 1},
        "x",
        None,
        (1, 2),
        (1, 2.5),
        [1, 2],
        (1, (2,)),
        3,
    ]
    dicts = [{"a": value} for value in values]
    trace = recorded(tmp_path / "x.msgpack", [*dicts, *dicts])
    wanted = [1, 2, repr(1 << 80), "{'a': 1}", *values[4:]] * 2
    assert trace.check() == []
    assert [trace.params(row)["a"] for row in range(len(wanted))] == wanted


def test_what_no_column_can_hold_comes_back_as_its_repr(tmp_path):
    given = {"huge": 1 << 80, "map": {"a": 1}}
    got = recorded(tmp_path / "x.msgpack", [given]).params(0)
    assert got == {"huge": repr(1 << 80), "map": "{'a': 1}"}


@pytest.mark.parametrize(
    ("given", "nbytes"),
    [
        ({"nbytes": 7, "out_nbytes": 9}, 7),
        ({"out_nbytes": 9, "shape_out": (2,), "dtype": "f32"}, 9),
        ({"shape_out": (2, 3), "dtype_out": "f16"}, 12),
        ({"shape_out": (2, 3), "dtype": "f32"}, 24),
        ({"shape_out": (2, 3), "dtype": "f33"}, 0),
        ({}, 0),
    ],
)
def test_nbytes_is_what_the_op_moves_or_makes(tmp_path, given, nbytes):
    assert recorded(tmp_path / "x.msgpack", [given]).op_columns.nbytes.tolist() == [
        nbytes
    ]


def column(block, path):
    """The column of a leaf of a block; None if its schema has none."""
    fields = {leaf: f"f{i}" for i, (leaf, _) in enumerate(block.schema.leaves)}
    return block.values[fields[path]].tolist() if path in fields else None


def test_params_are_columns_too(tmp_path):
    dicts = [{"addr": i * 1000, "shape": (i, 2), "space": "hbm"} for i in range(5)]
    trace = recorded(tmp_path / "x.msgpack", [*dicts, {"addr": -1}])
    first, second = trace.param_blocks()
    assert column(first, "addr") == [0, 1000, 2000, 3000, 4000]
    assert column(first, "shape.0") == [0, 1, 2, 3, 4]
    assert {trace.strings[i] for i in column(first, "space")} == {"hbm"}
    assert (first.rows.tolist(), second.rows.tolist()) == ([0, 1, 2, 3, 4], [5])
    assert column(second, "shape.0") is None


def test_nan_and_minus_zero_survive(tmp_path):
    got = recorded(tmp_path / "x.msgpack", [{"a": math.nan, "b": -0.0}]).params(0)
    assert math.isnan(got["a"])
    assert math.copysign(1, got["b"]) == -1


@pytest.mark.parametrize("axis", [True, 1.0, "0", 1 << 40])
def test_what_numpy_takes_for_no_axis_is_none(axis):
    check_params({"axis": -1})
    check_params({"axis": None})
    with pytest.raises(TraceFormatError, match="axis is"):
        check_params({"axis": axis})


def test_a_dataflow_that_there_is_not_is_damage():
    check_params({"dataflow": "os"})
    for wrong in ("rs", 1, None):
        with pytest.raises(TraceFormatError, match="one of ws, os, is"):
            check_params({"dataflow": wrong})


BLOCKS = {"spaces": ["hbm"], "addrs": [64], "sizes": [96]}
FORM = {"rows": [3], "row_bytes": [32], "pitch": [48]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": [3, 1]},
        {"row_bytes": []},
        {"pitch": 48},
    ],
)
def test_blocks_of_a_tile_have_a_form_each(wrong):
    check_params(BLOCKS)
    check_params(BLOCKS | FORM)
    with pytest.raises(TraceFormatError, match="rows, row_bytes, pitch"):
        check_params(BLOCKS | FORM | wrong)


@pytest.mark.parametrize("lacking", [*FORM])
def test_blocks_of_a_tile_have_all_of_their_form(lacking):
    form = {name: value for name, value in FORM.items() if name != lacking}
    with pytest.raises(TraceFormatError, match="rows, row_bytes, pitch"):
        check_params(BLOCKS | form)
