"""A race tried out: the run again, with the earlier op held back until the order flips.

What runs is given from outside (``Rerun``), since replay simulates nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Array, Ints
from kernbench.common.dtypes import np_dtype
from kernbench.common.progress import Progress, no_progress, stage
from kernbench.errors import KernbenchError
from kernbench.replay.data.history import History
from kernbench.replay.races.calls import named
from kernbench.replay.races.findings import (
    BENIGN,
    HARMFUL,
    MEETS,
    NOT_FLIPPED,
    Finding,
    Findings,
    Verdict,
)
from kernbench.replay.text import number_text, time_text
from kernbench.replay.whatif.proof import Rerun
from kernbench.sim_engine.event_log import Shard
from kernbench.sim_engine.op_log import OpRecord
from kernbench.trace import Trace

_BEYOND_NS = 10.0
"""By how much more than what lies between the starts of both ops the first is held."""

_FACTOR = 8.0
_DELAYS = 3
"""Delays with which the order has to flip, each so much longer."""

_MANY_SLOTS = "pe.dma.outstanding=64"

_ENDED = "the changed run ended with "
"""What an error says of a run that ended otherwise than it was recorded."""


_Place: TypeAlias = tuple[str, str, str, int]
"""A PE, what it calls, and the file and the number of the line."""


class _Name(NamedTuple):
    """An op by what is the same in every run; ``addresses`` tell pieces of a call.

    The call is number ``nth`` of those of its PE at its line.
    """

    op: str
    call: _Place
    nth: int
    addresses: tuple[tuple[str, int], ...]


def prove_findings(
    trace: Trace, findings: Findings, rerun: Rerun, count: int, progress: Progress
) -> Findings:
    """Findings whose first ``count`` races were tried out; raises what ``rerun``
    raises.
    """
    rows = []
    proved = 0
    for found in findings.rows:
        if found.is_race and proved < count:
            part = stage(progress, proved / count, (proved + 1) / count)
            proof = prove_race(trace, found, rerun, part)
            found = replace(found, proof=proof)
            proved += 1
        rows.append(found)
    return replace(findings, rows=tuple(rows))


def prove_race(
    trace: Trace, found: Finding, rerun: Rerun, progress: Progress = no_progress
) -> Verdict:
    """Hold the earlier op of a race back, for longer and longer, until it comes behind.

    Raises what ``rerun`` raises, but for a run that ends otherwise.
    """
    assert found.other is not None  # it is a race
    first = found.other.op
    second = found.op.op
    trials = _trials(found)
    met = ""
    for run, (spec, delay_ns) in enumerate(trials, 1):
        progress((run - 1) / len(trials))
        try:
            new = Trace.open(rerun(spec, ((first, delay_ns),)))
        except KernbenchError as error:
            _, is_end, why = str(error).partition(_ENDED)
            if not is_end:
                raise
            text = f"the run ends with {why}"
            return Verdict(HARMFUL, text, first, delay_ns, run)
        both = _both(trace, new, first, second)
        if both is None:
            continue
        before, behind = both
        if before.t_start > behind.t_start:
            differs = first_difference(trace, new, progress)
            kind = HARMFUL if differs else BENIGN
            with_spec = [f"with {field}" for field in spec]
            detail = " ".join([text for text in (differs, *with_spec) if text])
            return Verdict(kind, detail, first, delay_ns, run)
        if before.t_end > behind.t_start:
            ns = time_text(before.t_end - behind.t_start)
            met = (
                f"op {second:,} starts {ns} before op {first:,} ends; here each takes "
                "effect as it starts, in the order of issue, and on a machine not"
            )
    kind = MEETS if met else NOT_FLIPPED
    why = met or "the later op comes later by as much as the earlier one is held back"
    return Verdict(kind, why, first, trials[-1][1], len(trials))


def _trials(found: Finding) -> list[tuple[tuple[str, ...], float]]:
    """What is changed of the machine, and by how much the earlier op is held back.

    Of two ops of one PE that share bytes the later one starts behind the earlier one,
    whatever is held back, so there is one run. Of two PEs the DMAs behind the earlier
    op may wait for its slot: at last there are slots for all.
    """
    assert found.other is not None  # it is a race
    apart = max(found.op.t_start - found.other.t_start, 0.0) + _BEYOND_NS
    if _pe(found.op.component) == _pe(found.other.component):
        return [((), apart)]
    delays = [apart * _FACTOR**i for i in range(_DELAYS)]
    return [(spec, delay) for spec in ((), (_MANY_SLOTS,)) for delay in delays]


def _pe(component: str) -> str:
    """The PE of a component."""
    return component.rpartition(".")[0]


# -- the same op in another run -------------------------------------------------------


def _both(
    trace: Trace, new: Trace, first: int, second: int
) -> tuple[OpRecord, OpRecord] | None:
    """Two ops of a trace as they are in a new run; None if one is not there."""
    before = _found(new, _name(trace, first))
    behind = _found(new, _name(trace, second))
    if before is None or behind is None:
        return None
    return new.ops[before], new.ops[behind]


def _name(trace: Trace, op: int) -> _Name:
    """The name of an op at a position, whose call was recorded."""
    cmd = int(trace.op_columns.cmd[int(trace.order[op])])
    call = trace.command(cmd)
    assert call is not None  # else nothing is known of its order
    place = (call.pe, call.call, call.site.file, call.site.line)
    nth = int(np.searchsorted(_calls(trace, place), cmd))
    record = trace.ops[op]
    return _Name(record.op_name, place, nth, _addresses(record))


def _found(trace: Trace, name: _Name) -> int | None:
    """The position of the op of a name; None if there is none."""
    calls = _calls(trace, name.call)
    if name.nth >= len(calls):
        return None
    log = trace.op_columns
    for row in np.flatnonzero(log.cmd[:] == calls[name.nth]).tolist():
        position = int(trace.position[row])
        record = trace.ops[position]
        if (record.op_name, _addresses(record)) == (name.op, name.addresses):
            return position
    return None


def _calls(trace: Trace, call: _Place) -> Ints:
    """The numbers of the calls of a PE at a line, ascending."""
    pe, what, file, line = call
    log = trace.commands
    is_alike = log.line[:] == line
    for column, text in ((log.pe, pe), (log.call, what), (log.file, file)):
        is_alike &= named(trace, column, text)
    return np.sort(log.cmd[:][is_alike].astype(np.int64))


def _addresses(record: OpRecord) -> tuple[tuple[str, int], ...]:
    """What tells the pieces of one call from each other."""
    return tuple(
        (name, value)
        for name, value in sorted(record.params.items())
        if name in ("src_addr", "dst_addr")
    )


# -- what comes of it -----------------------------------------------------------------


def first_difference(trace: Trace, new: Trace, progress: Progress = no_progress) -> str:
    """The first element of a tensor of the host that is another at the end of a new
    run: ``c[3,17] 0.25 -> 0``; "" if there is none.

    Tensors that the bench has expected something of come first. Executes both.
    """
    expected = {row.tensor for row in trace.expects}
    shards = [shard for shard in trace.shards() if shard.va]
    shards.sort(key=lambda shard: shard.tensor not in expected)
    before = History(trace)
    after = History(new)
    before.prepare(stage(progress, 0.0, 0.5))
    after.prepare(stage(progress, 0.5, 1.0))
    for shard in shards:
        old = _contents(before, len(trace.order), shard)
        other = _contents(after, len(new.order), shard)
        changed = np.flatnonzero(old.view(np.uint8) != other.view(np.uint8))
        if len(changed):
            element = int(changed[0]) // old.itemsize
            values = (number_text(each[element]) for each in (old, other))
            return f"{_element(shard, element)} {' -> '.join(values)}"
    return ""


def _contents(history: History, ops: int, shard: Shard) -> Array:
    """The elements of a shard at the end, flat; 0 where nothing was ever written."""
    steps = history.executed(ops - 1)
    found = history.read(steps, shard.space, shard.addr, shard.nbytes)
    values = np.where(found.written, found.values, 0).astype(np.uint8)
    return values.view(np_dtype(shard.dtype))


def _element(shard: Shard, number: int) -> str:
    """An element of a shard as one names it: in the whole tensor."""
    within = np.unravel_index(number, shard.shape)
    index = [low + int(at) for low, at in zip(shard.origin, within, strict=True)]
    return f"{shard.tensor}[{','.join(map(str, index))}]"
