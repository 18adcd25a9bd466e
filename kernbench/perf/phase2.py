"""What Phase 2 and its analyses cost, against the goals set for them.

Ratios are medians of interleaved rounds, other figures the least of them, as neighbours
only add. "All in" is from log to store: records, views, casts, patches.
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
from kernbench.replay.data.history import History
from kernbench.replay.index import Index
from kernbench.sim_engine.arithmetic import rounded
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.gemm import gemm
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import OpLogger, OpRecord
from kernbench.topology import load_topology
from kernbench.trace import Trace
from kernbench.trace.writer import TraceWriter

GEMMS = 1_000
SMALL_OPS = 100_000
SCANNED = 1_000_000
"""Ops of the three logs: gemms, small adds, and adds that are scanned for hazards."""

_SLOTS = 1_000
"""Places of the small adds: two operands and a result each, used in turn."""

_WIDTH = 64
"""Elements of a small add."""

_ROW_BYTES = 4 * _WIDTH
"""Bytes of an operand of a small add."""

_DRAWS = 200
"""Random ops at which memory is looked at."""


def measure(scale: float = 1.0, rounds: int = 5) -> list[PerfRow]:
    """Measure everything on logs ``scale`` times as long; some four minutes at 1."""

    def scaled(count: int) -> int:
        return max(int(count * scale), 8)

    small = scaled(SMALL_OPS)
    overhead = overhead_rows(small, rounds)
    replayed = replay_rows(small, scaled(SCANNED))
    return [*gemm_rows(scaled(GEMMS), rounds), *overhead, *replayed]


def gemm_rows(count: int, rounds: int) -> list[PerfRow]:
    """Independent f16 gemms of 16^3, and of 128^3 beside f32 products alone."""
    log, store = gemm_log(count, 16)
    held = [array for _, array in store.extents("tcm")]  # a, b, c of each

    def together() -> None:
        a = np.concatenate(held[::3]).reshape(-1, 16, 16)
        b = np.concatenate(held[1::3]).reshape(-1, 16, 16)
        list(rounded(gemm(a, b), "f16"))

    alone_us = []
    batched = []
    for _ in range(rounds):
        alone_us += [seconds(together) / count * 1e6 for _ in range(5)]
        plain = DataExecutor(log, store.snapshot(), batch=False)
        batched.append(_run(log, store) / seconds(plain.run))
    casts = _cast_ratios(count, rounds)
    return [
        PerfRow("16^3 gemm in a batch, gather to scatter", min(alone_us), 3.0, "us"),
        PerfRow(
            "16^3 gemms in batches / one by one, all in", median(batched), 1.0, "ratio"
        ),
        PerfRow("128^3 f16 gemms, all in / f32 matmuls", median(casts), 2.5, "ratio"),
    ]


def _cast_ratios(count: int, rounds: int) -> list[float]:
    """How much longer f16 gemms of 128^3 take than f32 products of the same.

    BLAS has threads here, so this is by the clock.
    """
    log, store = gemm_log(count, 128)
    wide = [array.astype(np.float32) for _, array in store.extents("tcm")]
    pairs = list(zip(wide[::3], wide[1::3], strict=True))
    ratios = []
    for _ in range(rounds):
        bare = seconds(lambda: [a @ b for a, b in pairs], perf_counter)
        ratios.append(_run(log, store, perf_counter) / bare)
    return ratios


def overhead_rows(count: int, rounds: int) -> list[PerfRow]:
    """What an add of 64 elements costs beside numpy's own."""
    x = np.ones(_WIDTH, np.float32)
    log = add_log(count)
    store = MemoryStore()
    for addr in range(0, 3 * _SLOTS * x.nbytes, x.nbytes):
        store.write("tcm", addr, x)
    spent = min(_run(log, store) for _ in range(rounds))
    bare = min(seconds(lambda: [np.add(x, x) for _ in log]) for _ in range(rounds))
    beside_us = (spent - bare) / count * 1e6
    return [PerfRow("a small add, all in - numpy", beside_us, 15.0, "us")]


def replay_rows(cached: int, scanned: int) -> list[PerfRow]:
    """Memory at any of ``cached`` ops once executed, and the hazard scan of others."""
    with tempfile.TemporaryDirectory() as folder:
        history = History(add_trace(Path(folder) / "history.msgpack", cached))

        def look(op: int) -> object:
            addr = 3 * _ROW_BYTES * (op % _SLOTS)
            return history.at(op).view("tcm", addr, (_WIDTH,), "f32")

        look(cached)
        jumps = np.random.default_rng(0).integers(0, cached, _DRAWS).tolist()
        jump = seconds(lambda: [look(op) for op in jumps]) / len(jumps)
        trace = add_trace(Path(folder) / "hazards.msgpack", scanned)

        def scan() -> None:
            Index(trace).hazards.prepare()

        taken = seconds(scan)
        tracemalloc.start()
        scan()
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    peak_mib = peak_bytes / 2**20
    return [
        PerfRow(f"memory at any of {cached} ops, cached", jump * 1e3, 1.0, "ms"),
        PerfRow(f"hazard scan of {scanned} ops", taken, 5.0, "s"),
        PerfRow(f"hazard scan of {scanned} ops, peak", peak_mib, 1024.0, "MiB"),
    ]


def gemm_log(count: int, size: int) -> tuple[list[OpRecord], MemoryStore]:
    """f16 gemms of ``size``^3 that share nothing, and the store of their operands."""
    shape = (size, size)
    nbytes = 2 * size * size
    store = MemoryStore()
    values = np.random.default_rng(0).standard_normal((3 * count, *shape))
    held = []
    for i, matrix in enumerate(values.astype(np.float16)):
        store.write("tcm", i * nbytes, matrix)
        held.append(Region("tcm", i * nbytes, shape, "f16", nbytes))
    operands = zip(held[::3], held[1::3], held[2::3], strict=True)
    commands = [
        GemmCmd(a=a, b=b, out=out, m=size, k=size, n=size) for a, b, out in operands
    ]
    return _logged("pe_gemm", commands, OpLogger()), store


def add_log(count: int) -> list[OpRecord]:
    """f32 adds of 64 elements, one after the other in time, on some places in turn."""
    return _logged("pe_math", _adds(count), OpLogger())


def add_trace(path: Path, count: int) -> Trace:
    """A recording of that many small adds, on bytes that the host wrote before."""
    data = np.ones(3 * _SLOTS * _WIDTH, np.float32)
    place = Region("tcm", 0, data.shape, "f32", data.nbytes)
    writer = TraceWriter(path)
    writer.begin({"bench": "small adds"}, load_topology(None))
    logger = OpLogger(sink=writer, keep=False)
    _logged("pe_dma", [HostWriteCmd(dst=place, data=data)], logger)
    _logged("pe_math", _adds(count), logger)
    writer.end(count + 1.0)
    return Trace.open(path)


def _adds(count: int) -> Iterator[MathCmd]:
    """The commands of small adds."""
    held = [
        Region("tcm", i * _ROW_BYTES, (_WIDTH,), "f32", _ROW_BYTES)
        for i in range(3 * _SLOTS)
    ]
    for i in range(count):
        first = 3 * (i % _SLOTS)
        a, b, out = held[first : first + 3]
        yield MathCmd(op="add", inputs=(a, b), out=out)


def _logged(
    engine: str, commands: Iterable[MsgBase], logger: OpLogger
) -> list[OpRecord]:
    """The log once an engine has served commands, one a ns."""
    node = load_topology(None).at(0, 0, 0, engine)
    for i, command in enumerate(commands, logger.rows):
        logger.record_start(float(i), node, command)
        logger.record_end(i + 0.5, node, command)
    return logger.records


def _run(log: list[OpRecord], store: MemoryStore, *clock: Callable[[], float]) -> float:
    """Seconds to execute a log on a snapshot of a store."""
    return seconds(DataExecutor(log, store.snapshot()).run, *clock)
