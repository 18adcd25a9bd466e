"""The time of an op as the sum of what its route took."""

from itertools import pairwise
from pathlib import Path

import pytest

from kernbench.replay import ReplaySession
from kernbench.replay.text import as_text
from kernbench.replay.time.routes import route_of
from kernbench.runtime_api import run_bench
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


@pytest.fixture(params=[0.01, 0.0137, 0.3])
def alone(request, tmp_path):
    """A run in which one PE moves one thing after the other."""
    spec = {"system.ns_per_mm": request.param}
    sizes = {"m": 2, "n": 16, "block": 1, "pes": 1}
    path = tmp_path / "alone"
    run_bench("softmax", params=sizes, spec=spec, trace=path, verify=False)
    return ReplaySession(Trace.open(path))


def test_who_is_alone_waits_for_no_link(alone):
    moved = 0
    for op in range(len(alone)):
        for leg in route_of(alone.trace, op).legs:
            moved += 1
            assert [hop.wait for hop in leg.hops[1:]] == [0.0] * len(leg.hops[1:])
    assert moved
    assert {link.queue for link in alone.link_load().links} == {0}
