"""A race tried out: the run again, with the earlier op held back until the order flips.

What runs is given from outside (``Rerun``), since replay simulates nothing. Where no
delay flips the order, the recorded ops are executed in the other one (flipped.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Array, Ints
from kernbench.common.dtypes import itemsize, np_dtype
from kernbench.common.progress import Progress, no_progress, stage
from kernbench.errors import KernbenchError
from kernbench.replay.data.history import History
from kernbench.replay.races.findings import (
    BENIGN,
    HARMFUL,
    NOT_FLIPPED,
    Finding,
    Findings,
    Verdict,
)
from kernbench.replay.races.flipped import Flipper
from kernbench.replay.text import texts_apart, time_text
from kernbench.replay.whatif.proof import Rerun
from kernbench.sim_engine.event_log import Shard
from kernbench.sim_engine.op_log import OpRecord
from kernbench.trace import Trace
from kernbench.trace.hops import has_text

_BEYOND_NS = 10.0
"""By how much more than what lies between the starts of both ops the first is held."""

_FACTOR = 8.0
_DELAYS = 3
"""Delays with which the order has to flip, each so much longer."""

_MANY_SLOTS = "pe.dma.outstanding=64"

_ENDED = "the changed run ended with "
"""What an error says of a run that ended otherwise than it was recorded."""

_KEPT = "what is between the two keeps them in order"

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


class _Seen(NamedTuple):
    """A part of a tensor of the host, as it is at the end of a run.

    Or as the bench saw it: by the name ``stated`` it has said what is there then.
    """

    tensor: str
    dtype: str
    space: str
    addr: int
    nbytes: int
    shape: tuple[int, ...]
    origin: tuple[int, ...]
    stated: str = ""

    @property
    def place(self) -> tuple[str, int, int]:
        """Space, address and bytes."""
        return self.space, self.addr, self.nbytes

    def element(self, number: int) -> str:
        """An element of it as one names it: in the whole tensor."""
        within = np.unravel_index(number, self.shape)
        index = [low + int(at) for low, at in zip(self.origin, within, strict=True)]
        return f"{self.stated or self.tensor}[{','.join(map(str, index))}]"


_Contents: TypeAlias = Callable[[_Seen], Array]
"""The bytes of a part in a run; 0 where nothing was written by then."""


def prove_findings(
    trace: Trace, findings: Findings, rerun: Rerun, count: int, progress: Progress
) -> Findings:
    """Findings whose first ``count`` races were tried out; raises what ``rerun``
    raises.
    """
    prover = RaceProver(trace, rerun)
    rows = []
    proved = 0
    for found in findings.rows:
        if found.is_race and proved < count:
            part = stage(progress, proved / count, (proved + 1) / count)
            found = replace(found, proof=prover.verdict(found, part))
            proved += 1
        rows.append(found)
    return replace(findings, rows=tuple(rows))


class RaceProver:
    """Tries out the races of a trace, of which it executes the recorded run once."""

    def __init__(self, trace: Trace, rerun: Rerun) -> None:
        self._trace = trace
        self._rerun = rerun
        self._history = History(trace)
        self._flipper = Flipper(trace, self._history)

    def verdict(self, found: Finding, progress: Progress = no_progress) -> Verdict:
        """Try a race out with some of its pairs of ops, until one is harmful.

        Raises what ``rerun`` raises, but for a run that ends otherwise.
        """
        verdicts: list[Verdict] = []
        for tried, pair in enumerate(found.pairs, 1):
            part = stage(
                progress, (tried - 1) / len(found.pairs), tried / len(found.pairs)
            )
            verdict = self._of_pair(*pair, part)
            if verdict.kind == HARMFUL:
                if tried > 1:
                    of = f"by ops {pair[0]:,} and {pair[1]:,}"
                    verdict = replace(verdict, detail=f"{verdict.detail} {of}")
                return verdict
            verdicts.append(verdict)
        benign = [verdict for verdict in verdicts if verdict.kind == BENIGN]
        verdict = [*benign, *verdicts][0]
        if found.count == 1:
            return verdict
        how_many = f"{len(verdicts)} of {found.count:,} pairs of ops tried"
        return replace(verdict, detail=how_many)

    def _of_pair(self, first: int, second: int, progress: Progress) -> Verdict:
        """Hold the earlier of two ops back, for longer and longer, until it comes
        behind; if it never does, execute the ops in the other order.
        """
        trials = _trials(self._trace.ops[first], self._trace.ops[second])
        why = "the later op comes later by as much as the earlier one is held back"
        for run, (spec, delay_ns) in enumerate(trials, 1):
            progress((run - 1) / (len(trials) + 1))
            try:
                new = Trace.open(self._rerun(spec, ((first, delay_ns),)))
            except KernbenchError as error:
                _, is_end, how = str(error).partition(_ENDED)
                if not is_end:
                    raise
                text = f"the run ends with {how}"
                return Verdict(HARMFUL, text, first, delay_ns, run)
            both = _both(self._trace, new, first, second)
            if both is None:
                continue
            before, behind = both
            if before.t_start > behind.t_start:
                part = stage(progress, run / (len(trials) + 1), 1.0)
                differs = self._difference(_contents_of(new, part), part)
                kind = HARMFUL if differs else BENIGN
                with_spec = [f"with {field}" for field in spec]
                detail = " ".join([text for text in (differs, *with_spec) if text])
                return Verdict(kind, detail, first, delay_ns, run)
            if before.t_end > behind.t_start:
                ns = time_text(before.t_end - behind.t_start)
                why = (
                    f"op {second:,} starts {ns} before op {first:,} ends; here "
                    "each takes effect as it starts"
                )
        tried = Verdict(NOT_FLIPPED, "", first, trials[-1][1], len(trials), why)
        return self._executed(tried, second, stage(progress, 0.9, 1.0))

    def _executed(self, tried: Verdict, second: int, progress: Progress) -> Verdict:
        """What comes of the other order, into which no delay has brought the ops."""
        try:
            part = stage(progress, 0.0, 0.6)
            memory = self._flipper.memory(tried.op, second, progress=part)
        except KernbenchError as error:
            return replace(tried, kind=HARMFUL, detail=str(error))
        if memory is None:
            return replace(tried, no_delay=_KEPT)

        due = _due(self._trace)
        recorded = _contents_of(self._trace, progress, self._history)
        memories = {len(self._trace.ops): memory}

        def contents(seen: _Seen) -> Array:
            count = due.get(seen.stated, len(self._trace.ops))
            if count <= second:
                return recorded(seen)  # the bench had looked before
            if count not in memories:
                part = stage(progress, 0.6, 1.0)
                then = self._flipper.memory(tried.op, second, count, part)
                assert then is not None  # as at the end
                memories[count] = then
            steps = self._history.executed(count - 1)
            written = self._history.read(steps, *seen.place).written
            found = memories[count].view(seen.space, seen.addr, (seen.nbytes,), "u8")
            return np.where(written, found, 0).astype(np.uint8)

        differs = self._difference(contents, stage(progress, 0.6, 1.0))
        kind = HARMFUL if differs else BENIGN
        return replace(tried, kind=kind, detail=differs)

    def _difference(self, new: _Contents, progress: Progress) -> str:
        """The first element of a tensor of the host that is another in ``new``:
        ``c[3,17] 0.25 -> 0``; "" if there is none.

        Tensors that the bench has expected something of come first, and behind all
        those that were overwritten since it did, as it saw them.
        """
        trace = self._trace
        expected = {row.tensor for row in trace.expects}
        shards = [shard for shard in trace.shards() if shard.va]
        shards.sort(key=lambda shard: shard.tensor not in expected)
        old = _contents_of(trace, progress, self._history)
        for seen in [*map(_at_end, shards), *_overwritten(trace, self._history)]:
            before = old(seen)
            after = new(seen)
            changed = np.flatnonzero(before != after)
            if len(changed):
                dtype = np_dtype(seen.dtype)
                element = int(changed[0]) // dtype.itemsize
                both = (before.view(dtype), after.view(dtype))
                values = texts_apart(both[0][element], both[1][element])
                return f"{seen.element(element)} {' -> '.join(values)}"
        return ""


def _trials(first: OpRecord, second: OpRecord) -> list[tuple[tuple[str, ...], float]]:
    """What is changed of the machine, and by how much the earlier op is held back.

    Of two ops of one PE that share bytes the later one starts behind the earlier one,
    whatever is held back, so there is one run. Of two PEs the DMAs behind the earlier
    op may wait for its slot: at last there are slots for all.
    """
    apart = max(second.t_start - first.t_start, 0.0) + _BEYOND_NS
    if _pe(first.component_id) == _pe(second.component_id):
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
        is_alike &= has_text(trace, column, text)
    return np.sort(log.cmd[:][is_alike].astype(np.int64))


def _addresses(record: OpRecord) -> tuple[tuple[str, int], ...]:
    """What tells the pieces of one call from each other."""
    return tuple(
        (name, value)
        for name, value in sorted(record.params.items())
        if name in ("src_addr", "dst_addr")
    )


# -- what comes of it -----------------------------------------------------------------


def _at_end(shard: Shard) -> _Seen:
    """A shard as it is at the end."""
    return _Seen(
        shard.tensor,
        shard.dtype,
        shard.space,
        shard.addr,
        shard.nbytes,
        tuple(shard.shape),
        tuple(shard.origin),
    )


def _overwritten(trace: Trace, history: History) -> Iterator[_Seen]:
    """What the bench has stated of shards that were written later, as it saw them."""
    for e in trace.expects:
        nbytes = e.array.size * itemsize(e.dtype)
        place = (e.space, e.addr, nbytes)
        steps = history.executed(e.after - 1)
        writes = history.writes_before(steps, *place)
        if writes != history.writes_before(history.steps, *place):
            shape = e.array.shape
            yield _Seen(e.tensor, e.dtype, *place, shape, e.origin, e.tensor)


def _due(trace: Trace) -> dict[str, int]:
    """By name after how many ops the bench has stated what a tensor holds."""
    return {e.tensor: e.after for e in trace.expects}


def _contents_of(
    trace: Trace, progress: Progress, history: History | None = None
) -> _Contents:
    """What is in memory in the run of a trace, which is executed for it."""
    executed = history or History(trace)
    executed.prepare(progress)
    due = _due(trace)

    def contents(seen: _Seen) -> Array:
        steps = executed.steps
        if seen.stated in due:
            steps = executed.executed(due[seen.stated] - 1)
        found = executed.read(steps, *seen.place, progress)
        return np.where(found.written, found.values, 0).astype(np.uint8)

    return contents
