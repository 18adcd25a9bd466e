"""Which items of two sequences belong together, beside a table of all lengths."""

import numpy as np
import pytest
from hypothesis import strategies as st
from pace import for_all

from kernbench.replay.alignment import aligned, common

KEYS = st.lists(st.integers(0, 4), max_size=14)


def longest(a, b):
    """The length of a longest common subsequence, by the table of all beginnings."""
    lengths = np.zeros((len(a) + 1, len(b) + 1), int)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            best = max(lengths[i, j + 1], lengths[i + 1, j])
            lengths[i + 1, j + 1] = lengths[i, j] + 1 if x == y else best
    return lengths[-1, -1]


def keys(numbers):
    return np.array(numbers, np.uint64)


def check(pairs, a, b):
    """Pairs are of one key, and in the order of both."""
    assert np.array_equal(keys(a)[pairs.a], keys(b)[pairs.b])
    assert (np.diff(pairs.a) > 0).all()
    assert (np.diff(pairs.b) > 0).all()


@for_all(a=KEYS, b=KEYS, fast=80, whole=500)
def test_a_short_subsequence_is_a_longest_one(a, b):
    pairs = common(keys(a), keys(b))
    check(pairs, a, b)
    assert len(pairs.a) == longest(a, b)


@for_all(a=KEYS, b=KEYS, parts=st.integers(1, 3), fast=40, whole=200)
def test_parts_are_aligned_each_for_itself(a, b, parts):
    gaps = [
        (
            len(a) * part // parts,
            len(a) * (part + 1) // parts,
            len(b) * part // parts,
            len(b) * (part + 1) // parts,
        )
        for part in range(parts)
    ]
    pairs = aligned([(keys(a), keys(b))], np.array(gaps))
    check(pairs, a, b)
    wanted = sum(longest(a[low:end], b[first:last]) for low, end, first, last in gaps)
    assert len(pairs.a) == wanted


@for_all(a=KEYS, b=KEYS, fast=40, whole=200)
def test_what_has_no_partner_by_the_strict_key_may_have_one_by_the_next(a, b):
    strict = (keys(a), keys(b))
    loose = (keys(a) // keys(2), keys(b) // keys(2))
    whole = np.array([(0, len(a), 0, len(b))])
    first = aligned([strict], whole)
    both = aligned([strict, loose], whole)
    check(both, loose[0], loose[1])
    assert set(zip(first.a, first.b, strict=True)) <= set(
        zip(both.a, both.b, strict=True)
    )
    # nothing that could still be matched between two partners is left
    low_a = 0
    low_b = 0
    for at_a, at_b in [*zip(both.a, both.b, strict=True), (len(a), len(b))]:
        assert not set(loose[0][low_a:at_a]) & set(loose[1][low_b:at_b])
        low_a = at_a + 1
        low_b = at_b + 1


def spoiled(items, rng, edits):
    """A sequence with so many of its items taken out, and as many put in."""
    left = np.delete(items, rng.choice(len(items), edits, replace=False))
    return np.insert(left, rng.integers(0, len(left), edits), keys([1 << 50]))


@pytest.mark.parametrize("kinds", [20, 1 << 40], ids=["few keys", "many keys"])
def test_of_long_sequences_hardly_a_partner_is_lost(kinds):
    rng = np.random.default_rng(0)
    items = rng.integers(0, kinds, 30_000).astype(np.uint64)
    edits = 300
    pairs = common(items, spoiled(items, rng, edits))
    assert len(pairs.a) >= len(items) - edits - 10


def test_a_long_loop_whose_turns_are_alike_is_aligned_turn_by_turn():
    turn = [5, 6, 7, 8, 9]
    one = keys(turn * 6_000)
    other = keys([*turn, 1] * 6_000)
    pairs = common(one, other)
    assert len(pairs.a) == len(one)


def test_sequences_that_share_nothing_have_no_partners():
    assert len(common(keys([1] * 20_000), keys([2] * 20_000)).a) == 0
    assert len(common(keys([]), keys([2])).a) == 0


def test_two_long_halves_that_changed_places_keep_one_of_them():
    one = keys(range(20_000))
    other = np.concatenate([one[10_000:], one[:10_000]])
    assert len(common(one, other).a) == 10_000
