"""What a trace file costs beside its peers, against its goals; all from one run.

The peers hold less: an op's times, place, name and dependencies, but none of its
params. Files are in the page cache. Seconds are CPU time, the least of some rounds, as
neighbours only add.
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
from kernbench.perf.make_trace import make_trace, record, repeat
from kernbench.perf.sim import PerfRow, seconds
from kernbench.topology import load_topology
from kernbench.trace import Trace, TraceWriter
from kernbench.trace.frames import FrameFile

OPS = 1_000_000
LARGE = 10_000_000
"""Ops of the trace that is compared with its peers, and of a large one."""

PEAKS = (100_000, 3_000_000)
"""Ops of two runs whose peak memory is compared."""

SAMPLE = 100_000
"""Rows that size the peers."""

COLD = 1_000
"""Ops whose params are read, each once."""

FIELDS = ("t_start", "t_end", "component", "name", "slot", "cmd", "nbytes", "deps")
"""What the peers hold of an op."""

OP_BYTES = 110.0
"""The goal for an op; a peer's goal is the share of it that the peer took when set."""


def measure(
    ops: int = OPS,
    large: int = LARGE,
    peaks: tuple[int, int] = PEAKS,
    size: int = 1024,
    rounds: int = 5,
) -> list[PerfRow]:
    """Measure everything, in some ten minutes; the file of ``large`` ops has 2 GB."""
    rows = memory_rows(*peaks)  # first: a child's peak begins at its parent's
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.msgpack"
        maps = Path(folder) / "maps.msgpack"
        rows += append_rows(path, ops // 5, size, rounds)
        make_trace(path, ops)
        rows += size_rows(path)
        ready = _least(lambda: _until_ready(path))
        rows += open_rows(path, maps, ready)
        rows += cold_rows(path)
        make_trace(path, large)
        large_ready = _least(lambda: _until_ready(path))
        heads = _least(lambda: Trace.open(path).node_ids)
    what = f"{large:,} ops"
    growth = large_ready / ready
    return [
        *rows,
        PerfRow(f"open {what} / {ops:,}", growth, 1.2 * large / ops, "ratio"),
        PerfRow(f"{what}: heads and machine / all", heads / large_ready, 0.1, "ratio"),
    ]


def memory_rows(few: int, many: int) -> list[PerfRow]:
    """By how much a longer run takes more memory to write."""
    peaks = []
    with tempfile.TemporaryDirectory() as folder:
        for ops in (few, many):
            command = [sys.executable, "-m", "kernbench.cli", "perf", "make-trace"]
            command += [f"--ops={ops}", "-o", f"{folder}/trace"]
            subprocess.run(command, check=True)
            peaks.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
    ratio = peaks[1] / peaks[0]
    return [PerfRow(f"peak memory, {many:,} / {few:,} ops", ratio, 1.05, "ratio")]


def _ignore(*_: Any) -> None:
    """A method of a recorder that keeps nothing."""


class _OpsOnly:
    """A Recorder of ops alone."""

    def __init__(self, op: Callable[..., object]) -> None:
        self.op = op

    def __getattr__(self, name: str) -> Callable[..., None]:
        return _ignore


def append_rows(path: Path, ops: int, size: int, rounds: int) -> list[PerfRow]:
    """An op with its params, waits and transfers, each just made; and a matmul."""
    graph = load_topology(None)
    events = record(graph, 0, small=True)
    spent = []
    ratios = []
    for _ in range(rounds):
        writer = TraceWriter(path)
        writer.begin({"bench": "append"}, graph)

        def to_nowhere() -> None:
            repeat(_OpsOnly(_ignore), events, ops)

        def to_writer(writer: TraceWriter = writer) -> None:
            writer.end(repeat(_OpsOnly(writer.op), events, ops))

        bare = seconds(to_nowhere)
        full = seconds(to_writer)
        spent.append((full - bare) / ops)
        on = sim.simulate(graph, size, path)
        off = sim.simulate(graph, size, None)
        ratios.append(on / off)
    return [
        PerfRow("append an op", min(spent) * 1e6, 6.0, "us"),
        PerfRow("recording on / off", median(ratios), 1.5, "ratio"),
    ]


def size_rows(path: Path) -> list[PerfRow]:
    """Bytes of an op, a wait and a transaction, with their share of the heads."""
    trace = Trace.open(path)
    frames = FrameFile(path).by_tag
    sizes = {
        tag: sum(frame.start + frame.size - frame.offset for frame in frames[tag])
        for tag in frames
    }
    transfers = trace.transfers
    op = sizes["ops"] / len(trace.ops)
    wait = sizes["waits"] / len(trace.waits.cmd)
    hops = 8 * len(transfers.start)
    transaction = (sizes["transfers"] - hops) / len(transfers.cmd)
    rows = [
        PerfRow("an op, params and dependencies too", op, OP_BYTES, "B"),
        PerfRow("a wait", wait, 32.0, "B"),
        PerfRow("a transaction, beside 8 B a hop", transaction, 32.0, "B"),
    ]
    sample = [
        dict(zip(FIELDS, row, strict=True)) for row in islice(op_rows(trace), SAMPLE)
    ]
    maps = [len(msgpack.packb(row)) for row in sample]
    tuples = [len(msgpack.packb(list(row.values()))) for row in sample]
    chrome = [len(json.dumps(chrome_event(**row))) for row in sample]
    # Each with the bytes a row that it took when the goals were set.
    for name, found, when_set in (
        ("row maps", maps, 162),
        ("row tuples", tuples, 81),
        ("Chrome JSON", chrome, 244),
    ):
        goal = round(OP_BYTES / when_set, 2)
        peer = sum(found) / len(found)
        rows.append(PerfRow(f"an op / as {name}", op / peer, goal, ""))
    return rows


def open_rows(path: Path, maps: Path, ready: float) -> list[PerfRow]:
    """Opening until a timeline can be drawn, which took ``ready`` seconds.

    It is compared with maps of the rows, and with a read of as many bytes.
    """
    trace = Trace.open(path)
    _write_maps(trace, maps)
    nbytes = sum(frame.size for frame in FrameFile(path).by_tag["ops"])
    with path.open("rb", buffering=0) as file:
        raw = _least(lambda: (file.seek(0), file.read(nbytes)))
    data = maps.read_bytes()
    gc.disable()
    without_gc = seconds(lambda: msgpack.unpackb(data))
    gc.enable()
    with_gc = seconds(lambda: msgpack.unpackb(data))
    what = f"open {len(trace.ops):,} ops"
    return [
        PerfRow(f"{what} / as maps, GC off", ready / without_gc, 0.1, "ratio"),
        PerfRow(f"{what} / as maps, GC on", ready / with_gc, 0.1, "ratio"),
        PerfRow(f"{what} / a raw read of them", ready / raw, 3.0, "ratio"),
    ]


def _write_maps(trace: Trace, path: Path) -> None:
    """Write the ops as one array of maps."""
    packer = msgpack.Packer()
    with path.open("wb") as file:
        file.write(packer.pack_array_header(len(trace.ops)))
        for row in op_rows(trace):
            file.write(packer.pack(dict(zip(FIELDS, row, strict=True))))


def cold_rows(path: Path) -> list[PerfRow]:
    """The params of ops that nobody has looked at.

    What is collected meanwhile is theirs, not what was imported before.
    """
    trace = Trace.open(path)
    rows = np.random.default_rng(0).permutation(len(trace.ops))[:COLD].tolist()
    gc.collect()
    taken = seconds(lambda: [trace.params(row) for row in rows]) / len(rows)
    return [PerfRow("one op's params, cold", taken * 1e6, 20.0, "us")]


def op_rows(trace: Trace) -> Iterable[tuple[Any, ...]]:
    """The ops as rows of FIELDS."""
    columns = trace.op_columns
    names = trace.strings[:]
    held = columns.dep.tolist()
    dependencies = (held[a:b] for a, b in pairwise(columns.dep_ptr.tolist()))
    return zip(
        columns.t_start.tolist(),
        columns.t_end.tolist(),
        [names[i] for i in columns.component.tolist()],
        [names[i] for i in columns.name.tolist()],
        columns.slot.tolist(),
        columns.cmd.tolist(),
        columns.nbytes.tolist(),
        dependencies,
        strict=True,
    )


def chrome_event(
    t_start: float, t_end: float, component: str, name: str, **args: Any
) -> dict[str, Any]:
    """An op as an event of Chrome's trace format, whose times are in us."""
    return {
        "name": name,
        "ph": "X",
        "ts": t_start / 1e3,
        "dur": (t_end - t_start) / 1e3,
        "pid": 0,
        "tid": component,
        "args": args,
    }


def _until_ready(path: Path) -> Any:
    """Open a trace until a timeline can be drawn."""
    trace = Trace.open(path)
    return trace.op_columns, trace.order


def _least(call: Callable[[], object]) -> float:
    """The least seconds of three calls."""
    return min(seconds(call) for _ in range(3))
