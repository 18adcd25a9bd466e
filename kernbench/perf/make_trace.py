"""Large synthetic traces: a real run, whose launches come again and again.

A matmul and an attention are simulated once, and what they report to a recorder is
repeated through the real writer. So ops, waits, transfers, sites and data are the
simulator's own, a file's figures are those of a long run, and all in it can be
executed.
"""

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from kernbench.benches import flash_attention, matmul
from kernbench.common.messages import NO_CMD, NO_ROW
from kernbench.errors import KernbenchError
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.engine import GraphEngine
from kernbench.sim_engine.op_log import OpRecord
from kernbench.topology import load_topology
from kernbench.topology.graph import TopologyGraph
from kernbench.trace.writer import TraceWriter

Event: TypeAlias = tuple[str, tuple[Any, ...]]
"""A call of a Recorder: the name of the method, and its arguments."""

LARGE = 100_000
"""Ops from which a trace is one of all cubes; a shorter one is of a single cube."""

PAUSE_NS = 100.0
"""Between two launches."""


class Tape:
    """A Recorder that keeps the events of a run."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: self.events.append((name, args))


class Launch(NamedTuple):
    """One launch of a run: its events, and what numbers and times they span.

    ``row`` and ``cmd`` are its first op and call, ``rows_end`` and ``cmds_end`` those
    after its last. ``start`` and ``end`` are in ns.
    """

    events: Sequence[Event]
    row: int
    rows_end: int
    cmd: int
    cmds_end: int
    start: float
    end: float


class Shift(NamedTuple):
    """By how much an event that is repeated comes later.

    That is in ns, in rows of ops, in numbers of calls and in numbers of launches.
    """

    ns: float = 0.0
    rows: int = 0
    cmds: int = 0
    launches: int = 0


def make_trace(path: str | Path, ops: int, seed: int = 0) -> None:
    """Write a trace of so many ops to ``path``, in memory that does not grow with them.

    ``seed`` is that of the inputs. The last launch may be cut short. KernbenchError if
    the file cannot be written.
    """
    graph = load_topology(None)
    events = record(graph, seed, small=ops < LARGE)
    writer = TraceWriter(path)
    header = {"bench": "make-trace", "arguments": {"ops": ops}, "seed": seed}
    writer.begin(header, graph)
    writer.end(repeat(writer, events, ops))
    if writer.error is not None:
        raise KernbenchError(writer.error)


def record(graph: TopologyGraph, seed: int, small: bool = False) -> list[Event]:
    """The events of a matmul and an attention, on all cubes, or on one if ``small``."""
    tape: Any = Tape()
    engine = GraphEngine(graph, recorder=tape)
    torch = Torch(engine, seed)
    pes = None
    m = 1024
    k = 1024
    if small:
        pes = graph.spec.cube.pes
        m = 64
        k = 512

    def run(_: GraphEngine) -> None:
        matmul.run(torch, m=m, k=k, n=k, pes=pes)
        flash_attention.run(torch, pes=pes)

    engine.run(run)
    events: list[Event] = tape.events
    return events


def repeat(recorder: Any, events: Sequence[Event], ops: int) -> float:
    """Give a recorder all events, and then the launches again until there are ``ops``.

    Returns the simulated end in ns.
    """
    launches = _launches(events)
    last = launches[-1]
    row = last.rows_end
    cmd = last.cmds_end
    now = last.end
    gc.disable()  # as GraphEngine does while it runs
    try:
        left = ops - _give(recorder, events, Shift(), 0, ops)
        number = 0
        while left > 0:
            number += len(launches)
            for launch in launches:
                shift = Shift(
                    ns=now - launch.start + PAUSE_NS,
                    rows=row - launch.row,
                    cmds=cmd - launch.cmd,
                    launches=number,
                )
                left -= _give(recorder, launch.events, shift, launch.row, left)
                now = launch.end + shift.ns
                row = launch.rows_end + shift.rows
                cmd = launch.cmds_end + shift.cmds
    finally:
        gc.enable()
    return now


def _launches(events: Sequence[Event]) -> list[Launch]:
    """The launches, of which each has the machine for itself.

    The events of one end with the command of the host that launched it.
    """
    found: list[Launch] = []
    start = 0
    for i, (name, args) in enumerate(events):
        if name != "command":
            continue
        _, _, launch, call, _, _, t_issue, t_resume = args
        if launch >= 0:  # of a kernel
            continue
        mine = events[start : i + 1]
        start = i + 1
        if call.startswith("launch"):
            rows = [own[0] for kind, own in mine if kind == "op"]
            cmds = [own[0] for kind, own in mine if kind == "command"]
            found.append(
                Launch(
                    events=mine,
                    row=min(rows),
                    rows_end=max(rows) + 1,
                    cmd=min(cmds),
                    cmds_end=max(cmds) + 1,
                    start=t_issue,
                    end=t_resume,
                )
            )
    return found


def _give(
    recorder: Any, events: Sequence[Event], shift: Shift, first_row: int, most: int
) -> int:
    """Give a recorder events, ``shift`` later, up to ``most`` ops; how many there were.

    Rows before ``first_row`` are of other launches, and stay as they are.
    """
    ops = 0
    for name, args in events:
        if name == "op":
            if ops == most:
                break
            ops += 1
            recorder.op(*_later_op(args, shift, first_row))
        elif name == "command":
            recorder.command(*_later_command(args, shift))
        elif name == "caller":
            cmd, site = args
            recorder.caller(cmd + shift.cmds, site)
        elif name == "transfer":
            cmd, transfer = args
            if cmd != NO_CMD:
                cmd += shift.cmds
            recorder.transfer(cmd, _later_transfer(transfer, shift.ns))
        elif name == "launch":
            launch, kernel, pes, *times = args
            later = [t + shift.ns for t in times]
            recorder.launch(launch + shift.launches, kernel, pes, *later)
        elif name == "alloc" and shift.cmds:
            (shard,) = args
            recorder.alloc(replace(shard, cmd=shard.cmd + shift.cmds))
        else:
            getattr(recorder, name)(*args)
    return ops


def _later_op(args: tuple[Any, ...], shift: Shift, first_row: int) -> tuple[Any, ...]:
    """The arguments of ``Recorder.op`` for an op that comes later."""
    row, record_, cmd, slot, waits, transfers = args
    dependencies = []
    for dependency in record_.dependency_ids:
        own = dependency >= first_row
        dependencies.append(dependency + shift.rows if own else dependency)
    later = OpRecord(
        record_.t_start + shift.ns,
        record_.t_end + shift.ns,
        record_.component_id,
        record_.op_kind,
        record_.op_name,
        dict(record_.params),
        dependencies,
    )
    later_waits = []
    for node, reason, t0, t1, holder in waits:
        if holder != NO_ROW and holder >= first_row:
            holder += shift.rows
        later_waits.append((node, reason, t0 + shift.ns, t1 + shift.ns, holder))
    moved = [_later_transfer(transfer, shift.ns) for transfer in transfers]
    return row + shift.rows, later, cmd + shift.cmds, slot, later_waits, moved


def _later_command(args: tuple[Any, ...], shift: Shift) -> tuple[Any, ...]:
    """The arguments of ``Recorder.command`` for a call that comes later."""
    cmd, pe, launch, call, site, awaits, t_issue, t_resume = args
    if awaits != NO_CMD:
        awaits += shift.cmds
    if launch >= 0:
        launch += shift.launches
    times = (t_issue + shift.ns, t_resume + shift.ns)
    return cmd + shift.cmds, pe, launch, call, site, awaits, *times


def _later_transfer(transfer: Any, ns: float) -> Any:
    """A ``Transfer`` that comes later."""
    path, t0, nbytes, bursts, starts = transfer
    return path, t0 + ns, nbytes, bursts, [start + ns for start in starts]
