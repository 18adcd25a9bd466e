"""The Stats pane: what to look at first, and eight answers about time, as rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from bench import TRACES, PaneBench, ops_of
from made_up import END_NS, GAINS, MadeUp
from pictures import (
    MAXIMISED,
    MIDDLE,
    SMALL,
    Region,
    filled,
    place_of,
    shown,
)

from kernbench.errors import KernbenchError
from kernbench.replay import ReplaySession
from kernbench.replay.commands import (
    BUSIEST,
    ENERGY,
    FETCHES,
    GOTO,
    PES,
    ROOFLINE,
    STALLS,
    WHATIF,
)
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import (
    CRITICAL_STEPS,
    DIAGNOSE_DATA,
    IN_SERVICE,
)
from kernbench.replay.query import FOCUS_LEVELS
from kernbench.replay.text import time_text
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace
from tui.draw import ASCII, UNICODE
from tui.panes.base import ChangeView, Click, Do, Enter, Pan, Say, Scroll
from tui.panes.stats import ProvedGain, StatsPane

READS_BACK = """
from kernbench.runtime_api.registry import bench


def kernel(x, y, tl):
    tl.store(y, tl.load(x) + 1.0)


@bench(name="reads_back", description="a kernel, then a copy to the host")
def run(torch):
    x = torch.zeros((64,), "f32", name="x")
    y = torch.empty((64,), "f32", name="y")
    torch.launch("reads_back", kernel, x, y)
    y.numpy()
"""

NO_KERNEL = """
from kernbench.runtime_api.registry import bench


@bench(name="no_kernel", description="the host alone")
def run(torch):
    torch.zeros((64,), "f32", name="x")
"""

LARGE = place_of("stats", 200, 50)
"""Its own place at 200x50."""

VIEWS = StatsPane.views
ANSWER_OF = {
    "diagnosis": DIAGNOSE_DATA,
    "stalls": STALLS,
    "critical path": CRITICAL_STEPS,
    "roofline": ROOFLINE,
    "busiest": BUSIEST,
    "PEs": PES,
    "fetches": FETCHES,
    "energy": ENERGY,
    "what if": WHATIF,
}
"""What is asked in each view."""
PE = FOCUS_LEVELS.index("pe")
CUBE = FOCUS_LEVELS.index("cube")
MACHINE = FOCUS_LEVELS.index("machine")


def read_of_pe4() -> int:
    """A read of a PE of the matmul that is not the first one."""
    index = Index(Trace.open(TRACES / "matmul.msgpack"))
    return ops_of(index, "sip0.cube0.pe4.pe_dma")[2]


AT_PE4 = read_of_pe4()


def stats(
    view: str = "stalls",
    op: int = 40,
    width: int = 80,
    height: int = 200,
    trace: str = "matmul",
) -> PaneBench:
    """The pane on a trace at an op, in a view, of the op's PE."""
    bench = PaneBench(StatsPane, trace, op, width, height)
    show(bench, view)
    bench.refocus(PE)
    return bench


def show(bench: PaneBench, view: str) -> None:
    """Show a view."""
    while VIEWS[bench.pane.view(bench.state)] != view:
        bench.send(ChangeView(1))


def claimed(bench: PaneBench) -> str | None:
    """What the picked row claims."""
    found: str | None = bench.pane.claimed(bench.state, bench.frame, bench.answers)
    return found


def session_on(bench: PaneBench) -> ReplaySession:
    """A session at the pane's cursor."""
    session = ReplaySession(bench.index.trace)
    session.goto(bench.frame.cursor)
    return session


# -- as the screen shows it -----------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "region"),
    [("80x24", SMALL), ("120x40", MIDDLE), ("200x50", LARGE)],
)
def test_it_shows_what_it_showed_at_the_first_op(size: str, region: Region) -> None:
    bench = stats("diagnosis", 16, region.width, region.height)
    bench.refocus(0)
    assert filled(bench.lines, region) == shown(f"stats-{size}-before", region)


@pytest.mark.parametrize(
    ("size", "region"),
    [("80x24", SMALL), ("120x40", MIDDLE), ("200x50", LARGE)],
)
def test_it_shows_what_it_showed_after_moves(size: str, region: Region) -> None:
    bench = stats("diagnosis", 16, region.width, region.height)
    bench.goto(151)
    bench.goto(143)
    assert filled(bench.lines, region) == shown(f"stats-{size}-after", region)


@pytest.mark.parametrize("view", VIEWS[1:])
@pytest.mark.slow
def test_it_shows_what_it_showed_in_its_other_views(view: str) -> None:
    bench = stats(view, 79, MAXIMISED.width, MAXIMISED.height)
    name = f"stats-{view}-80x24".replace(" ", "-").lower()
    assert filled(bench.lines, MAXIMISED) == shown(name, MAXIMISED)


# -- stalls ---------------------------------------------------------------------------


def test_stalls_are_the_ledger_of_this_pe_with_what_is_unexplained() -> None:
    bench = stats(op=AT_PE4)
    ledger = session_on(bench).stalls("sip0.cube0.pe4")
    assert bench.lines[0].startswith(" sip0.cube0.pe4, ")
    assert "unexplained" in bench.text
    for kind, ns in ledger.total.items():
        assert ns == 0 or f"{ns / (ledger.t1 - ledger.t0):.2%}" in bench.text, kind


def test_a_wider_focus_has_the_ledger_of_more_pes() -> None:
    bench = stats(op=AT_PE4)
    bench.refocus(CUBE)
    assert "8 PEs, " in bench.lines[0]
    bench.refocus(PE)
    assert "sip0.cube0.pe4, " in bench.lines[0]


def test_what_is_busy_is_not_cut() -> None:
    bench = stats(op=AT_PE4, width=50)
    text = " ".join(line.strip() for line in bench.lines)
    ledger = session_on(bench).stalls("sip0.cube0.pe4")
    for engine, share in ledger.engines.items():
        assert f"{engine}={share:.1%}" in text


def test_pes_with_ops_in_service_are_marked() -> None:
    bench = stats()
    bench.refocus(MACHINE)
    trace = bench.index.trace
    service = bench.answers.of(IN_SERVICE.ask(40))
    serving = [trace.node_ids[node] for node in service.nodes.tolist()]
    rows = [line for line in bench.lines if "sip0.cube0.pe" in line]
    assert len(rows) == 8
    for row in rows:
        pe = row.split()[0].lstrip("*")
        serves = any(id.startswith(f"{pe}.") for id in serving)
        assert row.startswith("*") == serves
    assert any(row.startswith("*") for row in rows)


def test_before_the_first_op_nothing_is_marked() -> None:
    bench = stats(op=-1)
    assert "PEs" in bench.lines[0]
    assert not any(line.startswith("*") for line in bench.lines)


def test_a_call_that_never_ended_is_not_cut_and_leads_to_the_last_op_of_its_pe() -> (
    None
):
    bench = stats(op=-1, trace="fault_ring_by_name")
    session = session_on(bench)
    lines = bench.lines
    hung = [i for i, line in enumerate(lines) if "never ended: " in line]
    assert len(hung) == 2
    for i in hung:
        assert lines[i + 1].endswith("ring_by_name.py:26")
        pe = lines[i].split()[2].rpartition(".")[0]
        rows = session.rows(0, len(session))
        last = max(row.op for row in rows if row.component.startswith(f"{pe}."))
        bench.send(Scroll(-(10**9)))
        bench.send(Scroll(i))
        bench.send(Enter())
        assert bench.effects == (Do(GOTO(op=last)),)


# -- the other views ------------------------------------------------------------------


def test_bars_are_as_long_as_their_shares() -> None:
    lines = stats("busiest").lines
    end = next(i for i, line in enumerate(lines) if "links" in line)
    bars = []
    for line in lines[1:end]:
        share = float(line.partition("%")[0].split()[-1])
        bars.append((share, line.count(UNICODE.thick)))
    most, longest = max(bars)
    assert longest > 5
    for share, length in bars:
        assert share == 0 or abs(length - share / most * longest) <= 1


def test_the_critical_path_has_totals_lines_and_steps() -> None:
    bench = stats("critical path", width=160)
    path = session_on(bench).critical_path(500)
    whole = time_text(path.t1 - path.t0)
    title = f" what the critical path of {whole} did or waited for"
    assert bench.lines[0] == title
    whole = path.t1 - path.t0
    for name, ns in {**path.totals, **path.by_line}.items():
        assert f"{name} " in bench.text
        assert f"{ns / whole:.1%} {time_text(ns):>9}"[:5] in bench.text
    for step in path.steps:
        if step.op >= 0 and step.ns > whole / 50:
            assert f"op {step.op:,} " in bench.text


@pytest.mark.parametrize("trace", ["matmul", "fault_wrong_root", "flash_attention"])
def test_no_short_step_is_listed_among_the_longest(trace: str) -> None:
    """A wait of 0.12 ns and issues of 1 ns stood among steps of some ten."""
    bench = stats("critical path", 0, 160, trace=trace)
    path = session_on(bench).critical_path(20)
    head = next(i for i, line in enumerate(bench.lines) if " longest steps" in line)
    listed = {line.split()[0] for line in bench.lines[head + 1 :] if line}
    hundredth = (path.t1 - path.t0) / 100
    short = [step for step in path.steps if step.ns < hundredth]
    assert listed == {time_text(s.t0) for s in path.steps if s not in short}
    left_out = len(short) + path.left_out
    assert f"; {left_out} shorter ones are left out" in bench.lines[head]


def test_of_very_many_steps_the_longest_are_listed_however_short() -> None:
    bench = stats("critical path", 0, 160)
    (query,) = [q for q in bench.answers.asked if q.command == CRITICAL_STEPS.name]
    path = bench.answers.asked[query]
    short = (path.t1 - path.t0) / 500
    steps = tuple(replace(path.steps[0], ns=short) for _ in range(20))
    again = PaneBench(StatsPane, bench.index, 0, 160, 60)
    again.answers.asked[query] = replace(path, steps=steps, left_out=480)
    show(again, "critical path")
    head = next(i for i, line in enumerate(again.lines) if " longest steps" in line)
    assert len(again.lines[head + 1 :]) == 20
    assert again.lines[head].endswith("; 480 shorter ones are left out")


def test_enter_on_a_step_of_the_critical_path_goes_to_its_op() -> None:
    bench = stats("critical path", width=160)
    path = session_on(bench).critical_path(500)
    step = next(step for step in path.steps if step.what == "gemm")
    row = next(i for i, text in enumerate(bench.lines) if f" op {step.op:,} " in text)
    bench.send(Scroll(row))
    assert bench.lines[row].startswith(">")
    bench.send(Enter())
    assert bench.effects == (Do(GOTO(op=step.op)),)


def test_a_step_of_the_critical_path_claims_that_its_op_has_no_slack() -> None:
    bench = stats("critical path", width=160)
    path = session_on(bench).critical_path(500)
    step = next(step for step in path.steps if step.what == "gemm")
    row = next(i for i, text in enumerate(bench.lines) if f" op {step.op:,} " in text)
    assert claimed(bench) is None  # the title
    bench.send(Scroll(row))
    assert claimed(bench) == f"slack {step.op}"


def test_a_click_on_a_step_of_the_critical_path_goes_to_its_op() -> None:
    bench = stats("critical path", width=160)
    path = session_on(bench).critical_path(500)
    step = next(step for step in path.steps if step.what == "gemm")
    row = next(i for i, text in enumerate(bench.lines) if f" op {step.op:,} " in text)
    bench.send(Click(10, row))
    assert bench.effects == (Do(GOTO(op=step.op)),)


def test_enter_on_a_row_of_no_op_goes_nowhere() -> None:
    bench = stats("critical path")
    bench.send(Enter())
    assert bench.effects == ()


def test_the_roofline_has_its_plot_and_the_share_of_every_pe() -> None:
    bench = stats("roofline")
    roofline = session_on(bench).roofline()
    assert sum("|" in line for line in bench.lines) == 9
    for roof in (roofline.total, *roofline.pes):
        rows = [line for line in bench.lines if line.lstrip().startswith(roof.pe)]
        assert any(f"{roof.share:.1%}" in row for row in rows)


@pytest.mark.parametrize("trace", ["matmul", "flash_attention", "mlp_tp"])
def test_the_title_of_the_roofline_fits_into_the_smallest_screen(trace: str) -> None:
    """It ended in "FLOPs a by…" where several dtypes had a peak of many digits."""
    place = place_of("stats", 80, 24)
    bench = stats("roofline", width=place.width, height=place.height, trace=trace)
    assert bench.lines[0].startswith(" a PE: ")
    assert bench.lines[0].endswith(" FLOPs a byte")
    assert len(bench.lines[0]) <= place.width


def test_the_roofline_of_a_part_of_a_run_says_so(tmp_path: Path) -> None:
    """The command did, the pane showed the peaks and the plot alone."""
    path = tmp_path / "cut.msgpack"
    whole = TRACES / "matmul.msgpack"
    path.write_bytes(whole.read_bytes()[:170_000])
    bench = PaneBench(StatsPane, path, 40, 100, 24)
    show(bench, "roofline")
    assert "the run was killed, or still goes on" in bench.lines[1]


def test_what_the_roofline_means_is_in_view_on_the_smallest_screen() -> None:
    height = place_of("stats", 80, 24).height
    *_, last = stats("roofline", width=80, height=height).lines
    assert last.endswith("FLOPs a byte; * is a PE, T their mean")


def test_busiest_has_components_and_links() -> None:
    bench = stats("busiest", width=120)
    busiest = session_on(bench).busiest(20)
    for _, node in busiest.components:
        assert node in bench.text
    for link in busiest.links:
        assert f"{link.src} → {link.dst}" in bench.text


@pytest.mark.parametrize("view", ["busiest", "critical path"])
@pytest.mark.parametrize("trace", ["mlp_tp", "ccl_allreduce", "fault_wrong_root"])
@pytest.mark.slow
def test_no_name_is_cut_beside_blank_space(trace: str, view: str) -> None:
    """Names of links lacked two characters beside a column of bars."""
    bench = stats(view, 0, trace=trace)
    steps = [i for i, line in enumerate(bench.lines) if " longest steps" in line]
    bars = bench.lines[: steps[0]] if steps else bench.lines
    assert len(bars) > 5
    assert not [line for line in bars if "…" in line and len(line) < 75]


def test_the_ticks_of_the_roofline_are_round() -> None:
    """They were 8192, 4922, 2957, 1777."""
    bench = stats("roofline")
    ticks = [line.partition("|")[0].strip() for line in bench.lines if "|" in line]
    roof, *others = [float(tick) for tick in ticks if tick]
    assert bench.lines[0].startswith(f" a PE: {roof:,.0f} GFLOP/s, ")
    assert len(others) > 2
    for tick in others:
        power = 10.0 ** np.floor(np.log10(tick))
        assert tick / power in (1, 2, 5)


def test_at_an_op_of_the_host_pes_are_of_the_next_call_of_a_kernel() -> None:
    """It said that call 534 is none of a kernel."""
    bench = stats("PEs", 0, width=120)
    head, *rows = bench.lines
    called = ops_of(bench.index, "sip0.cube0.pe0.pe_scheduler")[0]
    assert head == (
        f" the host made this op; this is the next call of a kernel, op {called}"
    )
    bench.send(Enter())
    assert bench.effects == (Do(GOTO(op=called)),)
    bench.goto(called)
    assert [line.strip(" *") for line in bench.lines] == [
        line.strip(" *") for line in rows
    ]


def pes_of(program: str, folder: Path) -> PaneBench:
    """The view of PEs on the trace of a program."""
    (folder / "program.py").write_text(program)
    path = folder / "program.msgpack"
    run_bench(str(folder / "program.py"), trace=path)
    bench = PaneBench(StatsPane, Index(Trace.open(path)), 0, 120, 20)
    show(bench, "PEs")
    return bench


def test_behind_the_last_kernel_pes_are_of_its_last_call(tmp_path) -> None:
    bench = pes_of(READS_BACK, tmp_path)
    bench.goto(len(bench.index.ops) - 1)
    assert bench.lines[0].startswith(" the host made this op; this is the last call")
    assert bench.lines[1].startswith(" store at ")


def test_where_no_kernel_was_launched_it_says_so(tmp_path) -> None:
    bench = pes_of(NO_KERNEL, tmp_path)
    assert bench.lines == [" no kernel was launched here, so no PE called anything"]


def test_pes_are_of_the_call_of_the_op() -> None:
    bench = stats("PEs", width=120)
    calls = session_on(bench).pes()
    least = time_text(calls.minimum)
    most = time_text(calls.maximum)
    assert f"{calls.call} at {calls.site} on {len(calls.pes)} PEs" in bench.text
    assert f"median {time_text(calls.median)}" in bench.text
    assert f"0 is min {least}, 9 max {most}" in bench.text


def test_ops_of_one_call_share_the_answer() -> None:
    bench = stats("PEs")
    cmds = bench.index.trace.op_columns.cmd[bench.index.trace.order]
    others = np.flatnonzero(cmds == cmds[40])
    assert len(others) > 1
    for op in others.tolist():
        bench.goto(op)
    asked = [query for query in bench.answers.asked if query.command == PES.name]
    assert len(asked) == 1


def test_before_the_first_op_there_is_no_call() -> None:
    assert stats("PEs", -1).lines == [" before the first op: s steps to it"]


@pytest.mark.parametrize("view", VIEWS)
def test_ascii_has_all(view: str) -> None:
    bench = PaneBench(StatsPane, "matmul", 40, 80, 200, ASCII)
    for _ in range(VIEWS.index(view)):
        bench.send(ChangeView(1))
    assert bench.text.isascii()
    assert bench.text


@pytest.mark.parametrize("view", VIEWS)
def test_while_an_answer_is_computed_it_says_so(view: str) -> None:
    bench = PaneBench(StatsPane, "matmul", 40, 80, 200)
    bench.answers.held |= {ANSWER_OF[name].name for name in VIEWS}
    for _ in range(VIEWS.index(view)):
        bench.send(ChangeView(1))
    bench.refocus(MACHINE)
    title = ANSWER_OF[view].name
    assert bench.lines == [f" computing {title}: 50%  Esc cancels"]


def test_there_is_nothing_to_pan() -> None:
    assert not stats().send(Pan(1))


def test_a_move_lets_go_of_the_picked_row() -> None:
    bench = stats()
    bench.send(Scroll(3))
    assert bench.lines[3].startswith(">")
    bench.goto(41)
    assert not any(line.startswith(">") for line in bench.lines)


# -- what if --------------------------------------------------------------------------


def test_a_row_a_gain_says_what_how_by_how_much_and_how_sure() -> None:
    bench = stats("what if", width=100)
    head, *rows = bench.lines
    assert head.startswith(" how much of 8.492us sooner, if 2x as fast or free")
    for row, gain in zip(rows, GAINS, strict=True):
        sure = "sure" if gain.sure else "unsure"
        share = f"{gain.saved_ns / END_NS:.1%}"
        words = [gain.what, share, time_text(gain.saved_ns), gain.how, sure]
        assert row.split()[: len(words)] == words


def test_without_a_gain_it_says_so(made_up, monkeypatch) -> None:
    monkeypatch.setattr("kernbench.replay.index.WhatIfIndex", lambda _: MadeUp(()))
    bench = stats("what if", width=100)
    assert bench.lines == [
        " nothing that is known of would end the run sooner than 8.492us"
    ]


def test_why_there_is_none_is_said_in_lines_that_fit(monkeypatch) -> None:
    why = "this trace was cut from another, so when its run would end cannot be told"

    def profile(*_: object, **__: object) -> NoReturn:
        raise KernbenchError(why)

    monkeypatch.setattr(MadeUp, "profile", profile)
    bench = stats("what if", width=40)
    assert len(bench.lines) == 2
    assert all(len(line) <= 40 for line in bench.lines)
    assert " ".join(bench.text.split()) == why


def test_enter_on_a_gain_shows_its_prediction_or_what_a_line_would_give() -> None:
    bench = stats("what if", width=100)
    bench.send(Scroll(3))
    bench.send(Enter())
    assert bench.effects == (Do(WHATIF(changes=("pe.clock_ghz=2",))),)
    bench.send(Scroll(-1))
    bench.send(Enter())
    assert bench.effects == (
        Say("kernbench/benches/matmul.py:35 2x: the run would end at 8.245us"),
    )
    bench.send(Scroll(-9))
    bench.send(Enter())
    assert bench.effects == ()


def test_the_picked_gain_is_what_can_be_proved() -> None:
    bench = stats("what if", width=100)

    def claimed() -> str | None:
        found: str | None = bench.pane.claimed(bench.state, bench.frame, bench.answers)
        return found

    assert claimed() is None
    bench.send(Scroll(3))
    assert claimed() == "pe.clock_ghz=2"
    bench.send(Scroll(-1))
    assert claimed() == ""
    bench.send(ChangeView(2))
    bench.send(Scroll(3))
    assert claimed() is None


def test_what_was_proved_stands_beside_its_prediction() -> None:
    bench = stats("what if", width=100)
    unproved = bench.lines
    assert bench.send(ProvedGain("pe.clock_ghz=2", END_NS - 200.0))
    (row,) = [line for line in bench.lines if " real " in line]
    assert row.split()[:7] == [
        *("pe.clock_ghz", "2.6%", "223.50ns", "2x", "sure"),
        *("real", "200.00ns"),
    ]
    assert len(bench.lines) == len(unproved)
    bench.send(ProvedGain("another=1", 1.0))
    assert len([line for line in bench.lines if " real " in line]) == 1


def test_it_is_asked_for_only_in_its_view() -> None:
    bench = stats("energy")
    assert WHATIF.name not in {query.command for query in bench.answers.asked}
    bench.send(ChangeView(1))
    assert WHATIF.name in {query.command for query in bench.answers.asked}


@pytest.mark.parametrize("view", VIEWS)
def test_a_word_for_enter_is_there_where_enter_does_something(view: str) -> None:
    bench = stats(view)
    for _ in range(12):
        word = bench.enter_word
        assert bench.send(Enter())
        assert bool(bench.effects) == bool(word)
        bench.send(Scroll(1))
