"""A recording of a bit of everything, and what went into it."""

from dataclasses import dataclass, field

import numpy as np

from kernbench.common.dtypes import Tolerance
from kernbench.common.messages import (
    HostReadCmd,
    HostWriteCmd,
    Region,
    Stage,
    StageType,
    TileToken,
)
from kernbench.common.pe_commands import (
    CompositeCmd,
    DmaReadCmd,
    DmaWriteCmd,
    Epilogue,
    GemmCmd,
    MathCmd,
)
from kernbench.sim_engine.event_log import Shard, Site
from kernbench.sim_engine.op_log import OpLogger

PE = "sip0.cube0.pe0.pe_"
HBM = Region("hbm", 4096, (2, 4), "f16", 16)
TCM = Region("tcm", 1 << 41, (2, 4), "f16", 16)
WIDE = Region("hbm", 8192, (4, 8), "bf16", 64)
PATH = (f"{PE}dma", "sip0.cube0.r0c0", "sip0.cube0.hbm_ctrl.pe0")

LOGS = ("op_columns", "transfers", "waits", "commands", "alloc_columns")
"""The logs of a trace that have a row for each thing that was recorded."""


class Store:
    """A memory that reads as zeros, but for addresses of nothing."""

    def view(self, space, addr, shape, dtype):
        if space == "nowhere":
            raise ValueError("never written")
        return np.zeros(shape, np.float16)

    def view_rows(self, space, where, shape, dtype):
        return self.view(space, where.addr, shape, dtype)


def messages():
    """One message of every kind that the op log knows."""
    composite = CompositeCmd(
        op="gemm",
        a=HBM,
        b=WIDE,
        out=HBM,
        m=2,
        k=4,
        n=8,
        tile=(2, 4, 8),
        epilogue=(
            Epilogue("relu"),
            Epilogue("add", operand=WIDE),
            Epilogue("mul", scalar=0.5),
        ),
    )
    stage = Stage(
        StageType.GEMM,
        f"{PE}gemm",
        {"origin": (0, 0, 0), "spaces": ["hbm"], "half": 0.5},
    )
    return [
        HostWriteCmd(dst=HBM, data=np.arange(8, dtype=np.float16).reshape(2, 4)),
        DmaReadCmd(src=HBM, dst=TCM, handle_id="h1"),
        GemmCmd(a=TCM, b=WIDE, out=TCM, m=2, k=4, n=8),
        GemmCmd(a=TCM, b=WIDE, out=TCM, m=2, k=4, n=8, acc=TCM, transpose_b=True),
        MathCmd(op="exp", inputs=(TCM,), out=TCM),
        MathCmd(
            op="where",
            inputs=(TCM, HBM),
            out=TCM,
            scalars=(1.5,),
            scalar_positions=(2,),
        ),
        MathCmd(
            op="sum", inputs=(Region("nowhere", 0, (1,), "f16", 2),), out=TCM, axis=-1
        ),
        TileToken(composite=composite, index=(0, 1, 0), stages=(stage,)),
        composite,
        DmaWriteCmd(src=HBM, dst_addr=64, handle_id="h1"),
        DmaWriteCmd(src=TCM, dst_addr=64, handle_id="h2"),
        HostReadCmd(src=HBM),
    ]


@dataclass
class Recording:
    """What a writer was given of each op, in the order of rows."""

    records: list = field(default_factory=list)
    waits: list = field(default_factory=list)
    transfers: list = field(default_factory=list)


class Tee:
    """Passes ops on to a writer and keeps them."""

    def __init__(self, writer, recording):
        self.writer = writer
        self.kept = recording

    def op(self, row, record, cmd, slot, waits, transfers):
        self.kept.records.append(record)
        self.kept.waits.append(waits)
        self.kept.transfers.append(transfers)
        self.writer.op(row, record, cmd, slot, waits, transfers)


def shard(index=0, **changes):
    """The second of two shards of a tensor, but for what ``changes``."""
    row = {
        "tensor": "c",
        "dtype": "f16",
        "space": "hbm",
        "addr": 4096,
        "va": 1 << 52,
        "nbytes": 16,
        "owner": f"{PE}cpu",
        "origin": (0, 4),
        "shape": (2, 4),
        "cmd": 3,
    }
    return Shard(**(row | changes), index=index)


def record_ops(writer, repeat=1, step=10.0, kinds=None):
    """Every kind of op ``repeat`` times, and a copy.

    Each waits for the one before and moves some bytes.
    """
    recording = Recording()
    logger = OpLogger(Store(), Tee(writer, recording), keep=False)
    before = None
    t = 0.0
    for _ in range(repeat):
        for cmd, message in enumerate(messages()[:kinds]):
            message.cmd = cmd
            message.slot = cmd % 3
            message.wait(f"{PE}gemm", "engine", t, t + 1, before)
            message.wait(f"{PE}dma", "operand", t, t + 2, None)
            message.transfers.append((PATH, t, 16, 1, [t, t + 2]))
            message.transfers.append((PATH[:2], t, 99, 3, [t, t + 5]))
            # Ends are in order, starts are not: canonical order differs from rows.
            engine = f"{PE}dma"
            start = t
            if cmd % 2:
                engine = f"{PE}gemm"
                start = t - 15
            logger.record_start(start, engine, message)
            t += step
            logger.record_end(t, engine, message)
            before = message
    copy = (PE + "ipcq", "hbm", 0, "tcm", 16, (2, 4), "f16", 16)
    logger.record_copy(t, t + 1, *copy, np.ones((2, 4), np.float16))
    return recording


def record_all(writer, graph, repeat=1, kinds=None):
    """A whole run; the recording of its ops."""
    writer.begin(
        {"bench": "demo", "arguments": {"m": 3}, "seed": 7, "data": True}, graph
    )
    writer.source("demo.py", "kernel", "def kernel():\n    pass\n")
    writer.alloc(shard())
    writer.alloc(shard(1, space="tcm", va=0, origin=(), shape=(), nbytes=2))
    site = Site("demo.py", 2, "kernel")
    writer.command(5, f"{PE}cpu", 0, "load", site, 5, 0.0, 30.0)
    writer.command(4, "sip0.io0.pcie_ep", -1, "host_write", site, 0xFFFFFFFF, 0.0, 2.5)
    recording = record_ops(writer, repeat, kinds=kinds)
    writer.transfer(9, (PATH[::-1], 1.0, 64, 1, [1.0, 2.0]))
    writer.launch(0, "kernel", (f"{PE}cpu", "sip0.cube0.pe1.pe_cpu"), 1.0, 2.0, 90.0)
    writer.text(3.5, 5, "print", "über\n1")
    reference = np.arange(8, dtype=np.float32).reshape(2, 4)
    writer.expect("c", shard(), reference, Tolerance(1e-3, 1e-4), 12)
    writer.verify({"ok": True, "rows": [{"name": "c.0", "max_abs": 0.0}]})
    writer.end(130.0)
    return recording


def assert_same(got, wanted):
    """Equal in value and in every type, arrays by their bytes."""
    assert type(got) is type(wanted) or isinstance(wanted, np.ndarray)
    if isinstance(wanted, np.ndarray):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        assert got.tobytes() == wanted.tobytes()
    elif isinstance(wanted, dict):
        assert list(got) == list(wanted)
        for key in wanted:
            assert_same(got[key], wanted[key])
    elif isinstance(wanted, (list, tuple)):
        assert len(got) == len(wanted)
        for g, w in zip(got, wanted, strict=True):
            assert_same(g, w)
    else:
        assert repr(got) == repr(wanted)  # NaN and -0.0 too


def touch(trace):
    """Ask everything of a trace."""
    trace.check()
    for record in trace.ops:
        assert isinstance(record.params, dict)
    for row in range(len(trace.ops)):
        trace.transfers_of(row)
        trace.waits_of(row)
    for cmd in (*trace.commands.cmd.tolist(), 77):
        trace.command(cmd)
    list(trace.param_blocks())
    if not trace.cut:
        list(trace.executable)
    for name in ("nodes", "edges", "spec", "node_index", "end_ns", "alloc_columns"):
        getattr(trace, name)
    return trace
