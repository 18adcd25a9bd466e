"""Phase 2 beside its float64 oracle, op by op, and outputs beside their references.

The oracle is the op's own function in float64. On the op's own inputs it shows the
local error: what this op alone has got wrong. On inputs that were never rounded either,
from the first op on, it shows the accumulated error. Which errors rounding explains is
known to ``op_check``, which elements of an output are good to ``verify``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, compress
from math import prod
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Ints, as_f64
from kernbench.common.dtypes import Tolerance, itemsize
from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.messages import Region, as_matrix
from kernbench.common.progress import (
    Cancelled,
    Progress,
    beside_if_many,
    computed_beside,
    no_progress,
    stage,
)
from kernbench.errors import KernbenchError, TraceFormatError
from kernbench.replay.data.arrays import read_only
from kernbench.replay.data.history import History, products
from kernbench.replay.data.memory import TensorView
from kernbench.replay.data.slices import ops_behind
from kernbench.replay.text import grid_text, wrapped
from kernbench.replay.time.op_index import OpIndex
from kernbench.sim_engine.accesses import regions
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_check import (
    OpCheck,
    OracleRun,
    Written,
    born,
    check_op,
    first_over,
    oracle,
    reference,
)
from kernbench.sim_engine.op_log import OpRecord
from kernbench.sim_engine.plans import plan_of
from kernbench.sim_engine.verify import (
    Expectation,
    VerifyReport,
    VerifyRow,
    compare,
    judge,
    missing,
)
from kernbench.sim_engine.verify import mismatches as mismatches
from kernbench.trace import Trace

FEW_STEPS = 2000
"""Steps up to which the accumulated error of an op is computed unasked."""

_DIFFS_KEPT = 4
_ROWS_KEPT = 1 << 14
_MOST_READERS = 64
"""Readers of an output whose snapshots are looked at."""
_DECODING = 0.3
"""The share of the walk beside the oracle that is decoding the records."""


@dataclass(frozen=True, slots=True, eq=False)
class OpDiff:
    """What op ``op`` wrote, beside what its own inputs give in float64 (local error).

    ``expected``, ``actual`` and ``error`` (actual - expected) are the output, or the
    tile's block of it from ``origin``; None, like ``row``, where there is nothing to
    compare, as ``note`` says. ``check``, where it was asked for, parts rounding from
    bugs, and has the accumulated error. ``simulated`` is what else is known of the
    output, NaN where nothing is: the bench's reference, or what Phase 1 saw there, as
    ``source`` says. Arrays are read-only.
    """

    op: int
    name: str
    space: str = ""
    addr: int = 0
    origin: tuple[int, ...] = ()
    row: VerifyRow | None = None
    expected: Array | None = None
    actual: Array | None = None
    error: Array | None = None
    note: str = ""
    check: OpCheck | None = None
    simulated: Array | None = None
    source: str = ""
    site: str = ""

    def __post_init__(self) -> None:
        """Freeze the arrays, too."""
        read_only(self.expected, self.actual, self.error, self.simulated)

    @np.errstate(invalid="ignore")
    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns: the verdicts, then the corner of each grid."""
        if self.op < 0:
            return wrapped(self.note, width)
        head = f"op {self.op:,}  {self.name}"
        if self.note:
            head += f": {self.note}"
        lines = wrapped(head, width, 2)
        if self.site:
            lines.append(self.site)
        if self.check is not None:
            lines += wrapped(self.check.as_text(), width, 2)
        if self.row is None:
            return lines
        lines += wrapped(_verdict(self.row), width, 2)
        for title, values in self._grids().items():
            known = ~np.isnan(values) | (title == "actual")
            lines.append(title)
            lines += grid_text(values, 4, width, known)
        return lines

    def _grids(self) -> dict[str, Array]:
        """What there is to show of every element, by title."""
        if self.expected is None or self.actual is None or self.error is None:
            return {}
        grids = {
            "expected": self.expected,
            "actual": self.actual,
            "error": self.error,
        }
        if self.simulated is not None:
            wide = as_f64(self.actual)
            grids[f"simulated: {self.source}"] = self.simulated
            grids["simulated - expected"] = self.simulated - self.expected
            grids["simulated - actual"] = self.simulated - wide
        return grids


def _verdict(row: VerifyRow) -> str:
    """The verdict on an output, in one line."""
    verdict = "ok" if row.ok else "DIFFERS"
    tolerance = f"rtol {row.tolerance.rtol:g} atol {row.tolerance.atol:g}"
    worst = f"max abs {row.max_abs:.2e} rel {row.max_rel:.2e} ulp {row.max_ulp}"
    text = (
        f"{verdict}: {row.mismatches:,} of {row.elements:,} beyond {tolerance}; "
        f"{row.left_out}{worst}"
    )
    if row.first_bad:
        text += f"; first at {list(row.first_bad)}"
    return text


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One expected tensor at an op: ``due`` once ops 0 to ``after`` - 1 have run."""

    due: bool
    after: int
    row: VerifyRow


@dataclass(frozen=True, slots=True)
class Outputs:
    """All expected tensors at op ``op``; ``ok`` unless one that is due differs.

    ``note`` says why there are none. ``copies`` are those that are wrong where another
    copy of the same shard is right, a sentence each. ``disagreements`` are what the
    run's own Phase 2 recorded otherwise, a sentence a tensor; with one of these it is
    not ``ok`` either.
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
        for sentence in (*self.copies, *self.disagreements):
            lines += wrapped(sentence, width, 2)
        return lines


class Producer(NamedTuple):
    """The op that wrote what an op shows (-1: it did not end), and its products."""

    op: int
    products: int


class _Block(NamedTuple):
    """Rows and columns of a matrix product, as the oracle takes them."""

    rows: Ints
    columns: Ints


class _Shard(NamedTuple):
    """An expectation and the bytes that it is about."""

    expected: Expectation
    nbytes: int

    @property
    def place(self) -> tuple[str, int, int]:
        """Space, address and bytes."""
        return self.expected.space, self.expected.addr, self.nbytes


@dataclass(frozen=True, slots=True)
class _Expected:
    """All expectations: by tensor and shard, where their bytes are, when they are due.

    ``places`` are (addr, nbytes), in the order of ``shards``. A tensor is due after as
    many ops as the last of its shards.
    """

    shards: dict[str, _Shard]
    places: list[tuple[int, int]]
    due: dict[str, int]

    @classmethod
    def of(cls, stated: Sequence[Expectation]) -> _Expected:
        """Those that a trace holds."""
        shards: dict[str, _Shard] = {}
        due: dict[str, int] = {}
        for e in stated:
            nbytes = e.array.size * itemsize(e.dtype)
            shards[f"{e.tensor}.{e.shard}"] = _Shard(e, nbytes)
            due[e.tensor] = max(e.after, due.get(e.tensor, 0))
        places = [(shard.expected.addr, shard.nbytes) for shard in shards.values()]
        return cls(shards, places, due)


class _ShardState(NamedTuple):
    """A shard by name, and how many writes into it had been made."""

    name: str
    writes: int


class _Behind(NamedTuple):
    """An output that fails: its tolerance, and the ops that it was made by."""

    tensor: str
    tolerance: Tolerance
    ops: set[int]


class _Recorded(NamedTuple):
    """Values that were recorded of some bytes, as they were before op ``before``."""

    title: str
    space: str
    addr: int
    array: Array
    before: int


class DiffIndex:
    """Compares what ops wrote, and outputs, on the memory of a History.

    All of it belongs to the thread of lane "memory": it executes ops. Kept are the last
    few diffs, the rows of outputs by what their shards held, and every check of the
    walk beside the oracle, which goes on where it was. ``producer`` changes nothing and
    may be asked beside it.
    """

    def __init__(self, trace: Trace, ops: OpIndex, history: History) -> None:
        self._trace = trace
        self._ops = ops
        self._history = history
        self._diffs: dict[int, OpDiff] = {}
        self._stated: _Expected | None = None
        # the rows of all shards after so many steps (-1: of none yet), and by tensor
        self._rows_steps = -1
        self._rows: dict[str, VerifyRow] = {}
        self._by_tensor: dict[str, VerifyRow] = {}
        self._judged: dict[_ShardState, VerifyRow] = {}
        self._checks: dict[int, OpCheck] = {}
        self._walk: OracleRun | None = None

    # -- one op beside its oracle --

    def of(self, op: int, progress: Progress = no_progress) -> OpDiff:
        """The diff of the op at a canonical position.

        Executes the ops that lead there, and the oracle on this op's inputs. What makes
        that impossible is the ``note`` of the answer, not an error.
        """
        found = self._diffs.get(op)
        if found is None:
            found = self._local(op, progress)
            others = [*self._diffs.items()][1 - _DIFFS_KEPT :]
            self._diffs = dict(others) | {op: found}
        return found

    def producer(self, op: int) -> Producer:
        """Who wrote what an op shows: a tile's block is written by its composite.

        The products of a tile are those of its block.
        """
        record = self._trace.ops[op]
        if not record.op_name.startswith("TileToken/"):
            return Producer(op, products(record))
        whole = self._ops.composite_of(op)
        if whole is None:
            return Producer(-1, 0)
        depth = int(self._trace.ops[whole].params.get("k", 1))
        _, extent = _tile_box(record)
        return Producer(whole, prod(extent[:2]) * depth)

    def _local(self, op: int, progress: Progress) -> OpDiff:
        """Compute the diff of an op."""
        record = self._trace.ops[op]
        name = record.op_name
        producer = self.producer(op)
        if producer.op < 0:
            note = "its composite had not ended when the recording stopped"
            return OpDiff(op, name, note=note)
        made_by = self._trace.ops[producer.op]
        out = regions(made_by).write
        if out is None:
            note = "this op writes nothing that could be compared"
            return OpDiff(op, name, note=note)
        found = OpDiff(op, name, out.space, out.addr, (0,) * len(out.shape))
        block: _Block | None = None
        if producer.op != op:  # a tile changes no memory: its composite did, at once
            block = _block_of(record, out)
            found = _tile_diff(found, record, producer.op)
        try:
            work = _work(made_by, producer)
            memory = self._history.inputs(producer.op, work, progress)
            expected = beside_if_many(
                work, lambda: oracle(made_by, memory, block), progress, 0.5
            )
            self._history.reach(self._history.executed(producer.op), progress)
            written = self._history.at(producer.op)
            actual = written.view(out.space, out.addr, out.shape, out.dtype)
        except Cancelled:
            raise
        except KernbenchError as why:
            note = f"{found.note}; {why}" if found.note else str(why)
            return replace(found, note=note)
        return beside_if_many(
            expected.size,
            lambda: _compared(found, expected, actual, block, out),
            progress,
            0.9,
        )

    # -- rounding or a bug --

    def checked(
        self, op: int, within: int = FEW_STEPS, progress: Progress = no_progress
    ) -> OpDiff:
        """``judged``, with the accumulated error if few steps are before the op.

        That is found by executing all of them beside the oracle; of an op with more
        than ``within`` steps before it only if that has been done before.
        """
        if self._history.executed(op) <= within:
            last = self.producer(op).op
            for check in self._further(progress) if last not in self._checks else ():
                if check.position >= last:
                    break
        return self.judged(op, progress)

    def judged(self, op: int, progress: Progress = no_progress) -> OpDiff:
        """``of`` with its errors; the accumulated one as far as it is known."""
        return self.judge(self.of(op, progress), progress)

    def judge(self, diff: OpDiff, progress: Progress = no_progress) -> OpDiff:
        """A diff with what rounding explains of its local error, and the rest.

        ``first_over`` of its check is an index of the whole tensor, of a tile's too.
        """
        actual = diff.actual
        if actual is None or diff.op in self._checks:
            return replace(diff, check=self._checks.get(diff.op))
        producer = self.producer(diff.op)
        made_by = self._trace.ops[producer.op]
        block: _Block | None = None
        if producer.op != diff.op:
            row, column = diff.origin
            rows = np.arange(row, row + actual.shape[0])
            block = _Block(rows, np.arange(column, column + actual.shape[1]))
        work = _work(made_by, producer)
        memory = self._history.inputs(producer.op, work, progress)

        def judged() -> OpCheck:
            expected = reference(made_by, memory, block)
            return check_op(diff.op, self._trace.ops[diff.op], actual, expected)

        check = beside_if_many(work, judged, progress, 0.9)
        if check.first_over is not None:
            pairs = zip(check.first_over, diff.origin, strict=True)
            check = replace(check, first_over=tuple(at + low for at, low in pairs))
        return replace(diff, check=check)

    def first_divergence(self, progress: Progress = no_progress) -> OpDiff | None:
        """The first op that rounding does not explain, with what was recorded of it.

        If there is none the first that overflows. Executes the whole trace beside the
        oracle, or what of it was not yet; KernbenchError if an op cannot be executed.
        """
        known = tuple(self._checks.values())
        first = first_over(chain(known, self._further(progress)))
        if first is None:
            return None
        diff = self.checked(first.position, self._history.steps, progress)
        return self.with_recorded(diff, progress)

    def first_departure(self, progress: Progress = no_progress) -> OpDiff | None:
        """Where the outputs that fail went wrong, though no op did by itself.

        Of the ops that they were made by it is the first that made a NaN of operands
        that have none, or at which the error of all ops before it, together, exceeds
        the tolerance of the output. None if no output fails, or none of its ops is one.
        Executes the whole trace beside the oracle; KernbenchError if that cannot be.
        """
        failing = self._failing(stage(progress, 0.0, 0.2))
        behind: list[_Behind] = []
        sliced = stage(progress, 0.2, 0.4)
        for count, (tensor, shards) in enumerate(failing.items()):
            own = stage(sliced, count / len(failing), (count + 1) / len(failing))
            places = [shard.place for shard in shards]
            ops = ops_behind(self._history.touched, places, own)
            behind.append(_Behind(tensor, shards[0].expected.tolerance, ops))
        if not behind:
            return None
        run = self._oracle_run(stage(progress, 0.4, 0.6))
        walked = stage(progress, 0.6, 0.9)
        steps = max(self._history.steps, 1)
        while True:
            check = run.next_check(walked)
            if check is None or run.last is None:
                return None
            op = int(self._trace.executable_positions[check.position])
            for output in behind:
                if op not in output.ops:
                    continue
                why = beside_if_many(
                    run.last.actual.size,
                    partial(_departs, run.last, output.tolerance),
                    walked,
                    check.position / steps,
                )
                if why:
                    note = f"no op is wrong by itself; of those behind {output.tensor} "
                    last = stage(progress, 0.9, 1.0)
                    diff = self.checked(op, self._history.steps, last)
                    return replace(diff, note=f"{note}this is the first {why}")

    def _failing(self, progress: Progress) -> dict[str, list[_Shard]]:
        """The shards of the outputs that are wrong when they are due, by tensor."""
        expected = self._expected(progress)
        rows = self.verify(progress).rows
        wrong = {out.row.tensor for out in rows if not out.row.ok}
        failing: dict[str, list[_Shard]] = {}
        for shard in expected.shards.values():
            if shard.expected.tensor in wrong:
                failing.setdefault(shard.expected.tensor, []).append(shard)
        return failing

    def over(self, progress: Progress = no_progress) -> list[int]:
        """All ops that rounding does not explain, by executing everything."""
        known = tuple(self._checks.values())
        checks = chain(known, self._further(progress))
        return [check.position for check in checks if check.over]

    def _further(self, progress: Progress) -> Iterator[OpCheck]:
        """The checks of the ops that the walk has not reached, keeping each.

        If an op cannot be executed the walk is given up, so that who asks again gets
        the error again.
        """
        if self._walk is None:
            self._walk = self._oracle_run(stage(progress, 0.0, _DECODING))
        walked = stage(progress, _DECODING, 1.0)
        while True:
            try:
                check = self._walk.next_check(walked)
            except Cancelled:
                raise
            except KernbenchError:
                self._walk = None
                raise
            if check is None:
                return
            op = int(self._trace.executable_positions[check.position])
            self._checks[op] = replace(check, position=op)
            yield self._checks[op]

    def _oracle_run(self, progress: Progress) -> OracleRun:
        """A walk beside the oracle that is about to begin; all records are decoded."""
        executor = DataExecutor((), MemoryStore(self._history.fill))
        executor.extend(self._trace.executable, progress)
        return OracleRun(executor)

    # -- beside what was recorded --

    def with_recorded(self, diff: OpDiff, progress: Progress = no_progress) -> OpDiff:
        """A diff with what the bench expects of that output, or Phase 1 saw of it."""
        out = regions(self._trace.ops[diff.op]).write
        if out is None or diff.actual is None:
            return diff
        if self._stated is None:  # then what the bench expects may not be decoded yet
            computed_beside(lambda: self._trace.expects, progress, 0.0)
        found = np.full(prod(out.shape), np.nan)
        source = ""
        for recorded in self._recorded(diff.op, out):
            progress(0.9)
            if self._copy_recorded(found, recorded, diff.op, out):
                source = source or recorded.title
        return replace(
            diff,
            simulated=found.reshape(out.shape),
            source=source or "nothing recorded",
        )

    def _recorded(self, op: int, out: Region) -> Iterator[_Recorded]:
        """Expectations, then snapshots of the next readers of what an op writes."""
        for e in self._trace.expects:
            yield _Recorded(f"expected {e.tensor}", e.space, e.addr, e.array, e.after)
        touched = self._history.touched
        near = self._history.accesses.overlapping(out.space, out.addr, out.nbytes)
        later = near[(touched.row[near] > op) & (touched.mode[near] == 0)]
        for reader in touched.row[later[:_MOST_READERS]].tolist():
            record = self._trace.ops[reader]
            for region, addr, snapshot in plan_of(record).turn(record).reads():
                if snapshot is not None:
                    title = f"Phase 1 at op {reader:,}"
                    yield _Recorded(title, region.space, addr, snapshot, reader)

    def _copy_recorded(
        self, into: Array, recorded: _Recorded, op: int, out: Region
    ) -> bool:
        """Copy what was recorded of elements that ``op`` wrote last; whether any was.

        ``into`` has an element for each of ``out``. Others may have written some of the
        bytes since: theirs are left out. So is what has elements of another size.
        """
        size = itemsize(out.dtype)
        array = recorded.array
        if recorded.space != out.space or array.itemsize != size:
            return False
        elements = np.arange(out.addr, out.addr + out.nbytes, size)
        first = np.searchsorted(elements, recorded.addr)
        end = np.searchsorted(elements, recorded.addr + array.nbytes)
        own = elements[first:end]
        if not len(own):
            return False
        any_copied = False
        for last in self._history.last_writers(out.space, own, recorded.before - 1):
            if last.op == op:
                to = (last.addresses - out.addr) // size
                from_ = (last.addresses - recorded.addr) // size
                into[to] = array.reshape(-1)[from_]
                any_copied = True
        return any_copied

    # -- outputs beside their references --

    def outputs(self, op: int, progress: Progress = no_progress) -> Outputs:
        """Every expected tensor at op ``op``, its shards and copies summed up.

        Also those that are not due yet. Only shards that were written since the last
        question are compared again, and of those only what has not been seen before.
        """
        expected = self._expected(progress)
        self._history.prepare(progress)
        steps = self._history.executed(op)
        stale = self._stale(steps, expected, progress)
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
        self._rows_steps = steps
        found = self._summed(op, tuple(self._by_tensor.values()), expected)
        return replace(found, copies=self._wrong_copies(self._rows, expected))

    def _stale(
        self,
        steps: int,
        expected: _Expected,
        progress: Progress = no_progress,
    ) -> list[_ShardState]:
        """The shards whose rows in ``_rows`` are not those after so many steps.

        Each as it is then.
        """
        before = max(self._rows_steps, 0)
        changed = self._history.changed(before, steps, expected.places)
        if self._rows_steps < 0:
            changed[:] = True
        stale = list[_ShardState]()
        for name, shard in compress(expected.shards.items(), changed.tolist()):
            progress(0.0)
            writes = self._history.writes_before(steps, *shard.place)
            stale.append(_ShardState(name, writes))
        return stale

    def _judged_at(
        self, steps: int, name: str, shard: _Shard, progress: Progress
    ) -> VerifyRow:
        """The row of a shard after so many steps."""
        unwritten = self._history.unwritten(steps, *shard.place, progress)
        if unwritten:
            note = f"{unwritten:,} of its {shard.nbytes:,} bytes are not written yet"
            return missing(name, shard.expected, note)
        return self._judge_shard(name, shard, steps, progress)

    def _judge_shard(
        self, name: str, shard: _Shard, steps: int, progress: Progress
    ) -> VerifyRow:
        """The row of a shard after so many steps.

        Its bytes are looked up by this thread; comparing them may be another's work.
        """
        expected = shard.expected
        contents = self._history.read(steps, *shard.place, progress)
        store: MemoryStore = self._history.after(steps)
        if contents.written.all():
            store = MemoryStore()
            store.patch(expected.space, expected.addr, contents.values)
        return judge(name, expected, store, progress)

    def output(self, view: TensorView, progress: Progress = no_progress) -> OpDiff:
        """What the bench expects of a tensor, beside it as it is.

        Both are NaN where nobody has written yet, which is no mismatch.
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

    def verify(self, progress: Progress = no_progress) -> Outputs:
        """Every expected tensor when it was due, by executing the whole trace.

        An expectation is judged after exactly the ops that had run when it was stated,
        and beside the verdict that the run recorded of it.
        """
        expected = self._expected(progress)
        shards = expected.shards
        rows = dict[str, VerifyRow]()
        by_time = sorted(shards, key=lambda name: shards[name].expected.after)
        for name in by_time:
            shard = shards[name]
            steps = self._history.executed(shard.expected.after - 1)
            progress(steps / max(self._history.steps, 1))
            rows[name] = self._judge_shard(name, shard, steps, progress)
        self._history.reach(self._history.steps, progress)
        report = VerifyReport(tuple(rows[name] for name in shards))
        found = self._summed(len(self._trace.ops) - 1, report.by_tensor(), expected)
        disagreements = self._disagreements(report.by_tensor())
        end = self._trace.end
        ended_early = not shards and (end is None or bool(end.get("error")))
        ok = found.ok and not disagreements and not ended_early
        copies = self._wrong_copies(rows, expected)
        return replace(found, ok=ok, copies=copies, disagreements=disagreements)

    def _wrong_copies(
        self, rows: Mapping[str, VerifyRow], expected: _Expected
    ) -> tuple[str, ...]:
        """The copies that are wrong where another copy of the same shard is right.

        ``rows`` are the verdicts on the shards by name.
        """
        groups: dict[tuple[str, tuple[int, ...]], list[str]] = {}
        for name, shard in expected.shards.items():
            key = (shard.expected.tensor, shard.expected.origin)
            groups.setdefault(key, []).append(name)
        found = list[str]()
        for (tensor, _), names in groups.items():
            wrong = [name for name in names if not rows[name].ok]
            if not 0 < len(wrong) < len(names):
                continue
            for name in wrong:
                row = rows[name]
                owner = self._owner_of(expected.shards[name])
                text = f"{tensor}@{owner} is wrong: {row.mismatches:,} elements"
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
        """Where executing the trace does not come to the run's own verdict."""
        recorded = self._trace.recorded_verdicts
        found = list[str]()
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
        self, op: int, by_tensor: Sequence[VerifyRow], expected: _Expected
    ) -> Outputs:
        """The answer of one row a tensor: which are due, and whether those are ok."""
        rows = list[OutputRow]()
        for row in by_tensor:
            after = expected.due[row.tensor]
            rows.append(OutputRow(op + 1 >= after, after, row))
        ok = all(out.row.ok for out in rows if out.due)
        return Outputs(op, ok, tuple(rows), self._why_none())

    def _why_none(self) -> str:
        """Why a bench would have stated no expected outputs."""
        end = self._trace.end
        if end is None:  # the file was cut off
            return "the recording stopped before expected outputs were stated"
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


def _departs(written: Written, tolerance: Tolerance) -> str:
    """What sets an op apart that an output went wrong at; empty if nothing does."""
    nans = born(written.record, written.operands, written.actual).nans
    if nans:
        return f"that makes NaN of operands that have none: {nans:,} elements"
    beyond = mismatches(written.actual, written.wide, tolerance)
    if not beyond.any():
        return ""
    limits = f"rtol {tolerance.rtol:g} atol {tolerance.atol:g}"
    return (
        "at which the errors of all ops before add up to more than the tolerance of "
        f"the output ({limits}): {int(beyond.sum()):,} of {beyond.size:,} elements"
    )


def _work(record: OpRecord, producer: Producer) -> int:
    """How many products, or elements, the oracle looks at.

    A reduction reads many elements for each that it writes.
    """
    read = sum(prod(region.shape) for region in regions(record).reads)
    return max(producer.products, read)


def _tile_box(tile: OpRecord) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Origin and extent of a tile; TraceFormatError if its params do not say them."""
    missing = [name for name in ("origin", "extent") if name not in tile.params]
    if missing:
        raise TraceFormatError(f"params of a {tile.op_name} lack {', '.join(missing)}")
    return tile.params["origin"], tile.params["extent"]


def _block_of(tile: OpRecord, out: Region) -> _Block:
    """The rows and columns of its composite's output that a tile stands for."""
    (row, column, _), (height, width, _) = _tile_box(tile)
    if len(out.shape) > 2:
        raise TraceFormatError(
            f"{tile.op_name}: shape_out of its composite is {out.shape}, no matrix"
        )
    all_rows, all_columns = as_matrix(out.shape)
    rows = np.arange(row, min(row + height, all_rows))
    return _Block(rows, np.arange(column, min(column + width, all_columns)))


def _tile_diff(found: OpDiff, tile: OpRecord, composite: int) -> OpDiff:
    """``found`` as that of a tile: where its block is, and whose it is."""
    (row, column, _), (height, width, _) = _tile_box(tile)
    where = f"rows {row}..{row + height - 1}, columns {column}..{column + width - 1}"
    note = f"written by composite #{composite}; this tile covers {where}"
    return replace(found, origin=(row, column), note=note)


def _compared(
    found: OpDiff, expected: Array, actual: Array, block: _Block | None, out: Region
) -> OpDiff:
    """``found`` with the output, or the block of it, and its errors."""
    if block is not None:
        actual = actual.reshape(as_matrix(actual.shape))[np.ix_(*block)]
    tolerance = dtype_row(out.dtype).tolerance
    row = compare(actual, expected, tolerance, found.name, origin=found.origin)
    with np.errstate(invalid="ignore"):
        error = as_f64(actual) - expected
    return replace(found, row=row, expected=expected, actual=actual, error=error)


def _output_diff(view: TensorView, stated: Sequence[Expectation]) -> OpDiff:
    """A tensor beside all that a bench has stated of it."""
    wanted = np.full(view.values.shape, np.nan)
    for e in stated:
        pairs = zip(e.origin, e.array.shape, strict=True)
        box = tuple(slice(origin, origin + extent) for origin, extent in pairs)
        if len(box) != wanted.ndim or wanted[box].shape != e.array.shape:
            raise TraceFormatError(
                f"shard {e.shard} that is expected of {view.name}, {e.array.shape} at "
                f"{e.origin}, does not lie in its shape {wanted.shape}"
            )
        wanted[box] = e.array
    values = as_f64(view.values)
    comparable = np.where(view.written, wanted, values)
    row = compare(view.values, comparable, stated[0].tolerance, view.name)
    expected = np.where(view.written, wanted, np.nan)
    actual = np.where(view.written, values, np.nan)
    with np.errstate(invalid="ignore"):
        error = actual - expected
    unwritten = int((~view.written).sum())
    return OpDiff(
        op=view.op,
        name=view.name,
        space=view.space,
        origin=(0,) * values.ndim,
        row=row,
        expected=expected,
        actual=actual,
        error=error,
        note=f"{unwritten:,} not written yet are nan here" if unwritten else "",
    )
