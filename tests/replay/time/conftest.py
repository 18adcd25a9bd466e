"""Recorded runs of the benches, each made once for all tests of the package."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bench_sizes import UNEVEN

from kernbench.errors import KernelError
from kernbench.replay import ReplaySession
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

ON_FOUR_PES = ("flash_attention", "pointer_chase")  # of all PEs they take long


@dataclass(frozen=True)
class Recorded:
    """A run of a bench of these params: what it said, and the file of its trace."""

    params: dict[str, int]
    summary: dict[str, Any]
    path: Path


@pytest.fixture(scope="session")
def bench_run(tmp_path_factory):
    """bench_run(name) -> its run, of small and uneven sizes."""
    folder = tmp_path_factory.mktemp("benches")
    made = {}

    def bench_run(name):
        if name not in made:
            params = dict(UNEVEN.get(name, {}))
            if name in ON_FOUR_PES:
                params["pes"] = 4
            path = folder / name
            result = run_bench(name, params=params, trace=path, verify=False)
            made[name] = Recorded(params, result.summary(), path)
        return made[name]

    return bench_run


@pytest.fixture(scope="session")
def bench_trace(bench_run):
    """bench_trace(name) -> the file of its run."""
    return lambda name: bench_run(name).path


@pytest.fixture(scope="module")
def benches(bench_trace):
    """benches(name) -> the session of its run, one for all tests of a module."""
    opened = {}

    def bench(name):
        if name not in opened:
            opened[name] = ReplaySession(Trace.open(bench_trace(name)))
        return opened[name]

    return bench


FAILING = """
from kernbench.benches import bench


def kernel(x, count, tl):
    for number in range(8):
        tl.load(x)
        if number == count:
            raise ValueError("enough")


@bench(name="failing", description="its second launch fails")
def run(torch):
    x = torch.tensor([1.0] * 64, "f32", name="x")
    torch.launch("first", kernel, x, 8)
    torch.launch("second", kernel, x, 5)
"""


@pytest.fixture
def failed(tmp_path):
    """The session of a run that an error ended within its second launch."""
    bench = tmp_path / "failing.py"
    bench.write_text(FAILING)
    path = tmp_path / "failing.msgpack"
    with pytest.raises(KernelError):
        run_bench(str(bench), trace=path)
    return ReplaySession(Trace.open(path))
