"""Timelines, tiles, routes, memory and diffs against what is computed here from the
records.
"""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernbench.common.phys_addr import PhysAddr
from kernbench.policy.routing.router import AddressResolver, PathRouter
from kernbench.replay import ReplaySession
from kernbench.replay.text import as_text
from kernbench.replay.time.op_classes import CLASSES, op_class
from kernbench.trace import Trace, TraceWriter

SIZES = {"m": 96, "k": 80, "n": 100, "tile": 32, "pes": 2}
TRACES = Path(__file__).parents[2] / "traces"
RANK = {"memory": 0, "gemm": 1, "math": 2, "unknown": 3}


def inputs():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((SIZES["m"], SIZES["k"]))
    b = rng.standard_normal((SIZES["k"], SIZES["n"])) / np.sqrt(SIZES["k"])
    return a.astype(np.float16), b.astype(np.float16)


def positions(session, name):
    ops = session.trace.ops
    return [i for i in range(len(ops)) if ops[i].op_name == name]


# -- timeline --


def brute_force(session, component, t0, t1, columns):
    """Busy share of each cell by summing overlaps, one op at a time."""
    edges = np.linspace(t0, t1, columns + 1)
    shares = {letter: np.zeros(columns) for letter in CLASSES}
    for record in session.trace.ops:
        if record.component_id == component:
            letter = op_class(record.op_name, RANK[record.op_kind])
            for i in range(columns):
                shared = min(record.t_end, edges[i + 1]) - max(record.t_start, edges[i])
                shares[letter][i] += max(shared, 0.0) / (edges[i + 1] - edges[i])
    return shares


def test_busy_cells_are_the_summed_overlaps(session):
    low, high = session.launch_window()
    timeline = session.timeline(
        session.index.op_index.components.tolist(), low - 50, high + 50, 23
    )
    for row in timeline.rows:
        shares = brute_force(session, row.node, timeline.t0, timeline.t1, 23)
        np.testing.assert_allclose(row.busy, sum(shares.values()), atol=1e-6)
        for cell, letter in enumerate(row.classes):
            most = max(x[cell] for x in shares.values())
            assert (
                letter == " "
                if most < 1e-9
                else shares[letter][cell] == pytest.approx(most)
            )


def test_every_component_that_served_an_op_has_a_row(session):
    nodes = {session.trace.node_ids[c] for c in session.index.op_index.components}
    assert nodes == {record.component_id for record in session.trace.ops}


def test_the_cursor_cell_holds_the_time_of_the_cursor(session):
    low, high = session.launch_window()
    session.goto_time((low + high) / 2)
    timeline = session.timeline([], low, high, 40)
    width = (high - low) / 40
    assert (
        low + timeline.cursor * width
        <= session.time
        < low + (timeline.cursor + 1) * width
    )
    assert session.timeline([], high, high + 1, 40).cursor is None


# -- tiles --


def test_a_composite_has_a_row_a_tile_with_its_stages_in_order(session):
    composite = positions(session, "composite_gemm")[1]
    tiles = session.tiles(composite)
    columns = SIZES["n"] // 2
    steps = [math.ceil(x / SIZES["tile"]) for x in (SIZES["m"], columns, SIZES["k"])]
    assert tiles.composite == composite
    assert {row.index for row in tiles.rows} == set(np.ndindex(*steps))
    for row in tiles.rows:
        stages = [span.stage for span in row.spans]
        last = row.index[2] == steps[2] - 1
        assert stages == ["DMA_READ", "FETCH", "GEMM"] + ["STORE", "DMA_WRITE"] * last
        assert all(a.t1 <= b.t0 for a, b in zip(row.spans, row.spans[1:], strict=False))
        for span in row.spans:
            record = session.trace.ops[span.op]
            assert (record.t_start, record.t_end) == (span.t0, span.t1)
            assert record.op_name == f"TileToken/{span.stage}"
        assert row.origin == tuple(i * SIZES["tile"] for i in row.index)


def test_a_tile_op_marks_its_own_row(session):
    for op in positions(session, "TileToken/GEMM")[:5]:
        tiles = session.tiles(op)
        assert any(span.op == op for span in tiles.rows[tiles.current].spans)


def test_every_gap_of_a_tile_is_a_recorded_wait(session):
    tiles = session.tiles(positions(session, "composite_gemm")[0])
    gaps = 0
    for row in tiles.rows:
        for before, after in zip(row.spans, row.spans[1:], strict=False):
            gap = after.t0 - before.t1
            covered = sum(
                w.t1 - w.t0
                for w in row.waits
                if w.t0 >= before.t1 - 1e-9 and w.t1 <= after.t0 + 1e-9
            )
            assert covered == pytest.approx(gap, abs=1e-6)
            gaps += gap > 1e-9
    assert gaps > 0


# -- route --


def test_a_dma_read_goes_out_and_back_on_the_routers_path(session, shipped):
    router, resolver = PathRouter(shipped), AddressResolver(shipped)
    for op in positions(session, "TileToken/DMA_READ")[:4]:
        record, route = session.trace.ops[op], session.route(op)
        prefix = record.component_id.removesuffix(".pe_dma")
        wanted = []
        for addr in record.params["addrs"]:
            wanted.append(
                router.find_path(prefix, resolver.resolve(PhysAddr.decode(addr)))
            )
        paths = sorted([hop.node for hop in leg.hops] for leg in route.legs)
        assert paths == sorted([*wanted, *(path[::-1] for path in wanted)])
        sizes = sorted(leg.nbytes for leg in route.legs)
        assert sizes == sorted([32, 32, *record.params["sizes"]])


def test_hop_times_follow_from_the_machine_and_sum_to_the_total(session, shipped):
    edges = {(e.src, e.dst): e for e in shipped.edges}
    ns_per_mm = shipped.spec.system.ns_per_mm
    for op in [
        *positions(session, "TileToken/DMA_WRITE"),
        *positions(session, "host_write"),
    ]:
        record, (leg,) = session.trace.ops[op], session.route(op).legs
        total = 0.0
        for here, there in zip(leg.hops, leg.hops[1:], strict=False):
            edge = edges[here.node, there.node]
            step = edge.distance_mm * ns_per_mm + shipped.nodes[there.node].overhead_ns
            step = round(step * 1024) / 1024
            assert here.edge_kind == edge.kind
            assert here.leave == here.arrive + here.wait
            assert there.arrive == here.leave + step
            total += step
        waited = sum(hop.wait for hop in leg.hops)
        assert leg.hops[-1].arrive - leg.t0 == pytest.approx(total + waited)
        assert record.t_start <= leg.t0 < leg.hops[-1].arrive < record.t_end


def test_an_op_without_transactions_shows_those_of_the_nearest_dma_of_its_tile(session):
    gemm = positions(session, "TileToken/GEMM")[0]
    route = session.route(gemm)
    read = next(
        span.op
        for row in session.tiles(gemm).rows
        for span in row.spans
        if span.stage == "DMA_READ" and any(s.op == gemm for s in row.spans)
    )
    assert route.op == gemm
    assert route.legs == session.route(read).legs
    shown = f"TileToken/DMA_READ #{read} of the tile"
    assert route.note == f"stays inside its component; shown is {shown}"
    composite = session.route(positions(session, "composite_gemm")[0])
    assert composite.legs
    assert "its tiles do; shown is TileToken/DMA_READ" in composite.note


def test_a_store_stage_shows_the_read_before_it_not_the_write_after(session):
    store = positions(session, "TileToken/STORE")[0]
    assert "DMA_READ" in session.route(store).note


def test_tiles_of_a_recording_that_was_cut_off_have_no_composite_and_say_so(
    recorded, tmp_path
):
    trace = Trace.open(recorded.trace_path)
    names = [trace.ops[i].op_name for i in range(len(trace.ops))]
    assert "composite_gemm" in names
    rows = [
        i for i in range(len(trace.ops)) if trace.ops[i].op_name != "composite_gemm"
    ]
    cut = TraceWriter(tmp_path / "cut")
    for row, i in enumerate(rows):
        at = int(trace.order[i])
        record = replace(trace.ops[i], dependency_ids=[])
        cut.op(
            row, record, int(trace.op_columns.cmd[at]), 0, [], trace.transfers_of(at)
        )
    cut.close()
    session = ReplaySession(Trace.open(tmp_path / "cut"))
    op = positions(session, "TileToken/GEMM")[0]
    assert "has not ended" in session.diff(op).note
    assert session.tiles(op).composite is None
    assert session.tiles(op).rows[session.tiles(op).current].index == (0, 0, 0)
    assert "has not ended" in as_text(session.tiles(op))
