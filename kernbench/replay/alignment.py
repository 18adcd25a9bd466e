"""Which items of two sequences belong together: common subsequences of their keys.

An item is known by numbers alone. Of short sequences the common subsequence is a
longest one; long ones are first cut where items surely belong together, so that a
million items take seconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Ints
from kernbench.common.progress import (
    Progress,
    beside_if_many,
    no_progress,
    stage,
)
from kernbench.trace.groups import ranges

_EXACT = 1 << 26
"""Product of two lengths up to which a common subsequence is a longest one."""

_WINDOW = 1 << 12
"""Items of each sequence that are aligned at a time where both are long and regular."""

_EVERY = 256
"""Short turns of a loop between two calls of progress."""

_KNUTH = np.uint64(0x9E3779B97F4A7C15)
"""2 ** 64 over the golden ratio: Knuth's multiplicative hash."""

_SHIFT = np.uint64(29)


class Pairs(NamedTuple):
    """Items that belong together: item ``a[i]`` of one sequence, ``b[i]`` of the other.

    Both ascend.
    """

    a: Ints
    b: Ints


def mixed(key: Array | np.uint64, column: Array) -> Array:
    """Hashes of pairs of a number and another; the first may be a hash, too.

    Of two pairs the hashes differ if the first numbers are hashes: of 64 random bits.
    """
    hashes = np.asarray(key ^ column.astype(np.uint64, copy=False))
    hashes *= _KNUTH
    hashes ^= hashes >> _SHIFT
    return hashes


def aligned(
    levels: Sequence[tuple[Array, Array]],
    gaps: Ints,
    progress: Progress = no_progress,
) -> Pairs:
    """The items of two sequences that belong together.

    A row of ``gaps`` is (first, end) of one sequence and (first, end) of the other: a
    part of both that is aligned for itself. ``levels`` are keys of all items of both,
    the strictest first: items that have no partner by one level may have one by the
    next, between the partners that are known by then.
    """
    found = [Pairs(np.empty(0, np.int64), np.empty(0, np.int64))]
    for number, (keys_a, keys_b) in enumerate(levels):
        part = stage(progress, number / len(levels), (number + 1) / len(levels))
        pairs, left = _alike_gaps(keys_a, keys_b, gaps, part)
        found.append(pairs)
        further = [np.empty((0, 4), np.int64)]
        for count, (a, a_end, b, b_end) in enumerate(left.tolist()):
            if count % _EVERY == 0:
                part(count / len(left))
            pairs = common(keys_a[a:a_end], keys_b[b:b_end], part)
            pairs = Pairs(pairs.a + a, pairs.b + b)
            found.append(pairs)
            further.append(_between(pairs, (a, a_end, b, b_end)))
        gaps = np.concatenate(further)
    a, b = (np.concatenate(side) for side in zip(*found, strict=True))
    order = np.argsort(a)
    return Pairs(a[order], b[order])


def _alike_gaps(
    keys_a: Array, keys_b: Array, gaps: Ints, progress: Progress
) -> tuple[Pairs, Ints]:
    """The items of all gaps whose two parts are the same, and the other gaps."""

    def compared() -> tuple[Pairs, Ints]:
        firsts_a, ends_a, firsts_b, ends_b = gaps.T
        sizes = ends_a - firsts_a
        is_alike = (sizes == ends_b - firsts_b) & (sizes > 0)
        sizes = sizes[is_alike]
        a = ranges(firsts_a[is_alike], sizes)
        b = ranges(firsts_b[is_alike], sizes)
        if len(sizes):
            starts = np.cumsum(sizes) - sizes
            is_same = np.logical_and.reduceat(keys_a[a] == keys_b[b], starts)
            is_alike[is_alike] = is_same
            kept = np.repeat(is_same, sizes)
            a = a[kept]
            b = b[kept]
        return Pairs(a, b), gaps[~is_alike]

    return beside_if_many(len(keys_a), compared, progress, 0.0)


def _between(pairs: Pairs, gap: tuple[int, int, int, int]) -> Ints:
    """The gaps that pairs leave within one, where both sequences have items."""
    first_a, end_a, first_b, end_b = gap
    a = np.concatenate([[first_a - 1], pairs.a, [end_a]])
    b = np.concatenate([[first_b - 1], pairs.b, [end_b]])
    is_gap = (np.diff(a) > 1) & (np.diff(b) > 1)
    columns = (a[:-1] + 1, a[1:], b[:-1] + 1, b[1:])
    return np.stack(columns, 1)[is_gap]


# -- one part of both ------------------------------------------------------------------


def common(a: Array, b: Array, progress: Progress = no_progress) -> Pairs:
    """A common subsequence of two sequences of keys, as places in both.

    It is a longest one unless what is left of both, without equal ends and without what
    the other lacks, is too long: then items with which a run begins that is once in
    both are taken for partners, and what is between is aligned. Where there is no such
    run a window slides over both.
    """
    found = list[Pairs]()
    todo = [Pairs(np.arange(len(a)), np.arange(len(b)))]
    while todo:
        at_a, at_b = todo.pop()
        progress(0.5)
        head = _same(a[at_a], b[at_b])
        found.append(Pairs(at_a[:head], at_b[:head]))
        at_a = at_a[head:]
        at_b = at_b[head:]
        tail = _same(a[at_a[::-1]], b[at_b[::-1]])
        end_a = len(at_a) - tail
        end_b = len(at_b) - tail
        found.append(Pairs(at_a[end_a:], at_b[end_b:]))
        left = Pairs(at_a[:end_a], at_b[:end_b])
        kept = _in_both(a, b, left, progress)
        if not len(kept.a):
            continue
        if len(kept.a) * len(kept.b) <= _EXACT:
            keys_a = a[kept.a].tolist()
            pairs = _longest(keys_a, b[kept.b].tolist(), progress)
        elif len(kept.a) + len(kept.b) < len(left.a) + len(left.b):
            todo.append(kept)
            continue
        else:
            pairs = _anchors(a[kept.a], b[kept.b], progress)
            if not len(pairs.a):
                pairs = _by_windows(a[kept.a], b[kept.b], progress)
                found.append(Pairs(kept.a[pairs.a], kept.b[pairs.b]))
                continue
            whole = (0, len(kept.a), 0, len(kept.b))
            for first_a, last_a, first_b, last_b in _between(pairs, whole).tolist():
                part = Pairs(kept.a[first_a:last_a], kept.b[first_b:last_b])
                todo.append(part)
        found.append(Pairs(kept.a[pairs.a], kept.b[pairs.b]))
    places_a, places_b = (np.concatenate(side) for side in zip(*found, strict=True))
    order = np.argsort(places_a)
    return Pairs(places_a[order], places_b[order])


def _same(a: Array, b: Array) -> int:
    """How many items at the beginning of two sequences are the same."""
    size = min(len(a), len(b))
    differ = np.flatnonzero(a[:size] != b[:size])
    if len(differ):
        return int(differ[0])
    return size


def _in_both(a: Array, b: Array, left: Pairs, progress: Progress) -> Pairs:
    """Those of some places whose key is also at one of the other's places."""

    def kept() -> Pairs:
        keys_a = a[left.a]
        keys_b = b[left.b]
        in_b = np.isin(keys_a, keys_b)
        in_a = np.isin(keys_b, keys_a)
        return Pairs(left.a[in_b], left.b[in_a])

    return beside_if_many(len(left.a) + len(left.b), kept, progress, 0.5)


def _longest(a: Sequence[int], b: Sequence[int], progress: Progress) -> Pairs:
    """A longest common subsequence of two lists of keys.

    A row of the classic table is one integer: bit i is 0 where the longest grows with
    item i of ``a``. The next row takes a few operations on that (Hyyrö 2004,
    "Bit-parallel LCS-length computation revisited").
    """
    places = defaultdict[int, int](int)
    for place, key in enumerate(a):
        places[key] |= 1 << place
    full = (1 << len(a)) - 1
    row = full
    rows = [row]
    for place, key in enumerate(b):
        if place % _EVERY == 0:
            progress(0.5)
        grows = row & places[key]
        row = ((row + grows) | (row - grows)) & full
        rows.append(row)
    pairs_a = list[int]()
    pairs_b = list[int]()
    at_a = len(a) - 1
    at_b = len(b) - 1
    while at_a >= 0 and at_b >= 0:
        if (at_a + at_b) % _EVERY == 0:
            progress(0.5)
        if rows[at_b + 1] >> at_a & 1:
            at_a -= 1
        elif not rows[at_b] >> at_a & 1:
            at_b -= 1
        else:
            pairs_a.append(at_a)
            pairs_b.append(at_b)
            at_a -= 1
            at_b -= 1
    return Pairs(np.array(pairs_a[::-1], np.int64), np.array(pairs_b[::-1], np.int64))


def _by_windows(a: Array, b: Array, progress: Progress) -> Pairs:
    """A common subsequence of two sequences in which nothing is the only one of its
    kind, as of a loop that does the same in every turn.

    A window slides over both. What is found in its first half is kept, and the next
    begins behind that.
    """
    found = [Pairs(np.empty(0, np.int64), np.empty(0, np.int64))]
    at_a = 0
    at_b = 0
    while at_a < len(a) and at_b < len(b):
        end_a = at_a + _WINDOW
        end_b = at_b + _WINDOW
        pairs = _longest(a[at_a:end_a].tolist(), b[at_b:end_b].tolist(), progress)
        kept = len(pairs.a)
        next_a = end_a
        next_b = end_b
        if end_a < len(a) or end_b < len(b):
            kept = int(np.searchsorted(pairs.a + pairs.b, _WINDOW))
        if kept < len(pairs.a):
            next_a = at_a + int(pairs.a[kept])
            next_b = at_b + int(pairs.b[kept])
        found.append(Pairs(pairs.a[:kept] + at_a, pairs.b[:kept] + at_b))
        at_a = next_a
        at_b = next_b
    places_a, places_b = (np.concatenate(side) for side in zip(*found, strict=True))
    return Pairs(places_a, places_b)


def _anchors(a: Array, b: Array, progress: Progress) -> Pairs:
    """Items with which a run begins that is once in both, as many as are in order."""

    def once_in_both() -> Pairs:
        at_a = _once(_runs(a))
        at_b = _once(_runs(b))
        _, in_a, in_b = np.intersect1d(
            _runs(a)[at_a], _runs(b)[at_b], assume_unique=True, return_indices=True
        )
        order = np.argsort(at_a[in_a])
        return Pairs(at_a[in_a][order], at_b[in_b][order])

    pairs = beside_if_many(len(a) + len(b), once_in_both, progress, 0.5)
    kept = _ascending(pairs.b.tolist(), progress)
    return Pairs(pairs.a[kept], pairs.b[kept])


def _runs(keys: Array) -> Array:
    """Hashes of the 32 keys from each place on, as far as there are so many."""
    hashes = mixed(keys.astype(np.uint64), np.zeros(1))
    for length in (1, 2, 4, 8, 16):
        hashes = mixed(hashes[:-length], hashes[length:])
    return hashes


def _once(keys: Array) -> Ints:
    """The places of the keys that are there once."""
    order = np.argsort(keys, kind="stable")
    ascending = keys[order]
    is_new = np.ones(len(keys) + 1, np.bool_)
    is_new[1:-1] = ascending[1:] != ascending[:-1]
    return order[is_new[:-1] & is_new[1:]]


def _ascending(values: Sequence[int], progress: Progress) -> Ints:
    """The places of a longest ascending subsequence of values that all differ."""
    lasts = list[int]()  # the least value that a subsequence of each length ends with
    places = [-1]  # where that is, of no length nowhere
    before = list[int]()  # the place before each in the longest that ends there
    for place, value in enumerate(values):
        if place % _EVERY == 0:
            progress(0.5)
        length = bisect_left(lasts, value)
        before.append(places[length])
        if length == len(lasts):
            lasts.append(value)
            places.append(place)
        else:
            lasts[length] = value
            places[length + 1] = place
    found = list[int]()
    at = places[-1]
    while at >= 0:
        found.append(at)
        at = before[at]
    return np.array(found[::-1], np.int64)
