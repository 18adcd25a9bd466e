"""The debugger's answers about random programs, against a replay that shares no code.

Three programs in CI, 500 under ``-m soak``.
"""

from tempfile import TemporaryDirectory

import pytest
from asked_of_ops import check_cause
from check import checked, checked_all
from tally import Tally

from kernbench import docs
from kernbench.replay.commands import listed

FEW = range(2, 5)  # which have among them all that commands ask for
HEADING = "## How right the answers are"

NOT_CHECKED = {"help", "activity", "whatif", "diagnose", "texts"}
"""Commands that no oracle here knows the answer of; that of activity is counted in
tests/replay/time/test_activity.py, what whatif predicts is run in
tests/replay/whatif/test_whatif_predictions.py, and what diagnose finds was put into
kernels by tests/replay/diagnosis/test_diagnose.py. Nothing here prints:
texts are counted in tests/replay/test_texts.py.
"""


def wrong(tally):
    """What was found wrong, shortened to be read."""
    return [text[:400] for text in tally.found]


@pytest.fixture(scope="module")
def three():
    """What was counted of three programs, by their seeds."""
    found = {}
    for seed in FEW:
        with TemporaryDirectory() as folder:
            found[seed] = checked(seed, folder)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", FEW)
def test_every_answer_about_a_random_program_is_right(seed, three):
    assert not wrong(three[seed])


def check_causes(case):
    """What every op waited for, and what waited for it."""
    for op in case.recording.ops:
        check_cause(case, op)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [24, 54])
def test_what_was_held_in_program_order_leads_to_what_held_it(seed, tmp_path):
    """The few that are asked about at random had none: one op in eighty has."""
    assert not wrong(checked(seed, tmp_path, [check_causes]))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 500, 50))
def test_every_answer_about_five_hundred_of_them_is_right(first):
    assert not wrong(checked_all(range(first, first + 50)))


def counted_in(tallies):
    """The rows that some programs have counts for."""
    return {row[0] for tally in tallies.values() for row in tally.rows()}


def rows_of_the_docs():
    """(command, checks, wrong) of the table in docs/debugger.md."""
    section = docs.page("debugger").partition(HEADING)[2].partition("\n## ")[0]
    for line in section.splitlines():
        if line.startswith("| `"):
            name, checks, wrong = line.strip("| ").split(" | ")
            yield name.strip("`"), int(checks.replace(",", "")), int(wrong)


@pytest.mark.slow
def test_the_table_of_the_docs_has_what_is_counted(three):
    # Stale operands are rare: not every three programs have one.
    rare = {"blame STALE"}
    counted = counted_in(three) | rare
    assert {name for name, _, _ in rows_of_the_docs()} == counted


def test_nothing_in_the_table_of_the_docs_is_wrong():
    assert all(checks > 0 and not wrong for _, checks, wrong in rows_of_the_docs())


@pytest.mark.slow
def test_every_command_that_has_an_answer_is_checked(three):
    counted = {name.split()[0] for name in counted_in(three)}
    assert counted == {command.name for command in listed()} - NOT_CHECKED


def test_an_answer_that_differs_is_counted_as_wrong():
    tally = Tally()
    tally.equal("blame", {3: 1}, {3: 2}, "y[0]")
    assert tally.rows() == [("blame", 1, 1)]
    assert wrong(tally) == ["blame: y[0]: got {3: 1}, expected {3: 2}"]
