"""Traces of a few commands by hand, and memory by executing them plainly."""

import numpy as np

from kernbench.common.dtypes import nbytes_of
from kernbench.common.messages import HostWriteCmd, Region
from kernbench.common.pe_commands import MathCmd
from kernbench.sim_engine.data_executor import execute
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import OpLogger
from kernbench.trace import Trace, TraceWriter


def region(addr, n, dtype="f32"):
    return Region("tcm", addr, (n,), dtype, nbytes_of((n,), dtype))


def fill(addr, values):
    data = np.array(values, np.float32)
    return HostWriteCmd(dst=region(addr, len(data)), data=data)


def double(src, dst, n):
    operand = region(src, n)
    return MathCmd(op="add", inputs=(operand, operand), out=region(dst, n))


def counting(n, count):
    """Commands, of which number i + 1 writes n times i, over three places in turn.

    Each adds one to what the one before has written. Place i is at 4 * n * i; the ones
    are behind the last.
    """
    ones = region(12 * n, n)
    places = [region(4 * n * i, n) for i in range(3)]
    commands = [fill(12 * n, [1] * n), fill(0, [0] * n)]
    for i in range(count):
        operands = (places[i % 3], ones)
        out = places[(i + 1) % 3]
        commands.append(MathCmd(op="add", inputs=operands, out=out))
    return commands


def written_trace(path, commands, header=None):
    """A trace of these commands, one a ns."""
    writer = TraceWriter(path)
    writer.begin(header or {}, None)
    logger = OpLogger(sink=writer)
    for t, command in enumerate(commands):
        logger.record_start(t, "pe0", command)
        logger.record_end(t + 0.5, "pe0", command)
    writer.close()
    return Trace.open(path)


def contents(store):
    """All that a store holds, to be compared with that of another."""
    return {
        (space, addr): (array.dtype.str, array.shape, array.tobytes())
        for space in store.spaces()
        for addr, array in store.extents(space)
    }


def executed(trace, op):
    """Memory at an op by executing all before it, one by one."""
    store = MemoryStore()
    for i in range(op + 1):
        record = trace.ops[i]
        if record.op_kind != "unknown":
            execute(record, store)
    return store
