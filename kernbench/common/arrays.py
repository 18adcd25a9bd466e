"""Names for the numpy arrays that cross rooms, and what numpy does too slowly.

A name is a dtype, of any number of axes. What shape an array has is said where it is
used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Bools: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

_MOST_KEYS = 1 << 62
"""Numbers up to which one of 64 bits stands for a row of several."""

_ROWS_AT_ONCE = 1 << 17
"""Rows that numpy counts in a millisecond."""

_FEW_KEYS = 1 << 16
"""Values that a table has room for, however few rows there are."""


def as_f64(values: Array, copy: bool = True) -> Floats:
    """Some numbers in f64; without ``copy`` the array itself if it is of that dtype.

    Quietly: data may hold signalling NaN, of which a cast makes quiet ones, and numpy
    would warn.
    """
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64, copy=copy)


def distinct(values: Ints) -> Ints:
    """The values, ascending, each once.

    As ``np.unique``, which since numpy 2.3 counts by a hash table: that takes ten times
    as long for many different numbers, and lets no other thread run meanwhile.
    """
    if not len(values):
        return values
    ascending = np.sort(values)
    return ascending[runs_begin(ascending)]


def distinct_rows(columns: Sequence[Ints]) -> tuple[Array, Ints]:
    """Every combination of values that rows of some columns have, as a table, and by
    row its place there. They ascend by the first column, then by the next.

    As ``np.unique`` with an axis, which compares rows byte by byte: that takes ten
    times as long.
    """
    key = np.zeros(len(columns[0]), np.int64)
    size = 1
    for column in columns:
        least = int(column.min(initial=0))
        span = int(column.max(initial=0)) - least + 1
        if size * span > _MOST_KEYS:
            key, size = _renumbered(key)
        if size * span > _MOST_KEYS:
            column, span = _renumbered(column)
            least = 0
        key = key * span + (column - least)
        size *= span
    key, size = _renumbered(key)
    first = np.empty(size, np.int64)
    first[key[::-1]] = np.arange(len(key))[::-1]
    return np.stack([column[first] for column in columns], 1), key


def _renumbered(key: Ints) -> tuple[Ints, int]:
    """By row the number of its value among all there are, and how many these are."""
    values, which = numbered(key)
    return which, len(values)


def numbered(values: Array) -> tuple[Array, Ints]:
    """The values, ascending, each once; by row the place of its value among them.

    As ``np.unique`` with the inverse, which keeps other threads waiting while it counts
    what differs, and sorts. Whole numbers that span no more than there are rows, or
    some, are looked up in a table, which takes a quarter of the time.
    """
    if values.dtype.kind in "iu" and len(values):
        least, most = int(values.min()), int(values.max())
        span = most - least + 1
        if span <= max(_FEW_KEYS, len(values)) and most < 1 << 63:
            at = values.astype(np.int64) - least
            there = np.zeros(span, np.bool_)
            there[at] = True
            used = np.flatnonzero(there) + least
            return used.astype(values.dtype), (running_count(there) - 1)[at]
    order = np.argsort(values)
    ascending = values[order]
    begins = runs_begin(ascending)
    which = np.empty(len(values), np.int64)
    which[order] = running_count(begins) - 1
    return ascending[begins], which


def running_count(flags: Array) -> Ints:
    """How many of some flags are set up to each; of whole numbers, their sum.

    As ``np.cumsum``, which keeps other threads waiting where it has to widen.
    """
    return np.cumsum(flags.astype(np.int64, copy=False))


def counted(values: Array, count: int) -> Ints:
    """How many of ``values`` are 0, how many 1, up to ``count`` - 1.

    As ``np.bincount``, which keeps other threads waiting until all are counted.
    ValueError if one is negative.
    """
    if values.min(initial=0) < 0:
        raise ValueError("a negative value cannot be counted")
    found = np.zeros(count, np.int64)
    for low in range(0, len(values), _ROWS_AT_ONCE):
        np.add.at(found, values[low : low + _ROWS_AT_ONCE], 1)
    return found


def repeated(values: Array, counts: Ints) -> Array:
    """Each of ``values`` as often as ``counts`` says, one after the other.

    As ``np.repeat``, which keeps other threads waiting. It is left to that where it
    takes about a millisecond.
    """
    total = int(counts.sum())
    if total <= _ROWS_AT_ONCE:
        return np.repeat(values, counts)
    some = np.flatnonzero(counts)
    begins = (np.cumsum(counts) - counts)[some]
    steps = np.zeros(total, np.int64)
    steps[begins] = np.diff(some, prepend=0)
    return np.asarray(values[np.cumsum(steps)])


def runs_begin(values: Array) -> Bools:
    """Which items are the first of a run of equal ones."""
    begins = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=begins[1:])
    return begins


def places_in_runs(is_first: Bools) -> Ints:
    """The place of each item in its run, from 0; ``is_first`` says where one begins."""
    at = np.arange(len(is_first))
    return np.asarray(at - np.maximum.accumulate(np.where(is_first, at, 0)))
