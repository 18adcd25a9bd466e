"""The routes of launches and credits, which belong to no op."""

from itertools import pairwise
from pathlib import Path

import pytest
from replay_logs import Log, load

from kernbench.common.progress import Cancelled
from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.plain import as_data
from kernbench.replay.text import as_text
from kernbench.trace import Trace
from kernbench.trace.cut import cut

TRACES = Path(__file__).parents[3] / "traces"


@pytest.fixture
def session():
    return ReplaySession(Trace.open(TRACES / "ccl_allreduce.msgpack"))


def opened(name):
    return ReplaySession(Trace.open(TRACES / f"{name}.msgpack"))


def paths(routes):
    """The nodes of each transaction, by the nodes where they begin and end."""
    return {
        (leg.hops[0].node, leg.hops[-1].node): [hop.node for hop in leg.hops]
        for leg in routes.legs
    }


def transactions_of_no_op(session, end):
    """(nodes, sent at, starts) of those that end at a node of this name."""
    return [
        (list(path), t0, starts)
        for path, t0, _, _, starts in session.trace.transfers_of(-1)
        if path[-1].endswith(end)
    ]


@pytest.mark.parametrize("launch", [0, 1])
def test_a_launch_goes_over_io_cpu_and_m_cpus_to_all_of_its_pes(session, launch):
    pes = next(row.pes for row in session.trace.launches if row.launch == launch)
    routes = session.run_line(f"route launch {launch}")
    found = paths(routes)
    sip = pes[0].partition(".")[0]
    io_cpu = f"{sip}.io0.io_cpu"
    cubes = {pe.rpartition(".pe")[0].rpartition(".pe")[0] for pe in pes}
    wanted = {(f"{sip}.io0.pcie_ep", io_cpu)}
    wanted |= {(io_cpu, f"{cube}.m_cpu") for cube in cubes}
    for pe in pes:
        cube = ".".join(pe.split(".")[:2])
        wanted.add((f"{cube}.m_cpu", pe))
    assert found.keys() == wanted
    assert [leg.t0 for leg in routes.legs] == sorted(leg.t0 for leg in routes.legs)


def test_a_launch_has_arrived_everywhere_before_its_kernels_begin(session):
    for launch in session.trace.launches:
        routes = session.launch_route(launch.launch)
        for leg in routes.legs:
            assert launch.t_issue <= leg.t0 < leg.hops[-1].arrive < launch.t_start
            assert leg.nbytes == 64


def test_the_launches_of_all_are_all_transactions_to_cpus():
    session = opened("mlp_tp")
    sent = sum(len(session.launch_route(launch).legs) for launch in range(4))
    assert sent == len(transactions_of_no_op(session, "_cpu"))
    for launch in session.trace.launches:
        routes = session.launch_route(launch.launch)
        ends = {leg.hops[-1].node for leg in routes.legs}
        assert ends >= set(launch.pes)
        assert routes.legs[0].t0 >= launch.t_issue
        assert routes.legs[-1].hops[-1].arrive <= launch.t_start


@pytest.mark.slow
def test_the_launch_of_an_op_is_that_of_its_kernel(session):
    for op in range(len(session)):
        session.goto(op)
        launch = session.details().launch
        if launch >= 0:
            found = session.run_line("route launch")
            assert found == session.launch_route(launch)


def test_credits_are_those_that_receives_sent_in_the_order_of_their_sending(session):
    sent = sorted(transactions_of_no_op(session, ".pe_ipcq"), key=lambda row: row[1])
    assert len(sent) == 62
    for number, (path, t0, starts) in enumerate(sent):
        (leg,) = session.run_line(f"route credit {number}").legs
        assert leg.t0 == t0
        assert [hop.leave for hop in leg.hops[:-1]] == starts
        assert [hop.node for hop in leg.hops] == path


def test_hops_of_a_credit_have_links_and_times_that_follow_each_other(session):
    (leg,) = session.credit_route(5).legs
    for here, there in pairwise(leg.hops):
        assert here.arrive + here.wait == pytest.approx(here.leave)
        assert here.leave <= there.arrive
        assert here.edge_kind
    assert leg.hops[-1].edge_kind == ""
    assert leg.hops[0].node.endswith("pe_ipcq")
    assert leg.nbytes == 16


def test_the_credits_of_an_op_are_those_of_its_receive(session):
    ops = session.trace.ops
    found = 0
    for op in range(len(ops)):
        if ops[op].op_name != "ipcq_recv":
            continue
        session.goto(op)
        for leg in session.run_line("route credit").legs:
            assert leg.hops[0].node == ops[op].component_id
            assert leg.t0 == ops[op].t_end
            found += 1
    assert found == 62


def test_launches_of_a_run_that_hung_are_there():
    session = opened("fault_ring_by_name")
    routes = session.launch_route(0)
    assert len(routes.legs) == 5


@pytest.mark.slow
def test_a_cut_has_the_launch_of_what_it_has(session, tmp_path):
    out = tmp_path / "part.msgpack"
    cut(session.trace.path, out, 3900.0, 5000.0, "sip1.*")
    part = ReplaySession(Trace.open(out))
    assert part.launch_route(1) == session.launch_route(1)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("route launch 9", "launch 9: no kernel of it was recorded; valid .* 0 to 1"),
        ("route credit 62", "credit 62: there is none; valid .*: 0 to 61"),
        ("route credit -1", "credit -1: there is none"),
        ("route launch", "op 0 belongs to no launch; valid .* 0 to 1"),
        ("route credit", "the call of op 0 sent no credit; valid .* 0 to 61"),
        ("route 5", "'5': must be launch or credit"),
        ("route launch x", "count 'x'"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(session, line, why):
    session.goto(0)
    with pytest.raises(UsageError, match=why):
        session.run_line(line)


def test_a_launch_of_a_trace_that_has_no_paths_has_no_way(tmp_path, one_cube):
    log = Log(tmp_path / "log", one_cube)
    log.op(load(0, 0), 10, 20)
    session = log.session()
    assert len(session.trace.paths) == 0
    assert session.run_line("route launch 0").legs == ()


def test_where_nothing_was_sent_nothing_is_valid():
    with pytest.raises(UsageError, match=r"credit 0: .*: none, since"):
        opened("matmul").credit_route(0)


def test_the_route_of_the_op_is_what_route_alone_says(session):
    session.goto(100)
    assert session.run_line("route") == session.route(100)


def test_text_shows_the_first_transactions_and_data_all(session):
    routes = session.launch_route(0)
    lines = as_text(routes, 100).splitlines()
    assert lines[0] == "launch 0, 33 transactions"
    assert lines[-1] == "(13 more)"
    assert sum("64 bytes in 1 burst from" in line for line in lines) == 20
    assert len(as_data(routes)["legs"]) == 33


def test_looking_for_a_route_can_be_cancelled(session):
    shares = []
    session.index.prepare()

    def progress(done):
        shares.append(done)
        if done > 0.5:
            raise Cancelled("enough")

    for line in ("route launch 0", "route credit 5"):
        session.run_line(line, shares.append)
        assert shares == sorted(shares)
        shares.clear()
    with pytest.raises(Cancelled):
        session.run_line("route launch 0", progress)
