"""Timelines, tiles, routes, memory and diffs against what is computed here from the records."""

import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from replay_logs import Log, host_write, region

from kernbench.common.pe_commands import MathCmd
from kernbench.common.phys_addr import PhysAddr
from kernbench.errors import MemoryStoreError, UsageError
from kernbench.policy.routing.router import AddressResolver, PathRouter
from kernbench.replay import ReplaySession
from kernbench.replay.text import as_text
from kernbench.replay.time.op_classes import CLASSES, op_class
from kernbench.runtime_api import run_bench
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
        session.op_index.components.tolist(), low - 50, high + 50, 23
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
    nodes = {session.trace.node_ids[c] for c in session.op_index.components}
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
            assert here.edge_kind == edge.kind
            assert here.leave == pytest.approx(here.arrive + here.wait)
            assert there.arrive == pytest.approx(here.leave + step)
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
    assert (
        route.note
        == f"stays inside its component; shown is TileToken/DMA_READ #{read} of the tile"
    )
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
    assert "had not ended" in session.diff(op).note
    assert session.tiles(op).composite is None
    assert session.tiles(op).rows[session.tiles(op).current].index == (0, 0, 0)
    assert "never ended" in as_text(session.tiles(op))


# -- memory --


def test_c_is_unwritten_then_filled_composite_by_composite(session):
    a, b = inputs()
    product = a.astype(np.float64) @ b.astype(np.float64)
    half = SIZES["n"] // 2
    first, second = positions(session, "composite_gemm")
    assert not session.tensor("c", first - 1).written.any()
    left = session.trace.ops[first].component_id.startswith("sip0.cube0.pe0")
    view = session.tensor("c", first)
    mine = slice(0, half) if left else slice(half, None)
    assert view.written[:, mine].all()
    assert view.changed[:, mine].all()
    assert view.written.sum() == view.changed.sum() == SIZES["m"] * half
    view = session.tensor("c", second)
    assert view.written.all()
    np.testing.assert_allclose(
        view.values.astype(np.float64), product, rtol=1e-3, atol=1e-3
    )
    assert view.maximum == view.values.astype(np.float64).max()


def test_memory_lists_what_holds_data_and_who_wrote_it(session):
    first = positions(session, "composite_gemm")[0]
    memory = session.memory(first)
    written = [e for e in memory.entries if e.writer == first]
    assert [e.tensor for e in written] == ["c"]
    assert memory.entries[0].touched
    names = {e.tensor for e in memory.entries}
    assert names == {"a", "b", "c"}
    assert session.memory(-1).entries == ()


def test_an_unknown_tensor_is_refused_with_the_names(session):
    with pytest.raises(UsageError, match=r"no tensor 'd'.*a, b, c"):
        session.tensor("d")


# -- diff --


def test_the_diff_of_a_composite_is_against_float64(session):
    a, b = inputs()
    half = SIZES["n"] // 2
    for op in positions(session, "composite_gemm"):
        left = session.trace.ops[op].component_id.startswith("sip0.cube0.pe0")
        part = b[:, :half] if left else b[:, half:]
        exact = a.astype(np.float64) @ part.astype(np.float64)
        diff = session.diff(op)
        np.testing.assert_allclose(diff.expected, exact, rtol=1e-12)
        np.testing.assert_array_equal(
            diff.error, diff.actual.astype(np.float64) - diff.expected
        )
        assert diff.row.ok
        assert diff.row.max_abs == np.abs(diff.error).max() > 0


def test_the_diff_of_a_tile_is_its_block_of_the_composites(session):
    op = positions(session, "TileToken/GEMM")[7]
    params = session.trace.ops[op].params
    (m0, n0, _), (m, n, _) = params["origin"], params["extent"]
    diff = session.diff(op)
    composite = session.tiles(op).composite
    whole = session.diff(composite)
    np.testing.assert_array_equal(diff.actual, whole.actual[m0 : m0 + m, n0 : n0 + n])
    assert f"composite #{composite}" in diff.note
    assert f"rows {m0}..{m0 + m - 1}, columns {n0}..{n0 + n - 1}" in diff.note


@pytest.fixture
def overflowing(tmp_path, one_cube):
    """exp of numbers of up to 127 straight into hbm 512, of which a reference is given."""
    log = Log(tmp_path / "log", one_cube)
    log.op(host_write(), 0, 10)
    out = MathCmd(op="exp", inputs=(region("hbm", 344, 4),), out=region("hbm", 512, 4))
    log.op(out, 20, 30, engine="pe_math")
    log.expect("y", 516, [1.0, 2.0, 3.0])
    return log.session()


def test_a_divergence_shows_the_oracle_phase_2_and_what_the_bench_expects(overflowing):
    found = overflowing.first_divergence()
    assert (found.op, found.check.overflows) == (1, True)
    assert found.source == "expected y"
    assert np.isnan(found.simulated[0])
    assert found.simulated[1:].tolist() == [1, 2, 3]
    assert np.isfinite(found.expected).all()
    assert np.isinf(found.actual[-1])
    shown = as_text(found)
    for title in ("expected", "actual", "simulated: expected y", "simulated - actual"):
        assert f"\n{title}\n" in shown


def test_a_divergence_shows_what_phase_1_saw_of_an_op(session):
    first = positions(session, "host_write")[0]
    diff = session.diffs.beside(session.diff(first))
    assert diff.source == "nothing recorded"


def test_a_divergence_that_cannot_be_looked_for_is_never_said_to_be_none(
    tmp_path, one_cube
):
    log = Log(tmp_path / "log", one_cube)
    log.op(
        MathCmd(op="exp", inputs=(region("hbm", 0),), out=region("hbm", 512)), 20, 30
    )
    session = log.session()
    for _ in range(2):
        with pytest.raises(MemoryStoreError, match="op 0"):
            session.first_divergence()


def test_the_local_error_of_an_op_far_on_is_told_without_executing_an_oracle_of_all(
    session, monkeypatch
):
    monkeypatch.setattr("kernbench.replay.diff._FEW", 0)
    op = positions(session, "composite_gemm")[1]
    quick = session.check(op).check
    monkeypatch.undo()
    whole = session.check(op).check
    assert quick.accumulated is None
    assert (quick.local, quick.bound, quick.over) == (
        whole.local,
        whole.bound,
        whole.over,
    )
    assert "accumulated" not in quick.as_text()


def test_outputs_are_due_when_their_ops_have_run(session, recorded):
    first, second = positions(session, "composite_gemm")
    before, after = session.outputs(first), session.outputs(len(session) - 1)
    assert (before.rows[0].due, before.rows[0].row.ok) == (False, False)
    assert before.rows[0].row.note.endswith(" bytes are not written yet")
    assert (after.rows[0].due, after.rows[0].row.ok) == (True, True)
    assert after.rows[0].row.max_abs == recorded.report.by_tensor()[0].max_abs
    assert second < len(session) - 1


def test_scratch_of_two_launches_is_told_apart(tmp_path):
    bench = tmp_path / "twice.py"
    bench.write_text(
        "from kernbench.benches import bench\n"
        "def kernel(x, y, n, tl):\n"
        "    tl.store(y, tl.load(x, (n,), 'f32') + 1.0)\n"
        "@bench(name='twice', description='two launches reuse one scratch address')\n"
        "def run(torch):\n"
        "    x = torch.tensor([1.0, 2.0, 3.0, 4.0], 'f32', name='x')\n"
        "    y = torch.empty((4,), 'f32', name='y')\n"
        "    torch.launch('first', kernel, x, y, 4)\n"
        "    torch.launch('second', kernel, y, x, 2)\n"
        "    torch.expect(x, [3.0, 4.0, 3.0, 4.0])\n"
    )
    result = run_bench(str(bench), trace=tmp_path / "t")
    session = ReplaySession(Trace.open(tmp_path / "t"))
    first, second = positions(session, "dma_read")
    addr = session.trace.ops[first].params["dst_addr"]
    assert result.ok
    assert session.trace.ops[second].params["dst_addr"] == addr
    loaded = [session.tensor(session.memories.shown(op), op) for op in (first, second)]
    assert [v.name.split("@")[0] for v in loaded] == ["h0.1", "h1.1"]
    assert [v.values.tolist() for v in loaded] == [[1, 2, 3, 4], [2, 3]]


def test_a_diff_says_how_many_elements_its_errors_leave_out(overflowing):
    shown = as_text(overflowing.diff(1))
    assert "1 of 4 beyond rtol 1e-05 atol 1e-05; 1 not finite, else max abs 3" in shown


@pytest.mark.filterwarnings("error")
def test_infinities_are_compared_without_a_warning():
    session = ReplaySession(Trace.open(TRACES / "fault_overflow.msgpack"))
    for op in range(len(session)):
        as_text(session.check(op))


def test_a_tile_is_judged_by_its_own_block(session):
    op = positions(session, "TileToken/STORE")[0]
    tile, whole = session.check(op), session.diffs.products(op)[0]
    assert 0 < tile.check.local == tile.row.max_abs <= tile.check.bound
    assert tile.check.local <= session.check(whole).check.local


def test_where_a_tile_is_first_over_is_told_in_the_whole_tensor(session, monkeypatch):
    op = positions(session, "TileToken/STORE")[-1]
    good = session.diff(op)
    actual = good.actual.copy()
    actual[1, 2] += 1
    monkeypatch.setattr(session.diffs, "of", lambda op: replace(good, actual=actual))
    row, column = good.origin
    assert session.diffs.judged(op).check.first_over == (row + 1, column + 2)
    assert row + column > 0


@pytest.mark.parametrize(
    ("error", "cut", "note"),
    [
        (None, False, "the bench states no expected outputs"),
        (
            "DeadlockError: all wait",
            False,
            "the run ended before expected outputs were stated",
        ),
        (None, True, "the recording stopped before expected outputs were stated"),
    ],
)
def test_why_there_is_nothing_to_compare_is_said(tmp_path, one_cube, error, cut, note):
    log = Log(tmp_path / "log", one_cube)
    log.op(host_write(), 0, 10)
    session = log.session()
    session.trace.end = None if cut else {"error": error}
    for answer in (session.outputs(), session.verify()):
        assert as_text(answer) == f"nothing to compare: {note}"


@pytest.mark.parametrize("bench", ["matmul", "mlp_tp"])
def test_answers_after_random_jumps_are_those_of_a_fresh_session(bench):
    def opened():
        return ReplaySession(Trace.open(TRACES / f"{bench}.msgpack"))

    stepped, draw = opened(), random.Random(bench)
    names = list(dict.fromkeys(e.tensor for e in stepped.trace.expects))
    names += [name for name in stepped.memories.names if name not in names][:3]
    near = -1
    for _ in range(25):
        near = draw.choice((near + 1, near - 1, draw.randrange(-1, len(stepped))))
        op, name = min(max(near, -1), len(stepped) - 1), draw.choice(names)
        seen, fresh = stepped.tensor(name, op), opened().tensor(name, op)
        assert as_text(stepped.outputs(op)) == as_text(opened().outputs(op))
        assert (seen.op, seen.name, seen.nans) == (fresh.op, fresh.name, fresh.nans)
        for field in ("written", "changed"):
            assert np.array_equal(getattr(seen, field), getattr(fresh, field))
        assert (
            seen.values[seen.written].tobytes() == fresh.values[fresh.written].tobytes()
        )
        figures = [(v.minimum, v.maximum, v.mean) for v in (seen, fresh)]
        assert figures[0] == pytest.approx(figures[1], nan_ok=True)
