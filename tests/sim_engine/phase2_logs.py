"""Records of Phase 2 tests: ops at given addresses, as the op logger makes them."""

import numpy as np

from kernbench.common.dtypes import nbytes_of, np_dtype
from kernbench.common.messages import HostWriteCmd, Region
from kernbench.common.pe_commands import DmaReadCmd, MathCmd
from kernbench.sim_engine.op_log import OpLogger, OpRecord


def region(space, addr, shape, name="f32"):
    return Region(space, addr, shape, name, nbytes_of(shape, name))


def recorded(msg, t=0.0, store=None, **params):
    logger = OpLogger(store)
    logger.record_start(t, "pe0", msg)
    logger.record_end(t + 1, "pe0", msg)
    logger.records[0].params.update(params)
    return logger.records[0]


def host_write(addr, values, t=0.0, name="f32"):
    data = np.array(values, np.float64).astype(np_dtype(name))
    return recorded(
        HostWriteCmd(dst=region("hbm", addr, data.shape, name), data=data), t
    )


def load(src, dst, shape=(4,), t=0.0):
    msg = DmaReadCmd(
        src=region("hbm", src, shape), dst=region("tcm", dst, shape), handle_id="h"
    )
    return recorded(msg, t)


def math_op(op, inputs, out, t=0.0, **more):
    return recorded(MathCmd(op=op, inputs=tuple(inputs), out=out, **more), t)


def add(a, b, out, t=0.0, shape=(4,)):
    places = [region("tcm", addr, shape) for addr in (a, b, out)]
    return math_op("add", places[:2], places[2], t)


def unknown(name, t=0.0):
    return OpRecord(t, t + 1, "pe0", "unknown", name, {})


def values(store, addr, count=4, space="tcm", name="f32"):
    return store.view(space, addr, (count,), name).tolist()
