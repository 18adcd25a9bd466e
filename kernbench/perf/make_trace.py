"""Large synthetic traces: a real run, and its launches again and again, through the real writer.

A matmul and an attention are simulated once. So ops, waits, transfers, sites and data are the
simulator's own, a file's figures are those of a long run, and all in it can be executed.
"""

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from kernbench.benches import flash_attention, matmul
from kernbench.common.messages import NO_CMD
from kernbench.errors import KernbenchError
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.engine import GraphEngine
from kernbench.sim_engine.op_log import OpRecord
from kernbench.topology import load_topology
from kernbench.topology.graph import TopologyGraph
from kernbench.trace.writer import TraceWriter

Told: TypeAlias = list[
    tuple[str, tuple[Any, ...]]
]  # calls of a Recorder: name and arguments
LARGE = 100_000  # ops; a shorter trace is one of a single cube, not of all
PAUSE_NS = 100.0  # between two launches


class Tape:
    """A Recorder that keeps what it is told."""

    def __init__(self) -> None:
        self.told: Told = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *row: self.told.append((name, row))


class Launch(NamedTuple):
    """What one launch told, its first row and cmd and those after it, its first and last ns."""

    told: Told
    row: int
    rows_end: int
    cmd: int
    cmds_end: int
    start: float
    end: float


def make_trace(path: str | Path, ops: int, seed: int = 0) -> None:
    """Write a trace of so many ops to ``path``, in memory that does not grow with them.

    ``seed`` is that of the inputs. The last launch may be cut short.
    """
    graph = load_topology(None)
    told = record(graph, seed, ops < LARGE)
    writer = TraceWriter(path)
    writer.begin(
        {"bench": "make-trace", "arguments": {"ops": ops}, "seed": seed}, graph
    )
    writer.end(tell(writer, told, ops))
    if writer.error is not None:
        raise KernbenchError(writer.error)


def record(graph: TopologyGraph, seed: int, small: bool = False) -> Told:
    """All that a matmul and an attention tell, on one cube or on all."""
    tape: Any = Tape()
    engine = GraphEngine(graph, recorder=tape)
    torch, pes = Torch(engine, seed), graph.spec.cube.pes if small else None
    m, k = (64, 512) if small else (1024, 1024)

    def run(_: GraphEngine) -> None:
        matmul.run(torch, m=m, k=k, n=k, pes=pes)
        flash_attention.run(torch, pes=pes)

    engine.run(run)
    told: Told = tape.told
    return told


def tell(writer: Any, told: Told, ops: int) -> float:
    """Tell ``writer`` all, then the launches until there are ``ops``; the simulated end, ns."""
    launches, launch = _launches(told), 0
    gc.disable()  # as GraphEngine does while it runs
    try:
        _, _, row, _, cmd, _, now = launches[-1]
        left = ops - _tell(writer, told, (0.0, 0, 0, 0), 0, ops)
        while left > 0:
            launch += len(launches)
            for one in launches:
                later = now - one.start + PAUSE_NS, row - one.row, cmd - one.cmd, launch
                left -= _tell(writer, one.told, later, one.row, left)
                now, row, cmd = (
                    one.end + later[0],
                    one.rows_end + later[1],
                    one.cmds_end + later[2],
                )
    finally:
        gc.enable()
    return now


def _launches(told: Told) -> list[Launch]:
    """The launches, of which each has the machine for itself."""
    found, start = list[Launch](), 0
    for i, (name, call) in enumerate(told):
        if name != "command" or call[2] >= 0:  # of a kernel
            continue
        mine, start = told[start : i + 1], i + 1
        if call[3].startswith("launch"):
            spans = [
                [event[0] for kind, event in mine if kind == k]
                for k in ("op", "command")
            ]
            ends = [end for span in spans for end in (min(span), max(span) + 1)]
            found.append(Launch(mine, *ends, *call[-2:]))
    return found


def _tell(
    writer: Any, told: Told, later: tuple[float, int, int, int], first: int, most: int
) -> int:
    """Tell what was told, ``later`` by ns, rows, cmds and launches, but for rows before ``first``;
    how many ops that was, ``most`` at most.
    """
    ops, (dt, dr, dc, dl) = 0, later
    for name, event in told:
        if name == "op":
            if ops == most:
                break
            ops += 1
            row, r, cmd, slot, waits, transfers = event
            what = r.component_id, r.op_kind, r.op_name, dict(r.params)
            after = [d + dr if d >= first else d for d in r.dependency_ids]
            waits = [
                (*w[:2], w[2] + dt, w[3] + dt, w[4] + dr * (w[4] >= first))
                for w in waits
            ]
            moved = [_later(transfer, dt) for transfer in transfers]
            again = OpRecord(r.t_start + dt, r.t_end + dt, *what, after)
            writer.op(row + dr, again, cmd + dc, slot, waits, moved)
        elif name == "command":
            cmd, pe, launch, call, site, awaits, *times_ = event
            awaits += dc * (awaits != NO_CMD)
            launch += dl * (launch >= 0)
            writer.command(
                cmd + dc, pe, launch, call, site, awaits, *[t + dt for t in times_]
            )
        elif name == "transfer":
            writer.transfer(event[0] + dc * (event[0] != NO_CMD), _later(event[1], dt))
        elif name == "launch":
            writer.launch(event[0] + dl, *event[1:3], *[t + dt for t in event[3:]])
        elif name == "alloc" and dc:
            writer.alloc(replace(event[0], cmd=event[0].cmd + dc))
        else:
            getattr(writer, name)(*event)
    return ops


def _later(transfer: Any, dt: float) -> Any:
    path, t0, nbytes, bursts, starts = transfer
    return path, t0 + dt, nbytes, bursts, [start + dt for start in starts]
