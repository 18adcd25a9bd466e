"""Phase 2 beside its float64 oracle, op by op.

The oracle is the op's own function in float64. On the op's own inputs it shows the
local error: what this op alone has got wrong. On inputs that were never rounded either,
from the first op on, it shows the accumulated error. Which errors rounding explains is
known to ``op_check``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Ints, as_f64
from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.dtypes import itemsize
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
from kernbench.replay.text import grid_text, wrapped
from kernbench.replay.time.op_index import OpIndex
from kernbench.sim_engine.accesses import regions
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_check import (
    OpCheck,
    OracleRun,
    check_op,
    first_over,
    oracle,
    reference,
)
from kernbench.sim_engine.op_log import OpRecord
from kernbench.sim_engine.plans import bytes_at, plan_of
from kernbench.sim_engine.verify import (
    VerifyRow,
    compare,
)
from kernbench.sim_engine.verify import mismatches as mismatches
from kernbench.trace import Trace

FEW_STEPS = 2000
"""Steps up to which the accumulated error of an op is computed unasked."""

_DIFFS_KEPT = 4
_MOST_READERS = 64
"""Readers of an output whose snapshots are looked at."""
_PRODUCTS_A_NUMBER = 128
"""Products that BLAS makes while numpy takes a dozen steps over a number."""
_READ_A_NUMBER = 4
"""Numbers that are widened and summed up meanwhile."""
_WITH_BOUNDS = 4
"""How many times as long an oracle takes with the bounds of its errors, about."""
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


class Producer(NamedTuple):
    """The op that wrote what an op shows (-1: it did not end), and its products."""

    op: int
    products: int


class _Block(NamedTuple):
    """Rows and columns of a matrix product, as the oracle takes them."""

    rows: Ints
    columns: Ints


class _Recorded(NamedTuple):
    """Values that were recorded of some bytes, as they were before op ``before``."""

    title: str
    space: str
    addr: int
    array: Array
    before: int


class DiffIndex:
    """Compares what ops wrote with their oracle, on the memory of a History.

    All of it belongs to the thread of lane "memory": it executes ops. Kept are the last
    few diffs, and every check of the walk beside the oracle, which goes on where it
    was. ``producer`` changes nothing and may be asked beside it.
    """

    def __init__(self, trace: Trace, ops: OpIndex, history: History) -> None:
        self._trace = trace
        self._ops = ops
        self._history = history
        self._diffs: dict[int, OpDiff] = {}
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
            note = "its composite has not ended where the recording ends"
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
            actual = bytes_at(written, out.addr, out)
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
        work = _WITH_BOUNDS * _work(made_by, producer)
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
            self._walk = self.oracle_run(stage(progress, 0.0, _DECODING))
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

    def oracle_run(self, progress: Progress) -> OracleRun:
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
        # what the bench expects may not be decoded yet
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
        where = out.where
        near = self._history.accesses.overlapping(out.space, where.addr, where.span)
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
        elements = out.where.addresses(np.arange(0, out.nbytes, size))
        if out.strided is not None:
            elements = np.sort(elements)
        first = np.searchsorted(elements, recorded.addr)
        end = np.searchsorted(elements, recorded.addr + array.nbytes)
        own = elements[first:end]
        if not len(own):
            return False
        any_copied = False
        for last in self._history.last_writers(out.space, own, recorded.before - 1):
            if last.op == op:
                to = out.where.offsets(last.addresses) // size
                from_ = (last.addresses - recorded.addr) // size
                into[to] = array.reshape(-1)[from_]
                any_copied = True
        return any_copied


def _work(record: OpRecord, producer: Producer) -> int:
    """What the oracle has to do, as numbers of which ``MANY`` take a ms or two.

    A reduction reads many elements for each that it writes.
    """
    read = sum(prod(region.shape) for region in regions(record).reads)
    return max(producer.products // _PRODUCTS_A_NUMBER, read // _READ_A_NUMBER)


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
