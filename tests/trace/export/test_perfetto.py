"""The exported JSON against the rules of trace events, and against the trace."""

import json
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import strategies as st
from pace import for_all
from trace_kinds import KINDS

from kernbench.sim_engine.op_log import OpRecord
from kernbench.trace import Trace, TraceWriter
from kernbench.trace.export import export
from kernbench.trace.export.perfetto import LINKS, WINDOWS, to_us


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


def ps(us):
    return round(us * 1e6)


def test_every_event_has_what_its_phase_demands(both):
    for event in both[1]:
        assert event["ph"] in "MXstfC"
        assert {"pid", "tid", "ts", "name"} <= event.keys()
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ts"] >= 0 or event["ph"] == "X"
        if event["ph"] == "X":
            assert event["dur"] >= 0
        elif event["ph"] in "stf":
            assert (event["cat"], type(event["id"])) == ("tile", int)
        else:
            assert event["args"]


def test_there_is_one_slice_an_op_with_its_times_and_place(both):
    trace, events = both
    slices = of(events, "X")
    assert [event["args"]["op"] for event in slices] == list(range(len(trace.ops)))
    titles = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    for event, record in zip(slices, trace.ops, strict=True):
        row = int(trace.order[event["args"]["op"]])
        command = trace.command(int(trace.op_columns.cmd[row]))
        node = trace.node_index[record.component_id]
        assert event["name"] == record.op_name
        assert ps(event["ts"]) == round(record.t_start * 1e3)
        assert ps(event["ts"]) + ps(event["dur"]) == round(record.t_end * 1e3)
        assert event["args"]["bytes"] == trace.op_columns.nbytes[row]
        line = ""
        call = ""
        if command is not None:
            line = f"{command.site.file}:{command.site.line}"
            call = command.call
        assert (event["args"]["line"], event["args"]["call"]) == (line, call)
        title = trace.nodes.engine[node] or record.component_id
        assert titles[event["tid"]].split(" lane ")[0] == title


@pytest.mark.parametrize("cut_off_at", ["ps", "ns"])
def test_slices_of_one_track_do_not_overlap(both, cut_off_at):
    """Perfetto cuts times off at whole ns, and drops slices that then overlap."""
    tracks = defaultdict(list)
    for event in of(both[1], "X"):
        times = event["ts"], event["dur"]
        if cut_off_at == "ps":
            start, dur = map(ps, times)
        else:
            start, dur = (int(time * 1e3) for time in times)
        tracks[event["pid"], event["tid"]].append((start, start + dur))
    for slices in tracks.values():
        for (_, end), (start, _) in pairwise(slices):
            assert end <= start


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
    slices = of(exported(Trace.open(path), path.parent), "X")
    assert len(slices) == len(ops)
    spans = defaultdict(list)
    for event in slices:
        start = ps(event["ts"])
        spans[event["tid"]].append((start, start + ps(event["dur"])))
    for of_one_track in spans.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(of_one_track))


@pytest.mark.parametrize("below_1_ns", [0.0, 0.001, 0.999])
def test_a_reader_that_cuts_off_below_1_ns_gets_the_ns_that_a_time_lies_in(below_1_ns):
    ns = np.arange(100_000)
    us = to_us(ns + below_1_ns)
    np.testing.assert_array_equal(np.floor(us * 1e3), ns)
    np.testing.assert_array_equal(np.rint(us * 1e6) - ns * 1000, below_1_ns * 1000)


def test_an_arrow_goes_from_each_composite_through_the_stages_of_each_tile(both):
    trace, events = both
    slices = {event["args"]["op"]: event for event in of(events, "X")}
    by_place = defaultdict(list)
    composites = {}
    for event in slices.values():
        by_place[event["pid"], event["tid"]].append(event)
        if "composite_" in event["name"]:
            composites[event["args"]["cmd"]] = event
    tiles = defaultdict(list)
    for op, record in enumerate(trace.ops):
        cmd = slices[op]["args"]["cmd"]
        if "tile_index" in record.params and cmd in composites:
            tiles[cmd, record.params["tile_index"]].append(op)
    arrows = defaultdict(list)
    for event in of(events, "s", "t", "f"):
        arrows[event["id"]].append(event)
    found = []
    for arrow in arrows.values():
        assert [event["ph"] for event in arrow] == ["s", *"t" * (len(arrow) - 2), "f"]
        bound = []
        for event in arrow:
            here = by_place[event["pid"], event["tid"]]
            bound.append(next(one for one in here if one["ts"] == event["ts"]))
        for event, its in zip(arrow, bound, strict=True):
            assert its["ts"] <= event["ts"] <= its["ts"] + its["dur"]
        assert bound[0] is composites[bound[0]["args"]["cmd"]]
        found.append(tuple(s["args"]["op"] for s in bound[1:]))
    assert sorted(found) == sorted(map(tuple, tiles.values()))


def test_the_matmul_has_an_arrow_for_each_of_its_tiles(matmul):
    assert Counter(e["ph"] for e in of(matmul[1], "s", "f")) == {"s": 32, "f": 32}


def test_processes_and_threads_stand_in_the_order_of_the_machine(matmul):
    _, events = matmul
    for kind in ("process", "thread"):
        names = {(e["pid"], e["tid"]) for e in events if e["name"] == f"{kind}_name"}
        orders = [e for e in events if e["name"] == f"{kind}_sort_index"]
        assert names == {(e["pid"], e["tid"]) for e in orders}
    processes = [event for event in events if event["name"] == "process_name"]
    titles = {event["pid"]: event["args"]["name"] for event in processes}
    in_order = [titles[pid] for pid in sorted(titles)]
    assert in_order[:3] == ["sip0", "sip0 cube0 pe0", "sip0 cube0 pe1"]
    used = {(e["pid"], e["tid"]) for e in of(events, "X")}
    assert used == {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}


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


def test_a_trace_without_links_has_no_counters(make, tmp_path):
    assert of(exported(make("without_topology"), tmp_path), "C") == []
