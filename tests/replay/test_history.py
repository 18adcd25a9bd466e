"""Memory at an op, in both directions, against a plain forward execution."""

import random

from kernbench.replay.history import History
from kernbench.sim_engine.data_executor import execute
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.trace import Trace


def contents(store):
    return {
        (space, addr): (array.dtype.str, array.shape, array.tobytes())
        for space in store.spaces()
        for addr, array in store.extents(space)
    }


def plain(trace, op):
    store = MemoryStore()
    for i in range(op + 1):
        record = trace.ops[i]
        if record.op_kind != "unknown":
            execute(record, store)
    return contents(store)


def test_any_walk_gives_the_memory_of_a_plain_execution(recorded):
    trace = Trace.open(recorded.trace_path)
    history = History(trace)
    walk = random.Random(5).sample(range(-1, len(trace.ops)), 12)
    for op in [*walk, len(trace.ops) - 1, -1]:
        assert contents(history.at(op)) == plain(trace, op)


def test_the_writer_of_a_range_is_the_last_op_that_wrote_there(recorded):
    trace = Trace.open(recorded.trace_path)
    history = History(trace)
    composite = next(i for i in range(len(trace.ops)) if trace.ops[i].op_name == "composite_gemm")
    params = trace.ops[composite].params
    history.at(composite)
    assert history.writer("hbm", params["dst_addr"], 2) == composite
    history.at(composite - 1)
    assert history.writer("hbm", params["dst_addr"], 2) is None
    host_write = history.writer("hbm", params["src_a_addr"], 2)
    assert trace.ops[host_write].op_name == "host_write"


def test_before_is_not_moved_by_later_steps(recorded):
    trace = Trace.open(recorded.trace_path)
    history = History(trace)
    before = history.before(3)
    kept = contents(before)
    history.at(len(trace.ops) - 1)
    assert contents(before) == kept == plain(trace, 2)
