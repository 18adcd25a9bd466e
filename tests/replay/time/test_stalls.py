"""A PE's ledger against one made here call by call; lines; one call on all PEs."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from bench_sizes import UNEVEN
from hypothesis import given, settings
from ipcq_runs import machine, talk
from replay_logs import PE0, Log, double, load, store

from kernbench.common.messages import NO_CMD, WAIT_REASONS
from kernbench.common.progress import Cancelled
from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.commands import run_command
from kernbench.replay.text import as_text
from kernbench.replay.time.stalls import KINDS, STRAGGLER, StallIndex
from kernbench.runtime_api import run_bench
from kernbench.sim_engine.event_log import Site
from kernbench.trace import Trace, TraceWriter

BENCHES = {**UNEVEN, "ccl_allreduce": {}, "mlp_tp": {}}
FEW = {"flash_attention": {"pes": 4}, "pointer_chase": {"pes": 4}}  # quick ones of them
SMALL = {"matmul", "softmax", "moe_route", "mlp_tp"}
KIND = {
    **dict.fromkeys(["gemm", "math"], "compute"),
    **dict.fromkeys(["dma_read", "ipcq_recv", "DMA_READ", "FETCH"], "load"),
    **dict.fromkeys(["dma_write", "ipcq_copy", "DMA_WRITE", "STORE"], "store"),
}


def kind_of(record):
    name = record.op_name.removeprefix("TileToken/")
    if name.startswith("composite_"):
        return None
    return KIND.get(name) or KIND.get(name.lower()) or KIND.get(record.op_kind)


def expected(session, pe, t0, t1):
    """Kind -> ns, one call and one piece at a time."""
    trace, time = session.trace, dict.fromkeys(KINDS, 0.0)
    issue, setup = (
        1 / trace.spec["pe"]["clock_ghz"],
        trace.spec["pe"]["dma"]["setup_ns"],
    )
    states = {}
    for row, cmd in enumerate(trace.op_columns.cmd.tolist()):
        record = trace.ops[int(trace.position[row])]
        early = setup if record.op_name == "ipcq_copy" else 0.0
        found = states.setdefault(cmd, [])
        found.append((kind_of(record), record.t_start - early, record.t_end))
        found += [(reason, *times) for _, reason, *times, _ in trace.waits_of(row)]
    for cmd in trace.commands.cmd.tolist():
        call = trace.command(cmd)
        awaited = states.get(cmd if call.awaits == NO_CMD else call.awaits, [])
        awaited = [*awaited, ("issue", call.t_issue, call.t_issue + issue)]
        low, high = max(call.t_issue, t0), min(call.t_resume, t1)
        if call.launch < 0 or call.pe != f"{pe}.pe_cpu" or low >= high:
            continue
        cuts = sorted(
            {low, high, *(t for s in awaited for t in s[1:] if low < t < high)}
        )
        for a, b in pairwise(cuts):
            holds = {kind for kind, start, end in awaited if start <= a and end >= b}
            first = next((kind for kind in KINDS if kind in holds), "unexplained")
            time[first] += max(b - a, 0.0)
    time["idle"] = t1 - t0 - sum(time.values())
    return time


@pytest.fixture(scope="module")
def benches(tmp_path_factory):
    opened = {}

    def bench(name):
        if name not in opened:
            path = tmp_path_factory.mktemp("bench") / "trace"
            run_bench(name, params=BENCHES[name] | FEW.get(name, {}), trace=path)
            opened[name] = ReplaySession(Trace.open(path))
        return opened[name]

    return bench


@pytest.mark.parametrize("name", BENCHES)
def test_the_ledger_sums_to_the_time_of_every_pe_and_explains_it(benches, name):
    ledger = benches(name).stalls()
    np.testing.assert_allclose(
        ledger.time.sum(axis=1), ledger.t1 - ledger.t0, rtol=1e-6
    )
    assert sum(ledger.total.values()) == pytest.approx(
        len(ledger.pes) * (ledger.t1 - ledger.t0)
    )
    assert ledger.total["unexplained"] <= 1e-6 * sum(ledger.total.values())


@pytest.mark.parametrize("name", sorted(SMALL))
def test_it_is_what_a_walk_over_the_calls_finds(benches, name):
    session = benches(name)
    everyone = session.stalls().pes
    for pe in (everyone[0], everyone[-1]):
        whole = session.stalls(pe)
        inside = whole.t0 + (whole.t1 - whole.t0) * np.array([0.2, 0.7])
        for t0, t1 in ((whole.t0, whole.t1), inside.tolist()):
            wanted = expected(session, pe, t0, t1)
            assert session.stalls(pe, t0, t1).total == pytest.approx(wanted, abs=1e-6)


STEPS = st.sampled_from(["send", "sendw", "load", "store", "add", "dot", "wait"])


def kernel(steps, n):
    def program(rank, mine, out, tl):
        handles = [tl.load(mine, (n,), "f32")]
        for i, step in enumerate(steps):
            handle = handles[7 * i % len(handles)]
            if step in ("send", "sendw") and rank == 0:
                tl.send("E", handle, wait=step == "sendw")
            elif step == "send":
                handles.append(tl.recv_async("W", (n,), "f32"))
            elif step == "sendw":
                handles.append(tl.recv("W", (n,), "f32"))
            elif step == "load":
                handles.append(tl.load(mine, (n,), "f32", wait=False))
            elif step == "dot":
                tile = tl.zeros((16, 16), "f16")
                tl.composite(a=tile, b=tile, out_ptr=out, out_dtype="f32")
            else:
                tl.wait(handle)
            if step == "store":
                tl.store(out, handle, wait=False)
            if step == "add":
                handles.append(tl.add(handle, 1.0))
        for handle in handles:
            tl.wait(handle)

    return program


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(STEPS, max_size=12), n=st.sampled_from([256, 1024, 3000]))
def test_random_kernels_leave_nothing_unexplained(
    layout_cache, tmp_path_factory, steps, n
):
    path, graph = tmp_path_factory.mktemp("talk") / "trace", machine(layout_cache)
    writer = TraceWriter(path)
    writer.begin({}, graph)
    talk(graph, kernel(steps, n), n, recorder=writer)
    writer.close()
    session = ReplaySession(Trace.open(path))
    for pe in ("sip0.cube0.pe0", "sip0.cube1.pe0"):
        ledger = session.stalls(pe)
        assert sum(ledger.total.values()) == pytest.approx(
            ledger.t1 - ledger.t0, rel=1e-6
        )
        assert ledger.total["unexplained"] == pytest.approx(0.0, abs=1e-6)
        wanted = expected(session, pe, ledger.t0, ledger.t1)
        assert ledger.total == pytest.approx(wanted, abs=1e-6)


def test_a_wait_shows_where_no_op_of_the_call_is_in_service(benches):
    total = benches("ccl_allreduce").stalls().total
    assert total["arrival"] > total["load"] > 0
    assert set(WAIT_REASONS) < set(total)


def test_loads_say_what_they_waited_for_meanwhile(benches):
    ledger = benches("matmul").stalls()
    assert 0 < ledger.meanwhile["load"]["hbm_channel"] < ledger.total["load"]
    assert any(
        line.startswith("  hbm_channel") for line in as_text(ledger).splitlines()
    )


@pytest.fixture
def by_hand(tmp_path, small):
    """A load of 10 ns, a math op of 10 that ends 30 after its issue, then a store."""
    log = Log(tmp_path / "trace", small)
    log.op(load(0, 0), 100, 110)
    log.op(double(0, 64), 130, 140, engine="pe_math", t_issue=110)
    log.op(store(64, 64), 136, 150, t_issue=140)
    return log.session()


def test_what_no_op_and_no_wait_explains_is_shown(by_hand):
    ledger = by_hand.stalls(PE0, 90, 200)
    seen = {kind: ns for kind, ns in ledger.total.items() if ns}
    assert seen == pytest.approx(
        {
            "load": 10,
            "compute": 10,
            "store": 10,
            "issue": 1,
            "unexplained": 19,
            "idle": 60,
        }
    )
    assert "unexplained        19.00ns" in as_text(ledger)


def test_calls_that_overlap_are_not_counted_twice(tmp_path, small):
    log = Log(tmp_path / "trace", small)
    log.op(load(0, 0), 100, 200)
    log.op(load(64, 64), 150, 180)
    ledger = log.session().stalls(PE0, 100, 200)
    assert sum(ledger.total.values()) == pytest.approx(100)
    assert ledger.total["load"] == pytest.approx(80)


def test_engines_are_busy_while_they_serve_at_least_one_op(by_hand):
    assert by_hand.stalls(PE0, 100, 200).engines == pytest.approx(
        {"pe_dma": 0.24, "pe_math": 0.1}
    )


def test_a_cube_stands_for_its_pes_and_a_wrong_name_is_refused(benches):
    session = benches("matmul")
    assert len(session.stalls("sip0.cube1").pes) == 8
    assert len(session.stalls("all").pes) == len(session.stalls().pes)
    with pytest.raises(
        UsageError, match=r"no PE 'sip0.cub': .*as in sip0.cube0.pe0, sip0"
    ):
        session.stalls("sip0.cub")
    with pytest.raises(UsageError, match="the end must lie after the start"):
        session.stalls("sip0.cube1", 5.0, 5.0)


def test_a_pe_that_ran_nothing_is_idle(benches):
    total = benches("ccl_allreduce").stalls("sip0.cube0.pe7").total
    assert {kind for kind, ns in total.items() if ns} == {"idle"}


def test_it_can_be_cancelled_between_two_pes(benches):
    def stop(done):
        raise Cancelled("enough")

    for ask in (benches("matmul").stalls, benches("matmul").lines):
        with pytest.raises(Cancelled):
            ask(progress=stop)


def test_a_trace_without_kernels_has_an_empty_ledger(tmp_path, small):
    session = Log(tmp_path / "trace", small).session()
    assert session.stalls(None, 0, 10).pes == ()
    assert as_text(session.lines()) == "no kernel has run"


# -- lines --


def test_lines_share_out_the_time_in_calls(benches):
    session = benches("mlp_tp")
    rows, ledger = session.lines().rows, session.stalls()
    for kind in set(KINDS) - {"idle"}:
        assert sum(r.kinds.get(kind, 0.0) for r in rows) == pytest.approx(
            ledger.total[kind]
        )
    assert [r.time for r in rows] == sorted((r.time for r in rows), reverse=True)
    assert sum(r.share for r in rows) == pytest.approx(1.0)
    assert any(r.text.startswith("tl.wait(tl.composite(") for r in rows)


def test_lines_of_one_pe_count_its_calls(benches):
    session = benches("softmax")
    pe = session.stalls().pes[0]
    calls = session.trace.commands
    mine = calls.pe == session.trace.node_index[f"{pe}.pe_cpu"]
    took = mine & (calls.t_resume > calls.t_issue)
    assert sum(row.calls for row in session.lines(pe).rows) == took.sum()


# -- one call on all PEs --


def test_a_call_is_found_on_every_pe_in_the_same_place_of_its_program(benches):
    session = benches("flash_attention")
    calls = session.trace.commands
    cpu = session.trace.node_index["sip0.cube0.pe2.pe_cpu"]
    dots = np.flatnonzero(
        (calls.pe == cpu) & (calls.line == calls.line[calls.pe == cpu][12])
    )
    dots = dots[calls.call[dots] == calls.call[dots[0]]]
    assert len(dots) > 1
    for nth, row in enumerate(dots):
        found = session.pes(int(calls.cmd[row]))
        for pe, t_issue in zip(found.pes, found.t_issue, strict=True):
            node = session.trace.node_index[f"{pe}.pe_cpu"]
            same = (calls.line == calls.line[row]) & (calls.call == calls.call[row])
            assert t_issue == np.sort(calls.t_issue[same & (calls.pe == node)])[nth]


def test_a_call_that_does_not_wait_lasts_until_its_ops_have_ended(benches):
    session = benches("matmul")
    whole = next(
        i for i, r in enumerate(session.trace.ops) if r.op_name == "composite_gemm"
    )
    session.goto(whole)
    found = session.pes()
    pe = session.op.component_id.removesuffix(".pe_scheduler")
    at = found.pes.index(pe)
    assert found.t_issue[at] + found.duration[at] == pytest.approx(session.op.t_end)
    assert found.minimum <= found.median <= found.maximum


def test_stragglers_are_named_and_stand_out_in_the_grid(tmp_path, shipped):
    writer, site = TraceWriter(tmp_path / "trace"), Site("kernel.py", 3, "kernel")
    writer.begin({}, shipped)
    for i, took in enumerate([10, 10, 11, 30, 12]):
        writer.command(
            i, f"sip0.cube{i}.pe1.pe_cpu", 0, "load", site, i, 100, 100 + took
        )
    writer.close()
    found = ReplaySession(Trace.open(tmp_path / "trace")).pes(2)
    assert found.duration.max() > STRAGGLER * found.median
    assert as_text(found).splitlines()[2:] == [
        "sip0 cube0   .0 .0 .0 .9",
        "sip0 cube4   .0 .. .. ..",
        "stragglers (over 1.2 x median): sip0.cube3.pe1",
    ]


def test_pes_of_what_is_no_call_of_a_kernel_is_refused(benches):
    with pytest.raises(UsageError, match="call 123456 is none of a kernel"):
        benches("matmul").pes(123456)


def test_the_command_takes_the_number_of_a_call(benches):
    session = benches("matmul")
    session.goto(len(session) // 2)
    cmd = session.details().cmd
    assert as_text(run_command(session, f"pes {cmd}")) == as_text(
        run_command(session, "pes")
    )


def test_a_cube_of_pes_that_ran_and_did_not_stands_for_those_that_ran(benches):
    assert benches("ccl_allreduce").stalls("sip0.cube0").pes == ("sip0.cube0.pe0",)


@pytest.mark.parametrize(
    "line", ["stalls", "stalls all", "lines", "pes", "lines sip0.cube0.pe0"]
)
def test_the_commands_fit_their_width(benches, line):
    session = benches("matmul")
    session.goto(len(session) // 2)
    assert max(map(len, as_text(run_command(session, line), 90).splitlines())) <= 90


@pytest.mark.parametrize("pe", [None, "sip0.cube0.pe1"])
def test_a_trace_too_long_to_be_sorted_by_call_has_the_same_answers(session, pe):
    by_pe = StallIndex(session.trace, session.op_index, sorted_up_to=-1)
    assert repr(by_pe.ledger(pe, None, None)) == repr(session.stalls(pe))
    assert repr(by_pe.lines(pe)) == repr(session.lines(pe))
