"""Numbers of a trace's spec, whatever it holds."""

import pytest

from kernbench.replay.routes import spec_number


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
