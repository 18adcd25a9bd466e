"""A call that a helper makes has the line, too, at which the helper was called."""

import msgpack
import pytest

from kernbench.replay import ReplaySession
from kernbench.replay.text import as_text
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace
from kernbench.trace.cut import cut

BENCH = """
from kernbench.runtime_api import DPPolicy
from kernbench.runtime_api.registry import bench


def row(x, at, tl):
    return tl.load(x[at])


def deep(x, tl):
    return row(x, 1, tl)


def kernel(x, y, tl):
    one = row(x, 0, tl)  # first
    two = deep(x, tl)
    both = [tl.add(one, two) for _ in range(1)]
    tl.store(y[0], both[0])


@bench(name="helped", description="")
def run(torch):
    one = DPPolicy(num_cubes=1, num_pes=1)
    x = torch.tensor(torch.rng.standard_normal((2, 16)), "f32", one, name="x")
    y = torch.zeros((2, 16), "f32", one, name="y")
    torch.launch("kernel", kernel, x, y)
"""


def line_of(text):
    (number,) = (i for i, row in enumerate(BENCH.splitlines(), 1) if text in row)
    return number


@pytest.fixture
def path(tmp_path, monkeypatch):
    """The trace of a kernel that has helpers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helped.py").write_text(BENCH)
    run_bench("helped.py", trace=tmp_path / "t.msgpack")
    return tmp_path / "t.msgpack"


def lines(trace):
    """By call of a kernel its line, and that of its function's caller."""
    found = []
    for cells in trace.rows_as_recorded("commands"):
        cmd, _, launch, call, _, line, *_ = cells
        if launch >= 0 and call != "exit":
            caller = trace.caller(cmd)
            found.append((call, line, caller and caller.line))
    return found


def test_a_call_of_a_helper_has_the_line_that_called_the_helper(path):
    load = line_of("tl.load")
    assert lines(Trace.open(path)) == [
        ("load", load, line_of("# first")),
        ("load", load, line_of("return row")),
        ("add", line_of("tl.add"), None),
        ("store", line_of("tl.store"), None),
    ]


def test_the_caller_is_shown_beside_the_line(path):
    session = ReplaySession(Trace.open(path))
    where = f"helped.py:{line_of('tl.load')}, called at helped.py:{line_of('# first')}"
    first, second = (
        row for row in session.run_line("ops").rows if row.name == "dma_read"
    )
    assert (first.where, second.caller) == (
        where,
        f"helped.py:{line_of('return row')}",
    )
    session.goto(first.op)
    assert f"tl.load at {where}" in as_text(session.run_line("op"))


def test_a_trace_of_before_there_were_callers_has_none(path, tmp_path):
    older = tmp_path / "older.msgpack"
    with open(path, "rb") as file, open(older, "wb") as kept:
        for tag, head, body in msgpack.Unpacker(file, max_buffer_size=0):
            if tag != "callers":
                kept.write(msgpack.packb([tag, head, body]))
    trace = Trace.open(older)
    assert not trace.check()
    assert [caller for *_, caller in lines(trace)] == [None] * 4
    session = ReplaySession(trace)
    assert {row.caller for row in session.run_line("ops").rows} == {""}


@pytest.mark.slow
def test_a_part_of_a_trace_keeps_the_callers_of_its_calls(path, tmp_path):
    cut(path, tmp_path / "part", 0.0, 1e9)
    assert lines(Trace.open(tmp_path / "part")) == lines(Trace.open(path))
