"""The tables of the exports: against the records, and read back.

They are read back by the readers that these formats have.
"""

import csv
import json
import sys

import numpy as np
import pytest
from trace_kinds import KINDS

from kernbench.common.rows import Rows
from kernbench.errors import KernbenchError, UsageError
from kernbench.runtime_api import run_bench
from kernbench.sim_engine.accesses import accesses
from kernbench.trace import Trace, TraceWriter
from kernbench.trace.export import export
from kernbench.trace.export.tables import TABLES, table

ONE_CUBE = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}
SCALARS = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy


def kernel(x_ptr, tl):
    x = tl.load(x_ptr)
    total = tl.sum(x)
    tl.store(x_ptr, x * total)
    tl.full((), 3.0, "f32") + total


@bench(name="scalars", description="x times its sum")
def run(torch):
    x = torch.zeros((64,), "f32", DPPolicy(num_pes=1, num_cubes=1), name="x")
    torch.launch("kernel", kernel, x)
"""


def rows(table):
    """The rows of a table, as maps; null is None."""
    columns = [column.tolist() for column in table.values()]
    return [dict(zip(table, row, strict=True)) for row in zip(*columns, strict=True)]


def picked(rows, names):
    """Some cells of rows, sorted."""
    return by_text(tuple(row[name] for name in names) for row in rows)


def by_text(rows):
    """Rows in an order that takes None too."""
    return sorted(rows, key=repr)


@pytest.fixture(params=KINDS)
def trace(request, make):
    return make(request.param)


def none_below_0(number):
    return None if number < 0 else int(number)


STAGE_KINDS = {"GEMM": "gemm", "MATH": "math"}


def test_ops_are_the_records_with_their_kernel_lines(trace):
    found = rows(TABLES["ops"].make(trace))
    assert len(found) == len(trace.ops)
    for i, (row, record) in enumerate(zip(found, trace.ops, strict=True)):
        node = trace.node_index[record.component_id]
        command = None
        if row["cmd"] is not None:
            command = trace.command(row["cmd"])
        kind = record.op_kind
        is_stage = record.op_name.startswith("TileToken/")
        if is_stage:
            kind = STAGE_KINDS.get(record.params["stage_type"], "memory")
        assert row["op"] == i
        assert (row["t_start"], row["t_end"]) == (record.t_start, record.t_end)
        assert (row["name"], row["kind"]) == (record.op_name, kind)
        assert row["is_stage"] == is_stage
        assert row["component"] == record.component_id
        assert row["engine"] == (trace.nodes.engine[node] or None)
        assert row["sip"] == none_below_0(trace.nodes.sip[node])
        assert row["cube"] == none_below_0(trace.nodes.cube[node])
        assert row["pe"] == none_below_0(trace.nodes.pe[node])
        called = (None,) * 5
        if command is not None:
            launch = none_below_0(command.launch)
            called = (*command.site, command.call, launch)
        names = ("file", "line", "function", "call", "launch")
        assert tuple(row[name] for name in names) == called


def test_ops_have_the_shapes_and_dtypes_of_their_params(trace):
    def text(shape):
        return shape if shape is None else "x".join(map(str, shape)) or "()"

    for row, record in zip(rows(TABLES["ops"].make(trace)), trace.ops, strict=True):
        params = record.params
        shape = next(
            (params[key] for key in ("shape_out", "shape", "extent") if key in params),
            None,
        )
        shapes = params.get("input_shapes", [])
        dtypes = params.get("input_dtypes", [])
        if "shape_a" in params:
            shapes = [params["shape_a"], params["shape_b"]]
            dtypes = [params["dtype_in"]] * 2
        assert row["shape"] == text(shape)
        assert row["dtype"] == params.get("dtype_out", params.get("dtype"))
        assert row["shapes_in"] == (" ".join(map(text, shapes)) or None)
        assert row["dtypes_in"] == (" ".join(dtypes) or None)


def test_a_scalar_has_a_shape_too(tmp_path):
    bench = tmp_path / "scalars.py"
    bench.write_text(SCALARS)
    run_bench(str(bench), spec=ONE_CUBE, trace=tmp_path / "scalars.msgpack")
    trace = Trace.open(tmp_path / "scalars.msgpack")
    found = {
        row["name"]: (row["shape"], row["shapes_in"], row["dtypes_in"])
        for row in rows(TABLES["ops"].make(trace))
    }
    assert found["sum"] == ("()", "64", "f32")
    assert found["mul"] == ("64", "64 ()", "f32 f32")
    assert found["full"] == ("()", None, None)
    assert found["add"] == ("()", "() ()", "f32 f32")
    shapes = {
        row["tensor"]: (row["shape"], row["origin"])
        for row in rows(TABLES["tensors"].make(trace))
    }
    assert shapes["x"] == ("64", "0")
    assert shapes["h0.2"] == ("()", None)


@pytest.mark.parametrize("kind", ["shipped", "every_kind_of_op"])
def test_a_stage_s_parent_is_the_composite_of_its_call(make, kind):
    found = rows(TABLES["ops"].make(make(kind)))
    composites = {
        row["cmd"]: row["op"] for row in found if row["name"].startswith("composite_")
    }
    stages = [row for row in found if row["is_stage"]]
    assert stages
    for row in found:
        parent = composites.get(row["cmd"]) if row["is_stage"] else None
        assert row["parent"] == parent


def test_accesses_are_what_each_op_touches(trace):
    modes = {"r": "read", "w": "write"}
    wanted = [
        (op, modes[access.mode], access.space, access.addr, access.nbytes)
        for op, record in enumerate(trace.ops)
        for access in accesses(record)
    ]
    table = TABLES["accesses"].make(trace)
    of_place = ["rows", "row_bytes", "pitch", "planes"]
    assert list(table) == ["op", "mode", "space", "addr", "nbytes", *of_place]
    found = []
    for row in rows(table):
        op, mode, space, addr, nbytes, *rows_of = row.values()
        number, row_bytes, pitch, planes = rows_of
        axes = [map(int, axis.split("x")) for axis in (planes or "").split()]
        places = Rows(addr, number, row_bytes, pitch, tuple(map(tuple, axes)))
        assert places.nbytes == nbytes
        found += [(op, mode, space, *piece) for piece in places.each()]
    assert sorted(found) == sorted(wanted)


def test_hops_are_those_of_each_op_s_transactions(trace):
    edges = trace.edges
    kinds = {
        (trace.node_ids[src], trace.node_ids[dst]): kind
        for src, dst, kind in zip(edges.src, edges.dst, edges.kind, strict=True)
    }
    wanted = []
    for op, row in [(-1, -1), *enumerate(trace.order.tolist())]:
        for path, _, nbytes, bursts, starts in trace.transfers_of(row):
            hops = len(path) - 1
            last_starts = starts[hops:] or starts
            for hop in range(hops):
                ends = path[hop], path[hop + 1]
                times = starts[hop], last_starts[hop]
                named = op if op >= 0 else None
                kind = kinds.get(ends)
                wanted.append((named, hop, *ends, kind, *times, nbytes, bursts))
    names = ("op", "hop", "src", "dst", "kind", "t_start", "t_last", "nbytes", "bursts")
    assert picked(rows(TABLES["hops"].make(trace)), names) == by_text(wanted)


def test_waits_name_the_ops_that_waited_and_that_they_waited_for(trace):
    wanted = []
    for op, row in enumerate(trace.order.tolist()):
        for *wait, holder in trace.waits_of(row):
            holder_op = None
            if holder >= 0:
                holder_op = int(trace.position[holder])
            wanted.append((op, *wait, holder_op))
    names = ("op", "component", "reason", "t_start", "t_end", "holder")
    assert picked(rows(TABLES["waits"].make(trace)), names) == by_text(wanted)


def test_commands_launches_and_texts_are_as_recorded(make):
    trace = make("every_kind_of_op")
    found = {name: rows(row.make(trace)) for name, row in TABLES.items()}
    call = found["commands"][0]
    assert (call["component"], call["call"]) == ("sip0.cube0.pe0.pe_cpu", "load")
    assert (call["file"], call["line"]) == ("demo.py", 2)
    (launch,) = found["launches"]
    assert (launch["kernel"], launch["t_end"]) == ("kernel", 90.0)
    assert launch["components"] == "sip0.cube0.pe0.pe_cpu sip0.cube0.pe1.pe_cpu"
    assert launch["pes"] == 2
    assert found["texts"] == [
        {"t_start": 3.5, "cmd": 5, "level": "print", "message": "über\n1"}
    ]


def test_tensors_are_the_shards_in_memory(trace):
    wanted = []
    for shard in trace.allocs:
        extents = "x".join(map(str, shard.shape)) or "()"
        origin = ",".join(map(str, shard.origin)) or None
        place = (shard.space, shard.addr, shard.va or None, shard.nbytes, shard.owner)
        wanted.append((shard.tensor, shard.index, *place, shard.dtype, extents, origin))
    of_row = ("tensor", "shard", "space", "addr", "va", "nbytes", "component")
    names = (*of_row, "dtype", "shape", "origin")
    assert picked(rows(TABLES["tensors"].make(trace)), names) == by_text(wanted)


def test_nodes_and_edges_are_those_of_the_machine(trace):
    nodes = rows(TABLES["nodes"].make(trace))
    assert [row["component"] for row in nodes] == trace.node_ids
    edges = rows(TABLES["edges"].make(trace))
    assert len(edges) == len(trace.edges.src)
    for number, row in enumerate(edges):
        assert row["edge"] == number
        assert row["src"] == trace.node_ids[trace.edges.src[number]]
        assert row["dst"] == trace.node_ids[trace.edges.dst[number]]
        bandwidth = float(trace.edges.bandwidth_gbs[number])
        assert row["bandwidth_gbs"] == (bandwidth if np.isfinite(bandwidth) else None)


def test_metadata_say_what_the_trace_is_of(shipped_trace):
    found = {row["key"]: row["value"] for row in rows(table(shipped_trace, "metadata"))}
    assert (found["bench"], found["time_unit"]) == ("matmul", "ns")
    assert float(found["end_ns"]) == shipped_trace.end_ns
    assert json.loads(found["arguments"]) == shipped_trace.header["arguments"]
    assert (found["complete"], found["cut"]) == ("true", "false")


@pytest.mark.parametrize("name", TABLES)
def test_each_column_is_described_and_holds_no_stand_in_for_null(trace, name):
    made = table(trace, name)
    assert list(made) == list(TABLES[name].columns)
    assert all(about.meaning for about in TABLES[name].columns.values())
    for heading, column in made.items():
        if column.dtype.kind in "iu":
            assert not (np.ma.compressed(column) == 0xFFFFFFFF).any(), heading
            assert not (np.ma.compressed(column) == -1).any(), heading


def test_an_unknown_table_names_those_there_are(shipped_trace):
    with pytest.raises(
        UsageError, match=r"'opps'; valid: ops, acc.*; did you mean ops or"
    ):
        table(shipped_trace, "opps")


def test_a_long_text_leaves_its_column_an_array_of_objects(tmp_path):
    path = tmp_path / "long.msgpack"
    writer = TraceWriter(path)
    writer.begin({"bench": "long"}, None)
    writer.text(1.0, 0xFFFFFFFF, "print", "x" * 300)
    writer.end(2.0)
    made = table(Trace.open(path), "texts")
    assert made["message"].tolist() == ["x" * 300]
    assert made["cmd"].tolist() == [None]
    assert made["level"].dtype.kind == "U"


LIBRARIES = {
    "pandas": lambda made: pytest.importorskip("pandas").DataFrame(made),
    "polars": lambda made: pytest.importorskip("polars").DataFrame(made),
    "pyarrow": lambda made: pytest.importorskip("pyarrow").table(made),
}


def read_by(library, frame):
    """The columns of a data frame as lists, null as None."""
    if library == "polars":
        return frame.to_dict(as_series=False)
    if library == "pyarrow":
        return frame.to_pydict()
    return {
        name: [None if value != value else value for value in frame[name].tolist()]
        for name in frame
    }


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_table_is_what_data_frames_are_made_of(trace, library):
    for name in TABLES:
        made = table(trace, name)
        found = read_by(library, LIBRARIES[library](made))
        assert found == {heading: column.tolist() for heading, column in made.items()}


def test_a_library_knows_the_types_of_an_empty_table(make):
    polars = pytest.importorskip("polars")
    made = table(make("empty"), "ops")
    frame = polars.DataFrame(made)
    assert frame.schema["file"] == polars.String
    assert frame.schema["parent"] == polars.Int64
    assert frame.schema["is_stage"] == polars.Boolean


def as_csv(value):
    return "" if value is None else str(value)


def test_csv_reads_back_as_the_tables(trace, tmp_path):
    export(trace, "csv", str(tmp_path / "out"))
    assert {path.stem for path in (tmp_path / "out").iterdir()} == TABLES.keys()
    for name, row in TABLES.items():
        made = row.make(trace)
        path = tmp_path / "out" / f"{name}.csv"
        with open(path, encoding="utf-8", newline="") as file:
            head, *lines = csv.reader(file)
        assert head == list(made)
        columns = zip(*lines, strict=True) if lines else [()] * len(head)
        for texts, column in zip(columns, made.values(), strict=True):
            assert list(texts) == list(map(as_csv, column.tolist()))


def test_parquet_reads_back_as_the_tables(trace, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    export(trace, "parquet", str(tmp_path / "out"))
    assert {path.stem for path in (tmp_path / "out").iterdir()} == TABLES.keys()
    for name, row in TABLES.items():
        made = row.make(trace)
        found = parquet.read_table(tmp_path / "out" / f"{name}.parquet")
        assert found.column_names == list(made)
        assert found.schema.metadata[b"time_unit"] == b"ns"
        for key, column in made.items():
            assert found[key].to_pylist() == column.tolist()
            assert str(found[key].type) in ("string", "double", "bool", *_INTEGERS)
            assert (str(found[key].type) == "string") == (column.dtype == object)
            about = found.schema.field(key).metadata
            assert about[b"meaning"].decode() == row.columns[key].meaning
            assert about.get(b"unit", b"").decode() == row.columns[key].unit


_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


def test_parquet_without_pyarrow_names_the_extra(make, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(KernbenchError, match=r"pip install 'kernbench\[parquet\]'"):
        export(make("shipped"), "parquet", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
