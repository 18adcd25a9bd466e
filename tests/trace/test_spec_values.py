"""Numbers of a spec, whatever a file has in its place."""

import pytest

from kernbench.trace.spec_values import issue_ns, spec_number


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"pe": {"clock_ghz": 1.5}}, 1.5),
        ({"pe": {"clock_ghz": 2}}, 2.0),
        ({"pe": {"clock_ghz": "fast"}}, 0.0),
        ({"pe": {"clock_ghz": float("nan")}}, 0.0),
        ({"pe": 3}, 0.0),
        ({}, 0.0),
        (None, 0.0),
    ],
)
def test_a_number_of_the_spec_is_zero_where_it_is_none(spec, found):
    assert spec_number(spec, "pe.clock_ghz") == found


def test_issuing_takes_its_cycles_at_the_clock_of_the_pe():
    assert issue_ns({"pe": {"clock_ghz": 2.0, "cpu": {"issue_cycles": 3}}}) == 1.5
    assert issue_ns({"pe": {"cpu": {"issue_cycles": 3}}}) == 3.0
