"""What `kernbench perf sweep` measures; the figures are its own affair."""

import math

import pytest

from kernbench.perf import sweep as perf

pytestmark = pytest.mark.slow


def test_it_measures_what_the_goals_name():
    rows = perf.measure(points=4, rounds=1, sample=4)
    assert [row.name for row in rows] == [
        "4 points, 2 processes / 1",
        "a sweep beside its points, a point",
        "40 points screened, 4 run / all run",
    ]
    assert all(math.isfinite(row.measured) and row.measured > 0 for row in rows)
