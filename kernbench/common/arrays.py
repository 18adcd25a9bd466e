"""Names for the numpy arrays that cross rooms, and what numpy does too slowly.

A name is a dtype, of any number of axes. What shape an array has is said where it is
used.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Bools: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]


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


def runs_begin(values: Array) -> Bools:
    """Which items are the first of a run of equal ones."""
    begins = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=begins[1:])
    return begins


def places_in_runs(is_first: Bools) -> Ints:
    """The place of each item in its run, from 0; ``is_first`` says where one begins."""
    at = np.arange(len(is_first))
    return np.asarray(at - np.maximum.accumulate(np.where(is_first, at, 0)))
