"""The cursor: where it stands, how it moves, what it refuses."""

from pathlib import Path

import numpy as np
import pytest
from replay_logs import PE0, PE1, Log, load

from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.query import Session
from kernbench.trace import Trace

TRACES = Path(__file__).parents[2] / "traces"


def test_a_new_session_stands_before_the_first_op(session):
    assert session.cursor == -1
    assert session.op is None
    assert session.time == 0.0
    assert session.in_flight() == []


def test_the_log_is_the_recorded_one_in_canonical_order(session, recorded):
    rank = {"memory": 0, "gemm": 1, "math": 2, "unknown": 3}
    expected = sorted(recorded.op_log, key=lambda r: (r.t_start, rank[r.op_kind]))
    seen = [session.trace.ops[i] for i in range(len(session))]
    assert [(r.t_start, r.t_end, r.component_id, r.op_name) for r in seen] == [
        (r.t_start, r.t_end, r.component_id, r.op_name) for r in expected
    ]


def test_steps_stop_at_both_ends(session):
    assert session.step(-1) == -1
    assert session.step(10**9) == len(session) - 1
    assert session.step(1) == len(session) - 1
    assert session.to_start() == -1
    assert session.to_end() == len(session) - 1


@pytest.mark.parametrize("op", [-2, 10**9])
def test_goto_refuses_what_is_not_there(session, op):
    session.goto(3)
    with pytest.raises(UsageError, match=f"no op {op}.*-1 is before the first"):
        session.goto(op)
    assert session.cursor == 3


def test_goto_time_finds_the_last_op_that_has_started(session):
    starts = [session.trace.ops[i].t_start for i in range(len(session))]
    middle = (starts[10] + starts[-1]) / 2
    session.goto_time(middle)
    assert session.cursor == sum(t <= middle for t in starts) - 1
    session.goto_time(-1.0)
    assert session.cursor == -1


def test_n_stays_on_the_component_and_wider_levels_take_in_more(session):
    session.goto_time(session.launch_window()[0] + 200)
    component = session.op.component_id
    session.step_component(1)
    assert session.op.component_id == component
    here = session.cursor
    session.step_component(-1)
    session.step_component(1)
    assert session.cursor == here
    assert session.widen() == "pe"
    prefix = component.rsplit(".", 1)[0]
    visited = set()
    for _ in range(20):
        session.step_component(1)
        assert session.op.component_id.startswith(prefix)
        visited.add(session.op.component_id)
    assert len(visited) > 1


def test_ops_in_flight_are_those_in_service_at_the_cursor(session):
    session.goto_time(np.mean(session.launch_window()))
    t = session.time
    expected = [
        i
        for i in range(len(session))
        if session.trace.ops[i].t_start <= t < session.trace.ops[i].t_end
    ]
    assert session.in_flight() == expected
    assert session.cursor in expected


def test_questions_about_an_op_need_one(session):
    for question in (session.route, session.diff):
        with pytest.raises(UsageError, match="before the first op"):
            question()


def test_details_name_the_kernel_line_that_issued_the_op(session):
    session.goto_time(session.launch_window()[1])
    details = session.details(session.cursor)
    source = session.source(session.cursor)
    assert details.row.site == f"kernbench/benches/matmul.py:{source.line}"
    assert details.call == "composite"
    assert "tl.composite(" in source.text[source.line - 1]
    assert source.function == "matmul_kernel"


def test_info_counts_the_ops_by_name(session, recorded):
    info = session.info()
    assert info.ops == len(recorded.op_log) == sum(info.by_name.values())
    assert info.by_name["composite_gemm"] == 2
    assert (info.bench, info.verified, info.complete) == ("matmul", True, True)
    assert info.tensors == ("a", "b", "c")


# -- moves within a lane, a tile, a kernel; along waits; back --------------


def tile_of(record):
    return record.params.get("tile_index")


def a_tile_op(session):
    """A GEMM stage of some tile in the middle."""
    ops = [
        op for op, r in enumerate(session.trace.ops) if r.op_name == "TileToken/GEMM"
    ]
    return session.goto(ops[len(ops) // 2])


def same_tile(session, op):
    """All ops of the tile of an op, by what each says of itself."""
    trace = session.trace
    cmds = trace.op_columns.cmd[trace.order]
    return [
        other
        for other, record in enumerate(trace.ops)
        if cmds[other] == cmds[op] and tile_of(record) == tile_of(trace.ops[op])
    ]


def test_stages_are_those_of_one_tile(session):
    op = a_tile_op(session)
    stages = same_tile(session, op)
    at = stages.index(op)
    assert at > 0
    assert session.step_stage(-1) == stages[at - 1]
    assert session.step_stage(-9) == stages[0]
    assert session.step_stage(9) == stages[-1]


def test_a_tile_step_goes_to_the_first_stage_of_the_next_tile(session):
    op = a_tile_op(session)
    tiles = [[span.op for span in tile.spans] for tile in session.tiles(op).rows]
    at = next(i for i, tile in enumerate(tiles) if op in tile)
    assert session.step_tile(1) == tiles[at + 1][0]
    assert session.step_tile(-1) == tiles[at][0]
    assert session.step_tile(10**6) == tiles[-1][0]


def test_first_and_last_are_the_ends_of_the_tile(session):
    op = a_tile_op(session)
    stages = same_tile(session, op)
    assert session.to_last() == stages[-1]
    session.goto(stages[0])
    assert session.to_last() == stages[-1] > stages[0]
    session.goto(op)
    assert session.to_first() == stages[0]


def test_the_end_of_another_op_is_the_last_that_its_component_began_by_then(
    tmp_path, shipped
):
    log = Log(tmp_path / "log", shipped)
    for t0, pe in ((0, PE0), (5, PE0), (10, PE0), (10, PE1), (11, PE0)):
        log.op(load(0, 64 * t0), t0, t0 + 10, pe=pe)
    session = log.session()
    session.goto(0)
    assert session.to_last() == 2
    assert session.to_first() == 2


def test_a_lane_holds_what_one_slot_of_a_component_served(session):
    slots = session.trace.op_columns.slot[session.trace.order]
    for op in range(0, len(session), 7):
        lane = np.flatnonzero(
            (session.index.ops.components == session.index.ops.components[op])
            & (slots == slots[op])
        ).tolist()
        at = lane.index(op)
        session.goto(op)
        assert session.step_lane(2) == lane[min(at + 2, len(lane) - 1)]
        session.goto(op)
        assert session.step_lane(-1) == lane[max(at - 1, 0)]


@pytest.mark.parametrize("way", [1, -1])
def test_a_line_step_goes_to_the_next_op_of_the_pe_that_another_line_issued(
    tmp_path, shipped, way
):
    log = Log(tmp_path / "log", shipped)
    sites = [1, 1, 2, 2, 1, 3]
    for op, line in enumerate(sites):
        log.op(load(0, 64 * op), 10 * op, 10 * op + 1, line=line)
        log.op(load(0, 64 * op), 10 * op + 5, 10 * op + 6, pe=PE1, line=99)
    session = log.session()
    changes = [op for op in range(1, len(sites)) if sites[op] != sites[op - 1]]
    if way > 0:
        session.goto(0)
        expected = [2 * op for op in changes]
    else:
        session.goto(2 * len(sites) - 2)
        expected = [2 * (op - 1) for op in reversed(changes)]
    assert [session.step_line(way) for _ in expected] == expected
    assert session.step_line(way) == expected[-1]


def test_cause_is_the_last_of_what_an_op_waited_for_and_effect_the_first_that_waited(
    session,
):
    ops = session.trace.ops
    waiting = [op for op in range(len(session)) if ops[op].dependency_ids]
    assert waiting
    for op in waiting:
        session.goto(op)
        held = ops[op].dependency_ids
        cause = session.to_cause()
        assert cause in held
        assert ops[cause].t_end == max(ops[h].t_end for h in held)
        waiters = [other for other in waiting if cause in ops[other].dependency_ids]
        if tile_of(ops[cause]) is None:
            assert session.to_effect() == waiters[0]


def a_free_stage(session):
    """A stage of a tile that nothing held, and its tile's stages."""
    for op, record in enumerate(session.trace.ops):
        if (
            tile_of(record)
            and not record.dependency_ids
            and same_tile(session, op)[0] < op
        ):
            return op, same_tile(session, op)
    raise AssertionError("something held every stage")


def test_the_cause_of_a_stage_that_nothing_held_is_the_stage_before(session):
    op, stages = a_free_stage(session)
    session.goto(op)
    assert session.to_cause() == stages[stages.index(op) - 1]


@pytest.mark.slow
def test_the_effect_of_a_stage_is_the_next_one_or_what_went_on_earlier(session):
    later = 0
    for op, record in enumerate(session.trace.ops):
        stages = same_tile(session, op) if tile_of(record) else []
        if stages and op != stages[-1]:
            follows = stages[stages.index(op) + 1]
            session.goto(op)
            effect = session.to_effect()
            assert effect == follows or session.index.ops.starts(
                effect
            ) < session.index.ops.starts(follows)
            later += effect != follows
    assert later


def test_a_place_in_short_names_the_cube_only_where_there_are_several(
    tmp_path, shipped
):
    for number, others in enumerate(((), ("sip0.cube2.pe0",))):
        log = Log(tmp_path / str(number), shipped)
        for pe in (PE1, *others):
            log.op(load(0, 0), 0, 1, pe=pe)
        session = log.session()
        named = [
            session.index.ops.label(session.index.ops.components[op])
            for op in range(len(session))
        ]
        assert named == (["s0c0.pe1", "s0c2.pe0"] if others else ["pe1"])
    assert session.index.ops.label(session.index.ops.components[0], 1) == "s0"
    assert (
        session.index.ops.label(session.index.ops.components[0], 4) == "s0c0.pe1.pe_dma"
    )


def test_what_has_no_kind_is_not_said_to_be_unknown(session):
    a_tile_op(session)
    assert session.details().row.kind == "unknown"
    head = session.details().lines(100)[0]
    assert "unknown" not in head
    assert "TileToken/GEMM on " in head
    session.goto(0)
    assert "host_write (memory) on " in session.details().lines(100)[0]


def test_an_op_without_cause_or_effect_keeps_the_cursor(session):
    alone = next(op for op, r in enumerate(session.trace.ops) if not r.dependency_ids)
    session.goto(alone)
    assert session.to_cause() == alone
    session.to_end()
    assert session.to_effect() == len(session) - 1


def test_back_undoes_jumps_and_forth_does_them_again(session):
    for op in (5, 9, 2):
        session.goto(op)
    session.step(1)
    assert session.back() == 9
    assert session.back(2) == -1
    assert session.back() == -1
    assert session.back(-1) == 5
    assert session.back(-9) == 3
    session.back()
    session.goto(20)
    assert session.back(-1) == 20


def test_a_thousand_jumps_are_undone_and_no_more(session):
    jumps = [number % len(session) for number in range(1500)]
    for op in jumps:
        session.goto(op)
    assert session.back(len(jumps)) == jumps[-1001]


def test_a_mark_is_a_place_to_go_to(session):
    session.goto(7)
    session.mark("here")
    session.to_end()
    assert session.goto_mark("here") == 7
    assert session.goto_mark("start") == -1
    with pytest.raises(UsageError, match=r"'there': .* start, end or a mark \(here\)"):
        session.goto_mark("there")
    for name in ("start", "a b", "3"):
        with pytest.raises(UsageError, match="must be a word"):
            session.mark(name)


@pytest.mark.parametrize("level", range(5))
def test_every_focus_steps_through_all_of_its_ops_in_order(session, level):
    nodes = session.trace.nodes
    columns = [np.arange(len(nodes.pe)), nodes.pe, nodes.cube, nodes.sip][level:]
    session.goto(len(session) // 2)
    here = session.index.ops.component(session.cursor)
    near = [
        op
        for op in range(len(session))
        if all(c[session.index.ops.components[op]] == c[here] for c in columns)
    ]
    session.widen(level)
    assert session.step_component(-(10**6)) == near[0]
    assert [session.step_component(1) for _ in near[1:]] == near[1:]
    assert session.step_component(1) == near[-1]


def test_rows_made_at_once_are_what_each_record_says(session):
    trace = session.trace
    for row, record in zip(session.rows(0, len(trace.ops)), trace.ops, strict=True):
        command = trace.command(int(trace.op_columns.cmd[trace.order[row.op]]))
        assert (row.t_start, row.t_end) == (record.t_start, record.t_end)
        assert (row.component, row.name, row.kind) == (
            record.component_id,
            record.op_name,
            record.op_kind,
        )
        assert row.t_issue == command.t_issue
        assert row.site == f"{command.site.file}:{command.site.line}"


def test_an_op_without_a_recorded_call_has_no_site(tmp_path, shipped):
    log = Log(tmp_path / "log", shipped)
    log.op(load(0, 0), 5, 6, line=None)
    log.op(load(0, 0), 7, 8)
    row = log.session().row(0)
    assert (row.site, row.t_issue) == ("?", 5.0)


def test_find_goes_to_the_nearest_op_that_fits(session):
    fits = session.matching("stage = GEMM").tolist()
    session.goto(fits[1])
    assert session.find("stage = GEMM") == fits[2]
    assert session.find("stage = GEMM", back=True) == fits[1]
    session.to_end()
    with pytest.raises(
        UsageError, match=f"no op after op .* fits 'stage = GEMM'; {len(fits)} do"
    ):
        session.find("stage = GEMM")


def test_a_move_of_the_object_is_that_of_the_command_line(session):
    by_call = ReplaySession(session.trace)
    by_line = ReplaySession(session.trace)
    by_call.mark("here")
    by_line.run_line("mark here")
    for op, steps in ((7, 3), (0, -5), (40, 10_000), (40, 1), (-1, 0), (12, -1)):
        by_call.goto(op)
        by_line.run_line(f"goto {op}")
        assert by_call.state == by_line.state
        by_call.step(steps)
        by_line.run_line(f"step {steps}")
        assert by_call.state == by_line.state
    for wrong in (-2, len(by_call)):
        with pytest.raises(UsageError, match=f"no op {wrong}; this trace has ops 0 to"):
            by_call.goto(wrong)
        assert by_call.state == by_line.state


@pytest.mark.parametrize("line", ["goto 0", "cause", "lane", "stage", "op"])
def test_of_a_trace_without_ops_nobody_is_sent_to_one(tmp_path, one_cube, line):
    """It said that there were ops 0 to -1, and to step forward first."""
    session = Log(tmp_path / "empty", one_cube).session()
    with pytest.raises(UsageError, match="this trace has no ops; info has more"):
        session.run_line(line)


def test_a_session_cannot_be_changed_and_a_move_keeps_what_it_does_not_move():
    session = Session(4, 2, (("here", 3),), (1, 2), (9,), made=6)
    with pytest.raises(AttributeError):
        session.cursor = 5
    moved = session.on(5)
    assert moved == Session(5, 2, (("here", 3),), (1, 2), (9,), made=6)
    assert isinstance(moved, Session)
    assert session.cursor == 4


@pytest.mark.parametrize("name", ["matmul", "fault_ring_by_name"])
def test_launches_of_a_run_that_failed_are_said_to_be_those_that_ended(name):
    """It said 0 of a run whose kernels had made a hundred calls."""
    info = ReplaySession(Trace.open(TRACES / f"{name}.msgpack")).info()
    launches = info.facts()["launches"]
    assert launches == (f"{info.launches} that ended" if info.error else "1")
