"""The tables of csv and parquet: against the records, and read back.

They are read back by the readers that these formats have.
"""

import csv
import sys

import numpy as np
import pytest
from trace_kinds import KINDS

from kernbench.common.rows import Rows
from kernbench.errors import KernbenchError
from kernbench.sim_engine.accesses import accesses
from kernbench.trace.export import export
from kernbench.trace.export.tables import TABLES


def rows(table):
    """The rows of a table, as maps."""
    columns = [column.tolist() for column in table.values()]
    return [dict(zip(table, row, strict=True)) for row in zip(*columns, strict=True)]


def picked(rows, names):
    """Some cells of rows, sorted."""
    return sorted(tuple(row[name] for name in names) for row in rows)


@pytest.fixture(params=KINDS)
def trace(request, make):
    return make(request.param)


def test_ops_are_the_records_with_their_kernel_lines(trace):
    found = rows(TABLES["ops"](trace))
    assert len(found) == len(trace.ops)
    for i, (row, record) in enumerate(zip(found, trace.ops, strict=True)):
        node = trace.node_index[record.component_id]
        command = trace.command(row["cmd"])
        assert row["op"] == i
        assert (row["t_start"], row["t_end"]) == (record.t_start, record.t_end)
        assert (row["name"], row["kind"]) == (record.op_name, record.op_kind)
        assert row["component"] == record.component_id
        assert row["engine"] == trace.nodes.engine[node]
        assert row["sip"] == trace.nodes.sip[node]
        assert row["cube"] == trace.nodes.cube[node]
        assert row["pe"] == trace.nodes.pe[node]
        called = ("", -1, "", "", -1)
        if command is not None:
            called = (*command.site, command.call, command.launch)
        names = ("file", "line", "function", "call", "launch")
        assert tuple(row[name] for name in names) == called


def test_accesses_are_what_each_op_touches(trace):
    modes = {"r": "read", "w": "write"}
    wanted = [
        (op, modes[access.mode], access.space, access.addr, access.nbytes)
        for op, record in enumerate(trace.ops)
        for access in accesses(record)
    ]
    table = TABLES["accesses"](trace)
    of_place = ["rows", "row_bytes", "pitch", "planes"]
    assert list(table) == ["op", "mode", "space", "addr", "nbytes", *of_place]
    found = []
    for op, mode, space, addr, nbytes, *rows_of in picked(rows(table), list(table)):
        number, row_bytes, pitch, planes = rows_of
        axes = [map(int, axis.split("x")) for axis in planes.split()]
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
                kind = kinds.get(ends, "")
                wanted.append((op, hop, *ends, kind, *times, nbytes, bursts))
    names = ("op", "hop", "src", "dst", "kind", "start", "last", "nbytes", "bursts")
    assert picked(rows(TABLES["hops"](trace)), names) == sorted(wanted)


def test_waits_name_the_ops_that_waited_and_that_they_waited_for(trace):
    wanted = []
    for op, row in enumerate(trace.order.tolist()):
        for *wait, holder in trace.waits_of(row):
            holder_op = -1
            if holder >= 0:
                holder_op = int(trace.position[holder])
            wanted.append((op, *wait, holder_op))
    names = ("op", "node", "reason", "t0", "t1", "holder")
    assert picked(rows(TABLES["waits"](trace)), names) == sorted(wanted)


def test_commands_launches_and_texts_are_as_recorded(make):
    trace = make("every_kind_of_op")
    found = {name: rows(make(trace)) for name, make in TABLES.items()}
    call = found["commands"][0]
    assert (call["pe"], call["call"]) == ("sip0.cube0.pe0.pe_cpu", "load")
    assert (call["file"], call["line"]) == ("demo.py", 2)
    (launch,) = found["launches"]
    assert (launch["kernel"], launch["t_end"]) == ("kernel", 90.0)
    assert launch["pe"] == "sip0.cube0.pe0.pe_cpu sip0.cube0.pe1.pe_cpu"
    assert found["texts"] == [
        {"t": 3.5, "cmd": 5, "level": "print", "message": "über\n1"}
    ]


def test_csv_reads_back_as_the_tables(trace, tmp_path):
    export(trace, "csv", str(tmp_path / "out"))
    assert {path.stem for path in (tmp_path / "out").iterdir()} == TABLES.keys()
    for name, make in TABLES.items():
        table = make(trace)
        path = tmp_path / "out" / f"{name}.csv"
        with open(path, encoding="utf-8", newline="") as file:
            head, *lines = csv.reader(file)
        assert head == list(table)
        columns = zip(*lines, strict=True) if lines else [()] * len(head)
        for texts, column in zip(columns, table.values(), strict=True):
            if column.dtype == object:
                assert list(texts) == column.tolist()
            else:
                np.testing.assert_array_equal(np.array(texts, column.dtype), column)


def test_parquet_reads_back_as_the_tables(trace, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    export(trace, "parquet", str(tmp_path / "out"))
    assert {path.stem for path in (tmp_path / "out").iterdir()} == TABLES.keys()
    for name, make in TABLES.items():
        table = make(trace)
        found = parquet.read_table(tmp_path / "out" / f"{name}.parquet")
        assert found.column_names == list(table)
        for key, column in table.items():
            assert found[key].to_pylist() == column.tolist()
            assert str(found[key].type) in ("string", "double", *_INTEGERS)
            assert (str(found[key].type) == "string") == (column.dtype == object)


_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


def test_parquet_without_pyarrow_names_the_extra(make, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(KernbenchError, match=r"pip install 'kernbench\[parquet\]'"):
        export(make("shipped"), "parquet", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
