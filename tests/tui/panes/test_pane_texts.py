"""The pane of texts: what kernels said, with time, PE and line, as the cursor goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import PaneBench

from kernbench.replay.commands import GOTO
from kernbench.replay.index import Index
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace
from tui.panes.base import Click, Do, Enter, Scroll
from tui.panes.texts import TextsPane

SAYS = """\
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def kernel(x, y, tl):
    tl.device_print("begins")
    got = tl.load(x)
    tl.device_print("first is", got[0])
    tl.store(y, got + got)

@bench(name="says_two", description="says something")
def run(torch):
    parted = DPPolicy(pe="row_wise", num_cubes=1, num_pes=2)
    x = torch.tensor(np.arange(8, dtype="f4"), dp=parted, name="x")
    y = torch.empty((8,), "f32", parted, "y")
    torch.launch("only", kernel, x, y)
"""


@pytest.fixture
def says(tmp_path: Path) -> Trace:
    """A trace of two PEs, each of which says two things."""
    file = tmp_path / "says_two.py"
    file.write_text(SAYS)
    path = tmp_path / "says.msgpack"
    run_bench(str(file), trace=path)
    return Trace.open(path)


def test_each_text_is_a_row_with_its_pe_and_line(says: Trace) -> None:
    bench = PaneBench(TextsPane, Index(says), len(says.ops) - 1, 80, 12)
    head, *rows = bench.lines
    assert head.split() == ["time", "PE", "text"]
    said = [row for row in rows if row.strip()]
    assert len(said) == 4
    assert sum("begins" in row and "says_two.py:6" in row for row in said) == 2
    assert sum("s0c0.pe1" in row for row in said) == 2
    assert any("first is 0" in row and "says_two.py:8" in row for row in said)
    assert any("first is 4" in row for row in said)


def test_what_is_yet_to_be_said_is_counted_apart(says: Trace) -> None:
    bench = PaneBench(TextsPane, Index(says), 0, 80, 12)
    assert bench.picture.subtitle == "0 of 4 said"
    bench.goto(len(says.ops) - 1)
    assert bench.picture.subtitle == "4 of 4 said"
    assert any(line.startswith(">") for line in bench.lines)


def test_enter_goes_to_the_op_before_the_text(says: Trace) -> None:
    bench = PaneBench(TextsPane, Index(says), len(says.ops) - 1, 80, 12)
    bench.send(Scroll(-1))
    bench.send(Enter())
    (do,) = bench.effects
    assert isinstance(do, Do)
    loads = [i for i, op in enumerate(says.ops) if op.op_name == "dma_read"]
    assert do.call in [GOTO(op=op) for op in loads]


def test_enter_on_what_was_said_before_any_op_goes_to_the_first(says: Trace) -> None:
    """It said that no op was before that, and went nowhere."""
    bench = PaneBench(TextsPane, Index(says), 0, 80, 12)
    reads = [i for i, op in enumerate(says.ops) if op.op_name == "dma_read"]
    by_pe = {bench.index.ops.row(op).component: op for op in reversed(reads)}
    for pe in range(2):
        assert f"pe{pe} " in bench.lines[1 + pe]
        assert "begins" in bench.lines[1 + pe]
        bench.send(Enter())
        assert bench.effects == (Do(GOTO(op=by_pe[f"sip0.cube0.pe{pe}.pe_dma"])),)
        bench.send(Scroll(1))


LONG = "a long message, of which one would like to see the end as well"


@pytest.fixture
def talks(tmp_path: Path) -> Trace:
    """The same, and the first text is too long for one line."""
    file = tmp_path / "says_two.py"
    file.write_text(SAYS.replace("begins", LONG))
    path = tmp_path / "talks.msgpack"
    run_bench(str(file), trace=path)
    return Trace.open(path)


def test_the_picked_text_is_there_in_full(talks: Trace) -> None:
    bench = PaneBench(TextsPane, Index(talks), 0, 60, 12)
    text = " ".join(line[22:45].strip() for line in bench.lines)
    assert LONG in text
    assert text.count("a long message") == 2
    assert text.count("the end as well") == 1


@pytest.mark.parametrize("height", [4, 5, 6, 12])
def test_a_text_in_full_leaves_itself_in_view(talks: Trace, height: int) -> None:
    bench = PaneBench(TextsPane, Index(talks), len(talks.ops) - 1, 60, height)
    for _ in range(4):
        bench.send(Scroll(-1))
        assert len(bench.lines) <= height
        styles = [style for line in bench.picture.lines for _, style in line]
        assert "pick" in styles


def test_a_click_below_a_text_in_full_picks_the_row_there(talks: Trace) -> None:
    bench = PaneBench(TextsPane, Index(talks), 0, 60, 12)
    second = [i for i, line in enumerate(bench.lines) if LONG[:9] in line][1]
    bench.send(Click(30, second - 1))
    assert bench.state.rows.at == 0
    bench.send(Click(30, second))
    assert bench.state.rows.at == 1
