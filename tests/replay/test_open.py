"""A trace in Python: opened, shown, asked for tables that other libraries take."""

import subprocess
import sys
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest

import kernbench
from kernbench.errors import TraceFormatError, UsageError
from kernbench.trace.export.tables import TABLES

TRACES = Path(__file__).parents[2] / "traces"
MATMUL = TRACES / "matmul.msgpack"
FAULT = TRACES / "fault_overflow.msgpack"


def test_importing_kernbench_imports_nothing_heavy():
    look = "import kernbench, sys; kernbench.open; print('numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_a_trace_is_closed_at_the_end_of_with():
    with kernbench.open(MATMUL) as trace:
        assert len(trace) == 152
        values = trace.tensor("c", 151).values
    assert values.shape == (128, 128)
    assert np.isfinite(values.astype("f8")).all()
    for use in (lambda: len(trace), lambda: trace.table("ops"), trace.verify):
        with pytest.raises(UsageError, match=r"matmul\.msgpack was closed; open it"):
            use()
    trace.close()
    assert repr(trace) == "<ReplaySession, closed>"
    assert "closed" in trace._repr_html_()


@pytest.mark.parametrize("path", ["nowhere.msgpack", __file__, "."])
def test_what_is_no_trace_is_an_error_that_names_it(path):
    with pytest.raises(TraceFormatError, match=str(path)):
        kernbench.open(path)


def test_a_session_says_what_it_is_of():
    with kernbench.open(str(MATMUL)) as trace:
        assert repr(trace) == (
            f"<ReplaySession of matmul, 152 ops, 8.492us, {MATMUL}, "
            "before the first op>"
        )
        trace.goto(20)
        assert repr(trace).endswith("at op 20>")


def test_a_notebook_shows_the_facts_escaped(tmp_path):
    bench = tmp_path / "b.py"
    bench.write_text(
        "from kernbench.benches import bench\n"
        "@bench(name='<b>&x', description='')\n"
        "def run(torch):\n"
        "    torch.zeros((2,), 'f32')\n"
    )
    kernbench_run = kernbench_runs(bench, tmp_path / "t.msgpack")
    with kernbench.open(kernbench_run) as trace:
        html = trace._repr_html_()
        assert "<td>bench</td><td>&lt;b&gt;&amp;x</td>" in html
        for title, text in trace.info().facts().items():
            assert f"<td>{title}</td><td>{text}</td>" in unescape(html)


def kernbench_runs(bench, path):
    from kernbench.runtime_api import run_bench

    run_bench(str(bench), trace=path)
    return path


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("path", [MATMUL, FAULT], ids=lambda path: path.stem)
def test_others_take_a_table(path, name):
    with kernbench.open(path) as trace:
        table = trace.table(name)
        assert isinstance(table, dict)
        (rows,) = {len(column) for column in table.values()}
        for frame in (pd.DataFrame(table), polars.DataFrame(table)):
            assert list(frame.columns) == list(table)
            assert len(frame) == rows
        arrow = pyarrow.table(table)
        assert arrow.num_rows == rows
        for column, values in table.items():
            nulls = np.ma.count_masked(values)
            assert arrow[column].null_count == nulls
            assert pd.DataFrame(table)[column].isna().sum() == nulls


def test_the_table_of_ops_is_the_op_log():
    with kernbench.open(MATMUL) as trace:
        frame = pd.DataFrame(trace.table("ops"))
        rows = trace.rows(0, len(trace))
        assert frame["t_end"].tolist() == [row.t_end for row in rows]
        assert frame["component"].tolist() == [row.component for row in rows]
        with pytest.raises(UsageError, match="did you mean ops"):
            trace.table("op")


def test_texts_are_asked_in_python():
    with kernbench.open(MATMUL) as trace:
        assert trace.texts().rows == ()
        with pytest.raises(UsageError, match="no PE 'pe9'"):
            trace.texts("pe9")
