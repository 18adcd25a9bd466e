"""What Phase 2 and its analyses cost, against the goals set for them.

Ratios are medians of interleaved rounds, other figures the least of them, as neighbours only add.
"All in" is from log to store: records, views, casts, patches.
"""

import tempfile
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from kernbench.common.messages import HostWriteCmd, MsgBase, Region
from kernbench.common.pe_commands import GemmCmd, MathCmd
from kernbench.perf.sim import PerfRow, seconds
from kernbench.replay.data.hazards import find_hazards
from kernbench.replay.data.history import History
from kernbench.sim_engine.arithmetic import rounded
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.gemm import gemm
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import OpLogger, OpRecord
from kernbench.topology import load_topology
from kernbench.trace import Trace
from kernbench.trace.writer import TraceWriter

GEMMS, SMALL_OPS, SCANNED = 1_000, 100_000, 1_000_000
_SLOTS, _WIDTH = 1_000, 64  # of the small adds: slots of three rows, used in turn


def measure(scale: float = 1.0, rounds: int = 5) -> list[PerfRow]:
    """Measure everything on logs ``scale`` times as long; some four minutes at 1."""
    gemms, small, scanned = (
        max(int(n * scale), 8) for n in (GEMMS, SMALL_OPS, SCANNED)
    )
    rows = overhead_rows(small, rounds) + replay_rows(small, scanned)
    return gemm_rows(gemms, rounds) + rows


def gemm_rows(count: int, rounds: int) -> list[PerfRow]:
    """Independent f16 gemms of 16^3, and of 128^3 beside f32 products alone."""
    log, store = gemm_log(count, 16)
    held = [array for _, array in store.extents("tcm")]  # a, b, c of each

    def together() -> None:
        a, b = (np.concatenate(x).reshape(-1, 16, 16) for x in (held[::3], held[1::3]))
        list(rounded(gemm(a, b), "f16"))

    alone, batched, casts = [], [], []
    for _ in range(rounds):
        alone += [seconds(together) / count * 1e6 for _ in range(5)]
        plain = DataExecutor(log, store.snapshot(), batch=False)
        batched.append(_run(log, store) / seconds(plain.run))
    log, store = gemm_log(count, 128)
    wide = [array.astype(np.float32) for _, array in store.extents("tcm")]
    pairs = list(zip(wide[::3], wide[1::3], strict=True))
    for _ in range(rounds):  # BLAS has threads here: by the clock, and after the others
        bare = seconds(lambda: [a @ b for a, b in pairs], perf_counter)
        casts.append(_run(log, store, perf_counter) / bare)
    return [
        PerfRow("16^3 gemm in a batch, gather to scatter", min(alone), 3.0, "us"),
        PerfRow(
            "16^3 gemms in batches / one by one, all in", median(batched), 1.0, "ratio"
        ),
        PerfRow("128^3 f16 gemms, all in / f32 matmuls", median(casts), 2.5, "ratio"),
    ]


def overhead_rows(count: int, rounds: int) -> list[PerfRow]:
    """What an add of 64 elements costs beside numpy's own."""
    x, store, log = np.ones(_WIDTH, np.float32), MemoryStore(), add_log(count)
    for addr in range(0, 3 * _SLOTS * x.nbytes, x.nbytes):
        store.write("tcm", addr, x)
    spent = min(_run(log, store) for _ in range(rounds))
    bare = min(seconds(lambda: [np.add(x, x) for _ in log]) for _ in range(rounds))
    return [
        PerfRow("a small add, all in - numpy", (spent - bare) / count * 1e6, 15.0, "us")
    ]


def replay_rows(cached: int, scanned: int) -> list[PerfRow]:
    """Memory at any of ``cached`` ops once executed, and the hazard scan of ``scanned``."""
    with tempfile.TemporaryDirectory() as folder:
        history = History(_trace(Path(folder) / "history.msgpack", cached))

        def look(op: int) -> object:
            return history.at(op).view(
                "tcm", 12 * _WIDTH * (op % _SLOTS), (_WIDTH,), "f32"
            )

        look(cached)
        jumps = np.random.default_rng(0).integers(0, cached, 200).tolist()
        jump = seconds(lambda: [look(op) for op in jumps]) / len(jumps)
        trace = _trace(Path(folder) / "hazards.msgpack", scanned)

        def scan() -> None:
            fresh = History(trace)
            find_hazards(trace, fresh.touched, fresh.allocs)

        taken = seconds(scan)
        tracemalloc.start()
        scan()
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
    return [
        PerfRow(f"memory at any of {cached} ops, cached", jump * 1e3, 1.0, "ms"),
        PerfRow(f"hazard scan of {scanned} ops", taken, 5.0, "s"),
        PerfRow(f"hazard scan of {scanned} ops, peak", peak, 1024.0, "MiB"),
    ]


def gemm_log(count: int, size: int) -> tuple[list[OpRecord], MemoryStore]:
    """f16 gemms of ``size``^3 that share nothing, and the store of their operands."""
    nbytes, store = 2 * size * size, MemoryStore()
    data = (
        np.random.default_rng(0)
        .standard_normal((3 * count, size, size))
        .astype(np.float16)
    )
    for i, matrix in enumerate(data):
        store.write("tcm", i * nbytes, matrix)
    held = [
        Region("tcm", i * nbytes, (size, size), "f16", nbytes) for i in range(3 * count)
    ]
    operands = zip(held[::3], held[1::3], held[2::3], strict=True)
    cmds = [
        GemmCmd(a=a, b=b, out=out, m=size, k=size, n=size) for a, b, out in operands
    ]
    return _logged("pe_gemm", cmds, OpLogger()), store


def add_log(count: int) -> list[OpRecord]:
    """f32 adds of 64 elements, one after the other in time, on ``_SLOTS`` places in turn."""
    return _logged("pe_math", _adds(count), OpLogger())


def _adds(count: int) -> Iterator[MathCmd]:
    row = 4 * _WIDTH
    held = [Region("tcm", i * row, (_WIDTH,), "f32", row) for i in range(3 * _SLOTS)]
    for i in range(count):
        a, b, out = held[3 * (i % _SLOTS) : 3 * (i % _SLOTS) + 3]
        yield MathCmd(op="add", inputs=(a, b), out=out)


def _logged(engine: str, cmds: Iterable[MsgBase], logger: OpLogger) -> list[OpRecord]:
    for i, cmd in enumerate(cmds, logger.rows):
        logger.record_start(float(i), f"sip0.cube0.pe0.{engine}", cmd)
        logger.record_end(i + 0.5, f"sip0.cube0.pe0.{engine}", cmd)
    return logger.records


def _trace(path: Path, count: int) -> Trace:
    """A recording of that many small adds, on bytes that the host wrote before."""
    data = np.ones(3 * _SLOTS * _WIDTH, np.float32)
    writer = TraceWriter(path)
    writer.begin({"bench": "small adds"}, load_topology(None))
    logger = OpLogger(sink=writer, keep=False)
    place = Region("tcm", 0, data.shape, "f32", data.nbytes)
    _logged("pe_dma", [HostWriteCmd(dst=place, data=data)], logger)
    _logged("pe_math", _adds(count), logger)
    writer.end(count + 1.0)
    return Trace.open(path)


def _run(log: list[OpRecord], store: MemoryStore, *clock: Callable[[], float]) -> float:
    return seconds(DataExecutor(log, store.snapshot()).run, *clock)
