"""The values that an axis has by what YAML says."""

import pytest

from kernbench.errors import UsageError
from kernbench.sweep.axes import read_axis


def values(given):
    return list(read_axis("set", "m", given).values)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (64, [64]),
        ([64, 128], [64, 128]),
        (["f16", True, None, 1.5], ["f16", True, None, 1.5]),
        ({"from": 64, "to": 256, "step": 64}, [64, 128, 192, 256]),
        ({"from": 64, "to": 250, "step": 64}, [64, 128, 192]),
        ({"from": 1, "to": 4}, [1, 2, 3, 4]),
        ({"from": 0.1, "to": 0.5, "step": 0.1}, [0.1, 0.2, 0.3, 0.4, 0.5]),
        ({"from": "1e3", "to": "3e3", "step": "1e3"}, [1000.0, 2000.0, 3000.0]),
        ({"from": 1, "to": 20, "factor": 2}, [1, 2, 4, 8, 16]),
        ({"from": 0.5, "to": 2, "factor": 2}, [0.5, 1.0, 2.0]),
        ({"from": 0.1, "to": 0.9, "factor": 3}, [0.1, 0.3, 0.9]),
        ({"from": 1.0, "to": 1.331, "factor": 1.1}, [1.0, 1.1, 1.21, 1.331]),
        ({"from": 1, "to": 2, "count": 3}, [1, 1.5, 2]),
        ({"from": 1.15, "to": 5.44, "count": 4}, [1.15, 2.58, 4.01, 5.44]),
        ({"from": 8, "to": 8}, [8]),
    ],
)
def test_an_axis_has_the_values_that_are_meant(given, expected):
    assert values(given) == expected
    assert list(map(type, values(given))) == list(map(type, expected))


def test_a_range_of_fractions_without_a_step_has_every_number():
    axis = read_axis("spec", "pe.clock_ghz", {"from": 0.5, "to": 2.0})
    assert axis.values is None
    assert axis.is_varied
    assert [axis.at(0), axis.at(0.5)] == [0.5, 1.25]


def test_whole_numbers_are_not_written_out():
    axis = read_axis("set", "m", {"from": 1, "to": 10**12})
    assert len(axis.values) == 10**12
    assert axis.at(0.5) == 5 * 10**11 + 1


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "no values, so the space is empty"),
        ([[1]], "not a list"),
        ([{"a": 1}], "not a dict"),
        ({}, "a range has from and to"),
        ({"from": 1}, "a range has from and to"),
        ({"from": 1, "to": 2, "by": 1}, "a range has from and to"),
        ({"from": 1, "to": 2, "step": 1, "count": 2}, "a range has from and to"),
        ({"from": 2, "to": 1}, "from 2 to 1 has no values"),
        ({"from": 1, "to": 2, "step": 0}, "must be more than 0"),
        ({"from": 1, "to": 2, "step": -1}, "must be more than 0"),
        ({"from": 0, "to": 2, "factor": 2}, "begins above 0"),
        ({"from": 1, "to": 2, "factor": 1}, "its factor is more than 1"),
        ({"from": 1, "to": 2, "count": 1}, "must be 2 or more"),
        ({"from": 1, "to": 2, "count": 2.5}, "must be 2 or more"),
        ({"from": 0, "to": 1, "step": 1e-9}, "1,000,000,001 values"),
        ({"from": 1, "to": 2, "factor": 1.0000000001}, "values; a range"),
        ({"from": 1, "to": 2, "count": 10**9}, "1,000,000,000 values"),
        ({"from": "x", "to": 2}, "must be a number"),
        ({"from": True, "to": 2}, "must be a number"),
        ({"from": 1, "to": float("inf")}, "must be a number"),
        ({"from": float("nan"), "to": 1}, "must be a number"),
        ({1: 2}, "a range has from and to"),
    ],
)
def test_a_wrong_axis_names_itself_and_what_is_wrong(given, why):
    with pytest.raises(UsageError, match="set: m: ") as caught:
        read_axis("set", "m", given)
    assert why in str(caught.value)
