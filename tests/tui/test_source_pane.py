"""The Source pane: the kernel at the op's line, with time and stalls by line."""

from concurrent.futures import wait
from threading import Event

import numpy as np
import pytest

from kernbench.errors import UsageError
from kernbench.replay.answers import Source
from kernbench.replay.commands import run_command
from kernbench.replay.text import time_text
from tui.__main__ import open_session
from tui.widgets import source
from tui.widgets.draw import UNICODE
from tui.widgets.source import SourcePane


@pytest.fixture
def pane(session):
    session.goto(40)
    return SourcePane(session, UNICODE)


def shown(pane: SourcePane, width: int = 80, height: int = 12) -> list[str]:
    lines = pane.draw(width, height)
    assert len(lines) <= height
    return ["".join(text for text, _ in line)[:width] for line in lines]


def test_the_line_of_the_op_is_marked_and_in_view(session, pane):
    at = session.source()
    marked = [line for line in shown(pane, 150) if line.startswith(">")]
    assert len(marked) == 1
    assert marked[0].split()[1] == str(at.line)
    assert at.text[at.line - 1].strip() in marked[0]


def test_lines_say_what_share_of_the_time_of_this_pe_they_took(session, pane):
    text = "\n".join(shown(pane, 120, 200))
    rows = session.lines(session.focus()[1]).rows
    here = [row for row in rows if row.site.startswith(session.source().file)]
    assert here
    for row in here:
        assert f" {row.share:>6.1%} {time_text(row.time):>9} " in text


@pytest.fixture
def waiting(trace_path):
    """A session of which a line waits all of its time."""
    session = open_session(trace_path.with_name("fault_ring_by_name.msgpack"), None)
    session.goto(3)
    return session


def test_stalls_are_the_share_of_a_line_in_which_nothing_was_served(waiting):
    rows = waiting.lines(waiting.focus()[1]).rows
    row = max(rows, key=lambda row: row.kinds.get("arrival", 0.0))
    line = row.site.rpartition(":")[2]
    found = [
        t
        for t in shown(SourcePane(waiting, UNICODE), 120, 200)
        if t[1:6].strip() == line
    ]
    assert " 100% arrival " in found[0]


def test_stalls_have_a_column_only_where_there_are_some(session, pane, waiting):
    wide = shown(SourcePane(waiting, UNICODE))[0]
    assert "stalls" in wide
    narrow, *lines = shown(pane, 80)
    assert "stalls" not in narrow
    at = session.source()
    (here,) = (line for line in lines if line.startswith(">"))
    assert here.index(at.text[at.line - 1].strip()[:8]) <= 30


def test_a_line_that_is_cut_says_so_and_the_head_how_to_pan(session, pane):
    whole = session.source().text[session.source().line - 1]
    head, *lines = shown(pane, 80)
    (cut,) = (line for line in lines if line.startswith(">"))
    assert cut.rstrip().endswith("…")
    assert "h l pan" in head
    pane.seek = False
    pane.pan(1)
    (moved,) = (line for line in shown(pane, 80)[1:] if line.startswith(">"))
    assert f" …{whole[9:20]}" in moved
    (fits,) = (
        line for line in shown(SourcePane(session, UNICODE), 200)[1:] if line[0] == ">"
    )
    assert "…" not in fits
    assert "h l pan" not in shown(SourcePane(session, UNICODE), 200)[0]


def test_lines_whose_ops_are_in_flight_are_marked(trace_path):
    session = open_session(trace_path.with_name("ccl_allreduce.msgpack"), None)
    session.goto(239)
    lines = {session.source(op).line for op in session.in_flight()}
    pane = SourcePane(session, UNICODE)
    rows = shown(pane, 80, 200)[1:]
    assert {int(row[1:6]) for row in rows if row[0] in "*>"} == lines
    assert len(lines) > 1


def test_a_wider_focus_has_the_times_of_more_pes(session, pane):
    before = shown(pane, 120, 200)
    session.widen(4)
    assert shown(pane, 120, 200) != before
    assert "all PEs" in shown(pane)[0]


def test_a_line_is_gone_to_by_its_next_op_on_this_pe(session):
    session.goto(40)
    line, pe = session.source().line, session.focus()
    assert session.step_to_line(line) > 40
    assert (session.source().line, session.focus()) == (line, pe)


def test_a_line_of_no_op_is_refused(session):
    session.goto(40)
    with pytest.raises(UsageError, match="line 9999: no op of this PE comes from it"):
        session.step_to_line(9999)


def test_enter_goes_to_an_op_of_the_picked_line(trace_path):
    session = open_session(trace_path.with_name("mlp_tp.msgpack"), None)
    session.goto(300)
    here, pane = session.source(), SourcePane(session, UNICODE)
    pane.pick = next(i for i, text in enumerate(here.text) if "out_ptr=y" in text)
    shown(pane)
    line = pane.enter()
    assert line == f"to-line {pane.pick + 1}" != f"to-line {here.line}"
    assert run_command(session, line).op == session.cursor > 300
    assert session.source().line == pane.pick + 1


async def test_enter_follows_the_cursor_until_a_line_is_picked(session, drive) -> None:
    session.goto(40)
    line = session.source().line
    async with drive(80, 24, "7", "enter") as pilot:
        await pilot.app.workers.wait_for_complete()
        assert pilot.app.debugger.panes[7].enter() == f"to-line {line}"
        await pilot.press("j")
        assert pilot.app.debugger.panes[7].enter() == f"to-line {line + 1}"


def test_the_next_op_of_a_line_is_the_first_of_it_after_the_last(session):
    session.goto(40)
    line, sites = session.source().line, session.sites(np.arange(len(session)))
    mine = [op for op in session._group(1).tolist() if sites[op] == sites[40]]
    session.goto(mine[-1])
    assert session.step_to_line(line) == mine[0]


def test_without_its_text_the_pane_says_so_and_lists_the_lines_that_took_time(
    session, pane, monkeypatch
):
    at = session.source()
    monkeypatch.setattr(
        session, "source", lambda: Source(40, at.file, at.line, at.function, ())
    )
    lines = shown(pane)
    assert "its text is not in this trace" in lines[0]
    assert any(line.startswith(">") and f" {at.line} " in line for line in lines[1:])


def test_before_the_first_op_a_key_is_named(session, pane):
    session.to_start()
    assert "s steps" in "".join(shown(pane))
    assert pane.enter() is None


def test_times_that_take_long_are_a_job_while_the_text_is_there(
    session, pane, monkeypatch
):
    gate, lines = Event(), session.lines
    monkeypatch.setattr(source, "QUICK", 0)
    monkeypatch.setattr(session, "lines", lambda *args: gate.wait() and lines(*args))
    early = shown(pane)
    assert "computing line times" in early[0]
    assert any(line.startswith(">") for line in early)
    gate.set()
    wait([future for _, future in pane.jobs._asked.values()])
    assert "share" in shown(pane)[0]
    pane.jobs.close()
