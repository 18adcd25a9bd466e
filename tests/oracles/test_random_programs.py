"""The debugger's answers about random programs, against a replay that shares no code.

Three programs by default, 50 under ``-m slow``, 500 under ``-m soak``.
"""

from tempfile import TemporaryDirectory

import pytest
from check import checked, checked_all
from tally import Tally

from kernbench.replay.commands import listed


def wrong(tally):
    """What was found wrong, shortened to be read."""
    return [text[:400] for text in tally.found]


@pytest.fixture(scope="module")
def three():
    """What was counted of the first three programs."""
    found = []
    for seed in range(3):
        with TemporaryDirectory() as folder:
            found.append(checked(seed, folder))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_every_answer_about_a_random_program_is_right(seed, three):
    assert not wrong(three[seed])


@pytest.mark.slow
def test_every_answer_about_fifty_of_them_is_right():
    assert not wrong(checked_all(range(50)))


@pytest.mark.soak
def test_every_answer_about_five_hundred_of_them_is_right():
    assert not wrong(checked_all(range(500)))


def test_every_command_that_has_an_answer_is_checked(three):
    counted = {row[0].split()[0] for tally in three for row in tally.rows()}
    assert counted == {command.name for command in listed()} - {"help"}


def test_an_answer_that_differs_is_counted_as_wrong():
    tally = Tally()
    tally.equal("blame", {3: 1}, {3: 2}, "y[0]")
    assert tally.rows() == [("blame", 1, 1)]
    assert wrong(tally) == ["blame: y[0]: got {3: 1}, expected {3: 2}"]
