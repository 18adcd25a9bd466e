"""Logs of the shipped benches, which several tests of Phase 2 run."""

import pytest

from kernbench.runtime_api.registry import BENCHES

FEWER = {"moe_route": {"tokens": 64}}  # of 512, whose log is ten times as long


@pytest.fixture(scope="session")
def bench_log(simulate, one_cube, small):
    """bench_log(name): the op log of a shipped bench, on one cube if it can be."""

    def bench_log(name):
        params = FEWER.get(name, {})
        graph = one_cube
        if "algorithm" in BENCHES[name].params:  # it needs several SIPs
            params = {"algorithm": "ring_chunked_allreduce"}
            graph = small
        return simulate(lambda torch: BENCHES[name].run(torch, **params), graph).log

    return bench_log
