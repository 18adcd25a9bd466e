"""What kernels printed and asserted is told of a trace, in order, with its op."""

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.errors import KernelError
from kernbench.replay import ReplaySession
from kernbench.replay.text import as_text
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

BENCH = """\
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def kernel(x, y, asserts, tl):
    tl.device_print("begins")
    got = tl.load(x)
    tl.device_print("first is", got[0])
    tl.store(y, got + got)
    tl.device_print("has stored", got[1])
    if asserts and tl.program_id(0) == 1:
        tl.device_assert(got[0] == 5, "the first is five")

@bench(name="says", description="says something")
def run(torch, asserts=False):
    parted = DPPolicy(pe="row_wise", num_cubes=1, num_pes=2)
    x = torch.tensor(np.arange(8, dtype="f4"), dp=parted, name="x")
    y = torch.empty((8,), "f32", parted, "y")
    torch.launch("first", kernel, x, y, asserts)
    torch.launch("second", kernel, x, y, asserts)
"""


@pytest.fixture
def record(tmp_path):
    def record(**params):
        file = tmp_path / "says.py"
        file.write_text(BENCH)
        path = tmp_path / "says.msgpack"
        run_bench(str(file), params=params, trace=path)
        return path

    return record


def texts(path, *words):
    said = CliRunner().invoke(main, ["trace", "texts", str(path), *words, "--json"])
    assert said.exit_code == 0
    return json.loads(said.stdout)


def test_each_text_has_its_time_pe_launch_and_line(record):
    found = texts(record())
    rows = found["rows"]
    assert found["total"] == len(rows) == 12
    assert [row["t"] for row in rows] == sorted(row["t"] for row in rows)
    mine = [row for row in rows if row["pe"] == "sip0.cube0.pe1"]
    assert [row["launch"] for row in mine] == [0] * 3 + [1] * 3
    assert [row["message"] for row in mine[:3]] == [
        "begins",
        "first is 4.0",
        "has stored 5.0",
    ]
    assert [row["site"].rpartition(":")[2] for row in mine[:3]] == ["6", "8", "10"]


def test_a_text_names_the_op_of_its_kernel_that_came_before(record):
    path = record()
    trace = Trace.open(path)
    for row in texts(path, "sip0.cube0.pe1")["rows"]:
        if row["message"] == "begins":
            assert row["op"] == -1
            continue
        op = trace.ops[row["op"]]
        wanted = "dma_read" if row["message"].startswith("first") else "dma_write"
        assert op.op_name == wanted
        call = trace.command(op.params.get("cmd", trace.op_columns.cmd[row["op"]]))
        assert call.pe == "sip0.cube0.pe1.pe_cpu"
        assert call.launch == row["launch"]


BYTES = """
import numpy as np
from kernbench.benches import bench

def kernel(x_ptr, tl):
    tl.load(x_ptr, (8,), "f32")
    for _ in range(3):
        tl.load(x_ptr, (8,), "i32")  # noted

@bench(name="other_bytes", description="reads floats as integers")
def run(torch):
    x = torch.tensor(np.arange(8, dtype="f4"), name="x")
    torch.launch("k", kernel, x)
"""


@pytest.mark.slow
def test_what_a_run_notes_of_a_line_is_a_text_of_its_first_call(tmp_path):
    """It was printed at the end of the run, and its trace said nothing of it."""
    file = tmp_path / "other_bytes.py"
    file.write_text(BYTES)
    path = tmp_path / "t.msgpack"
    result = run_bench(str(file), trace=path)
    (note,) = result.notes
    (row,) = texts(path)["rows"]
    assert row["level"] == "warning"
    assert note.endswith(f":8: {row['message']}")
    assert row["site"].endswith(":8")


def test_texts_of_a_pe_and_the_first_of_them(record):
    path = record()
    assert texts(path, "sip0.cube0.pe0")["total"] == 6
    assert texts(path, "sip0")["total"] == texts(path, "all")["total"] == 12
    assert len(texts(path, "--limit", "5")["rows"]) == 5
    said = CliRunner().invoke(main, ["trace", "texts", str(path), "pe9"])
    assert "no PE 'pe9'" in said.stderr


def test_an_op_says_what_its_kernel_said_after_it(record):
    session = ReplaySession(Trace.open(record()))
    for op in range(len(session)):
        details = session.details(op)
        said = [row.message for row in details.texts]
        reads = details.row.name == "dma_read"
        writes = details.row.name == "dma_write"
        assert [text[:5] for text in said] == ["first"] * reads + ["has s"] * writes
        for text in said:
            assert re.search(
                rf"^said .*says.py:\d+: {text}$", as_text(details, 500), re.M
            )


def test_an_assert_is_the_last_text(record, tmp_path):
    with pytest.raises(KernelError, match="the first is five"):
        record(asserts=True)
    *_, last = texts(tmp_path / "says.msgpack")["rows"]
    assert last["level"] == "assert"
    assert last["message"] == "the first is five"
    shown = CliRunner().invoke(
        main, ["trace", "texts", str(tmp_path / "says.msgpack"), "--width", "200"]
    )
    assert shown.stdout.endswith(
        "says.py:12: device_assert failed: the first is five\n"
    )


def test_a_trace_without_texts_says_so(session):
    assert as_text(session.run_line("texts")).startswith("no kernel printed anything")
    assert session.details(len(session) - 1).texts == ()


def test_texts_of_many_calls_are_those_that_were_record(record):
    trace = Trace.open(record())
    shown = ReplaySession(trace).run_line("texts").rows
    assert [(r.t, r.level, r.message) for r in shown] == [
        (t.t, t.level, t.message) for t in trace.texts
    ]
    assert np.all(np.diff([row.t for row in shown]) >= 0)
