"""What Phase 2 and its analyses cost, against the goals set for them.

Ratios are medians of interleaved rounds, other figures the least of them, as neighbours only add.
"All in" is from log to store: records, views, casts, patches.
"""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from kernbench.perf.sim import PerfRow
from kernbench.replay.hazards import find_hazards
from kernbench.replay.history import History
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.numpy_ops import gemm, rounded
from kernbench.sim_engine.op_log import OpRecord
from kernbench.topology import load_topology
from kernbench.trace import Trace
from kernbench.trace.writer import TraceWriter

GEMMS, SMALL_OPS, SCANNED = 1_000, 100_000, 1_000_000
_SLOTS, _WIDTH = 1_000, 64  # of the small adds: slots of three rows, used in turn
_PE = "sip0.cube0.pe0"


def measure(scale: float = 1.0, rounds: int = 5) -> list[PerfRow]:
    """Measure everything on logs ``scale`` times as long; some four minutes at 1."""
    gemms, small, scanned = (max(int(n * scale), 8) for n in (GEMMS, SMALL_OPS, SCANNED))
    rows = overhead_rows(small, rounds) + replay_rows(small, scanned)
    return gemm_rows(gemms, rounds) + rows


def gemm_rows(count: int, rounds: int) -> list[PerfRow]:
    """Independent f16 gemms of 16^3, and of 128^3 beside f32 products alone."""
    log, store = gemm_log(count, 16)
    views = [
        [store.view("tcm", r.params[key], (16, 16), "f16") for r in log]
        for key in ("src_a_addr", "src_b_addr")
    ]

    def together() -> None:
        a, b = (np.concatenate(x).reshape(-1, 16, 16) for x in views)
        list(rounded(gemm(a, b), "f16"))

    alone, batched, casts = [], [], []
    for _ in range(rounds):
        alone += [_seconds(together) / count * 1e6 for _ in range(5)]
        plain = DataExecutor(log, store.snapshot(), batch=False)
        batched.append(_run(log, store) / _seconds(plain.run))
    log, store = gemm_log(count, 128)
    wide = [a.astype(np.float32) for _, a in store.extents("tcm")]  # a, b, c of each
    for _ in range(rounds):  # BLAS has threads here: by the clock, and after the others
        bare = _seconds(
            lambda: [a @ b for a, b in zip(wide[::3], wide[1::3], strict=True)], perf_counter
        )
        casts.append(_run(log, store, perf_counter) / bare)
    return [
        PerfRow("16^3 gemm in a batch, gather to scatter", min(alone), 3.0, "us"),
        PerfRow("16^3 gemms in batches / one by one, all in", median(batched), 1.0, "ratio"),
        PerfRow("128^3 f16 gemms, all in / f32 matmuls", median(casts), 2.5, "ratio"),
    ]


def overhead_rows(count: int, rounds: int) -> list[PerfRow]:
    """What an add of 64 elements costs beside numpy's own."""
    x, store, log = np.ones(_WIDTH, np.float32), MemoryStore(), add_log(count)
    for addr in range(0, 3 * _SLOTS * x.nbytes, x.nbytes):
        store.write("tcm", addr, x)
    spent = min(_run(log, store) for _ in range(rounds))
    bare = min(_seconds(lambda: [np.add(x, x) for _ in log]) for _ in range(rounds))
    return [PerfRow("a small add, all in - numpy", (spent - bare) / count * 1e6, 15.0, "us")]


def replay_rows(cached: int, scanned: int) -> list[PerfRow]:
    """Memory at any of ``cached`` ops once executed, and the hazard scan of ``scanned``."""
    with tempfile.TemporaryDirectory() as folder:
        history = History(_trace(Path(folder) / "history.msgpack", cached))

        def look(op: int) -> object:
            return history.at(op).view("tcm", 12 * _WIDTH * (op % _SLOTS), (_WIDTH,), "f32")

        look(cached)
        jumps = np.random.default_rng(0).integers(0, cached, 200).tolist()
        jump = _seconds(lambda: [look(op) for op in jumps]) / len(jumps)
        trace = _trace(Path(folder) / "hazards.msgpack", scanned)
        scan = _seconds(lambda: _scan(trace))
        tracemalloc.start()
        _scan(trace)
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
    return [
        PerfRow(f"memory at any of {cached} ops, cached", jump * 1e3, 1.0, "ms"),
        PerfRow(f"hazard scan of {scanned} ops", scan, 5.0, "s"),
        PerfRow(f"hazard scan of {scanned} ops, peak", peak, 1024.0, "MiB"),
    ]


def _scan(trace: Trace) -> None:
    history = History(trace)
    find_hazards(trace, history.touched, history.allocs)


def gemm_log(count: int, size: int) -> tuple[list[OpRecord], MemoryStore]:
    """f16 gemms of ``size``^3 that share nothing, and the store of their operands."""
    shape, nbytes, store = (size, size), 2 * size * size, MemoryStore()
    data = np.random.default_rng(0).standard_normal((3 * count, *shape)).astype(np.float16)
    shared: dict[str, Any] = dict.fromkeys(("src_a_space", "src_b_space", "dst_space"), "tcm")
    shared |= dict.fromkeys(("shape_a", "shape_b", "shape_out"), shape)
    shared |= {"dtype_in": "f16", "dtype_out": "f16", "m": size, "k": size, "n": size}
    log = []
    for i in range(count):
        addrs = [(3 * i + j) * nbytes for j in range(3)]
        for j, addr in enumerate(addrs):
            store.write("tcm", addr, data[3 * i + j])
        p = dict(zip(("src_a_addr", "src_b_addr", "dst_addr"), addrs, strict=True)) | shared
        log.append(OpRecord(float(i), i + 1.0, f"{_PE}.pe_gemm", "gemm", "gemm_f16", p))
    return log, store


def add_log(count: int) -> list[OpRecord]:
    """f32 adds of 64 elements, one after the other in time, on ``_SLOTS`` places in turn."""
    row, log = 4 * _WIDTH, []
    shared: dict[str, Any] = {"op": "add", "input_shapes": [(_WIDTH,)] * 2}
    shared |= {"input_spaces": ["tcm"] * 2, "input_dtypes": ["f32"] * 2}
    shared |= {"dst_space": "tcm", "shape_out": (_WIDTH,), "dtype": "f32", "axis": None}
    for i in range(count):
        a = 3 * row * (i % _SLOTS)
        p = shared | {"input_addrs": [a, a + row], "dst_addr": a + 2 * row}
        log.append(OpRecord(i + 1.0, i + 1.5, f"{_PE}.pe_math", "math", "add", p))
    return log


def _trace(path: Path, count: int) -> Trace:
    """A recording of that many small adds, on bytes that the host wrote before."""
    data = np.ones(3 * _SLOTS * _WIDTH, np.float32)
    params = {"dst_space": "tcm", "dst_addr": 0, "shape": data.shape, "dtype": "f32"}
    params |= {"nbytes": data.nbytes, "snapshot": data}
    first = OpRecord(0.0, 0.5, f"{_PE}.pe_dma", "memory", "host_write", params)
    writer = TraceWriter(path)
    writer.begin({"bench": "small adds"}, load_topology(None))
    for row, record in enumerate([first, *add_log(count)]):
        writer.op(row, record, row, 0, [], [])
    writer.end(count + 1.0)
    return Trace.open(path)


def _run(log: list[OpRecord], store: MemoryStore, *clock: Callable[[], float]) -> float:
    return _seconds(DataExecutor(log, store.snapshot()).run, *clock)


def _seconds(call: Callable[[], object], clock: Callable[[], float] = process_time) -> float:
    start = clock()
    call()
    return clock() - start
