"""What every component was busy with, against a count by hand of the rows of a trace.

The count knows nothing of curves or of paths in groups: it goes through all rows in
plain Python, makes a list of spans for every component, and sums up any window of them.
"""

import random
from collections import defaultdict
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from time import sleep

import numpy as np
import pytest
from replay_logs import Log, double, load

from kernbench.common.messages import NO_CMD
from kernbench.common.progress import Cancelled
from kernbench.common.resumable import Resumable
from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.index import Index
from kernbench.replay.plain import as_data
from kernbench.replay.text import as_text
from kernbench.replay.time import activity
from kernbench.replay.time.activity import ActivityIndex
from kernbench.replay.time.rows_in_window import RowsInWindow, rows_in_window
from kernbench.runtime_api import run_bench
from kernbench.topology import load_topology
from kernbench.trace import Trace, TraceWriter

TRACES = Path(__file__).parents[3] / "traces"
NAMES = ("matmul", "ccl_allreduce", "flash_attention", "fault_ring_by_name")
LARGE_TILES = {"m": 256, "k": 128, "n": 128, "tile": 128, "pes": 2}
"""A matmul that moves eight bursts at a time."""
NARROW_TILES = {"m": 96, "k": 96, "n": 96, "tile": 48, "pes": 2}
"""One that moves rows of which a whole number fills no burst."""
TILED = {"large tiles": LARGE_TILES, "narrow tiles": NARROW_TILES}
WINDOWS = 6
PATH = (
    "sip0.cube0.pe0.pe_dma",
    "sip0.cube0.r0c1",
    "sip0.cube0.hbm_ctrl.pe0",
)  # 256 bytes a ns


class Count:
    """By component all spans, and when something began there."""

    def __init__(self, trace):
        self.spec = trace.spec
        self.ids = trace.node_ids
        self.types = dict(zip(self.ids, trace.nodes.type, strict=True))
        overheads = trace.nodes.overhead_ns.tolist()
        self.overhead = dict(zip(self.ids, overheads, strict=True))
        self.links = {}
        for edge, (src, dst) in enumerate(
            zip(trace.edges.src.tolist(), trace.edges.dst.tolist(), strict=True)
        ):
            speed = float(trace.edges.bandwidth_gbs[edge])
            wire = float(trace.edges.distance_mm[edge])
            wire *= self.spec["system"]["ns_per_mm"]
            self.links[self.ids[src], self.ids[dst]] = speed, wire
        self.busy = defaultdict(list)
        self.waiting = defaultdict(list)
        self.bytes = defaultdict(list)
        self.begun = defaultdict(list)
        self.params = {}
        for row, op in zip(trace.order.tolist(), trace.ops, strict=True):
            self.params[row] = op.params
        for row in range(-1, len(trace.ops)):
            sizes = self.sizes(trace, row)
            for mine, transfer in zip(sizes, trace.transfers_of(row), strict=True):
                self.transaction(mine, *transfer)
            for node, reason, t0, t1, _ in trace.waits_of(row):
                self.waiting[node].append((t0, t1, 1.0))
                if reason in ("hbm_channel", "sram_port"):
                    self.busy[node].append((t0, t1, 1.0))
        for op in trace.ops:
            self.busy[op.component_id].append((op.t_start, op.t_end, 1.0))
            self.begun[op.component_id].append(op.t_start)
        self.calls(trace)

    def calls(self, trace):
        cycles = self.spec["pe"]["cpu"]["issue_cycles"]
        issue_ns = cycles / self.spec["pe"]["clock_ghz"]
        for cmd in sorted(set(trace.commands.cmd.tolist())):
            call = trace.command(cmd)
            if call.launch < 0:
                continue
            issued = min(call.t_issue + issue_ns, call.t_resume)
            self.busy[call.pe].append((call.t_issue, issued, 1.0))
            self.waiting[call.pe].append((issued, call.t_resume, 1.0))
            self.begun[call.pe].append(call.t_issue)

    def sizes(self, trace, row):
        """Of each transaction of an op the bytes of its bursts.

        Of a tile's rows a burst has as many whole ones as fit. Blocks are sent in the
        order in which the params of the op have them.
        """
        usual = self.spec["pe"]["dma"]["burst_bytes"]
        params = {"rows": (), "row_bytes": ()} | self.params.get(row, {})
        blocks = list(zip(params["rows"], params["row_bytes"], strict=True))
        found = []
        for _, _, nbytes, bursts, _ in trace.transfers_of(row):
            most = usual
            if bursts == 1:
                most = nbytes
            elif blocks:
                rows, row_bytes = blocks.pop(0)
                while rows * row_bytes != nbytes:
                    rows, row_bytes = blocks.pop(0)
                if rows > 1:
                    most = usual // row_bytes * row_bytes
            found.append([min(most, nbytes - at) for at in range(0, nbytes, most)])
        return found

    def transaction(self, sizes, path, sent, nbytes, bursts, starts):
        hops = len(path) - 1
        first = starts[:hops]
        last = starts[hops:] or first
        assert len(sizes) == bursts
        assert sum(sizes) == nbytes
        size = sizes[0]
        tail = sizes[-1]
        slowest = min(self.links[ends][0] for ends in pairwise(path))

        def carried(place, hop, later, forwards):
            """The bytes at a place, as those on a link of the path."""
            speed, _ = self.links[path[hop], path[hop + 1]]
            spans = [(first[hop], first[hop] + size / speed, 1.0, speed)]
            if bursts > 1:
                spans.append((last[hop], last[hop] + tail / speed, 1.0, speed))
            if bursts > 2:
                since = first[hop] + size / speed
                rate = sum(sizes[1:-1]) / (last[hop] - since)
                spans.append((since, last[hop], rate / speed, rate))
            for t0, t1, share, rate in spans:
                self.bytes[place].append((t0 + later, t1 + later, rate))
                if forwards:
                    self.busy[place].append((t0, t1, share))

        for hop, ends in enumerate(pairwise(path)):
            link = " -> ".join(ends)
            carried(link, hop, 0.0, True)
            self.begun[link].append(first[hop])
        speed, _ = self.links[path[0], path[1]]
        left = last[0] + tail / speed
        self.busy[path[0]].append((sent, left, 1.0))
        self.begun[path[0]].append(sent)
        carried(path[0], 0, 0.0, False)
        for hop in range(1, hops):
            node = path[hop]
            _, wire = self.links[path[hop - 1], node]
            for begin in {first[hop - 1], last[hop - 1]}:
                came = begin + wire
                self.busy[node].append((came, came + self.overhead[node], 1.0))
            carried(node, hop, 0.0, True)
            self.begun[node].append(first[hop])
        end = path[-1]
        _, wire = self.links[path[-2], end]
        access = 0.0
        if self.types[end] == "hbm_ctrl":
            hbm = self.spec["cube"]["hbm"]
            access = hbm["access_ns"]
            if hbm["model"] == "banked":
                access = hbm["controller_ns"] + hbm["cwl_ns"]
        if self.types[end] == "sram":
            access = self.spec["cube"]["sram"]["access_ns"]
        landed = last[-1] + wire + self.overhead[end] + access + tail / slowest
        self.busy[end].append((first[-1] + wire, landed, 1.0))
        self.begun[end].append(first[-1] + wire)
        carried(end, hops - 1, wire, False)

    def busy_share(self, place, t0, t1):
        """The share of [t0, t1) in which it is; a link carries one burst at a time."""
        if " -> " in place:
            taken = sum(
                max(min(b, t1) - max(a, t0), 0.0) * share
                for a, b, share in self.busy[place]
            )
            return min(taken / (t1 - t0), 1.0)
        return self.share(self.busy[place], t0, t1)

    def share(self, spans, t0, t1):
        """The share of [t0, t1) in which at least one span is, or parts that sum up."""
        inside = [(max(a, t0), min(b, t1), s) for a, b, s in spans if a < t1 and b > t0]
        cuts = sorted({t for a, b, _ in inside for t in (a, b)})
        begin = defaultdict(float)
        for a, b, share in inside:
            begin[a] += share
            begin[b] -= share
        level = 0.0
        taken = 0.0
        for a, b in pairwise(cuts):
            level += begin[a]
            taken += min(level, 1.0) * (b - a)
        return taken / (t1 - t0)

    def nbytes(self, place, t0, t1):
        moved = 0.0
        for a, b, rate in self.bytes[place]:
            moved += max(min(b, t1) - max(a, t0), 0.0) * rate
        return moved

    def began(self, place, t0, t1):
        return sum(t0 <= t < t1 for t in self.begun[place])

    def places(self):
        return {*self.busy, *self.waiting, *self.bytes}


@pytest.fixture(scope="module", params=[*NAMES, *TILED])
def bundled(request, tmp_path_factory):
    """A session of a bundled trace or of other tiles, and the count of its rows."""
    path = TRACES / f"{request.param}.msgpack"
    if request.param in TILED:
        path = tmp_path_factory.mktemp("tiles") / "tiles.msgpack"
        run_bench("matmul", params=TILED[request.param], trace=path, verify=False)
    session = ReplaySession(Trace.open(path))
    return session, Count(session.trace)


def windows(trace, seed):
    """Random windows of a run, the whole of it, and one that goes on after its end."""
    rng = random.Random(seed)
    found = [(0.0, trace.end_ns), (trace.end_ns / 2, 2 * trace.end_ns)]
    while len(found) < WINDOWS:
        t0, t1 = sorted(rng.uniform(0, trace.end_ns) for _ in range(2))
        found.append((t0, t1))
    return found


def assert_shares(activity, count, t0, t1):
    """That every component is busy, and waits, for what a count of all rows says."""
    found = {row.name: row for row in activity.components}
    assert found.keys() <= count.places()
    for place in count.places():
        busy = count.busy_share(place, t0, t1)
        waiting = count.share(count.waiting[place], t0, t1)
        if place not in found:
            assert (busy, waiting) == pytest.approx((0, 0), abs=1e-9)
            continue
        row = found[place]
        assert row.busy == pytest.approx(busy, abs=1e-6), place
        assert (row.waiting or 0.0) == pytest.approx(waiting, abs=1e-6), place


def assert_bytes_and_beginnings(activity, count, t0, t1):
    """That of every component what passed and what began is what a count says."""
    for row in activity.components:
        wanted = count.nbytes(row.name, t0, t1)
        assert row.nbytes == pytest.approx(wanted, rel=1e-6, abs=0.01), row.name
        assert row.begun == count.began(row.name, t0, t1), row.name


@pytest.mark.slow
def test_every_share_is_that_of_a_count_of_all_rows(bundled):
    session, count = bundled
    for t0, t1 in windows(session.trace, 1):
        assert_shares(session.activity(t0, t1), count, t0, t1)


@pytest.mark.slow
def test_bytes_and_beginnings_are_those_of_a_count_of_all_rows(bundled):
    session, count = bundled
    for t0, t1 in windows(session.trace, 2):
        assert_bytes_and_beginnings(session.activity(t0, t1), count, t0, t1)


def test_over_the_run_each_place_of_a_path_has_all_bytes_of_its_transactions(bundled):
    session, _ = bundled
    trace = session.trace
    wanted = defaultdict(int)
    for row in range(-1, len(trace.ops)):
        for path, _, nbytes, *_ in trace.transfers_of(row):
            for place in (*path, *map(" -> ".join, pairwise(path))):
                wanted[place] += nbytes
    rows = session.activity(0.0, 2 * trace.end_ns).components
    found = {row.name: row.nbytes for row in rows if row.nbytes}
    assert found == pytest.approx(dict(wanted), rel=1e-6)


def test_links_have_the_load_that_the_command_links_says(bundled):
    session, _ = bundled
    t0, t1 = session.launch_window()
    activity = session.activity(t0, t1)
    found = {}
    for row in activity.components:
        if row.waiting is None and row.nbytes > 1e-6:
            found[row.name] = row.busy
    links = session.link_load(t0, t1).links
    wanted = {f"{link.src} -> {link.dst}": link.busy for link in links}
    assert found == pytest.approx(wanted, abs=1e-6)


def test_cells_are_the_shares_of_windows_of_their_own(bundled):
    session, count = bundled
    t0, t1 = session.launch_window()
    rows = session.activity(t0, t1).components[::7]
    numbers = [row.component for row in rows]
    cells = session.activity_cells(numbers, t0, t1, 13)
    assert cells.busy.shape == cells.waiting.shape == (len(rows), 13)
    assert not cells.busy.flags.writeable
    edges = np.linspace(t0, t1, 14).tolist()
    for row, busy, waiting in zip(rows, cells.busy, cells.waiting, strict=True):
        for (low, high), share, held in zip(
            pairwise(edges), busy, waiting, strict=True
        ):
            wanted = count.busy_share(row.name, low, high)
            assert share == pytest.approx(wanted, abs=1e-6)
            wanted = count.share(count.waiting[row.name], low, high)
            assert held == pytest.approx(wanted, abs=1e-6)
        assert busy.mean() == pytest.approx(row.busy, abs=1e-9) or busy.max() == 1


@pytest.mark.slow
def test_the_answer_is_the_same_in_batches_of_one_component_none_of_them_kept():
    trace = Trace.open(TRACES / "ccl_allreduce.msgpack")
    index = Index(trace)
    index.prepare()
    whole = index.activity.activity(4000.0, 5000.0)
    apart = ActivityIndex(trace, index.op_index, batch=1, kept=0)
    for _ in range(2):
        found = apart.activity(4000.0, 5000.0)
        assert len(found.components) == len(whole.components)
        for one, other in zip(found.components, whole.components, strict=True):
            assert one.name == other.name
            shares = pytest.approx((other.busy, other.waiting), abs=2e-9)
            assert (one.busy, one.waiting) == shares
            assert one.nbytes == pytest.approx(other.nbytes, abs=1e-6)


@pytest.fixture
def looks(monkeypatch):
    """The windows whose own rows were looked out."""
    found = []
    look = RowsInWindow.of

    def noted(rows, t0, t1):
        found.append((t0, t1))
        return look(rows, t0, t1)

    monkeypatch.setattr(RowsInWindow, "of", noted)
    return found


@pytest.mark.slow
def test_a_short_window_of_a_long_run_is_counted_from_its_own_rows(bundled, looks):
    session, count = bundled
    index = session.index
    apart = ActivityIndex(session.trace, index.op_index, kept=0, block=1)
    rng = random.Random(4)
    for _ in range(2 * WINDOWS):
        t0 = rng.uniform(0.0, session.trace.end_ns)
        t1 = t0 + rng.uniform(0.0, session.trace.end_ns / 50)
        found = apart.activity(t0, t1)
        assert_shares(found, count, t0, t1)
        assert_bytes_and_beginnings(found, count, t0, t1)
    assert len(looks) > WINDOWS


@pytest.mark.slow
def test_cells_of_a_short_window_are_those_of_the_run(bundled, looks):
    session, _ = bundled
    index = session.index
    numbers = index.activity.used().tolist()
    low, high = session.launch_window()
    apart = ActivityIndex(session.trace, index.op_index, kept=0, block=1)
    for share in (0.1, 0.5, 0.97):
        t0 = low + share * (high - low)
        t1 = t0 + (high - low) / 100
        found = apart.cells(numbers, t0, t1, 7)
        wanted = index.activity.cells(numbers, t0, t1, 7)
        assert found.busy == pytest.approx(wanted.busy, abs=1e-6)
        assert found.waiting == pytest.approx(wanted.waiting, abs=1e-6)
    assert looks


def found_in_window(count, times, block):
    return Resumable(lambda: rows_in_window(count, times, block)).result()


def test_rows_in_a_window_are_those_that_a_look_at_all_finds():
    rng = np.random.default_rng(5)
    since = np.sort(rng.uniform(0.0, 100.0, 203))
    until = since + rng.choice([0.0, 1.0, 60.0], 203, p=[0.2, 0.75, 0.05])

    def times(rows):
        return since[rows], until[rows]

    rows = found_in_window(203, times, block=10)
    for t0, t1 in [(0.0, 100.0), (-5.0, -1.0), (30.0, 30.0), (50.0, 52.5), (7, 200)]:
        wanted = np.flatnonzero((since <= t1) & (until >= t0))
        assert rows.of(t0, t1).tolist() == wanted.tolist()
        assert rows.most(t0, t1) >= len(wanted)
    assert rows.most(-5.0, -1.0) == 0
    assert found_in_window(0, times, block=10).of(0.0, 1.0).tolist() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kept", "batch", "from_", "to"),
    [(1 << 22, 1 << 9, 0.0, 1.0), (1000, 1 << 4, 0.9, 0.93)],
    ids=["the run", "a window of its own"],
)
def test_cells_that_keys_cancel_are_there_in_the_end(
    session, kept, batch, from_, to, looks, monkeypatch
):
    """Each question is given up while one batch of curves is made, as where keys are
    pressed all the time on a large trace.
    """
    trace = session.trace
    t0 = trace.end_ns * from_
    t1 = trace.end_ns * to
    begun = []
    make = activity._curves

    def made(components, *rest):
        begun.append(tuple(components.tolist()))
        sleep(0.05)
        return make(components, *rest)

    monkeypatch.setattr(activity, "_curves", made)
    apart = ActivityIndex(trace, session.index.op_index, batch, kept, block=1)
    numbers = apart.used().tolist()

    def answer():
        told = []

        def impatient(done):
            told.append(done)
            if len(told) > 4 and len(set(told[-4:])) == 1:  # it waits for a thread
                raise Cancelled("a key")

        return apart.cells(numbers, t0, t1, 7, impatient)

    for _ in range(1000):
        try:
            found = answer()
            break
        except Cancelled:
            continue
    assert len(begun) == len(set(begun)) > 1
    assert bool(looks) == (kept < 1428)  # rows of all logs
    wanted = session.index.activity.cells(numbers, t0, t1, 7)
    assert found.busy == pytest.approx(wanted.busy, abs=1e-6)


def test_what_finds_rows_in_windows_goes_on_where_it_was_cancelled(session):
    apart = ActivityIndex(session.trace, session.index.op_index, kept=0, block=1)
    apart.used()
    t1 = session.trace.end_ns / 50
    steps = []
    apart.cells([0], 0.0, t1, 7, steps.append)
    at_once = len(steps)
    apart = ActivityIndex(session.trace, session.index.op_index, kept=0, block=1)
    apart.used()
    cancelled = 0
    while True:
        left = 30

        def few(done):
            nonlocal left
            left -= 1
            if left < 0:
                raise Cancelled("enough")

        try:
            apart.cells([0], 0.0, t1, 7, few)
            break
        except Cancelled:
            cancelled += 1
            assert cancelled < at_once
    assert cancelled > 2


def test_the_busiest_come_first_and_a_pattern_picks_components(bundled):
    session, _ = bundled
    everything = session.activity()
    shares = [row.busy for row in everything.components]
    assert shares == sorted(shares, reverse=True)
    assert (everything.t0, everything.t1) == session.launch_window()
    routers = session.run_line("activity components *.r?c?")
    assert {row.kind for row in routers.components} == {"router"}
    machine = session.trace.nodes.type
    assert len(routers.components) + routers.idle == machine.count("router")
    wanted = [row for row in everything.components if row.kind == "router"]
    assert list(routers.components) == wanted
    links = session.run_line("activity components '* -> *.r?c?'").components
    wanted = [row for row in everything.components if " -> " in row.name]
    assert list(links) == [row for row in wanted if fnmatchcase(row.name, "*.r?c?")]


def test_a_pattern_that_no_component_fits_is_an_error(bundled):
    session, _ = bundled
    with pytest.raises(UsageError, match="components 'pe_gem': no component is called"):
        session.run_line("activity components pe_gem")


def test_every_kind_of_component_that_traffic_passed_is_there():
    session = ReplaySession(Trace.open(TRACES / "ccl_allreduce.msgpack"))
    rows = session.activity(0.0, session.trace.end_ns).components
    kinds = {row.kind for row in rows if row.busy > 0}
    assert kinds >= {
        *("hbm_ctrl", "router", "ucie", "ucie_conn", "io_noc", "pcie_ep", "switch"),
        *("io_cpu", "m_cpu", "pe_cpu", "pe_dma", "pe_ipcq", "pe_math"),
        *("router_mesh", "ucie_mesh", "command", "pcie", "io_internal"),
    }


def test_the_command_prints_a_table(bundled):
    session, _ = bundled
    answer = session.run_line("activity")
    lines = as_text(answer, 120).splitlines()
    count = len(answer.components)
    assert lines[0].startswith(f"{count:,} of {count + answer.idle:,} components busy")
    assert lines[1].split() == ["busy", "waiting", "nbytes", "begun", "kind", "name"]
    assert answer.components[0].name in lines[2]
    assert len(lines) <= 43
    assert as_data(answer)["components"][0]["busy"] == answer.components[0].busy


def test_a_component_that_nothing_passed_is_idle(bundled):
    session, _ = bundled
    answer = session.run_line("activity components *.pe0.pe_mmu")
    assert answer.components == ()
    assert answer.idle == sum(
        name.endswith(".pe0.pe_mmu") for name in session.trace.node_ids
    )
    assert as_text(answer).startswith("0 of ")


def test_a_window_that_ends_before_it_starts_and_a_number_of_nobody_are_refused(
    bundled,
):
    session, _ = bundled
    with pytest.raises(UsageError, match="from 20 to 10 ns: the end must lie after"):
        session.activity(20.0, 10.0)
    with pytest.raises(UsageError, match="from 20 to 10 ns: the end must lie after"):
        session.activity_cells([0], 20.0, 10.0, 5)
    with pytest.raises(UsageError, match="component -1: must be 0 to "):
        session.activity_cells([-1], 10.0, 20.0, 5)


@pytest.fixture
def one_cube():
    return load_topology(
        overrides={"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}
    )


@pytest.fixture
def carried(tmp_path, one_cube):
    """carried(transfers): by name what the components did, of a trace of only these."""

    def carried(*transfers, t0=0.0, t1=1000.0):
        writer = TraceWriter(tmp_path / "trace")
        writer.begin({}, one_cube)
        for transfer in transfers:
            writer.transfer(NO_CMD, transfer)
        writer.end(1000.0)
        session = ReplaySession(Trace.open(tmp_path / "trace"))
        rows = session.activity(t0, t1).components
        return {row.name: row for row in rows}

    return carried


def test_a_memory_is_busy_from_the_request_until_the_last_byte_has_left(carried):
    found = carried((PATH[::-1], 100.0, 2560, 1, [130.0, 132.5]))
    assert found[PATH[2]].busy * 1000 == pytest.approx(40)  # 30 of access, 10 of bytes
    assert found[PATH[2]].nbytes == pytest.approx(2560)
    assert found[PATH[2]].begun == 1


def test_a_router_is_busy_with_a_header_and_while_bytes_leave_but_not_in_between(
    carried,
):
    found = carried((PATH, 10.0, 2560, 1, [10.0, 40.0]))
    assert found[PATH[1]].busy * 1000 == pytest.approx(2 + 10)


def test_a_memory_is_busy_with_a_write_until_it_has_landed(carried):
    found = carried((PATH, 10.0, 2560, 1, [10.0, 20.0]))
    # 3 in the controller and 4 until an open row takes them (CWL), 10 of bytes
    assert found[PATH[2]].busy * 1000 == pytest.approx(3 + 4 + 10)


def test_two_transactions_at_once_are_busy_once(carried):
    found = carried(
        (PATH[::-1], 100.0, 2560, 1, [130.0, 132.5]),
        (PATH[::-1], 110.0, 2560, 1, [140.0, 142.5]),
    )
    assert found[PATH[2]].busy * 1000 == pytest.approx(50)
    assert found[PATH[2]].begun == 2


def test_a_window_has_only_what_moves_in_it(carried):
    found = carried((PATH, 10.0, 2560, 1, [10.0, 15.0]), t0=12.0, t1=16.0)
    link = found[f"{PATH[0]} -> {PATH[1]}"]
    assert (link.busy, link.nbytes) == pytest.approx((1.0, 4 * 256))
    assert found[f"{PATH[1]} -> {PATH[2]}"].busy == pytest.approx(1 / 4)
    assert link.begun == 0


def test_a_cpu_issues_its_calls_and_waits_while_they_block_it(tmp_path, one_cube):
    log = Log(tmp_path / "trace", one_cube)
    log.op(load(0, 0), 20.0, 60.0, t_issue=0.0)
    log.op(double(0, 128), 60.0, 100.0, engine="pe_math", t_issue=60.0)
    session = log.session()
    spec = session.trace.spec["pe"]
    issue_ns = spec["cpu"]["issue_cycles"] / spec["clock_ghz"]
    rows = session.activity(0.0, 100.0).components
    cpu = next(row for row in rows if row.kind == "pe_cpu")
    assert cpu.busy * 100 == pytest.approx(2 * issue_ns)
    assert cpu.waiting * 100 == pytest.approx(100 - 2 * issue_ns)
    assert cpu.begun == 2


def test_a_trace_of_nothing_has_nothing_busy(carried):
    assert carried() == {}
