"""A property is checked with few examples on every change, with many in the soak."""

import inspect

import pytest
from hypothesis import strategies as st
from pace import first_fast, for_all


@for_all(st.integers(0, 1 << 30), fast=3, whole=9)
def property_of(seen, number):
    """Sees what is drawn."""
    seen.append(number)


@for_all(st.integers(0, 9), fast=3, whole=9)
def wrong_property(number):
    """Does not hold."""
    assert number > 9


def test_it_is_checked_with_so_many_examples():
    for count in (3, 50):
        seen = []
        property_of(examples=count, seen=seen)
        assert len(seen) == count


def test_what_does_not_hold_fails():
    with pytest.raises(AssertionError):
        wrong_property(examples=3)


def test_its_fixtures_are_what_is_not_drawn_and_its_longer_case_is_soak():
    assert list(inspect.signature(property_of).parameters) == ["seen", "examples"]
    assert property_of.__name__ == "property_of"
    (cases,) = property_of.pytestmark
    assert cases.args[0] == "examples"
    few, many = cases.args[1]
    assert few == 3
    assert (many.values, many.marks[0].name) == ((9,), "soak")


def test_all_but_the_first_cases_are_slow():
    first, second, third = first_fast("abc", fast=2)
    assert (first, second, third.values) == ("a", "b", ("c",))
