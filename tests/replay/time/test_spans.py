"""The window of a question, and how much of one is covered."""

import numpy as np
import pytest

from kernbench.errors import UsageError
from kernbench.replay.time.spans import covered, window


def test_no_moment_is_covered_twice_or_from_outside():
    spans = np.array([(0.0, 4.0), (1.0, 3.0), (2.0, 6.0), (8.0, 99.0)])
    starts, ends = spans.T
    assert covered(starts, ends, 1.0, 10.0) == 5.0 + 2.0


@pytest.mark.parametrize(
    ("t0", "t1", "wanted"),
    [
        (None, None, (10.0, 20.0)),
        (12.0, None, (12.0, 20.0)),
        (None, 15.0, (10.0, 15.0)),
        (0.0, 99.0, (0.0, 99.0)),
    ],
)
def test_a_window_has_the_ends_that_are_not_given_from_the_whole(t0, t1, wanted):
    assert window((10.0, 20.0), t0, t1) == wanted


def test_a_window_that_ends_before_it_starts_is_refused():
    with pytest.raises(UsageError, match="from 20 to 10 ns: the end must lie after"):
        window((0.0, 100.0), 20.0, 10.0)
