"""The time of an op as the sum of what its route took."""

from itertools import pairwise
from pathlib import Path

import pytest

from kernbench.replay.text import as_text
from kernbench.replay.time.routes import route_of
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
    waits = trace.waits_of(int(trace.order[27]))
    times = [(t0, t1) for _, _, t0, t1, _ in waits]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(times))
    waited = sum(t1 - t0 for t0, t1 in times)
    assert dict(route_of(trace, 27).parts)["waiting"] == pytest.approx(waited)
