"""A PE's ledger against one made here call by call, and by kernel line."""

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
from kernbench.errors import KernbenchError, UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.text import as_text
from kernbench.replay.time import stalls
from kernbench.replay.time.pieces import KINDS, cut
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace, TraceWriter

BENCHES = [*UNEVEN, "ccl_allreduce", "mlp_tp"]
SMALL = ["matmul", "softmax", "moe_route", "mlp_tp"]
KIND_OF_NAME = {
    **dict.fromkeys(["dma_read", "ipcq_recv", "fetch"], "load"),
    **dict.fromkeys(["dma_write", "ipcq_copy", "store"], "store"),
}


def kind_of(record):
    """What an op in service counts as; None for a composite, whose tiles count."""
    name = record.op_name.removeprefix("TileToken/").lower()
    if name.startswith("composite_"):
        return None
    if name in KIND_OF_NAME:
        return KIND_OF_NAME[name]
    computes = record.op_kind in ("gemm", "math") or name in ("gemm", "math")
    return "compute" if computes else None


def states_by_cmd(session):
    """Of each cmd (what holds, from when, to when) of its ops and waits."""
    trace = session.trace
    setup_ns = trace.spec["pe"]["dma"]["setup_ns"]
    states = {}
    for row, cmd in enumerate(trace.op_columns.cmd.tolist()):
        record = trace.ops[int(trace.position[row])]
        start = record.t_start
        if record.op_name == "ipcq_copy":
            start -= setup_ns
        found = states.setdefault(cmd, [])
        found.append((kind_of(record), start, record.t_end))
        for _, reason, t0, t1, _ in trace.waits_of(row):
            found.append((reason, t0, t1))
    return states


def expected(session, pe, t0, t1):
    """Kind -> ns, one call and one piece at a time."""
    trace = session.trace
    issue_ns = 1 / trace.spec["pe"]["clock_ghz"]
    states = states_by_cmd(session)
    time = dict.fromkeys(KINDS, 0.0)
    for cmd in trace.commands.cmd.tolist():
        call = trace.command(cmd)
        low = max(call.t_issue, t0)
        high = min(call.t_resume, t1)
        if call.launch < 0 or call.pe != f"{pe}.pe_cpu" or low >= high:
            continue
        awaited = [*states.get(cmd if call.awaits == NO_CMD else call.awaits, [])]
        awaited.append(("issue", call.t_issue, call.t_issue + issue_ns))
        cuts = {low, high}
        for _, start, end in awaited:
            cuts.update(time for time in (start, end) if low < time < high)
        for a, b in pairwise(sorted(cuts)):
            holds = {kind for kind, start, end in awaited if start <= a and end >= b}
            first = next((kind for kind in KINDS if kind in holds), "unexplained")
            time[first] += max(b - a, 0.0)
    time["idle"] = t1 - t0 - sum(time.values())
    return time


# -- the ledger --


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


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
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


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(steps=st.lists(STEPS, max_size=12), n=st.sampled_from([256, 1024, 3000]))
def test_random_kernels_leave_nothing_unexplained(
    layout_cache, tmp_path_factory, steps, n
):
    path = tmp_path_factory.mktemp("talk") / "trace"
    graph = machine(layout_cache)
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    rows = session.lines().rows
    ledger = session.stalls()
    for kind in set(KINDS) - {"idle"}:
        in_lines = sum(row.kinds.get(kind, 0.0) for row in rows)
        assert in_lines == pytest.approx(ledger.total[kind])
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


def test_what_was_summed_of_a_pe_is_kept_if_the_others_were_cancelled(
    benches, monkeypatch
):
    trace = benches("softmax").trace
    whole = ReplaySession(trace).lines()
    pes = ReplaySession(trace).stalls().pes
    of_one = {pe: ReplaySession(trace).lines(pe) for pe in pes}
    cuts = []

    def counted(spans):
        cuts.append(len(cuts))
        return cut(spans)

    def stop(done):
        if len(cuts) == len(pes) // 2:
            raise Cancelled("a key was pressed")

    monkeypatch.setattr(stalls, "cut", counted)
    session = ReplaySession(trace)
    with pytest.raises(Cancelled):
        session.lines(progress=stop)
    assert session.lines() == whole
    assert {pe: session.lines(pe) for pe in pes} == of_one
    # Only that of the PE at which it was cancelled is made twice.
    assert len(cuts) <= len(pes) + 1


def test_a_cube_of_pes_that_ran_and_did_not_stands_for_those_that_ran(benches):
    assert benches("ccl_allreduce").stalls("sip0.cube0").pes == ("sip0.cube0.pe0",)


@pytest.mark.parametrize(
    "line", ["stalls", "stalls all", "lines", "pes", "lines sip0.cube0.pe0"]
)
def test_the_commands_fit_their_width(benches, line):
    session = benches("matmul")
    session.goto(len(session) // 2)
    assert max(map(len, as_text(session.run_line(line), 90).splitlines())) <= 90


STORES = """
from kernbench.benches import bench

def kernel(x, y, tl):
    some = tl.load(x)
    for i in range(4):
        tl.store(y[i * 64 : (i + 1) * 64], some, wait=False)
    tl.exp(some)

@bench(name="stores", description="")
def run(torch):
    x = torch.zeros((64,), "f32", name="x")
    torch.launch("kernel", kernel, x, torch.zeros((256,), "f32", name="y"))
"""


def test_the_end_of_a_kernel_is_no_call_of_its_last_line(tmp_path):
    file = tmp_path / "stores.py"
    file.write_text(STORES)
    path = tmp_path / "stores.msgpack"
    run_bench(str(file), trace=path)
    trace = Trace.open(path)
    log = trace.commands
    names = [trace.strings[name] for name in log.call[:].tolist()]
    is_exit = np.array([name == "exit" for name in names])
    assert is_exit.any()
    mine = (log.launch[:] >= 0) & ~is_exit
    by_line = {row.text: row for row in ReplaySession(trace).lines().rows}
    assert sum(row.calls for row in by_line.values()) == mine.sum()
    ended = (log.t_resume[:] - log.t_issue[:])[is_exit].sum()
    assert ended > 0
    row = by_line["tl.exp(some)"]
    its_calls = mine & (log.line[:] == int(row.site.rpartition(":")[2]))
    took = (log.t_resume[:] - log.t_issue[:])[its_calls].sum()
    assert row.time == pytest.approx(took + ended)


def test_columns_of_the_table_do_not_touch():
    kinds = ("issue", "unexplained", "hbm_channel")
    table = stalls.Ledger(
        t0=0.0,
        t1=3.0,
        pes=("sip0.cube0.pe0", "sip0.cube0.pe1"),
        kinds=kinds,
        time=np.ones((2, 3)),
        total=dict.fromkeys(kinds, 2.0),
        meanwhile={},
        engines={},
        errors=(),
    )
    assert list(kinds) in [line.split() for line in table.lines(100)]


RAISES = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy


def kernel(x, y, tl):
    rows, _ = tl.own(x)
    for row in rows:
        part = tl.load(x[row : row + 1, :])
        tl.store(y[row : row + 1, :], part * 2)
        if row == 20:
            raise ValueError("row 20")


@bench(name="raises", description="an error ends it while others store")
def run(torch):
    by_rows = DPPolicy(pe="row_wise", num_cubes=1)
    data = torch.rng.standard_normal((64, 64)).astype("f4")
    x = torch.tensor(data, dp=by_rows, name="x")
    y = torch.empty(x.shape, x.dtype, by_rows, name="y")
    torch.launch("raises", kernel, x, y)
"""


@pytest.mark.slow
def test_what_an_error_cut_short_counts_as_what_its_call_does(tmp_path):
    """Its ops are not recorded, and 28 % of a line's time was unexplained."""
    (tmp_path / "raises.py").write_text(RAISES)
    path = tmp_path / "raises.msgpack"
    with pytest.raises(KernbenchError, match="row 20"):
        run_bench(str(tmp_path / "raises.py"), trace=path)
    session = ReplaySession(Trace.open(path))
    assert session.info().error
    ledger = session.stalls()
    assert ledger.total["unexplained"] == pytest.approx(0.0, abs=1e-6)
    assert sum(ledger.total.values()) == pytest.approx(
        len(ledger.pes) * (ledger.t1 - ledger.t0)
    )
    store = ledger.kinds.index("store")
    # all PEs do the same until then
    np.testing.assert_allclose(ledger.time[:, store], ledger.time[0, store], rtol=1e-6)
