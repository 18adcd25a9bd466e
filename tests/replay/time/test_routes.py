"""The time of an op as the sum of what its route took; numbers of a spec, whatever it holds."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from kernbench.replay.text import as_text
from kernbench.replay.time.routes import covered, route_of, spec_number
from kernbench.trace import Trace

TRACES = Path(__file__).parents[3] / "traces"


@pytest.mark.parametrize("name", ["matmul", "ccl_allreduce", "flash_attention"])
def test_the_parts_of_a_route_sum_to_the_time_of_its_op(name):
    trace = Trace.open(TRACES / f"{name}.msgpack")
    moved = 0
    for op, record in enumerate(trace.ops):
        route = route_of(trace, op)
        took = sum(ns for _, ns in route.parts)
        assert took == pytest.approx(record.t_end - record.t_start)
        assert all(ns >= -1e-9 for _, ns in route.parts)
        if route.legs:
            moved += 1
            assert f"{took:.2f} ns = " in as_text(route)
    assert moved


def test_a_route_waits_as_long_as_its_op_says():
    trace = Trace.open(TRACES / "matmul.msgpack")
    waits = [(t0, t1) for _, _, t0, t1, _ in trace.waits_of(int(trace.order[27]))]
    assert all(t1 <= then for (_, t1), (then, _) in pairwise(waits))
    assert dict(route_of(trace, 27).parts)["waiting"] == pytest.approx(
        sum(t1 - t0 for t0, t1 in waits)
    )


def test_no_moment_is_covered_twice_or_from_outside():
    starts, ends = np.array([(0.0, 4.0), (1.0, 3.0), (2.0, 6.0), (8.0, 99.0)]).T
    assert covered(starts, ends, 1.0, 10.0) == 5.0 + 2.0


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
