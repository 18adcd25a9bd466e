"""Rows by the value of a column, against looking at every row."""

import numpy as np
import pytest

from kernbench.trace.groups import Groups


def keys_of(dtype, count, below, with_largest):
    """Keys as logs have them: small numbers, now and then the largest for none."""
    rng = np.random.default_rng(count * 1000 + below)
    low = 0 if dtype.startswith("u") else -3
    keys = rng.integers(low, below, count).astype(dtype)
    if with_largest and count:
        keys[rng.integers(0, count, 3)] = np.iinfo(dtype).max
    return keys


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "i2", "i4", "i8", "u8"])
@pytest.mark.parametrize("with_largest", [False, True])
@pytest.mark.parametrize(("count", "below"), [(0, 1), (1, 1), (5, 100), (200, 40)])
def test_every_key_has_its_rows(dtype, with_largest, count, below):
    keys = keys_of(dtype, count, below, with_largest)
    groups = Groups(keys)
    wanted = np.arange(0 if dtype.startswith("u") else -5, 120).astype(dtype)
    for values in (wanted, np.append(wanted, np.iinfo(dtype).max).astype(dtype)):
        rows = [np.flatnonzero(keys == value).tolist() for value in values]
        first = [mine[0] if mine else -1 for mine in rows]
        assert groups.first(values).tolist() == first
        assert [groups.of(value).tolist() for value in values.tolist()] == rows
        place, joined = groups.join(values)
        pairs = [(at, row) for at, mine in enumerate(rows) for row in mine]
        assert [*zip(place.tolist(), joined.tolist(), strict=True)] == pairs


def test_rows_may_have_other_numbers():
    groups = Groups(np.array([7, 3, 7], "u4"), np.array([10, 11, 12]))
    assert groups.of(7).tolist() == [10, 12]
    assert groups.first(np.array([3, 4])).tolist() == [11, -1]
