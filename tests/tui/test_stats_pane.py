"""The Stats pane: five answers about time, as bars and rows that can be entered."""

from concurrent.futures import wait
from threading import Event

import pytest

from kernbench.replay.text import time_text
from tui.__main__ import open_session
from tui.app import KernbenchApp
from tui.keymap import Keymap
from tui.screens.help import help_lines
from tui.widgets import stats
from tui.widgets.draw import ASCII, UNICODE
from tui.widgets.stats import StatsPane


@pytest.fixture
def pane(session):
    session.goto(40)
    return StatsPane(session, UNICODE)


def shown(pane: StatsPane, view: str, width: int = 80, height: int = 200) -> list[str]:
    pane.view = pane.views.index(view)
    lines = pane.draw(width, height)
    assert len(lines) <= height
    return ["".join(text for text, _ in line)[:width].rstrip() for line in lines]


def test_stalls_are_the_ledger_of_this_pe_with_what_is_unexplained(session, pane):
    ledger = session.stalls(session.focus()[1])
    text = "\n".join(shown(pane, "stalls"))
    assert ledger.pes == ("sip0.cube0.pe4",)
    assert "sip0.cube0.pe4" in text
    assert "unexplained" in text
    for kind, ns in ledger.total.items():
        assert ns == 0 or f"{ns / (ledger.t1 - ledger.t0):.2%}" in text, kind


def test_a_wider_focus_has_the_ledger_of_more_pes(session, pane):
    session.widen(2)
    assert "8 PEs" in shown(pane, "stalls")[0]


def test_bars_are_as_long_as_their_shares(session, pane):
    rows = shown(pane, "busiest")
    rows = rows[1 : next(i for i, row in enumerate(rows) if "links" in row)]
    bars = [
        (float(line.partition("%")[0].split()[-1]), line.count(UNICODE.thick))
        for line in rows
    ]
    long = max(bars)
    assert long[1] > 5
    assert all(
        abs(n - share / long[0] * long[1]) <= 1 for share, n in bars if share > 0
    )


def test_the_critical_path_has_totals_lines_and_steps(session, pane):
    path = session.critical_path(500)
    text = "\n".join(shown(pane, "critical path", 160))
    whole = path.t1 - path.t0
    for name, ns in {**path.totals, **path.by_line}.items():
        assert f"{name} " in text
        assert f"{ns / whole:.1%} {time_text(ns):>9}"[:5] in text
    assert all(f"op {step.op:,} " in text for step in path.steps if step.op >= 0)


def test_enter_on_a_step_of_the_critical_path_goes_to_its_op(session, pane):
    lines = shown(pane, "critical path", 160)
    step = next(step for step in session.critical_path(500).steps if step.op >= 0)
    pane.pick = next(i for i, line in enumerate(lines) if f" op {step.op:,} " in line)
    assert shown(pane, "critical path", 160)[pane.pick].startswith(">")
    assert pane.enter() == f"goto {step.op}"
    pane.pick = 0
    shown(pane, "critical path")
    assert pane.enter() is None


def test_the_roofline_has_its_plot_and_the_share_of_every_pe(session, pane):
    lines, found = shown(pane, "roofline"), session.roofline()
    assert sum("|" in line for line in lines) == 10
    assert all(
        any(
            line.lstrip().startswith(roof.pe) and f"{roof.share:.1%}" in line
            for line in lines
        )
        for roof in (found.total, *found.pes)
    )


def test_busiest_has_components_and_links(session, pane):
    text, found = "\n".join(shown(pane, "busiest", 120)), session.busiest(20)
    assert all(node in text for _, node in found.components)
    assert all(f"{link.src} → {link.dst}" in text for link in found.links)


def test_pes_are_of_the_call_of_the_op(session, pane):
    calls = session.pes()
    text = "\n".join(shown(pane, "PEs", 120))
    assert f"{calls.call} at {calls.site} on {len(calls.pes)} PEs" in text
    assert f"median {time_text(calls.median)}" in text
    assert (
        f"0 is min {time_text(calls.minimum)}, 9 max {time_text(calls.maximum)}" in text
    )


def test_what_is_busy_is_not_cut(session, pane):
    text = " ".join(shown(pane, "stalls", 50))
    for engine, share in session.stalls(session.focus()[1]).engines.items():
        assert f"{engine}={share:.1%}" in text


def test_pes_with_ops_in_flight_are_marked(session, pane):
    session.widen(4)
    flying = {
        session.trace.node_ids[session.components[op]] for op in session.in_flight()
    }
    rows = [row for row in shown(pane, "stalls") if "sip0.cube0.pe" in row]
    assert len(rows) == 8
    for row in rows:
        there = any(id.startswith(f"{row.split()[0].lstrip('*')}.") for id in flying)
        assert row[0] == " *"[there]
    assert any(row[0] == "*" for row in rows)
    session.to_start()
    assert not any(row.startswith("*") for row in shown(pane, "stalls"))


@pytest.fixture
def hung(trace_path):
    """A run in which two PEs wait for each other."""
    return open_session(trace_path.with_name("fault_ring_by_name.msgpack"), None)


def test_a_call_that_never_ended_is_not_cut_and_leads_to_the_last_op_of_its_pe(hung):
    pane = StatsPane(hung, UNICODE)
    lines = shown(pane, "stalls")
    heads = [i for i, line in enumerate(lines) if "never ended: " in line]
    assert len(heads) == 2
    for i in heads:
        assert lines[i + 1].endswith("ring_by_name.py:26")
        pe = lines[i].split()[2].rpartition(".")[0]
        last = [
            op for op in range(len(hung)) if hung.row(op).component.startswith(f"{pe}.")
        ][-1]
        pane.pick = i
        shown(pane, "stalls")
        assert pane.enter() == f"goto {last}"


async def test_the_status_line_says_that_a_run_ended_with_an_error(
    hung, as_text_of
) -> None:
    app = KernbenchApp(hung, "fault_ring_by_name.msgpack", False)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("s")
        await pilot.pause()
        status = as_text_of(app).splitlines()[0]
        assert status.endswith(" run ended with DeadlockError")
        assert "  op 1/5  " in status


def test_help_says_what_diff_in_the_status_line_counts():
    text = ["".join(part for part, _ in line) for line in help_lines(Keymap())]
    assert any("!2 DIFF" in line and "wrong" in line for line in text)


def test_before_the_first_op_there_is_no_call(session, pane):
    session.to_start()
    assert "s steps" in shown(pane, "PEs")[0]
    assert "PEs" in shown(pane, "stalls")[0]  # of all


@pytest.mark.parametrize("view", StatsPane.views)
def test_ascii_has_all(session, view):
    session.goto(40)
    assert "".join(shown(StatsPane(session, ASCII), view)).isascii()


@pytest.mark.parametrize("view", StatsPane.views)
def test_what_takes_long_is_a_job_first(session, pane, view, monkeypatch):
    gate = Event()
    asked = ["stalls", "critical_path", "roofline", "busiest", "pes"]
    names = dict(zip(pane.views, asked, strict=True))
    ask = getattr(session, names[view])
    monkeypatch.setattr(stats, "QUICK", 0)
    monkeypatch.setattr(
        session, names[view], lambda *a, **k: gate.wait() and ask(*a, **k)
    )
    assert f"computing {view}" in shown(pane, view)[0]
    gate.set()
    wait([future for _, future in pane.jobs._asked.values()])
    assert "computing" not in shown(pane, view)[0]
    pane.jobs.close()


async def test_the_pane_follows_the_focus(session, drive, as_text_of) -> None:
    session.goto(40)
    async with drive(80, 24, "8", "u", "u") as pilot:
        assert "8 PEs, " in as_text_of(pilot.app)
        await pilot.press("d")
        await pilot.pause()
        assert "sip0.cube0.pe4, " in as_text_of(pilot.app)
