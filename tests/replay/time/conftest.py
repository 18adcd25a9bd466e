"""Recorded runs of the benches, each made once for all tests of the package."""

import pytest
from bench_sizes import UNEVEN

from kernbench.replay import ReplaySession
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

ON_FOUR_PES = ("flash_attention", "pointer_chase")  # of all PEs they take long


@pytest.fixture(scope="session")
def bench_trace(tmp_path_factory):
    """bench_trace(name) -> the file of its run, of small and uneven sizes."""
    folder = tmp_path_factory.mktemp("benches")
    made = {}

    def bench_trace(name):
        if name not in made:
            params = dict(UNEVEN.get(name, {}))
            if name in ON_FOUR_PES:
                params["pes"] = 4
            made[name] = folder / name
            run_bench(name, params=params, trace=made[name], verify=False)
        return made[name]

    return bench_trace


@pytest.fixture(scope="module")
def benches(bench_trace):
    """benches(name) -> the session of its run, one for all tests of a module."""
    opened = {}

    def bench(name):
        if name not in opened:
            opened[name] = ReplaySession(Trace.open(bench_trace(name)))
        return opened[name]

    return bench
