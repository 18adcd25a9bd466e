"""What the Memory, Diff and Stats panes ask beside the commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernbench.common.progress import Cancelled, Progress
from kernbench.errors import KernbenchError
from kernbench.replay import ReplaySession
from kernbench.replay.commands import COMMANDS, answer
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import (
    ACCESSES_TO,
    COMPARISON,
    CRITICAL_STEPS,
    DIVERGENCE_TEXT,
    EXECUTES_SOON,
    FIRST_DIVERGENCE,
    HELD_ALLOCATIONS,
    JUDGEMENT,
    TOUCH_ROWS,
)
from kernbench.trace import Trace

TRACES = Path(__file__).parents[2] / "traces"


def index_of(name: str) -> Index:
    """A bundled trace, of which nothing is known yet."""
    return Index(Trace.open(TRACES / f"{name}.msgpack"))


@pytest.fixture
def matmul() -> Index:
    """The matmul."""
    return index_of("matmul")


@pytest.fixture
def overflow() -> Index:
    """A run of which the third op overflows."""
    return index_of("fault_overflow")


# -- memory ---------------------------------------------------------------------------


def test_as_many_allocations_are_listed_as_are_asked_for(matmul: Index) -> None:
    few = answer(matmul, HELD_ALLOCATIONS.ask(40, count=3))
    many = answer(matmul, HELD_ALLOCATIONS.ask(40, count=100))
    assert len(few.entries) == 3
    assert few.entries == many.entries[:3]
    assert few.total == many.total == len(many.entries)


@pytest.mark.parametrize("place", ["c[3,17]", "c[0:2, :]", "c"])
def test_accesses_to_a_place_are_those_of_the_command(
    matmul: Index, place: str
) -> None:
    found = answer(matmul, ACCESSES_TO.ask(place=place))
    wanted = ReplaySession(matmul.trace).history_of(place).rows
    assert found.ops.tolist() == [touch.op.op for touch in wanted]
    numbers = tuple(found.numbers.tolist())
    assert answer(matmul, TOUCH_ROWS.ask(numbers=numbers)) == wanted


def test_accesses_cannot_be_written_to(matmul: Index) -> None:
    found = answer(matmul, ACCESSES_TO.ask(place="c"))
    assert not found.ops.flags.writeable
    assert not found.numbers.flags.writeable


# -- comparisons ----------------------------------------------------------------------


def test_a_comparison_is_that_of_the_command_without_its_numbers(
    matmul: Index,
) -> None:
    found = answer(matmul, COMPARISON.ask(17, output=""))
    diff = matmul.diffs.of(17)
    assert (found.name, found.note, found.row) == (diff.name, diff.note, diff.row)
    assert (found.space, found.addr, found.origin) == (
        diff.space,
        diff.addr,
        diff.origin,
    )
    assert found.element_bytes == 2
    assert found.row_elements == diff.actual.shape[1]
    assert found.grid.shape == diff.actual.shape


def test_an_output_is_compared_with_what_the_bench_expects_of_it(
    overflow: Index,
) -> None:
    found = answer(overflow, COMPARISON.ask(5, output="y"))
    diff = ReplaySession(overflow.trace).output("y", 5)
    assert found.row == diff.row
    assert found.grid.marks.count == diff.row.mismatches
    first = np.ravel_multi_index(diff.row.first_bad, found.grid.shape)
    assert found.grid.marks.first == first


# -- judgements -----------------------------------------------------------------------


def test_a_judgement_has_the_accumulated_error_once_all_was_executed(
    matmul: Index,
) -> None:
    before = answer(matmul, JUDGEMENT.ask(16, divergence=False))
    answer(matmul, FIRST_DIVERGENCE.ask())
    after = answer(matmul, JUDGEMENT.ask(16, divergence=True))
    assert before.check.accumulated is None
    assert after.check.accumulated is not None
    assert before.check.local == after.check.local


def test_a_judgement_says_how_far_off_phase_1_was(overflow: Index) -> None:
    found = answer(overflow, JUDGEMENT.ask(1, divergence=False))
    assert (found.source, found.apart) == ("Phase 1 at op 2", 0.0)


# -- the first divergence -------------------------------------------------------------


def test_the_first_divergence_is_that_of_the_command(overflow: Index) -> None:
    assert answer(overflow, FIRST_DIVERGENCE.ask()).op == 2
    text = answer(overflow, DIVERGENCE_TEXT.ask(width=70))
    wanted = ReplaySession(overflow.trace).first_divergence().lines(70)
    assert list(text) == wanted


def test_where_rounding_explains_all_there_is_no_divergence(matmul: Index) -> None:
    found = answer(matmul, FIRST_DIVERGENCE.ask())
    assert (found.op, found.error) == (-1, "")


def test_what_prevents_the_search_for_a_divergence_is_part_of_its_answer(
    matmul: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(progress: Progress) -> None:
        raise KernbenchError("refused")

    monkeypatch.setattr(matmul.diffs, "first_divergence", refused)
    assert answer(matmul, FIRST_DIVERGENCE.ask()).error == "refused"


def test_a_search_for_a_divergence_can_be_cancelled(matmul: Index) -> None:
    def cancelled(done: float) -> None:
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        answer(matmul, FIRST_DIVERGENCE.ask(), cancelled)
    assert answer(matmul, FIRST_DIVERGENCE.ask()).op == -1


def test_a_short_run_is_executed_unasked(matmul: Index) -> None:
    assert answer(matmul, EXECUTES_SOON.ask()) is True


# -- time -----------------------------------------------------------------------------


def test_the_critical_path_in_short_has_no_pieces(matmul: Index) -> None:
    found = answer(matmul, CRITICAL_STEPS.ask(count=500))
    path = ReplaySession(matmul.trace).critical_path(500)
    assert (found.totals, found.by_line, found.steps) == (
        path.totals,
        path.by_line,
        path.steps,
    )
    assert len(found.times) == len(found.whats) == len(found.ops) == 0


# -- the table ------------------------------------------------------------------------


def test_what_only_panes_ask_is_not_offered_to_users() -> None:
    mine = (HELD_ALLOCATIONS, ACCESSES_TO, COMPARISON, JUDGEMENT, CRITICAL_STEPS)
    assert all(command in COMMANDS and not command.listed for command in mine)
