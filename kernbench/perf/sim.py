"""What the simulator costs, against the goals set for it; all ratios come from one run.

A tile is two DMA reads, FETCH and GEMM of a matmul on all PEs; what its launch costs
beside (the launch itself, the write-back of C) is counted as part of its tiles, host
copies are not. Its unit is the bare SimPy timeout, measured around the runs. All that
is seconds of CPU time, so that neighbours count less; only the large run is timed by
the clock.
"""

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import simpy

from kernbench.benches.matmul import run as matmul
from kernbench.errors import KernbenchError
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import load_topology
from kernbench.topology.graph import TopologyGraph
from kernbench.trace.writer import TraceWriter

PROCESSES = 1_000
"""Processes of the bare SimPy loop."""

TIMEOUTS = 200
"""Timeouts of each of them."""


class PerfRow(NamedTuple):
    """One goal: ``measured`` is to be at most ``goal``, or ``at_least``, in ``unit``.

    A figure that is only shown has none.
    """

    name: str
    measured: float
    goal: float | None
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the goal holds, if there is one."""
        if self.goal is None:
            return True
        if self.at_least:
            return self.measured >= self.goal
        return self.measured <= self.goal


@dataclass(frozen=True, slots=True)
class LargeRun:
    """A verified matmul in a process of its own."""

    seconds: float
    """How long it took by the clock."""

    peak_mib: float
    """The most memory that it had at once."""

    verified: bool
    """Whether its data were compared with their reference."""


HEADER = f"{'what':<44}{'measured':>10}{'goal':>8}  unit"
"""What stands above the rows."""


def row_text(row: PerfRow) -> str:
    """A goal's row of the table."""
    goal = ""
    verdict = ""
    if row.goal is not None:
        goal = f"{row.goal:g}"
        verdict = "met" if row.met else "NOT MET"
    if row.at_least:
        goal = f">= {goal}"
    line = f"{row.name:<44}{row.measured:>10.2f}{goal:>8}  {row.unit:<14} {verdict}"
    return line.rstrip()


def as_json(rows: list[PerfRow]) -> str:
    """The rows, each with its verdict."""
    return json.dumps([row._asdict() | {"met": row.met} for row in rows])


def measure(size: int = 1024, large: int = 2048, rounds: int = 5) -> list[PerfRow]:
    """Measure everything, on matmuls of m = k = n; two minutes at the default sizes."""
    big = large_run(large)  # first: a child's peak begins at its parent's
    load = median(
        seconds(lambda: GraphEngine(load_topology(None))) for _ in range(rounds)
    )
    graph = load_topology(None)
    events, tiles = count_events(graph, size)
    tile_timeouts = []
    recording = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "perf.msgpack"
        for _ in range(rounds):
            before = bare_timeout()
            on = simulate(graph, size, path)
            off = simulate(graph, size, None)
            timeout = (before + bare_timeout()) / 2
            tile_timeouts.append(on / tiles / timeout)
            recording.append(on / off)
    return [
        PerfRow("a tile, recording on", median(tile_timeouts), 150.0, "bare timeouts"),
        PerfRow("SimPy events a tile", events / tiles, 30.0, "events"),
        PerfRow("recording on / off", median(recording), 1.5, "ratio"),
        PerfRow("load_topology and engine ready", load, 1.0, "s"),
        PerfRow(f"matmul {large}^3, verified", big.seconds, 60.0, "s"),
        PerfRow(f"matmul {large}^3, peak memory", big.peak_mib, 2048.0, "MiB"),
    ]


def bare_timeout() -> float:
    """Seconds of one timeout of SimPy processes that do nothing else."""
    env = simpy.Environment()

    def process() -> simpy.events.ProcessGenerator:
        for _ in range(TIMEOUTS):
            yield env.timeout(1.0)

    for _ in range(PROCESSES):
        env.process(process())
    return seconds(env.run) / (PROCESSES * TIMEOUTS)


class _Measured(GraphEngine):
    """An engine that knows what it has simulated since the last launch was asked for.

    Neither the bench's own numpy nor its host writes are part of that.
    """

    seconds = 0.0
    first_event = 0

    def launch(self, *args: Any) -> None:
        self.drain()
        self.seconds = 0.0
        self.first_event = next(self.env._eid) + 1
        super().launch(*args)

    def drain(self) -> None:
        self.seconds += seconds(super().drain)

    def run_matmul(self, size: int) -> None:
        self.run(lambda _: matmul(Torch(self), m=size, k=size, n=size))


def count_events(graph: TopologyGraph, size: int) -> tuple[int, int]:
    """How many SimPy events a matmul takes, and how many tiles it has."""
    engine = _Measured(graph)
    engine.run_matmul(size)
    tiles = sum(record.op_name == "TileToken/GEMM" for record in engine.op_log)
    return next(engine.env._eid) - engine.first_event, tiles


def simulate(graph: TopologyGraph, size: int, path: Path | None) -> float:
    """Seconds to simulate a matmul, and to record it to ``path`` if one is given."""
    if path is None:
        engine = _Measured(graph, op_logger=None)
        engine.run_matmul(size)
        return engine.seconds
    writer = TraceWriter(path)
    writer.begin({"bench": "matmul"}, graph)
    engine = _Measured(graph, recorder=writer)
    engine.run_matmul(size)
    return engine.seconds + seconds(lambda: writer.end(engine.env.now))


def large_run(size: int) -> LargeRun:
    """Run a matmul in a process of its own; KernbenchError if it fails."""
    command = [sys.executable, "-m", "kernbench.cli", "run", "matmul", "--json"]
    command += [f"--set={name}={size}" for name in "mkn"]
    start = perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    spent = perf_counter() - start
    if done.returncode:
        why = done.stderr[-500:] or "wrong results; see `kernbench run matmul`"
        raise KernbenchError(f"matmul {size}^3 ended with {done.returncode}: {why}")
    per_mib = 2**20 if sys.platform == "darwin" else 2**10  # of ru_maxrss
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / per_mib
    return LargeRun(spent, peak, json.loads(done.stdout)["verified"])


def seconds(
    call: Callable[[], object], clock: Callable[[], float] = process_time
) -> float:
    """How long ``call`` takes, of CPU time or by another clock."""
    start = clock()
    call()
    return clock() - start
