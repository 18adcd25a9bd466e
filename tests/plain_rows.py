"""Rows of bytes by loops alone, and random rows none of which overlaps another."""

from itertools import product

import hypothesis.strategies as st

from kernbench.common.rows import Rows


def bytes_of(rows):
    """The address of each byte, in order."""
    counts = [count for count, _ in rows.planes] + [rows.rows]
    pitches = [pitch for _, pitch in rows.planes] + [rows.pitch]
    found = []
    for index in product(*map(range, counts)):
        start = rows.addr + sum(i * p for i, p in zip(index, pitches, strict=True))
        found += range(start, start + rows.row_bytes)
    return found


@st.composite
def some_rows(draw, end, axes, counts, pitches):
    """Rows within ``end`` bytes, none of which shares a byte with another.

    ``axes`` and ``counts`` draw how many axes there are and how many rows along one,
    ``pitches(within)`` draws a distance of rows that take ``within`` bytes each.
    """
    row_bytes = draw(st.integers(1, 6))
    within = row_bytes
    found = []
    for _ in range(draw(axes)):
        count = draw(counts)
        pitch = draw(pitches(within))
        found.append((count, pitch))
        within += pitch * (count - 1)
    found = draw(st.permutations(found))
    rows = Rows.of(0, tuple(found), row_bytes)
    return rows.at(draw(st.integers(0, end - rows.span)))
