"""What all answers about data have in common: they are frozen, and print."""

from dataclasses import FrozenInstanceError, fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest

from kernbench.replay import ReplaySession
from kernbench.replay.check import check_file
from kernbench.replay.compare import compare
from kernbench.trace import Trace

PATH = Path(__file__).parents[3] / "traces" / "matmul.msgpack"

ANSWERS = {
    "memory": lambda s, op: s.memory(op),
    "tensor": lambda s, op: s.tensor("c", op),
    "diff": lambda s, op: s.diff(op),
    "check": lambda s, op: s.check(op),
    "judged": lambda s, op: s.index.diffs.judged(op),
    "with_recorded": lambda s, op: s.index.diffs.with_recorded(s.check(op)),
    "output": lambda s, op: s.output("c", op),
    "outputs": lambda s, op: s.outputs(op),
    "divergence": lambda s, op: s.first_divergence(),
    "verify": lambda s, op: s.verify(),
    "blame": lambda s, op: s.blame("c[3,17]"),
    "who_wrote": lambda s, op: s.who_wrote("c[3,17]"),
    "who_reads": lambda s, op: s.who_reads("a[0,0]"),
    "history": lambda s, op: s.history_of("c[0,:]"),
    "hazards": lambda s, op: s.hazards(),
    "compare": lambda s, op: compare(s.trace, s.trace),
    "check_file": lambda s, op: check_file(PATH),
}


@pytest.fixture(scope="module")
def matmul():
    return ReplaySession(Trace.open(PATH))


def arrays_in(value):
    """All arrays within an answer."""
    if isinstance(value, np.ndarray):
        yield value
    elif is_dataclass(value):
        for one in fields(value):
            yield from arrays_in(getattr(value, one.name))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from arrays_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from arrays_in(item)


def answers(session, name):
    """Those to one question at ops of all kinds."""
    for op in (-1, 0, len(session) // 2, len(session) - 1):
        if op >= 0 or name in ("memory", "tensor", "outputs", "output"):
            yield ANSWERS[name](session, op)


@pytest.mark.parametrize("name", ANSWERS)
def test_arrays_of_an_answer_are_read_only(matmul, name):
    for answer in answers(matmul, name):
        assert not any(array.flags.writeable for array in arrays_in(answer))


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_frozen(matmul, name):
    for answer in answers(matmul, name):
        first = fields(answer)[0].name
        with pytest.raises((FrozenInstanceError, AttributeError)):
            setattr(answer, first, None)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_prints_in_lines_of_text(matmul, name):
    for answer in answers(matmul, name):
        lines = answer.lines(80)
        assert lines
        assert all(isinstance(line, str) for line in lines)


def test_there_are_arrays_to_look_at(matmul):
    last = len(matmul) - 1
    assert len(list(arrays_in(matmul.tensor("c", last)))) == 3
    assert len(list(arrays_in(matmul.index.diffs.with_recorded(matmul.check(0))))) == 4
