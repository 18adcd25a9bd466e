"""One thought a line: the counts of ``how_a_line_reads`` stay within their goals."""

from __future__ import annotations

import how_a_line_reads
import pytest
from how_a_line_reads import ROOT, TREES, Reading, reading_of

GOALS = {
    "tuple assignments a thousand lines": 6,
    "conditional expressions a thousand lines": 15,
    "lines over 88 columns": 0,
}


@pytest.mark.parametrize("tree", TREES)
def test_lines_read_as_they_should(tree):
    counted = dict(reading_of([ROOT / tree]).rows())
    over = {name: counted[name] for name, most in GOALS.items() if counted[name] > most}
    assert not over


def test_each_row_counts_what_it_says():
    reading = Reading()
    reading.add('"""Two\nlines."""\na, b = 1, 2\nc = a if b else 0\nd, e = f()\n')
    assert reading.tuple_assignments == 1
    assert reading.conditional_expressions == 1
    assert reading.docstring_lines == 2
    assert reading.branches == 1
    reading.add(f"x = {'1' * how_a_line_reads.COLUMNS}\n")
    assert reading.long_lines == 1
