"""What a trace file costs beside its peers, against the goals set for it; all from one run.

The peers hold less: an op's times, place, name and dependencies, but none of its params. Files are
in the page cache. Seconds are CPU time, the least of some rounds, as neighbours only add.
"""

import gc
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from itertools import islice, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np

from kernbench.perf import sim
from kernbench.perf.make_trace import make_trace, record, tell
from kernbench.perf.sim import PerfRow, seconds
from kernbench.topology import load_topology
from kernbench.trace import Trace, TraceWriter
from kernbench.trace.frames import FrameFile

OPS, LARGE = 1_000_000, 10_000_000
PEAKS = (100_000, 3_000_000)  # ops of two runs whose peak memory is compared
SAMPLE, COLD = (
    100_000,
    1_000,
)  # rows that size the peers; ops whose params are read, each once
_NAMES = ("t_start", "t_end", "component", "name", "slot", "cmd", "nbytes", "deps")


def measure(
    ops: int = OPS,
    large: int = LARGE,
    peaks: tuple[int, int] = PEAKS,
    size: int = 1024,
    rounds: int = 5,
) -> list[PerfRow]:
    """Measure everything, in some ten minutes; the file of ``large`` ops is one of 2 GB."""
    rows = memory_rows(*peaks)  # first: a child's peak begins at its parent's
    with tempfile.TemporaryDirectory() as folder:
        path, maps = Path(folder) / "trace.msgpack", Path(folder) / "maps.msgpack"
        rows += append_rows(path, ops // 5, size, rounds)
        make_trace(path, ops)
        rows += size_rows(path)
        before = _least(lambda: _ready(path))
        rows += open_rows(path, maps, before) + cold_rows(path)
        make_trace(path, large)
        after, heads = (
            _least(lambda: _ready(path)),
            _least(lambda: Trace.open(path).node_ids),
        )
    what = f"{large:,} ops"
    return [
        *rows,
        PerfRow(f"open {what} / {ops:,}", after / before, 1.2 * large / ops, "ratio"),
        PerfRow(f"{what}: heads and machine / all", heads / after, 0.1, "ratio"),
    ]


def memory_rows(few: int, many: int) -> list[PerfRow]:
    """By how much a longer run takes more memory to write."""
    peaks = []
    with tempfile.TemporaryDirectory() as folder:
        for ops in (few, many):
            command = [sys.executable, "-m", "kernbench.cli", "perf", "make-trace"]
            subprocess.run(
                [*command, f"--ops={ops}", "-o", f"{folder}/trace"], check=True
            )
            peaks.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
    return [
        PerfRow(
            f"peak memory, {many:,} / {few:,} ops", peaks[1] / peaks[0], 1.05, "ratio"
        )
    ]


class _Ops:
    """A Recorder of ops alone."""

    def __init__(self, op: Callable[..., object]) -> None:
        self.op = op

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def append_rows(path: Path, ops: int, size: int, rounds: int) -> list[PerfRow]:
    """An op with its params, waits and transfers, each just made; a matmul with and without."""
    graph = load_topology(None)
    told, spent, ratios = record(graph, 0, small=True), list[float](), list[float]()
    for _ in range(rounds):
        writer = TraceWriter(path)
        writer.begin({"bench": "append"}, graph)
        bare = seconds(lambda: tell(_Ops(lambda *_: None), told, ops))
        full = seconds(lambda w=writer: w.end(tell(_Ops(w.op), told, ops)))  # type: ignore[misc]
        spent.append((full - bare) / ops)
        on, off = (sim._simulate(graph, size, where) for where in (path, None))
        ratios.append(on / off)
    return [
        PerfRow("append an op", min(spent) * 1e6, 6.0, "us"),
        PerfRow("recording on / off", median(ratios), 1.5, "ratio"),
    ]


def size_rows(path: Path) -> list[PerfRow]:
    """Bytes of an op, a wait and a transaction, with their share of the heads."""
    trace, frames = Trace.open(path), FrameFile(path).by_tag
    sizes = {
        tag: sum(f.start + f.size - f.offset for f in frames[tag]) for tag in frames
    }
    moved, op = trace.transfers, sizes["ops"] / len(trace.ops)
    sample = [
        dict(zip(_NAMES, row, strict=True)) for row in islice(_rows(trace), SAMPLE)
    ]
    peers = {
        "row maps": (162, [len(msgpack.packb(row)) for row in sample]),
        "row tuples": (81, [len(msgpack.packb(list(row.values()))) for row in sample]),
        "Chrome JSON": (244, [len(json.dumps(_event(**row))) for row in sample]),
    }
    return [
        PerfRow("an op, params and dependencies too", op, 110.0, "B"),
        PerfRow("a wait", sizes["waits"] / len(trace.waits.cmd), 32.0, "B"),
        PerfRow(
            "a transaction, beside 8 B a hop",
            (sizes["transfers"] - 8 * len(moved.start)) / len(moved.cmd),
            *(32.0, "B"),
        ),
        *(
            PerfRow(
                f"an op / as {name}",
                op * len(found) / sum(found),
                round(110 / seen, 2),
                "",
            )
            for name, (seen, found) in peers.items()
        ),
    ]


def open_rows(path: Path, maps: Path, ready: float) -> list[PerfRow]:
    """Opening until a timeline can be drawn, beside maps of the rows and a read of as many bytes"""
    trace = Trace.open(path)
    with maps.open("wb") as file:
        packer = msgpack.Packer()
        file.write(packer.pack_array_header(len(trace.ops)))
        file.writelines(
            packer.pack(dict(zip(_NAMES, row, strict=True))) for row in _rows(trace)
        )
    nbytes = sum(frame.size for frame in FrameFile(path).by_tag["ops"])
    with path.open("rb", buffering=0) as file:
        raw = _least(lambda: (file.seek(0), file.read(nbytes)))
    data, taken = maps.read_bytes(), list[float]()
    for switch in (gc.disable, gc.enable):
        switch()
        taken.append(seconds(lambda: msgpack.unpackb(data)))
    what = f"open {len(trace.ops):,} ops"
    return [
        PerfRow(f"{what} / as maps, GC off", ready / taken[0], 0.1, "ratio"),
        PerfRow(f"{what} / as maps, GC on", ready / taken[1], 0.1, "ratio"),
        PerfRow(f"{what} / a raw read of them", ready / raw, 3.0, "ratio"),
    ]


def cold_rows(path: Path) -> list[PerfRow]:
    """The params of ops that nobody has looked at."""
    trace = Trace.open(path)
    rows = np.random.default_rng(0).permutation(len(trace.ops))[:COLD].tolist()
    taken = seconds(lambda: [trace.params(row) for row in rows]) / len(rows)
    return [PerfRow("one op's params, cold", taken * 1e6, 20.0, "us")]


def _ready(path: Path) -> Any:
    trace = Trace.open(path)
    return trace.op_columns, trace.order


def _least(call: Callable[[], object]) -> float:
    return min(seconds(call) for _ in range(3))


def _rows(trace: Trace) -> Iterable[tuple[Any, ...]]:
    """The ops as rows of ``_NAMES``."""
    c, names = trace.op_columns, trace.strings[:]
    held, texts = (
        c.dep.tolist(),
        ([names[i] for i in x.tolist()] for x in (c.component, c.name)),
    )
    deps = (held[a:b] for a, b in pairwise(c.dep_ptr.tolist()))
    rest = (x.tolist() for x in (c.slot, c.cmd, c.nbytes))
    return zip(c.t_start.tolist(), c.t_end.tolist(), *texts, *rest, deps, strict=True)


def _event(
    t_start: float, t_end: float, component: str, name: str, **args: Any
) -> dict[str, Any]:
    place = {"ph": "X", "ts": t_start / 1e3, "dur": (t_end - t_start) / 1e3}
    return {"name": name, **place, "pid": 0, "tid": component, "args": args}
