"""Traces made by hand: ops at any time on any PE, each on a line of its own of a
kernel.
"""

import numpy as np

from kernbench.common.dtypes import Tolerance, itemsize, nbytes_of
from kernbench.common.messages import HostReadCmd, HostWriteCmd, Region
from kernbench.common.pe_commands import DmaReadCmd, DmaWriteCmd, MathCmd
from kernbench.replay import ReplaySession
from kernbench.sim_engine.event_log import Shard, Site
from kernbench.sim_engine.op_log import OpLogger
from kernbench.trace import Trace, TraceWriter

PE0, PE1 = "sip0.cube0.pe0", "sip0.cube0.pe1"
HBM_BYTES = 512


def region(space, addr, n=4):
    return Region(space, addr, (n,), "f32", nbytes_of((n,), "f32"))


def host_write(addr=0, n=HBM_BYTES // 4, space="hbm"):
    return HostWriteCmd(dst=region(space, addr, n), data=np.arange(n, dtype=np.float32))


def load(src, dst, n=4):
    return DmaReadCmd(
        src=region("hbm", src, n), dst=region("tcm", dst, n), handle_id="h"
    )


def store(src, dst, n=4):
    return DmaWriteCmd(src=region("tcm", src, n), dst_addr=dst, handle_id="h")


def double(src, dst, n=4):
    return MathCmd(
        op="add", inputs=(region("tcm", src, n),) * 2, out=region("tcm", dst, n)
    )


class Log:
    """A trace in the making: ops by time, each on a line of its own of a kernel."""

    def __init__(self, path, graph):
        self.path, self.writer = path, TraceWriter(path)
        self.writer.begin({}, graph)
        self.logger, self.cmd = OpLogger(sink=self.writer), 0

    def op(self, msg, t0, t1, pe=PE0, engine="pe_dma", t_issue=None, line=0):
        """``line``: 0 is one of its own, None no recorded call."""
        self.cmd += 1
        msg.cmd, node = self.cmd, f"{pe}.{engine}"
        node = (
            "sip0.io0.pcie_ep" if isinstance(msg, HostWriteCmd | HostReadCmd) else node
        )
        site = Site("kernel.py", line or self.cmd, "kernel")
        issued = t0 if t_issue is None else t_issue
        if line is not None:
            self.writer.command(
                self.cmd, f"{pe}.pe_cpu", 0, "call", site, self.cmd, issued, t1
            )
        self.logger.record_start(t0, node, msg)
        self.logger.record_end(t1, node, msg)

    def alloc(self, space, addr, nbytes, tensor="x", cmd=0, dtype="f32"):
        """Scratch of PE0 that call ``cmd`` made."""
        box = (0,), (nbytes // itemsize(dtype),)
        shard = Shard(tensor, dtype, space, addr, 0, nbytes, PE0, *box, cmd)
        self.writer.alloc(shard)

    def expect(self, tensor, addr, values):
        """The reference of bytes of hbm, judged after all ops so far."""
        array = np.array(values, np.float32)
        shard = Shard(
            tensor, "f32", "hbm", addr, 0, array.nbytes, PE0, (0,), array.shape, 0
        )
        self.writer.expect(tensor, shard, array, Tolerance(), self.logger.rows)

    def session(self):
        self.writer.close()
        return ReplaySession(Trace.open(self.path))
