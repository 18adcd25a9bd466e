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


def test_writes_are_those_of_the_executed_ops_in_order(recorded):
    trace = Trace.open(recorded.trace_path)
    history = History(trace)
    names = [trace.ops[w.position].op_name for w in history.writes]
    assert names == ["host_write"] * 4 + ["composite_gemm"] * 2
    for write in history.writes:
        assert trace.ops[write.position].params["dst_addr"] == write.addr
        assert history.executed(write.position) == history.executed(write.position - 1) + 1


def test_before_is_not_moved_by_later_steps(recorded):
    trace = Trace.open(recorded.trace_path)
    history = History(trace)
    before = history.before(3)
    kept = contents(before)
    history.at(len(trace.ops) - 1)
    assert contents(before) == kept == plain(trace, 2)
