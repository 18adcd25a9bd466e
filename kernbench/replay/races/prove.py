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
    NOT_FLIPPED,
    Finding,
    Findings,
    Verdict,
)
from kernbench.replay.text import number_text
from kernbench.replay.whatif.proof import Rerun
from kernbench.sim_engine.event_log import Shard
from kernbench.sim_engine.op_log import OpRecord
from kernbench.trace import Trace

_BEYOND_NS = 10.0
"""By how much more than what lies between the starts of both ops the first is held."""

_FACTOR = 4.0
_MOST_RUNS = 4
"""Re-runs in which the order has to flip, each with a delay so much longer."""

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
    first = found.other
    second = found.op
    apart = max(second.t_start - first.t_start, 0.0)
    delay_ns = apart + _BEYOND_NS
    for run in range(1, _MOST_RUNS + 1):
        progress((run - 1) / _MOST_RUNS)
        try:
            new = Trace.open(rerun((), ((first.op, delay_ns),)))
        except KernbenchError as error:
            _, is_end, why = str(error).partition(_ENDED)
            if not is_end:
                raise
            text = f"the run ends with {why}"
            return Verdict(HARMFUL, text, first.op, delay_ns, run)
        if _is_flipped(trace, new, first.op, second.op):
            differs = first_difference(trace, new, progress)
            verdict = HARMFUL if differs else BENIGN
            return Verdict(verdict, differs, first.op, delay_ns, run)
        if run < _MOST_RUNS:
            delay_ns *= _FACTOR
    why = _why_not(first.component, second.component)
    return Verdict(NOT_FLIPPED, why, first.op, delay_ns, _MOST_RUNS)


def _why_not(first: str, second: str) -> str:
    """Why an op stays behind another however long that is held back."""
    if first.rpartition(".")[0] == second.rpartition(".")[0]:
        return (
            "the simulator starts ops of one PE that share bytes as they were issued, "
            "and takes each as done when it starts; a machine does not"
        )
    return "the later op comes later by as much as the earlier one is held back"


# -- the same op in another run -------------------------------------------------------


def _is_flipped(trace: Trace, new: Trace, first: int, second: int) -> bool:
    """Whether an op starts behind another in a new run; False if one is not there."""
    before = _found(new, _name(trace, first))
    behind = _found(new, _name(trace, second))
    if before is None or behind is None:
        return False
    return new.ops[before].t_start > new.ops[behind].t_start


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
