"""The Source pane: the kernel at the op's line, with time and stalls by line."""

from __future__ import annotations

import pytest
from bench import TRACES, PaneBench, component_of
from pictures import MIDDLE, SMALL, Region, filled, place_of, shown

from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.answers import NOT_RECORDED, Source
from kernbench.replay.commands import LINES, SOURCE, TO_LINE, answer
from kernbench.replay.query import FOCUS_LEVELS
from kernbench.replay.text import time_text
from kernbench.trace import Trace
from tui.panes.base import Click, Do, Enter, Pan, Scroll
from tui.panes.source import SourcePane

LARGE = place_of("source", 200, 50)
"""Its own place at 200x50."""

PE = FOCUS_LEVELS.index("pe")
MACHINE = FOCUS_LEVELS.index("machine")


def source_pane(
    op: int = 40, width: int = 80, height: int = 12, trace: str = "matmul"
) -> PaneBench:
    """The pane on a trace at an op."""
    return PaneBench(SourcePane, trace, op, width, height)


def source_at(bench: PaneBench) -> Source:
    """The kernel line of the op under the cursor."""
    found = answer(bench.index, SOURCE.ask(bench.frame.cursor))
    assert isinstance(found, Source)
    return found


def line_of_op(bench: PaneBench) -> str:
    """The one that is marked as the op's own."""
    (line,) = [line for line in bench.lines if line.startswith(">")]
    return line


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
    bench = source_pane(16, region.width, region.height)
    assert filled(bench.lines, region) == shown(f"source-{size}-before", region)


@pytest.mark.parametrize(
    ("size", "region"),
    [("80x24", SMALL), ("120x40", MIDDLE), ("200x50", LARGE)],
)
def test_it_shows_what_it_showed_after_moves(size: str, region: Region) -> None:
    bench = source_pane(16, region.width, region.height)
    bench.goto(151)
    bench.refocus(PE)
    bench.goto(143)
    assert filled(bench.lines, region) == shown(f"source-{size}-after", region)


# -- the text and its times -----------------------------------------------------------


def test_the_line_of_the_op_is_marked_and_in_view() -> None:
    bench = source_pane(width=150)
    here = source_at(bench)
    line = line_of_op(bench)
    assert line.split()[1] == str(here.line)
    assert here.text[here.line - 1].strip() in line


def test_lines_say_what_share_of_the_time_of_this_pe_they_took() -> None:
    bench = source_pane(width=120, height=200)
    bench.refocus(PE)
    pe = component_of(bench.index, bench.frame.cursor).rpartition(".")[0]
    times = answer(bench.index, LINES.ask(pe=pe))
    here = [row for row in times.rows if row.site.startswith(source_at(bench).file)]
    assert here
    for row in here:
        assert f" {row.share:>6.1%} {time_text(row.time):>9} " in bench.text


def test_stalls_are_the_share_of_a_line_in_which_nothing_was_served() -> None:
    bench = source_pane(3, 120, 200, "fault_ring_by_name")
    times = session_on(bench).lines("sip0.cube0.pe0")
    row = max(times.rows, key=lambda row: row.kinds.get("arrival", 0.0))
    number = row.site.rpartition(":")[2]
    (line,) = [line for line in bench.lines if line[1:6].strip() == number]
    assert " 100% arrival " in line


def test_stalls_have_a_column_only_where_there_are_some() -> None:
    assert "stalls" in source_pane(3, trace="fault_ring_by_name").lines[0]
    bench = source_pane()
    here = source_at(bench)
    assert "stalls" not in bench.lines[0]
    assert line_of_op(bench).index(here.text[here.line - 1].strip()[:8]) <= 30


def test_a_line_that_is_cut_says_so_and_the_head_how_to_pan() -> None:
    bench = source_pane()
    assert line_of_op(bench).endswith("…")
    assert "h l pan" in bench.lines[0]
    bench.resize(200, 12)
    assert "…" not in line_of_op(bench)
    assert "h l pan" not in bench.lines[0]


def test_panning_moves_the_text_by_eight_columns_and_back() -> None:
    bench = source_pane(width=120)
    here = source_at(bench)
    text = here.text[here.line - 1]
    before = line_of_op(bench)
    assert bench.send(Pan(1))
    assert f" …{text[9:20]}" in line_of_op(bench)
    assert bench.send(Pan(-1))
    assert bench.send(Pan(-1))
    assert line_of_op(bench) == before


def test_a_move_shows_the_text_from_its_left_edge_again() -> None:
    bench = source_pane()
    before = line_of_op(bench)
    bench.send(Pan(2))
    bench.goto(41)
    bench.goto(40)
    assert line_of_op(bench) == before


def test_lines_whose_ops_are_in_service_are_marked() -> None:
    bench = source_pane(239, 80, 200, "ccl_allreduce")
    ops = bench.index.ops
    lines = {answer(bench.index, SOURCE.ask(op)).line for op in ops.in_flight(239)}
    marked = {int(line[1:6]) for line in bench.lines[1:] if line[0] in "*>"}
    assert marked == lines
    assert len(lines) > 1


def test_a_wider_focus_has_the_times_of_more_pes() -> None:
    bench = source_pane(width=120, height=200)
    before = bench.lines
    bench.refocus(MACHINE)
    assert bench.lines != before
    assert "all PEs" in bench.lines[0]


def test_without_its_text_it_says_so_and_lists_the_lines_that_took_time() -> None:
    bench = source_pane()
    here = source_at(bench)
    bare = Source(here.op, here.file, here.line, here.function, ())
    bench.answers.asked[SOURCE.ask(40)] = bare
    bench.goto(40)
    assert bench.lines[0] == f" {here.file}: its text is not in this trace"
    assert f" {here.line} " in line_of_op(bench)


def test_while_the_times_are_computed_the_text_is_there() -> None:
    bench = source_pane()
    bench.answers.held.add(LINES.name)
    bench.goto(41)
    assert bench.lines[0].startswith(" computing lines: 50%")
    assert len(bench.lines) == 12
    line_of_op(bench)


def test_of_a_long_trace_the_times_are_computed_at_rest(monkeypatch) -> None:
    """Those of one PE would keep every step waiting that leads to another."""
    monkeypatch.setattr("tui.panes.source.QUICK_OPS", 1)
    bench = source_pane()
    asked = bench.answers.asked
    assert LINES.name not in {query.command for query in asked}
    assert bench.lines[0] == " line times are computed when no key is pressed"
    line_of_op(bench)
    bench.rest()
    monkeypatch.undo()
    assert bench.lines == source_pane().lines


def test_once_all_times_are_known_those_of_a_pe_are_there_soon(monkeypatch) -> None:
    monkeypatch.setattr("tui.panes.source.QUICK_OPS", 1)
    bench = source_pane()
    bench.answers.of(LINES.ask())
    bench.refocus(PE)
    monkeypatch.undo()
    other = source_pane()
    other.refocus(PE)
    assert "%" in line_of_op(bench)
    assert bench.lines == other.lines


# -- picking lines --------------------------------------------------------------------


def test_enter_goes_to_an_op_of_the_picked_line() -> None:
    bench = source_pane(300, trace="mlp_tp")
    here = source_at(bench)
    wanted = next(i for i, text in enumerate(here.text, 1) if "out_ptr=y" in text)
    assert wanted != here.line
    bench.send(Scroll(wanted - here.line))
    bench.send(Enter())
    assert bench.effects == (Do(TO_LINE(n=wanted)),)


def test_enter_follows_the_cursor_until_a_line_is_picked() -> None:
    bench = source_pane()
    line = source_at(bench).line
    bench.send(Enter())
    assert bench.effects == (Do(TO_LINE(n=line)),)
    bench.send(Scroll(1))
    bench.send(Enter())
    assert bench.effects == (Do(TO_LINE(n=line + 1)),)


def test_a_click_on_a_line_goes_to_an_op_of_it() -> None:
    bench = source_pane()
    number = int(bench.lines[3][1:6])
    bench.send(Click(30, 3))
    assert bench.effects == (Do(TO_LINE(n=number)),)


def test_a_click_on_the_head_or_below_the_text_goes_nowhere() -> None:
    bench = source_pane(height=200)
    for y in (0, 199):
        bench.send(Click(5, y))
        assert bench.effects == ()


def test_before_the_first_op_a_key_is_named() -> None:
    bench = source_pane(-1)
    assert bench.lines == [" before the first op: s steps to it"]
    bench.send(Enter())
    assert bench.effects == ()


# -- to the next op of a line ---------------------------------------------------------


@pytest.fixture
def session() -> ReplaySession:
    """The matmul at op 40."""
    session = ReplaySession(Trace.open(TRACES / "matmul.msgpack"))
    session.goto(40)
    return session


def test_a_line_is_gone_to_by_its_next_op_on_this_pe(session: ReplaySession) -> None:
    line = session.source().line
    pe = session.index.ops.focus(40, PE)
    assert session.step_to_line(line) > 40
    assert session.source().line == line
    assert session.index.ops.focus(session.cursor, PE) == pe


def test_the_next_op_of_a_line_is_the_first_of_it_after_the_last(
    session: ReplaySession,
) -> None:
    line = session.source().line
    ops = session.index.ops
    mine = ops.group(40, PE)
    sites = ops.sites(mine)
    of_line = mine[sites == sites[mine == 40]]
    session.goto(int(of_line[-1]))
    assert session.step_to_line(line) == of_line[0]


def test_a_line_of_no_op_is_refused(session: ReplaySession) -> None:
    with pytest.raises(UsageError, match="line 9999: no op of this PE comes from it"):
        session.step_to_line(9999)


def test_what_another_pe_has_sent_shows_the_line_and_the_times_of_the_sender() -> None:
    """A copy into a ring is served by the receiver's DMA, and is the sender's call."""
    bench = source_pane(64, trace="ccl_allreduce")
    bench.refocus(PE)
    record = bench.index.trace.ops[64]
    assert record.op_name == "ipcq_copy"
    assert record.component_id == "sip0.cube1.pe0.pe_dma"
    call = bench.index.ops.call(64)
    assert call.call == "send"
    sender = call.pe.removesuffix(".pe_cpu")
    assert sender != "sip0.cube1.pe0"
    assert sender in bench.lines[0]
    times = answer(bench.index, LINES.ask(pe=sender))
    site = f"{call.site.file}:{call.site.line}"
    (row,) = [row for row in times.rows if row.site == site]
    assert time_text(row.time) in line_of_op(bench)


def test_of_an_op_of_no_recorded_call_it_says_so_and_marks_no_line() -> None:
    bench = source_pane()
    unknown = Source(40, NOT_RECORDED, 0, NOT_RECORDED, ())
    bench.answers.asked[SOURCE.ask(40)] = unknown
    bench.goto(40)
    assert bench.lines[0] == " its call was not recorded"
    assert not any(line.startswith(">") for line in bench.lines)
