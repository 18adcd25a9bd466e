"""Outputs of a bench beside what it expects of them: at an op, and when they are due.

Which elements of an output are good is known to ``verify``, what memory holds to
``history``. A tensor that is expected has shards, and copies of these: each is judged,
and a tensor is as good as the worst of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Ints, as_f64
from kernbench.common.dtypes import Tolerance, itemsize
from kernbench.common.progress import (
    Progress,
    beside_if_many,
    computed_beside,
    no_progress,
)
from kernbench.errors import TraceFormatError
from kernbench.replay.data.diff import OpDiff
from kernbench.replay.data.history import Contents, History
from kernbench.replay.data.memory import TensorView
from kernbench.replay.data.places import Range
from kernbench.replay.data.write_counts import WriteCounts
from kernbench.replay.text import wrapped
from kernbench.sim_engine.event_log import in_three_axes, index_in_three_axes
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.verify import (
    Expectation,
    VerifyReport,
    VerifyRow,
    compare,
    first_index,
    judge,
    judge_part,
    missing,
)
from kernbench.trace import Trace

_ROWS_KEPT = 1 << 14


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One expected tensor at an op: ``due`` once ops 0 to ``after`` - 1 have run.

    ``bad`` is its first bad element as a place has it, in three axes at most, and
    ``name`` what to ask for that by: NAME@NODE where the first copy is right.
    """

    due: bool
    after: int
    row: VerifyRow
    bad: tuple[int, ...] | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Outputs:
    """All expected tensors at op ``op``; ``ok`` unless one that is due differs.

    ``note`` says why there are none. ``copies`` are those that are due and wrong where
    another copy of the same shard is right, a sentence each. ``disagreements`` are what
    the run's own Phase 2 recorded otherwise, a sentence a tensor; with one of these it
    is not ``ok`` either.
    """

    op: int
    ok: bool
    rows: tuple[OutputRow, ...]
    note: str = ""
    copies: tuple[str, ...] = ()
    disagreements: tuple[str, ...] = ()

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        if not self.rows:
            return [f"nothing to compare: {self.note}"]
        report = VerifyReport(tuple(out.row for out in self.rows))
        late = [
            f"{out.row.tensor} is due at op {out.after - 1:,}"
            for out in self.rows
            if not out.due
        ]
        lines = report.as_text().splitlines() + late
        for out in self.rows:
            if out.due and out.bad is not None:
                index = ",".join(map(str, out.bad))
                element = f"[{index}]" if index else ""
                when = f", at op {out.after - 1:,}" if out.after <= self.op else ""
                lines.append(f"why: blame {out.name}{element}{when}")
        for sentence in (*self.copies, *self.disagreements):
            lines += wrapped(sentence, width, 2)
        return lines


class FailingOutput(NamedTuple):
    """A tensor that is not as the bench expects once ops 0 to ``after`` - 1 have run:
    where its bytes are, in any copy.
    """

    tensor: str
    tolerance: Tolerance
    places: tuple[Range, ...]
    after: int


class _Shard(NamedTuple):
    """An expectation and the bytes that it is about."""

    expected: Expectation
    nbytes: int

    @property
    def place(self) -> Range:
        """Space, address and bytes."""
        return self.expected.space, self.expected.addr, self.nbytes


@dataclass(frozen=True, slots=True)
class _Expected:
    """All expectations: by tensor and shard, and when they are due.

    A tensor is due after as many ops as the last of its shards; ``afters`` are those of
    the shards, in the order of ``shards``. ``shapes`` are those of the tensors.
    ``copies`` are the groups of shards, by name, that hold the same part of a tensor;
    ``later_copies`` all but the first of each.
    """

    shards: dict[str, _Shard]
    afters: Ints
    due: dict[str, int]
    shapes: dict[str, tuple[int, ...]]
    copies: list[list[str]]
    later_copies: frozenset[str]

    @classmethod
    def of(cls, stated: Sequence[Expectation]) -> _Expected:
        """Those that a trace holds."""
        shards: dict[str, _Shard] = {}
        due: dict[str, int] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        for e in stated:
            nbytes = e.array.size * itemsize(e.dtype)
            shards[f"{e.tensor}.{e.shard}"] = _Shard(e, nbytes)
            due[e.tensor] = max(e.after, due.get(e.tensor, 0))
            shapes[e.tensor] = e.array.shape
        afters = [shard.expected.after for shard in shards.values()]
        parts: dict[tuple[str, tuple[int, ...]], list[str]] = {}
        for name, shard in shards.items():
            part = (shard.expected.tensor, shard.expected.origin)
            parts.setdefault(part, []).append(name)
        copies = [names for names in parts.values() if len(names) > 1]
        later = frozenset(name for names in copies for name in names[1:])
        return cls(shards, np.array(afters, np.int64), due, shapes, copies, later)


class _ShardState(NamedTuple):
    """What the row of a shard depends on: its name, and a number that differs if more
    writes into it had been made, or if it was due.
    """

    name: str
    state: int


class OutputIndex:
    """Compares outputs with what the bench expects, on the memory of a History.

    All of it belongs to the thread of lane "memory": it executes ops. Kept are the rows
    of outputs by what their shards held.
    """

    def __init__(self, trace: Trace, history: History) -> None:
        self._trace = trace
        self._history = history
        self._stated: _Expected | None = None
        self._counts: WriteCounts | None = None
        # the states of the shards that the rows are of (None: there are none yet), and
        # the rows of all shards, and by tensor
        self._states: Ints | None = None
        self._rows: dict[str, VerifyRow] = {}
        self._by_tensor: dict[str, VerifyRow] = {}
        self._judged: dict[_ShardState, VerifyRow] = {}

    def at(self, op: int, progress: Progress = no_progress) -> Outputs:
        """Every expected tensor at op ``op``, its shards and copies summed up.

        Also those that are not due yet. Only shards that were written since the last
        question are compared again, and of those only what has not been seen before.
        """
        expected = self._expected(progress)
        self._history.prepare(progress)
        steps = self._history.executed(op)
        states = self._states_after(steps, expected, progress)
        stale = self._stale(states, expected)
        new = dict[str, VerifyRow]()
        for count, state in enumerate(stale):
            progress(count / len(stale))
            row = self._judged.get(state)
            if row is None:
                shard = expected.shards[state.name]
                row = self._judged_at(steps, state.name, shard, progress)
                if len(self._judged) > _ROWS_KEPT:
                    self._judged = {}
                self._judged[state] = row
            new[state.name] = row
        # Only now: what was cancelled half-way must not pass for the rows of an op.
        self._rows |= new
        changed = {row.tensor for row in new.values()}
        mine = tuple(row for row in self._rows.values() if row.tensor in changed)
        for row in VerifyReport(mine).by_tensor():
            self._by_tensor[row.tensor] = row
        self._states = states
        by_tensor = tuple(self._by_tensor.values())
        found = self._summed(op, by_tensor, self._rows, expected)
        due = {out.row.tensor for out in found.rows if out.due}
        return replace(found, copies=self._wrong_copies(self._rows, expected, due))

    def _states_after(
        self, steps: int, expected: _Expected, progress: Progress
    ) -> Ints:
        """The state of each shard after so many steps, as ``_ShardState`` has it."""
        if self._counts is None:
            places = [shard.place for shard in expected.shards.values()]
            self._counts = WriteCounts(self._history, places, progress)
        return self._counts.after(steps) * 2 + (steps >= expected.afters)

    def _stale(self, states: Ints, expected: _Expected) -> list[_ShardState]:
        """The shards whose rows in ``_rows`` are those of other states."""
        is_stale = np.ones(len(states), np.bool_)
        if self._states is not None:
            is_stale = states != self._states
        names = compress(expected.shards, is_stale.tolist())
        return list(map(_ShardState, names, states[is_stale].tolist()))

    def _judged_at(
        self, steps: int, name: str, shard: _Shard, progress: Progress
    ) -> VerifyRow:
        """The row of a shard after so many steps."""
        contents = self._history.read(steps, *shard.place, progress)
        unwritten = self._history.unwritten(contents)
        is_due = steps >= shard.expected.after
        if is_due and unwritten:
            return judge_part(name, shard.expected, *contents)
        if unwritten:
            note = f"{unwritten:,} of its {shard.nbytes:,} bytes are not written yet"
            return missing(name, shard.expected, note)
        return self._judge_shard(name, shard, steps, contents, progress)

    def _judge_shard(
        self,
        name: str,
        shard: _Shard,
        steps: int,
        contents: Contents,
        progress: Progress,
    ) -> VerifyRow:
        """The row of a shard that holds such ``contents`` after so many steps.

        They were looked up by this thread; comparing them may be another's work.
        """
        expected = shard.expected
        store: MemoryStore = self._history.after(steps)
        if contents.written.all():
            store = MemoryStore()
            store.patch(expected.space, expected.addr, contents.values)
        return judge(name, expected, store, progress)

    def beside(self, view: TensorView, progress: Progress = no_progress) -> OpDiff:
        """What the bench expects of a tensor, beside it as it is.

        Both are NaN where nobody has written yet, which is no mismatch, but not ok.
        What nobody wrote until it was due is NaN, and a mismatch.
        """
        mine = [
            shard.expected
            for shard in self._expected(progress).shards.values()
            if shard.expected.tensor == view.name
        ]
        if not mine:
            return OpDiff(view.op, view.name, note="the bench states nothing of it")
        size = view.values.size
        return beside_if_many(size, partial(_output_diff, view, mine), progress, 0.5)

    def verify(self, progress: Progress = no_progress, to_end: bool = True) -> Outputs:
        """Every expected tensor when it was due, by executing the whole trace.

        An expectation is judged after exactly the ops that had run when it was stated,
        and beside the verdict that the run recorded of it. Without ``to_end`` the ops
        after that of the last one are not executed: no verdict depends on them, but one
        of them that cannot be executed is not found.
        """
        expected = self._expected(progress)
        shards = expected.shards
        rows = dict[str, VerifyRow]()
        by_time = sorted(shards, key=lambda name: shards[name].expected.after)
        for name in by_time:
            shard = shards[name]
            steps = self._history.executed(shard.expected.after - 1)
            progress(steps / max(self._history.steps, 1))
            contents = self._history.read(steps, *shard.place, progress)
            rows[name] = self._judge_shard(name, shard, steps, contents, progress)
        if to_end:
            self._history.reach(self._history.steps, progress)
        report = VerifyReport(tuple(rows[name] for name in shards))
        last = len(self._trace.ops) - 1
        found = self._summed(last, report.by_tensor(), rows, expected)
        disagreements = self._disagreements(report.by_tensor())
        end = self._trace.end
        ended_early = not shards and (end is None or bool(end.get("error")))
        ok = found.ok and not disagreements and not ended_early
        copies = self._wrong_copies(rows, expected, expected.due.keys())
        return replace(found, ok=ok, copies=copies, disagreements=disagreements)

    def failing(self, progress: Progress = no_progress) -> list[FailingOutput]:
        """The tensors that are wrong when they are due, each with all of its bytes."""
        rows = self.verify(progress).rows
        wrong = {out.row.tensor: out.after for out in rows if not out.row.ok}
        mine: dict[str, list[_Shard]] = {}
        for shard in self._expected().shards.values():
            if shard.expected.tensor in wrong:
                mine.setdefault(shard.expected.tensor, []).append(shard)
        return [
            FailingOutput(
                tensor,
                shards[0].expected.tolerance,
                tuple(shard.place for shard in shards),
                wrong[tensor],
            )
            for tensor, shards in mine.items()
        ]

    def _wrong_copies(
        self, rows: Mapping[str, VerifyRow], expected: _Expected, due: Set[str]
    ) -> tuple[str, ...]:
        """The copies that are wrong where another copy of the same shard is right.

        ``rows`` are the verdicts on the shards by name, ``due`` the tensors that count.
        """
        found = list[str]()
        for names in expected.copies:
            tensor = expected.shards[names[0]].expected.tensor
            if tensor not in due:
                continue
            wrong = [name for name in names if not rows[name].ok]
            if not 0 < len(wrong) < len(names):
                continue
            for name in wrong:
                row = rows[name]
                owner = self._owner_of(expected.shards[name])
                what = row.note or f"{row.mismatches:,} elements"
                text = f"{tensor}@{owner} is wrong: {what}"
                if row.first_bad is not None:
                    text += f", first {list(row.first_bad)}"
                right = len(names) - len(wrong)
                found.append(f"{text}; of its {len(names)} copies {right} are right")
        return tuple(found)

    def _owner_of(self, shard: _Shard) -> str:
        """The PE whose memory a shard is in; "?" if it was not recorded."""
        log = self._trace.alloc_columns
        here = np.flatnonzero((log.addr[:] == shard.expected.addr) & (log.va[:] != 0))
        owners = [self._trace.strings[log.owner[row]] for row in here.tolist()]
        return next(iter(owners), "?")

    def _disagreements(self, by_tensor: Sequence[VerifyRow]) -> tuple[str, ...]:
        """Where executing the trace does not come to the run's own verdict, or cannot
        since what the bench expects is damaged.
        """
        recorded = self._trace.recorded_verdicts
        found = list[str]()
        judged = {row.tensor for row in by_tensor}
        if any(damage.tag == "expect" for damage in self._trace.damaged):
            for tensor in [name for name in recorded if name not in judged]:
                found.append(
                    f"{tensor}: what the bench expects of it is damaged in the file, "
                    "so it was not compared; check says more"
                )
        for row in by_tensor:
            if recorded.get(row.tensor, row.ok) != row.ok:
                here, there = ("ok", "FAIL") if row.ok else ("FAIL", "ok")
                found.append(
                    f"{row.tensor}: the run recorded {there}, and here it is {here}; "
                    "the run executed the ops otherwise, with functions of its own "
                    "(torch.ops) or as another version of kernbench does"
                )
        return tuple(found)

    def _summed(
        self,
        op: int,
        by_tensor: Sequence[VerifyRow],
        by_shard: Mapping[str, VerifyRow],
        expected: _Expected,
    ) -> Outputs:
        """The answer of one row a tensor: which are due, and whether those are ok."""
        rows = list[OutputRow]()
        for row in by_tensor:
            after = expected.due[row.tensor]
            bad = row.first_bad
            if bad is not None:
                bad = index_in_three_axes(bad, expected.shapes[row.tensor])
            name = self._name_of_bad(row, by_shard, expected)
            rows.append(OutputRow(op + 1 >= after, after, row, bad, name))
        ok = all(out.row.ok for out in rows if out.due)
        return Outputs(op, ok, tuple(rows), "" if rows else self._why_none())

    def _name_of_bad(
        self, row: VerifyRow, by_shard: Mapping[str, VerifyRow], expected: _Expected
    ) -> str:
        """The tensor of a row, with the owner of the copy whose element is the first
        bad one unless that is the first copy.
        """
        for name, shard in expected.shards.items():
            if shard.expected.tensor != row.tensor or name not in by_shard:
                continue
            if row.first_bad is not None and by_shard[name].first_bad == row.first_bad:
                if name in expected.later_copies:
                    return f"{row.tensor}@{self._owner_of(shard)}"
                break
        return row.tensor

    def _why_none(self) -> str:
        """Why a bench would have stated no expected outputs."""
        if any(damage.tag == "expect" for damage in self._trace.damaged):
            return "what the bench expects is damaged in the file; check says more"
        if self._trace.header.get("data") is False:
            return (
                "the run was recorded with --no-data, so what the bench expects is "
                "not in its trace"
            )
        end = self._trace.end
        if end is None:  # the file was cut off
            return "the recording ends before expected outputs are stated"
        if end.get("error"):
            return "the run ended before expected outputs were stated"
        return "the bench states no expected outputs"

    def _expected(self, progress: Progress = no_progress) -> _Expected:
        """What the bench has stated; KernbenchError of a cut trace."""
        if self._stated is None:
            if self._trace.cut:
                self._trace.refuse()
            self._stated = computed_beside(
                lambda: _Expected.of(self._trace.expects), progress, 0.0
            )
        return self._stated


def _output_diff(view: TensorView, stated: Sequence[Expectation]) -> OpDiff:
    """A tensor beside all that a bench has stated of it."""
    wanted = np.full(view.values.shape, np.nan)
    in_its_dtype = np.zeros_like(view.values)
    is_due = np.zeros(view.values.shape, np.bool_)
    for e in stated:
        extents = in_three_axes(e.array.shape)
        pairs = zip(in_three_axes(e.origin), extents, strict=True)
        box = tuple(slice(origin, origin + extent) for origin, extent in pairs)
        if len(box) != wanted.ndim or wanted[box].shape != extents:
            raise TraceFormatError(
                f"shard {e.shard} that is expected of {view.name}, {e.array.shape} at "
                f"{e.origin}, does not lie in its shape {wanted.shape}"
            )
        wanted[box] = e.array.reshape(extents)
        in_its_dtype[box] = e.array.reshape(extents)
        is_due[box] = view.op + 1 >= e.after
    values = as_f64(view.values)
    comparable = np.where(view.written, wanted, values)
    row = compare(view.values, comparable, stated[0].tolerance, view.name)
    lost = is_due & ~view.written
    expected = np.where(view.written | lost, wanted, np.nan)
    actual = np.where(view.written, values, np.nan)
    with np.errstate(invalid="ignore"):
        error = actual - expected
    is_integer = view.values.dtype.kind in "iu"
    if is_integer and view.written.all() and not np.isnan(wanted).any():
        # f64 has not all of 8 bytes
        expected = in_its_dtype
        actual = view.values
        row = compare(actual, expected, stated[0].tolerance, view.name)
    never = int(lost.sum())
    unwritten = int((~view.written).sum()) - never
    notes = []
    if never:
        notes.append(f"{never:,} never written are nan here")
    if unwritten:
        notes.append(f"{unwritten:,} not written yet are nan here")
    note = ", ".join(notes)
    if note:
        row = replace(
            row,
            ok=False,
            mismatches=row.mismatches + never,
            first_bad=row.first_bad or first_index(lost),
            note=note,
        )
    return OpDiff(
        op=view.op,
        name=view.name,
        space=view.space,
        origin=(0,) * values.ndim,
        row=row,
        expected=expected,
        actual=actual,
        error=error,
        note=note,
    )
