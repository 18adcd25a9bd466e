"""The exported JSON against the rules of trace events, and against the trace."""

import json
from collections import Counter, defaultdict
from itertools import pairwise
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import strategies as st
from pace import for_all
from trace_kinds import KINDS, SHIPPED

from kernbench.common.messages import NO_CMD
from kernbench.replay import ReplaySession
from kernbench.runtime_api import run_bench
from kernbench.sim_engine.op_log import OpRecord
from kernbench.topology import load_topology
from kernbench.trace import Trace, TraceWriter
from kernbench.trace.export import export
from kernbench.trace.export.perfetto import to_us
from kernbench.trace.export.timeline import COUNTERS_TITLE, LINKS, WINDOWS


def exported(trace, tmp_path):
    out = tmp_path / "out.json"
    export(trace, "perfetto", str(out))
    return json.loads(out.read_text(encoding="utf-8"))["traceEvents"]


def of(events, *phases):
    return [event for event in events if event["ph"] in phases]


@pytest.fixture(params=KINDS)
def both(request, make, tmp_path):
    """(trace, its events) of every kind of trace."""
    trace = make(request.param)
    return trace, exported(trace, tmp_path)


@pytest.fixture
def matmul(shipped_trace, tmp_path):
    return shipped_trace, exported(shipped_trace, tmp_path)


def all_slices(events):
    """The slices: their begins, each with ``until``, the time of its end.

    As a reader has them: by time, and what has the same time in the order of the file.
    """
    open_slices = defaultdict(list)
    slices = []
    for event in sorted(of(events, "B", "E"), key=itemgetter("ts")):
        track = open_slices[event["pid"], event["tid"]]
        if event["ph"] == "B":
            assert not track, "a slice within another"
            track.append(event)
            slices.append(event)
        else:
            track.pop()["until"] = event["ts"]
    assert not any(open_slices.values())
    return slices


def slices_of(events, *categories):
    """The slices of some categories; of ops, by number, if none is given."""
    if categories:
        return [event for event in all_slices(events) if event["cat"] in categories]
    found = [e for e in all_slices(events) if e["cat"] not in ("call", "wait")]
    return sorted(found, key=lambda event: event["args"]["op"])


def ns(us):
    """A time of an event, which is a whole number of ns."""
    assert abs(us * 1e3 - round(us * 1e3)) < 1e-3
    return round(us * 1e3)


def ps(time):
    return round(time * 1e3)


def test_every_event_has_what_its_phase_demands(both):
    for event in both[1]:
        assert event["ph"] in "MBEstfC"
        assert {"pid", "tid", "ts"} <= event.keys()
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ts"] >= 0 or event["ph"] in "BE"
        if event["ph"] == "E":
            continue
        assert event["name"]
        if event["ph"] in "stf":
            assert event["cat"] in ("tile", "message")
            assert isinstance(event["id"], int)
        else:
            assert event["args"]


def test_there_is_one_slice_an_op_with_its_times_and_place(both):
    trace, events = both
    slices = slices_of(events)
    assert [event["args"]["op"] for event in slices] == list(range(len(trace.ops)))
    titles = {
        e["tid"]: e["args"]["name"]
        for e in of(events, "M")
        if e["name"] == "thread_name"
    }
    for event, record in zip(slices, trace.ops, strict=True):
        args = event["args"]
        row = int(trace.order[args["op"]])
        command = trace.command(int(trace.op_columns.cmd[row]))
        node = trace.node_index[record.component_id]
        assert event["name"] == record.op_name
        assert event["cat"] in ("memory", "gemm", "math", "unknown")
        assert (event["cat"] == "unknown") <= (record.op_kind == "unknown")
        assert args["start_ps"] == ps(record.t_start)
        assert args["end_ps"] == ps(record.t_end)
        assert ns(event["ts"]) == args["start_ps"] // 1000
        assert ns(event["until"]) == args["end_ps"] // 1000
        assert args.get("nbytes", 0) == trace.op_columns.nbytes[row]
        line = None
        call = None
        if command is not None:
            line = f"{command.site.file}:{command.site.line}"
            call = command.call
        assert (args.get("line"), args.get("call")) == (line, call)
        title = trace.nodes.engine[node] or record.component_id
        assert titles[event["tid"]].split(" lane ")[0] == title


def test_stages_of_tiles_have_the_kind_of_their_work(matmul):
    kinds = {event["name"]: event["cat"] for event in slices_of(matmul[1])}
    assert kinds["TileToken/GEMM"] == "gemm"
    assert kinds["TileToken/DMA_READ"] == kinds["TileToken/STORE"] == "memory"


def test_there_is_a_slice_for_each_call_and_each_wait(both):
    trace, events = both
    calls = Counter()
    for number in trace.commands.cmd[:].tolist():
        command = trace.command(number)
        times = (ps(command.t_issue), ps(command.t_resume))
        calls[number, command.call, *times] += 1
    found = Counter()
    for event in slices_of(events, "call"):
        args = event["args"]
        found[args["cmd"], event["name"], args["start_ps"], args["end_ps"]] += 1
    assert found == calls
    waits = Counter()
    for op, row in enumerate(trace.order.tolist()):
        for _, reason, t0, t1, _ in trace.waits_of(row):
            waits[op, reason, ps(t0), ps(t1)] += 1
    found = Counter()
    for event in slices_of(events, "wait"):
        args = event["args"]
        found[args["op"], event["name"], args["start_ps"], args["end_ps"]] += 1
    assert found == waits


def rounded(us):
    return round(us * 1e3)


def cut_off(us):
    return int(us * 1e3)


@pytest.mark.parametrize("to_ns", [rounded, cut_off])
def test_slices_of_one_track_do_not_overlap_for_any_reader(both, to_ns):
    """Readers round times to whole ns, or cut off; overlapping slices are dropped."""
    tracks = defaultdict(list)
    for event in all_slices(both[1]):
        start = to_ns(event["ts"])
        end = to_ns(event["until"])
        assert rounded(event["until"]) == end
        tracks[event["pid"], event["tid"]].append((start, end))
    for slices in tracks.values():
        for (_, end), (start, _) in pairwise(slices):
            assert end <= start


def test_no_thread_has_the_number_of_a_process(both):
    threads = [e for e in of(both[1], "M") if e["name"] == "thread_name"]
    pids = {event["pid"] for event in both[1]}
    tids = [event["tid"] for event in threads]
    assert len(set(tids)) == len(tids)
    assert not pids & set(tids)


LANE_OP = st.tuples(
    st.integers(0, 20),  # start
    st.integers(0, 9),  # length
    st.sampled_from(["pe0.pe_dma", "pe0.pe_gemm"]),
    st.integers(0, 2),  # slot
)


@for_all(ops=st.lists(LANE_OP, max_size=20), fast=10, whole=100)
def test_ops_that_overlap_in_one_recorded_lane_get_lanes_of_their_own(
    tmp_path_factory, ops
):
    path = tmp_path_factory.mktemp("lanes") / "trace.msgpack"
    writer = TraceWriter(path)
    for row, (start, length, engine, slot) in enumerate(ops):
        record = OpRecord(start, start + length, engine, "x", "y", {}, [])
        writer.op(row, record, 0, slot, [], [])
    writer.end(30.0)
    slices = all_slices(exported(Trace.open(path), path.parent))
    assert len(slices) == len(ops)
    spans = defaultdict(list)
    for event in slices:
        start = ns(event["ts"])
        spans[event["tid"]].append((start, ns(event["until"])))
    for of_one_track in spans.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(of_one_track))


def test_a_reader_that_cuts_off_below_1_ns_gets_the_same_ns():
    times = np.arange(100_000)
    us = to_us(times)
    np.testing.assert_array_equal(np.floor(us * 1e3), times)
    np.testing.assert_array_equal(np.rint(us * 1e3), times)


def test_an_arrow_goes_from_each_composite_through_the_stages_of_each_tile(both):
    trace, events = both
    slices = {event["args"]["op"]: event for event in slices_of(events)}
    by_place = defaultdict(list)
    composites = {}
    for event in slices.values():
        by_place[event["pid"], event["tid"]].append(event)
        if "composite_" in event["name"]:
            composites[event["args"]["cmd"]] = event
    tiles = defaultdict(list)
    for op, record in enumerate(trace.ops):
        cmd = slices[op]["args"].get("cmd")
        if "tile_index" in record.params and cmd in composites:
            tiles[cmd, record.params["tile_index"]].append(op)
    arrows = defaultdict(list)
    for event in of(events, "s", "t", "f"):
        if event["cat"] == "tile":
            arrows[event["id"]].append(event)
    found = []
    for arrow in arrows.values():
        assert [event["ph"] for event in arrow] == ["s", *"t" * (len(arrow) - 2), "f"]
        bound = []
        for event in arrow:
            here = by_place[event["pid"], event["tid"]]
            bound.append(next(one for one in here if one["ts"] == event["ts"]))
        for event, its in zip(arrow, bound, strict=True):
            assert its["ts"] <= event["ts"] <= its["until"]
        assert bound[0] is composites[bound[0]["args"]["cmd"]]
        found.append(tuple(s["args"]["op"] for s in bound[1:]))
    assert sorted(found) == sorted(map(tuple, tiles.values()))


def test_the_matmul_has_an_arrow_for_each_of_its_tiles(matmul):
    assert Counter(e["ph"] for e in of(matmul[1], "s", "f")) == {"s": 32, "f": 32}


def test_a_message_has_an_arrow_from_what_sent_it_to_what_received_it(tmp_path):
    trace = Trace.open(SHIPPED.with_name("ccl_allreduce.msgpack"))
    events = exported(trace, tmp_path)
    at = {}
    for event in slices_of(events):
        at[event["tid"], event["ts"], event["name"]] = event["args"]["op"]
    arrows = defaultdict(list)
    for event in of(events, "s", "f"):
        assert event["cat"] == "message"
        name = {"s": "ipcq_copy", "f": "ipcq_recv"}[event["ph"]]
        arrows[event["id"]].append(at[event["tid"], event["ts"], name])
    found = {receive: send for send, receive in arrows.values()}
    wanted = {}
    for op, record in enumerate(trace.ops):
        if record.op_name == "ipcq_recv":
            of_name = [trace.ops[held].op_name for held in record.dependency_ids]
            wanted[op] = record.dependency_ids[of_name.index("ipcq_copy")]
    assert len(wanted) == 62
    assert found == wanted


def test_processes_and_threads_stand_in_the_order_of_the_machine(matmul):
    _, events = matmul
    for kind in ("process", "thread"):
        names = {
            (e["pid"], e["tid"]) for e in of(events, "M") if e["name"] == f"{kind}_name"
        }
        orders = [e for e in of(events, "M") if e["name"] == f"{kind}_sort_index"]
        assert names == {(e["pid"], e["tid"]) for e in orders}
    processes = [event for event in of(events, "M") if event["name"] == "process_name"]
    titles = {event["pid"]: event["args"]["name"] for event in processes}
    in_order = [titles[pid] for pid in sorted(titles)]
    assert in_order[:3] == ["sip0", "sip0 cube0 pe0", "sip0 cube0 pe1"]
    used = {(e["pid"], e["tid"]) for e in all_slices(events)}
    assert used == {
        (e["pid"], e["tid"]) for e in of(events, "M") if e["name"] == "thread_name"
    }
    assert in_order[-1] == COUNTERS_TITLE


def test_counters_are_the_busy_share_of_the_busiest_links(matmul):
    trace, events = matmul
    moved = Counter()
    for row in range(-1, len(trace.ops)):
        for path, _, nbytes, *_ in trace.transfers_of(row):
            for ends in pairwise(path):
                moved[" > ".join(ends)] += nbytes
    edges = trace.edges
    busy = {}
    for src, dst, speed in zip(edges.src, edges.dst, edges.bandwidth_gbs, strict=True):
        link = f"{trace.node_ids[src]} > {trace.node_ids[dst]}"
        if moved[link]:
            busy[link] = moved[link] / float(speed)
    counters = defaultdict(list)
    for event in of(events, "C"):
        counters[event["name"]].append((event["ts"] * 1e3, event["args"]["busy %"]))
    assert len(counters) == LINKS
    assert min(busy[link] for link in counters) >= sorted(busy.values())[-LINKS] - 1e-9
    for link, values in counters.items():
        assert len(values) <= WINDOWS + 1
        assert all(0 <= share <= 100.01 for _, share in values)
        assert values[-1][1] == 0
        spans = pairwise(values)
        integral = sum(share / 100 * (t1 - t0) for (t0, share), (t1, _) in spans)
        assert integral == pytest.approx(busy[link], rel=1e-3, abs=0.1)


def counters_of(events):
    """By link its values: a dict from the ns from which on it has one."""
    counters = defaultdict(dict)
    for event in of(events, "C"):
        counters[event["name"]][ns(event["ts"])] = event["args"]["busy %"]
    return counters


def test_a_counter_is_100_while_the_wire_carries_a_burst_and_0_between(tmp_path):
    graph = load_topology(None, {"system.sips.count": 1})
    link = ("sip0.cube0.pe0.pe_dma", "sip0.cube0.r0c1")
    speed = graph.edge_by_ends[link].bandwidth_gbs
    burst_ns = round(4096 / speed)
    assert burst_ns == 4096 / speed
    last = 10 * burst_ns
    writer = TraceWriter(tmp_path / "trace")
    writer.begin({}, graph)
    writer.transfer(NO_CMD, (link, 0.0, 8192, 2, [0.0, float(last)]))
    writer.end(float(last + burst_ns))
    found = counters_of(exported(Trace.open(tmp_path / "trace"), tmp_path))
    assert found[" > ".join(link)] == {
        0: 100.0,
        burst_ns: 0.0,
        last: 100.0,
        last + burst_ns: 0.0,
    }


@pytest.mark.parametrize("clock_ghz", [1, 20])
@pytest.mark.slow
def test_counters_are_what_the_links_of_each_window_are(tmp_path, clock_ghz):
    path = tmp_path / "trace"
    sizes = {"m": 128, "k": 64, "n": 64, "pes": 4}
    run_bench("matmul", params=sizes, spec={"pe.clock_ghz": clock_ghz}, trace=path)
    found = counters_of(exported(Trace.open(path), tmp_path))
    session = ReplaySession(Trace.open(path))
    bounds = sorted({start for values in found.values() for start in values})
    shown = dict.fromkeys(found, 0.0)
    for t0, t1 in pairwise(bounds):
        shown |= {link: values[t0] for link, values in found.items() if t0 in values}
        links = session.link_load(float(t0), float(t1)).links
        asked = {f"{one.src} > {one.dst}": 100 * one.busy for one in links}
        for link, percent in shown.items():
            assert percent <= 100
            assert percent == pytest.approx(asked.get(link, 0.0), abs=0.011)


def test_a_trace_without_links_has_no_counters(make, tmp_path):
    assert of(exported(make("without_topology"), tmp_path), "C") == []
