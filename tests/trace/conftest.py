"""A recorded run for the tests of the room."""

import pytest
from recordings import record_all

from kernbench.trace import Trace, TraceWriter


@pytest.fixture
def demo(tmp_path, small):
    """(path, recording) of a whole run."""
    path = tmp_path / "demo.msgpack"
    return path, record_all(TraceWriter(path), small)


@pytest.fixture
def trace(demo):
    return Trace.open(demo[0])
