"""The tables of csv and parquet: against the records, and read back by their own readers."""

import csv
import sys

import numpy as np
import pytest
from trace_kinds import KINDS

from kernbench.errors import KernbenchError
from kernbench.sim_engine.accesses import accesses
from kernbench.trace.export import export
from kernbench.trace.export.tables import TABLES


def rows(table):
    return [
        dict(zip(table, row, strict=True))
        for row in zip(*(c.tolist() for c in table.values()), strict=True)
    ]


@pytest.fixture(params=KINDS)
def trace(request, make):
    return make(request.param)


def test_ops_are_the_records_with_their_kernel_lines(trace):
    found = rows(TABLES["ops"](trace))
    assert len(found) == len(trace.ops)
    for i, (row, record) in enumerate(zip(found, trace.ops, strict=True)):
        node = trace.node_index[record.component_id]
        command = trace.command(row["cmd"])
        assert (row["op"], row["t_start"], row["t_end"]) == (
            i,
            record.t_start,
            record.t_end,
        )
        assert (row["name"], row["kind"]) == (record.op_name, record.op_kind)
        assert (row["component"], row["engine"]) == (
            record.component_id,
            trace.nodes.engine[node],
        )
        assert (row["sip"], row["cube"], row["pe"]) == tuple(
            getattr(trace.nodes, level)[node] for level in ("sip", "cube", "pe")
        )
        site = (
            (*command.site, command.call, command.launch)
            if command
            else ("", -1, "", "", -1)
        )
        assert (
            tuple(row[n] for n in ("file", "line", "function", "call", "launch"))
            == site
        )


def test_accesses_are_what_each_op_touches(trace):
    wanted = [
        {"op": op, "mode": {"r": "read", "w": "write"}[a.mode], "space": a.space}
        | {"addr": a.addr, "nbytes": a.nbytes}
        for op, record in enumerate(trace.ops)
        for a in accesses(record)
    ]
    key = [*TABLES["accesses"](trace)]
    found = rows(TABLES["accesses"](trace))
    assert sorted(tuple(row[k] for k in key) for row in found) == sorted(
        tuple(row[k] for k in key) for row in wanted
    )


def test_hops_are_those_of_each_op_s_transactions(trace):
    kinds = {
        (trace.node_ids[s], trace.node_ids[d]): kind
        for s, d, kind in zip(
            trace.edges.src, trace.edges.dst, trace.edges.kind, strict=True
        )
    }
    wanted = []
    for op, row in [(-1, -1), *enumerate(trace.order.tolist())]:
        for path, _, nbytes, bursts, starts in trace.transfers_of(row):
            hops, several = len(path) - 1, len(starts) == 2 * (len(path) - 1)
            for hop in range(hops):
                ends = path[hop], path[hop + 1]
                last = starts[hop + hops * several]
                times = starts[hop], last, nbytes, bursts
                wanted.append((op, hop, *ends, kinds.get(ends, ""), *times))
    names = ("op", "hop", "src", "dst", "kind", "start", "last", "nbytes", "bursts")
    found = rows(TABLES["hops"](trace))
    assert sorted(tuple(row[n] for n in names) for row in found) == sorted(wanted)


def test_waits_name_the_ops_that_waited_and_that_they_waited_for(trace):
    wanted = []
    for op, row in enumerate(trace.order.tolist()):
        for *wait, holder in trace.waits_of(row):
            wanted.append(
                (op, *wait, int(trace.position[holder]) if holder >= 0 else -1)
            )
    names = ("op", "node", "reason", "t0", "t1", "holder")
    found = rows(TABLES["waits"](trace))
    assert sorted(tuple(row[n] for n in names) for row in found) == sorted(wanted)


def test_commands_launches_and_texts_are_as_recorded(make):
    trace = make("every_kind_of_op")
    found = {name: rows(make(trace)) for name, make in TABLES.items()}
    call = found["commands"][0]
    assert (call["pe"], call["call"], call["file"], call["line"]) == (
        *("sip0.cube0.pe0.pe_cpu", "load"),
        *("demo.py", 2),
    )
    (launch,) = found["launches"]
    assert (launch["kernel"], launch["pe"], launch["t_end"]) == (
        *("kernel", "sip0.cube0.pe0.pe_cpu sip0.cube0.pe1.pe_cpu"),
        90.0,
    )
    assert found["texts"] == [
        {"t": 3.5, "cmd": 5, "level": "print", "message": "über\n1"}
    ]


def test_csv_reads_back_as_the_tables(trace, tmp_path):
    export(trace, "csv", str(tmp_path / "out"))
    assert {path.stem for path in (tmp_path / "out").iterdir()} == TABLES.keys()
    for name, make in TABLES.items():
        table = make(trace)
        with open(
            tmp_path / "out" / f"{name}.csv", encoding="utf-8", newline=""
        ) as file:
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
