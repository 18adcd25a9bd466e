"""What holds for every answer about time: it is frozen, has text, and owns its data."""

from dataclasses import FrozenInstanceError, fields, is_dataclass

import numpy as np
import pytest

from kernbench.replay.time.projections import projection
from kernbench.replay.time.timeline import RowKey

WIDTHS = (20, 40, 80, 200)


def half(session):
    """The first half of the launches, ns."""
    t0, t1 = session.launch_window()
    return t0, (t0 + t1) / 2


def components(session):
    return session.op_index.components.tolist()


ANSWERS = {
    "timeline": lambda s: s.timeline(components(s), *half(s), 30),
    "lanes": lambda s: s.timeline(components(s), *half(s), 30, lanes=True),
    "idle row": lambda s: s.timeline([0], *half(s), 30),
    "tiles": lambda s: s.tiles(),
    "tiles between": lambda s: s.tiles_between(*half(s)),
    "route": lambda s: s.route(),
    "link load": lambda s: s.link_load(),
    "busiest": lambda s: s.busiest(),
    "stalls": lambda s: s.stalls(),
    "lines": lambda s: s.lines(),
    "pes": lambda s: s.pes(),
    "critical path": lambda s: s.critical_path(),
    "roofline": lambda s: s.roofline(),
    "bound": lambda s: s.bound(),
}


@pytest.fixture
def answer(request, session):
    session.goto(len(session) // 2)
    return ANSWERS[request.param](session)


def arrays_in(value):
    """All arrays of an answer, however deep."""
    if isinstance(value, np.ndarray):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from arrays_in(getattr(value, field.name))
    elif isinstance(value, dict):
        for item in value.values():
            yield from arrays_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from arrays_in(item)


@pytest.mark.parametrize("answer", ANSWERS, indirect=True)
def test_nobody_can_change_an_answer(answer):
    name = fields(answer)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(answer, name, None)
    for array in arrays_in(answer):
        assert not array.flags.writeable
        assert array.base is None or not array.base.flags.writeable


@pytest.mark.parametrize("answer", ANSWERS, indirect=True)
def test_an_answer_has_text_for_any_width(answer):
    for width in WIDTHS:
        lines = answer.lines(width)
        assert lines
        assert all(isinstance(line, str) for line in lines)


@pytest.mark.parametrize("name", ["timeline", "stalls", "pes", "critical path"])
def test_answers_with_arrays_are_among_those(session, name):
    session.goto(len(session) // 2)
    assert [*arrays_in(ANSWERS[name](session))]


def test_an_empty_critical_path_is_read_only_too(tmp_path, one_cube):
    from replay_logs import Log

    path = Log(tmp_path / "trace", one_cube).session().critical_path()
    assert not any(array.flags.writeable for array in arrays_in(path))


def test_the_rows_of_a_summed_up_window_are_read_only(session):
    window = (*half(session), 30)
    session.timelines.summarize(*window)
    rows = [RowKey((component,)) for component in components(session)]
    for row in session.timelines.draw_rows(rows, *window):
        assert not row.busy.flags.writeable


def test_tables_that_several_threads_read_are_read_only(session):
    index = session.op_index
    some = index.components[0]
    for array in (index.ops_of(int(some)), index.class_codes(), index.composites):
        assert not array.flags.writeable


def test_a_projection_is_frozen(session):
    with pytest.raises(AttributeError):
        projection(session.trace).boxes = ()
