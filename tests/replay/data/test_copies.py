"""A replicated tensor of which one copy is spoilt: every answer says which."""

from __future__ import annotations

import pytest

from kernbench.replay import ReplaySession
from kernbench.replay.text import as_text
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

SPOILT = "x@sip0.cube0.pe1.pe_cpu"
BENCH = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def kernel(x_ptr, tl):
    x = tl.load(x_ptr, (8,), "f32")
    if tl.program_id(0) == 1:
        tl.store(x_ptr + 8, tl.slice(x, (2,), (2,)) * 0.0)

@bench(name="spoilt", description="PE 1 spoils its copy of x")
def run(torch):
    data = torch.rng.standard_normal(8).astype("f4")
    everywhere = DPPolicy(cube="replicate", pe="replicate", num_cubes=1, num_pes=4)
    x = torch.tensor(data, dp=everywhere, name="x")
    torch.launch("spoilt", kernel, x)
    torch.expect(x, data)
"""


HALF_WRITTEN = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def kernel(x_ptr, tl):
    if tl.program_id(0) != 1:
        tl.store(x_ptr, tl.zeros((8,), "f32"))

@bench(name="unwritten", description="PE 1 never writes its copy of x")
def run(torch):
    everywhere = DPPolicy(cube="replicate", pe="replicate", num_cubes=1, num_pes=2)
    x = torch.empty((8,), "f32", everywhere, "x")
    torch.launch("unwritten", kernel, x)
    torch.expect(x, torch.rng.standard_normal(8).astype("f4") * 0)
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copies")
    (folder / "spoilt.py").write_text(BENCH)
    run_bench(str(folder / "spoilt.py"), trace=folder / "t")
    session = ReplaySession(Trace.open(folder / "t"))
    session.to_end()
    return session


@pytest.mark.parametrize("line", ["verify", "outputs"])
def test_the_verdict_names_the_copy_that_is_wrong(session, line):
    answer = session.run_line(line)
    assert answer.copies == (
        f"{SPOILT} is wrong: 2 elements, first [2]; of its 4 copies 3 are right",
    )
    assert answer.copies[0] in as_text(answer)


@pytest.mark.parametrize("line", ["memory x", "who-wrote x[2]", "blame x[2]"])
def test_an_answer_of_the_first_copy_says_so_and_which_copies_differ(session, line):
    note = session.run_line(line).note
    assert note == (
        f"x is the copy of sip0.cube0.pe0.pe_cpu; it differs from {SPOILT} in 2 "
        "elements"
    )


@pytest.mark.parametrize("line", ["memory", "who-wrote", "blame"])
def test_a_copy_that_is_asked_for_is_answered_of(session, line):
    answer = session.run_line(f"{line} {SPOILT}")
    assert not answer.note
    assert SPOILT in as_text(answer) or line == "who-wrote"


def test_the_blame_of_the_spoilt_copy_leads_to_its_pe(session):
    answer = session.blame(f"{SPOILT}[2]")
    names = [link.op.name for link in answer.links]
    assert names == ["dma_write", "mul", "dma_read", "host_write"]
    assert {link.op.component.split(".")[2] for link in answer.links[:3]} == {"pe1"}
    assert answer.links[-1].wrote.name == f"{SPOILT}[2]"


def test_the_memory_that_an_op_touches_is_that_of_its_copy(session):
    last = len(session) - 1
    assert session.index.memory.shown(last) == SPOILT


def test_no_copy_is_wrong_before_it_is_due(session):
    for op in range(-1, len(session) - 1):
        session.goto(op)
        assert session.run_line("outputs").copies == ()


def test_a_copy_that_nobody_wrote_is_said_to_be_unwritten(tmp_path):
    (tmp_path / "unwritten.py").write_text(HALF_WRITTEN)
    run_bench(str(tmp_path / "unwritten.py"), trace=tmp_path / "t")
    session = ReplaySession(Trace.open(tmp_path / "t"))
    session.to_end()
    for line in ("outputs", "verify"):
        (text,) = session.run_line(line).copies
        assert text.startswith(f"{SPOILT} is wrong: ")
        assert "0 elements" not in text
        assert text.endswith("; of its 2 copies 1 are right")


TAKING_TURNS = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def kernel(x_ptr, tl):
    pid = tl.program_id(0)
    for turn in range(4):
        x = tl.load(x_ptr, (8,), "f32")
        for _ in range(pid):
            x = x * 1.0
        tl.store(x_ptr + 4 * turn, tl.slice(x, (turn,), (1,)) * float(pid % 3))

@bench(name="turns", description="each PE writes its copy of x, each in its time")
def run(torch):
    data = torch.rng.standard_normal(8).astype("f4")
    everywhere = DPPolicy(cube="replicate", pe="replicate", num_cubes=1, num_pes=4)
    x = torch.tensor(data, dp=everywhere, name="x")
    torch.launch("turns", kernel, x)
"""


def test_the_copies_are_compared_as_they_are_at_any_op(tmp_path):
    (tmp_path / "turns.py").write_text(TAKING_TURNS)
    run_bench(str(tmp_path / "turns.py"), trace=tmp_path / "t")
    session = ReplaySession(Trace.open(tmp_path / "t"))
    owners = [f"sip0.cube0.pe{pe}.pe_cpu" for pe in range(4)]
    ops = range(7, len(session))  # the host has written all copies before
    there_and_back = [*ops, *reversed(ops), *ops[::5], *ops[::-7]]
    seen = set()
    for op in there_and_back:
        session.goto(op)
        copies = [session.run_line(f"memory x@{owner}") for owner in owners]
        first, *others = [copy.values.view("u4") for copy in copies]
        counts = [int((first != other).sum()) for other in others]
        told = ", ".join(
            f"x@{owner} in {count}"
            for owner, count in zip(owners[1:], counts, strict=True)
            if count
        )
        differs = f"it differs from {told} elements"
        same = "its other copies hold the same"
        note = session.run_line("memory x").note
        assert note == f"x is the copy of {owners[0]}; {differs if told else same}"
        seen.add(told)
    assert len(seen) > 8
