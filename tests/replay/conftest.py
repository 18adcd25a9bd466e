"""One recorded matmul for the tests of the room: 2 PEs, several tiles, uneven sizes."""

import pytest

from kernbench.replay import ReplaySession
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

SIZES = {"m": 96, "k": 80, "n": 100, "tile": 32, "pes": 2}


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "matmul.msgpack"
    return run_bench("matmul", params=SIZES, trace=path)


@pytest.fixture
def session(recorded):
    return ReplaySession(Trace.open(recorded.trace_path))
