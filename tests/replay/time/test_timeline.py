"""Timelines: rows and lanes over a window, rows of several components, indexing."""

import hypothesis.strategies as st
import numpy as np
import pytest
from pace import for_all
from replay_logs import PE0, PE1, Log, load, store

from kernbench.common.progress import Cancelled
from kernbench.replay.text import as_text
from kernbench.replay.time.timeline import Limits, RowKey, TimelineIndex

SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(0, 3), st.booleans()),
    max_size=40,
)
ON_TWO_PES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30), st.booleans(), st.booleans()),
    min_size=1,
)
EVERY_OTHER = [(4 * i, 2, bool(i % 2), True) for i in range(8)]


def in_lanes(path, graph, ops):
    """The session of ops given as (start, length, lane, is it a load)."""
    log = Log(path, graph)
    for start, length, lane, is_load in sorted(ops, key=lambda op: op[0] + op[1]):
        msg = load(0, 0) if is_load else store(0, 0)
        msg.slot = lane
        log.op(msg, start, start + length)
    return log.session()


def on_two_pes(path, graph, ops):
    """The session of ops given as (start, length, is it on PE 1, is it a load)."""
    log = Log(path, graph)
    for start, length, second, is_load in sorted(ops, key=lambda op: op[0] + op[1]):
        msg = load(0, 0) if is_load else store(0, 0)
        log.op(msg, start, start + length, PE1 if second else PE0)
    return log.session()


def index_of(session, **limits):
    """An index of a session's trace with other limits than the usual ones."""
    return TimelineIndex(session.trace, session.index.op_index, Limits(**limits))


def whole(session):
    """The row of all components."""
    return RowKey(tuple(session.index.op_index.components.tolist()))


def each(session):
    """A row a component."""
    return [
        RowKey((component,)) for component in session.index.op_index.components.tolist()
    ]


def shares(ops, edges):
    """Busy share of each cell, one op at a time."""
    found = np.zeros(len(edges) - 1)
    for start, length, *_ in ops:
        shared = np.minimum(start + length, edges[1:]) - np.maximum(start, edges[:-1])
        found += np.maximum(shared, 0) / np.diff(edges)
    return found


def longest_classes_are_shown(row, ops, edges):
    """Whether each cell has the letter of the class that is busy for longest in it."""
    loads = shares([op for op in ops if op[3]], edges)
    stores = shares([op for op in ops if not op[3]], edges)
    letters = np.array(list(row.classes))
    more_loads = loads > stores + 1e-9
    more_stores = stores > loads + 1e-9
    return (letters[more_loads] == "R").all() and (letters[more_stores] == "W").all()


# -- rows and lanes --


@for_all(
    ops=SPANS,
    t0=st.integers(-5, 50),
    span=st.integers(1, 80),
    columns=st.integers(1, 30),
    fast=10,
    whole=60,
)
def test_a_row_is_the_summed_overlaps_of_its_ops(
    tmp_path_factory, one_cube, ops, t0, span, columns
):
    session = in_lanes(tmp_path_factory.mktemp("log") / "trace", one_cube, ops)
    components = session.index.op_index.components.tolist()
    edges = np.linspace(t0, t0 + span, columns + 1)
    for row in session.timeline(components, t0, t0 + span, columns).rows:
        np.testing.assert_allclose(row.busy, shares(ops, edges), atol=1e-9)
        assert longest_classes_are_shown(row, ops, edges)


@for_all(
    ops=SPANS,
    t0=st.integers(-5, 50),
    span=st.integers(1, 80),
    columns=st.integers(1, 30),
    fast=10,
    whole=60,
)
def test_a_lane_is_the_summed_overlaps_of_the_ops_in_it(
    tmp_path_factory, one_cube, ops, t0, span, columns
):
    session = in_lanes(tmp_path_factory.mktemp("log") / "trace", one_cube, ops)
    components = session.index.op_index.components.tolist()
    edges = np.linspace(t0, t0 + span, columns + 1)
    lanes = session.timeline(components, t0, t0 + span, columns, lanes=True).rows
    assert [row.lane for row in lanes] == sorted({lane for _, _, lane, _ in ops})
    for row in lanes:
        mine = [op for op in ops if op[2] == row.lane]
        np.testing.assert_allclose(row.busy, shares(mine, edges), atol=1e-9)
        assert longest_classes_are_shown(row, mine, edges)


def test_ops_that_take_no_time_show_their_letter_in_small(tmp_path, small):
    ops = [(10, 0, 0, True), (30, 10, 0, False), (35, 0, 0, True)]
    session = in_lanes(tmp_path / "trace", small, ops)
    timeline = session.timeline(session.index.op_index.components.tolist(), 0, 50, 5)
    (row,) = timeline.rows
    assert row.classes == " R W "
    assert row.busy.tolist() == [0, 0, 0, 1, 0]
    assert as_text(timeline).endswith("| r W |")


def test_a_component_that_served_nothing_is_empty(tmp_path, small):
    session = in_lanes(tmp_path / "trace", small, [(0, 10, 0, True)])
    idle = session.trace.node_index[f"{PE1}.pe_dma"]
    assert session.timeline([idle], 0, 20, 4).rows[0].classes == "    "


def test_a_line_of_text_names_its_lane(tmp_path, small):
    ops = [(0, 10, 1, True), (0, 12, 6, True)]
    session = in_lanes(tmp_path / "trace", small, ops)
    components = session.index.op_index.components.tolist()
    rows = as_text(session.timeline(components, 0, 20, 4, lanes=True)).splitlines()[1:]
    assert [row.split("|")[0].split()[-1] for row in rows] == ["1", "6"]


# -- rows of several components --


@for_all(
    ops=ON_TWO_PES,
    t0=st.integers(-5, 50),
    span=st.integers(1, 80),
    bends=st.sampled_from([3, 99]),
    parts=st.sampled_from([1, 16]),
    indexed=st.booleans(),
    fast=8,
    whole=40,
)
def test_a_row_of_several_components_is_their_sum(
    tmp_path_factory, one_cube, ops, t0, span, bends, parts, indexed
):
    session = on_two_pes(tmp_path_factory.mktemp("log") / "trace", one_cube, ops)
    timelines = index_of(session, bends=bends, parts=parts)
    if indexed:
        timelines.index_rows([whole(session)])
    (row,) = timelines.draw_rows([whole(session)], t0, t0 + span, 20)
    edges = np.linspace(t0, t0 + span, 21)
    np.testing.assert_allclose(row.busy, shares(ops, edges), atol=1e-9)


def test_a_row_with_bends_left_out_keeps_the_busy_time_between_those_that_it_has(
    tmp_path, small
):
    session = on_two_pes(tmp_path / "trace", small, EVERY_OTHER)
    timelines = index_of(session, bends=5, few=-1, parts=1)
    (row,) = timelines.draw_rows([whole(session)], 0, 32, 4)
    edges = np.linspace(0, 32, 5)
    np.testing.assert_allclose(row.busy, shares(EVERY_OTHER, edges), atol=0.2)
    assert row.busy.sum() * 8 == pytest.approx(16)


def test_a_composite_shows_in_a_row_with_others_only_where_it_is_alone(session):
    nodes = session.trace.nodes
    components = session.index.op_index.components.tolist()
    pe = [component for component in components if nodes.pe[component] == 0]
    low, high = session.launch_window()
    (row,) = session.index.timelines.draw_rows([RowKey(tuple(pe))], low, high, 40)
    assert set(row.classes) >= {"R", "G", "W"}
    parts = session.index.timelines.draw_rows([RowKey((c,)) for c in pe], low, high, 40)
    others = [part for part in parts if set(part.classes) - set("C ")]
    for cell, letter in enumerate(row.classes):
        if letter == "C":
            assert all(other.classes[cell] == " " for other in others)


# -- what is indexed before it is drawn --


@for_all(ops=SPANS, t0=st.integers(-5, 50), span=st.integers(1, 80), fast=8, whole=40)
def test_in_a_window_of_few_ops_rows_are_drawn_without_an_index(
    tmp_path_factory, one_cube, ops, t0, span
):
    session = in_lanes(tmp_path_factory.mktemp("log") / "trace", one_cube, ops)
    rows = each(session)
    lanes = sorted({lane for _, _, lane, _ in ops})
    rows += [RowKey(row.components, lane) for row in rows for lane in lanes]
    of_few = index_of(session)
    drawn = of_few.draw_rows(rows, t0, t0 + span, 20)
    assert of_few.indexed == set()
    of_tracks = index_of(session, few=-1)
    for one, other in zip(
        drawn, of_tracks.draw_rows(rows, t0, t0 + span, 20), strict=True
    ):
        np.testing.assert_allclose(one.busy, other.busy, atol=1e-9)
        assert (one.node, one.classes) == (other.node, other.classes)
    assert of_tracks.indexed == {*rows}


def test_a_row_is_unindexed_until_it_has_been_indexed(session):
    timelines = session.index.timelines
    rows = each(session)
    unindexed = timelines.unindexed(rows)
    assert unindexed.rows == tuple(rows)
    assert unindexed.ops == 2 * len(session)  # they are sorted by component, too
    timelines.index_rows(rows)
    assert timelines.unindexed(rows) == ((), 0)
    assert timelines.indexed == {*rows}


def test_ops_that_are_sorted_already_are_looked_at_once(session):
    session.index.op_index.prepare()
    assert session.index.timelines.unindexed(each(session)).ops == len(session)


def test_indexing_can_be_cancelled_and_begun_again(session):
    rows = each(session)
    wanted = session.index.timelines.draw_rows(rows, 0, session.trace.end_ns, 40)
    timelines = index_of(session)

    def cancel(done):
        if done > 0.5:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        timelines.index_rows(rows, cancel)
    assert 0 < len(timelines.indexed) < len(rows)
    drawn = timelines.draw_rows(rows, 0, session.trace.end_ns, 40)
    assert [row.classes for row in drawn] == [row.classes for row in wanted]


def test_rows_that_were_dropped_are_drawn_as_before(tmp_path, small):
    session = on_two_pes(tmp_path / "trace", small, EVERY_OTHER)
    timelines = index_of(session, kept_bends=3, few=-1)
    rows = each(session)
    first = [timelines.draw_rows([row], 0, 32, 4)[0] for row in rows]
    assert timelines.unindexed(rows).rows == (rows[0],)
    again = timelines.draw_rows(rows, 0, 32, 4)
    for before, after in zip(first, again, strict=True):
        assert (before.node, before.classes) == (after.node, after.classes)
        np.testing.assert_array_equal(before.busy, after.busy)
    assert timelines.unindexed(rows) == ((), 0)  # what is drawn is kept


def test_rows_that_are_in_files_are_drawn_as_before_and_not_dropped(tmp_path, small):
    session = on_two_pes(tmp_path / "trace", small, EVERY_OTHER)
    rows = each(session)
    wanted = index_of(session, few=-1).draw_rows(rows, 0, 32, 4)
    timelines = index_of(session, kept_bends=3, filed_bends=4, few=-1)
    timelines.index_rows(rows)
    timelines.draw_rows(rows[:1], 0, 32, 4)
    assert timelines.unindexed(rows) == ((), 0)
    for filed, row in zip(timelines.draw_rows(rows, 0, 32, 4), wanted, strict=True):
        assert (filed.node, filed.classes) == (row.node, row.classes)
        np.testing.assert_array_equal(filed.busy, row.busy)
    timelines.forget()
    assert timelines.unindexed(rows).rows == tuple(rows)


def test_an_index_that_was_forgotten_is_made_again(session):
    rows = each(session)
    session.index.timelines.index_rows(rows)
    session.index.timelines.forget()
    assert session.index.timelines.indexed == set()
    assert session.index.timelines.unindexed(rows).rows == tuple(rows)


# -- windows that are summed up --


@for_all(
    ops=ON_TWO_PES, t0=st.integers(-5, 50), span=st.integers(1, 80), fast=8, whole=30
)
def test_rows_are_the_same_once_their_window_is_summed_up(
    tmp_path_factory, one_cube, ops, t0, span
):
    session = on_two_pes(tmp_path_factory.mktemp("log") / "trace", one_cube, ops)
    window = (t0, t0 + span, 20)
    rows = [whole(session), *each(session)]
    drawn = session.index.timelines.draw_rows(rows, *window)
    summed_up = index_of(session)
    summed_up.summarize(*window)
    for one, other in zip(drawn, summed_up.draw_rows(rows, *window), strict=True):
        np.testing.assert_allclose(one.busy, other.busy, atol=1e-9)
        assert (one.node, one.classes) == (other.node, other.classes)
    assert summed_up.indexed == set()


def test_of_a_window_that_is_summed_up_only_lanes_have_to_be_indexed(session):
    timelines = session.index.timelines
    rows = each(session)
    lane = RowKey(rows[0].components, 0)
    timelines.summarize(0, 100, 20)
    assert timelines.has_summary(0, 100, 20)
    assert timelines.unindexed([*rows, lane], (0, 100, 20)).rows == (lane,)
    assert timelines.unindexed(rows, (0, 100, 21)).rows == tuple(rows)


def test_the_windows_summed_up_last_are_kept(session):
    timelines = index_of(session, summaries=2)
    for columns in (10, 20, 30):
        timelines.summarize(0, 100, columns)
    kept = [timelines.has_summary(0, 100, columns) for columns in (10, 20, 30)]
    assert kept == [False, True, True]
