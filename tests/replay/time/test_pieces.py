"""Spans of several kinds, cut into pieces that count as one kind each."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from kernbench.common.messages import WAIT_REASONS
from kernbench.replay.time.pieces import KINDS, NO_KIND, Spans, cut

SPANS = st.lists(
    st.tuples(
        st.integers(0, 2),  # owner
        st.integers(0, 20),  # begin
        st.integers(1, 10),  # length
        st.sampled_from(["compute", "load", "engine", "link", "issue", "unexplained"]),
    ),
    max_size=15,
)


def cut_of(spans):
    """The pieces of spans given as (owner, begin, length, kind)."""
    owner = np.array([span[0] for span in spans], np.int64)
    low = np.array([span[1] for span in spans], np.float64)
    length = np.array([span[2] for span in spans], np.float64)
    kind = np.array([KINDS.index(span[3]) for span in spans], np.int64)
    return cut(Spans(owner, low, low + length, kind))


def by_hand(spans):
    """(owner, kind, reason, ns) of every piece, found one after the other."""
    found = []
    for owner in sorted({span[0] for span in spans}):
        mine = [span for span in spans if span[0] == owner]
        begins = {begin for _, begin, _, _ in mine}
        ends = {begin + length for _, begin, length, _ in mine}
        for a, b in pairwise(sorted(begins | ends)):
            holds = {
                kind
                for _, begin, length, kind in mine
                if begin <= a and begin + length >= b
            }
            first = next((kind for kind in KINDS if kind in holds), "idle")
            reason = next((kind for kind in WAIT_REASONS if kind in holds), None)
            found.append((owner, first, reason, float(b - a)))
    return found


@given(spans=SPANS)
def test_a_piece_counts_as_the_first_kind_that_holds_and_names_the_first_wait(spans):
    pieces = cut_of(spans)
    found = []
    for owner, kind, reason, ns in zip(*(p.tolist() for p in pieces), strict=True):
        waited = None if reason == NO_KIND else KINDS[reason]
        found.append((owner, KINDS[kind], waited, ns))
    assert found == by_hand(spans)


def test_no_spans_have_no_pieces():
    assert all(len(column) == 0 for column in cut_of([]))
