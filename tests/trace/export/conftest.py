"""Traces of every kind that an exporter may meet; ``trace_kinds`` names them."""

import pytest
from recordings import record_all, record_ops
from trace_kinds import SHIPPED

from kernbench.trace import Trace, TraceWriter


@pytest.fixture
def make(tmp_path, small):
    """make(kind) -> an open trace."""

    def make(kind):
        if kind == "shipped":
            return Trace.open(SHIPPED)
        path = tmp_path / "traces" / f"{kind}.msgpack"
        path.parent.mkdir(exist_ok=True)
        if kind == "cut":
            whole = SHIPPED.read_bytes()
            path.write_bytes(whole[: len(whole) * 9 // 10])
            return Trace.open(path)
        writer = TraceWriter(path)
        if kind == "every_kind_of_op":
            record_all(writer, small)
            return Trace.open(path)
        writer.begin({"bench": kind}, small if kind == "empty" else None)
        if kind == "without_topology":
            record_ops(writer, repeat=3)
        writer.end(1.0)
        return Trace.open(path)

    return make


@pytest.fixture
def shipped_trace():
    return Trace.open(SHIPPED)
