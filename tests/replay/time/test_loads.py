"""Bytes, busy share and queue of every link over a window, and what is busiest."""

from collections import Counter
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from replay_logs import Log, double, load, store

from kernbench.common.messages import NO_CMD
from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.plain import as_data
from kernbench.replay.text import as_text
from kernbench.trace import Trace, TraceWriter

BENCHES = ("matmul", "moe_route", "mlp_tp")
PATH = (
    "sip0.cube0.pe0.pe_dma",
    "sip0.cube0.r0c1",
    "sip0.cube0.hbm_ctrl.pe0",
)  # 256 bytes a ns


@pytest.fixture(scope="module", params=BENCHES)
def session(request, benches):
    return benches(request.param)


@pytest.fixture
def carried(tmp_path, one_cube):
    """carried(transfers): the session of a trace of only these, up to 1000 ns."""

    def carried(*transfers):
        writer = TraceWriter(tmp_path / "trace")
        writer.begin({}, one_cube)
        for transfer in transfers:
            writer.transfer(NO_CMD, transfer)
        writer.end(1000.0)
        return ReplaySession(Trace.open(tmp_path / "trace"))

    return carried


def by_ends(load):
    return {(link.src, link.dst): link for link in load.links}


def bytes_by_ends(load):
    return {(link.src, link.dst): link.nbytes for link in load.links}


def test_over_the_whole_run_the_bytes_are_those_of_every_transaction(session):
    trace = session.trace
    wanted = Counter()
    for row in (-1, *range(len(session))):
        for path, _, nbytes, *_ in trace.transfers_of(row):
            wanted.update(dict.fromkeys(pairwise(path), nbytes))
    found = bytes_by_ends(session.link_load(0.0, trace.end_ns))
    assert found == pytest.approx(wanted, rel=1e-9)


def test_no_link_is_busy_for_more_than_all_of_the_time(session):
    whole = session.link_load(0.0, session.trace.end_ns)
    speed = session.trace.edges.bandwidth_gbs
    for link in whole.links:
        assert 0 < link.busy <= 1
        assert link.nbytes / speed[link.edge] <= session.trace.end_ns + 1e-6


def test_windows_that_cover_the_run_have_all_of_its_bytes(session):
    end = session.trace.end_ns
    parts = Counter()
    for t0, t1 in pairwise(np.linspace(0.0, end, 8).tolist()):
        parts.update(bytes_by_ends(session.link_load(t0, t1)))
    whole = bytes_by_ends(session.link_load(0.0, end))
    assert parts == pytest.approx(whole, rel=1e-9)


def test_the_busiest_links_come_first_and_the_default_window_is_that_of_the_launches(
    session,
):
    load = session.link_load()
    assert (load.t0, load.t1) == session.launch_window()
    busy = [link.busy for link in load.links]
    assert busy == sorted(busy, reverse=True)


def test_a_burst_is_on_each_link_from_its_start_for_its_bytes(carried):
    session = carried((PATH, 10.0, 2560, 1, [10.0, 14.0]))
    half = by_ends(session.link_load(0.0, 15.0))
    first = half[PATH[:2]]
    second = half[PATH[1:]]
    assert (first.nbytes, second.nbytes) == pytest.approx((1280, 256))
    assert first.busy == pytest.approx(5 / 15)


def test_the_bursts_between_the_first_and_the_last_are_spread_evenly(carried):
    session = carried((PATH, 0.0, 4 * 4096, 4, [0.0, 2.0, 100.0, 102.0]))
    found = []
    for t0, t1 in ((0.0, 16.0), (16.0, 58.0), (0.0, 116.0)):
        found.append(bytes_by_ends(session.link_load(t0, t1))[PATH[:2]])
    assert found == pytest.approx([4096, 4096, 4 * 4096])


def test_the_queue_is_of_the_headers_that_had_come_and_not_started(carried):
    late = [(PATH, 0.0, 2560, 1, [10.0 * n, 10.0 * n + 4]) for n in range(4)]
    session = carried(*late)
    queues = []
    for begin in (0.0, 15.0, 31.0):
        queues.append(by_ends(session.link_load(begin, 40.0))[PATH[:2]].queue)
    assert queues == [3, 2, 0]


def test_a_transaction_whose_first_and_last_burst_wait_is_one_in_the_queue(carried):
    session = carried((PATH, 0.0, 8192, 2, [0.0, 50.0, 16.0, 66.0]))
    assert by_ends(session.link_load(0.0, 100.0))[PATH[1:]].queue == 1


def test_what_a_memory_has_yet_to_read_waits_for_no_link(carried):
    session = carried((PATH[::-1], 0.0, 256, 1, [30.0, 33.0]))
    assert by_ends(session.link_load(0.0, 100.0))[PATH[:0:-1]].queue == 0


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4096), min_size=1, max_size=8),
    gaps=st.lists(st.floats(0, 50), min_size=8, max_size=8),
    window=st.tuples(st.floats(0, 200), st.floats(1, 200)),
)
def test_any_window_has_what_the_wire_carried_in_it(
    tmp_path_factory, one_cube, sizes, gaps, window
):
    path = tmp_path_factory.mktemp("wire") / "trace"
    now = 0.0
    spans = []
    writer = TraceWriter(path)
    writer.begin({}, one_cube)
    for nbytes, gap in zip(sizes, gaps, strict=False):
        writer.transfer(NO_CMD, (PATH[:2], now, nbytes, 1, [now + gap]))
        spans.append((now + gap, now + gap + nbytes / 256))
        now = spans[-1][1]
    writer.end(now)
    t0 = window[0]
    t1 = sum(window)
    wanted = sum(max(min(b, t1) - max(a, t0), 0.0) for a, b in spans) * 256
    found = bytes_by_ends(ReplaySession(Trace.open(path)).link_load(t0, t1))
    assert found.get(PATH[:2], 0.0) == pytest.approx(wanted, abs=1e-3)


def test_a_window_that_goes_on_after_the_run_has_what_the_run_has(session):
    end = session.trace.end_ns
    found = []
    for beyond in (end, 1e4 * end):
        links = session.link_load(0.0, beyond).links
        found.append({(link.edge, round(link.nbytes), link.queue) for link in links})
    assert found[0] == found[1]
    assert session.link_load(10 * end, 20 * end).links == ()


def test_what_two_ops_do_at_once_is_busy_once(tmp_path, one_cube):
    log = Log(tmp_path / "trace", one_cube)
    log.op(load(0, 0), 0.0, 40.0)
    log.op(load(0, 64), 20.0, 60.0)
    log.op(double(0, 128), 60.0, 70.0, engine="pe_math")
    log.op(store(128, 64), 80.0, 100.0)
    found = {node: busy for busy, node in log.session().busiest().components}
    assert found == pytest.approx(
        {"sip0.cube0.pe0.pe_dma": 0.8, "sip0.cube0.pe0.pe_math": 0.1}
    )


def test_the_busiest_are_components_and_links_over_the_launches(session):
    answer = session.run_line("busiest 3")
    shares = [busy for busy, _ in answer.components]
    assert shares == sorted(shares, reverse=True)
    assert (len(answer.components), len(answer.links)) == (3, 3)
    assert answer.links == session.link_load().links[:3]


def test_commands_take_a_window_and_print(session):
    t0, t1 = session.launch_window()
    answer = session.run_line(f"links {t0} {(t0 + t1) / 2}ns")
    assert answer.t1 == pytest.approx((t0 + t1) / 2)
    assert len(as_text(answer).splitlines()) <= 43
    assert as_data(answer)["links"][0]["busy"] == answer.links[0].busy


def test_a_window_that_ends_before_it_starts_is_refused(session):
    with pytest.raises(
        UsageError, match="from 20 to 10 ns: the end must lie after the start"
    ):
        session.link_load(20.0, 10.0)


def test_a_trace_of_nothing_has_no_links_and_nothing_busy(carried):
    session = carried()
    assert session.link_load().links == session.busiest().components == ()


KILLED = "the run was killed, or still goes on: this is what its trace has"


@pytest.mark.parametrize("question", ["links", "busiest", "activity"])
def test_a_recording_that_was_cut_off_is_said_to_be_a_part(
    tmp_path, one_cube, carried, question
):
    assert KILLED not in as_text(carried().run_line(question))
    log = Log(tmp_path / "killed", one_cube)
    log.op(load(0, 0), 0.0, 40.0)
    assert as_text(log.session().run_line(question)).endswith(KILLED)
