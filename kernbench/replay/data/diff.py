"""Phase 2 beside its float64 oracle, op by op, and outputs beside their references."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, compress
from math import prod
from operator import add
from typing import Any

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.dtypes import itemsize
from kernbench.common.progress import Progress, no_progress
from kernbench.errors import KernbenchError
from kernbench.replay.data.history import SMALL, History, work
from kernbench.replay.data.memory import TensorView
from kernbench.replay.text import grid_text, wrapped
from kernbench.replay.tiles import composite_of
from kernbench.sim_engine.accesses import regions
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_check import (
    OpCheck,
    check_op,
    debug_check,
    first_over,
    oracle,
    reference,
)
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

_FEW = 2000  # executed ops whose accumulated error is told unasked
_ROWS = 1 << 14  # of the comparison that are kept
_READERS = 64  # of an output whose snapshots are looked at


@dataclass(frozen=True, slots=True, eq=False)
class OpDiff:
    """What op ``op`` wrote, beside what its own inputs give in float64 (local error).

    ``expected``, ``actual`` and ``error`` (actual - expected) are the output, or the tile's block
    of it from ``origin``; None, like ``row``, where there is nothing to compare, as ``note`` says.
    ``check``, where it was asked for, tells rounding from bugs, and has the accumulated error.
    ``simulated`` is what else is known of the output, NaN where nothing is: the bench's reference,
    or what Phase 1 saw there, as ``source`` says.
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

    @np.errstate(invalid="ignore")
    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        if self.op < 0:
            return wrapped(self.note, width)
        head = f"op {self.op:,}  {self.name}" + (f": {self.note}" if self.note else "")
        lines = wrapped(head, width, 2) + ([self.site] if self.site else [])
        lines += [] if self.check is None else wrapped(self.check.as_text(), width, 2)
        if (r := self.row) is None:
            return lines
        verdict = (
            f"{'ok' if r.ok else 'DIFFERS'}: {r.mismatches:,} of {r.elements:,} beyond "
            f"rtol {r.tolerance.rtol:g} atol {r.tolerance.atol:g}; "
            f"{r.left_out}max abs {r.max_abs:.2e} rel {r.max_rel:.2e} ulp {r.max_ulp}"
            + (f"; first at {list(r.first_bad)}" if r.first_bad else "")
        )
        lines += wrapped(verdict, width, 2)
        shown = {name: getattr(self, name) for name in ("expected", "actual", "error")}
        if (
            self.simulated is not None
            and self.actual is not None
            and self.expected is not None
        ):
            wide = self.actual.astype(np.float64)
            shown |= {f"simulated: {self.source}": self.simulated}
            shown |= {"simulated - expected": self.simulated - self.expected}
            shown |= {"simulated - actual": self.simulated - wide}
        for title, values in shown.items():
            lines += [
                title,
                *grid_text(values, 4, width, ~np.isnan(values) | (title == "actual")),
            ]
        return lines


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One expected tensor at the cursor: ``due`` once the ops that it was stated after have run."""

    due: bool
    after: int
    row: VerifyRow


@dataclass(frozen=True, slots=True)
class Outputs:
    """All expected tensors at op ``op``; ``ok`` unless one that is due differs.

    ``note`` says why there are none.
    """

    op: int
    ok: bool
    rows: tuple[OutputRow, ...]
    note: str = ""

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        if not self.rows:
            return [f"nothing to compare: {self.note}"]
        report = VerifyReport(tuple(out.row for out in self.rows))
        late = [
            f"{r.row.tensor} is due at op {r.after - 1:,}"
            for r in self.rows
            if not r.due
        ]
        return report.as_text().splitlines() + late


class DiffIndex:
    """Compares on the memory of a History; keeps its last answers, as every redrawing asks."""

    def __init__(self, trace: Trace, history: History) -> None:
        self._trace, self._history = trace, history
        self._kept: dict[int, OpDiff] = {}
        self._last_outputs = -1, dict[str, VerifyRow]()
        self._judged: dict[tuple[str, int], VerifyRow] = {}  # by name and version
        self._by_tensor: dict[str, VerifyRow] = {}
        self._checks: dict[int, OpCheck] = {}

    def of(self, op: int) -> OpDiff:
        """The diff of the op at a canonical position."""
        if op not in self._kept:
            found = self._compute(op)
            self._kept = dict([*self._kept.items()][-3:]) | {op: found}
        return self._kept[op]

    def quick(self, op: int) -> bool:
        """Whether ``of`` takes some ms only."""
        whole, size = self.products(op)
        return op in self._kept or (size <= SMALL and self._history.quick(whole))

    def products(self, op: int) -> tuple[int, int]:
        """The op that writes what ``op`` shows, -1 if it did not end, and the products of that."""
        record = self._trace.ops[op]
        if not record.op_name.startswith("TileToken/"):
            return op, work(record)
        if (whole := composite_of(self._trace, op)) is None:
            return -1, 0
        k = int(self._trace.ops[whole].params.get("k", 1))
        return whole, prod(record.params["extent"][:2]) * k

    def quick_outputs(self, op: int) -> bool:
        """Whether ``outputs`` takes some ms only."""
        if not self._history.quick(op):
            return False
        keys = (
            key
            for key in self._stale(self._history.executed(op))
            if key not in self._judged
        )
        return sum(self._expected[name].array.size for name, _ in keys) <= SMALL // 32

    def _stale(self, executed: int) -> list[tuple[str, int]]:
        """The names and versions of what ``_last_outputs`` may not speak of."""
        before = self._last_outputs[0]
        stale = self._history.changed(max(before, 0), executed, self._places) | (
            before < 0
        )
        names = compress(zip(self._expected, self._places, strict=True), stale)
        return [
            (name, self._history.version(executed, self._expected[name].space, *place))
            for name, place in names
        ]

    @cached_property
    def _unchecked(self) -> Iterator[OpCheck]:
        try:
            store = MemoryStore(self._history.fill)
            for check in debug_check(DataExecutor(self._trace.executable, store)):
                op = int(self._trace.executable_positions[check.position])
                self._checks[op] = replace(check, position=op)
                yield self._checks[op]
        except KernbenchError:
            del self._unchecked  # who asks again is told again
            raise

    def _told(self, progress: Progress) -> Iterator[OpCheck]:
        for check in self._unchecked:
            progress(
                self._history.executed(check.position) / self._history.executed(1 << 62)
            )
            yield check

    def checked(self, op: int, whole: bool = False) -> OpDiff:
        """``judged``; with the accumulated error if ``whole``, or few ops are before it."""
        if whole or self._history.executed(op) <= _FEW:
            last = self.products(op)[0]
            for check in self._unchecked if last not in self._checks else ():
                if check.position >= last:
                    break
        return self.judged(op)

    def judged(self, op: int) -> OpDiff:
        """``of`` with its errors; the accumulated one as far as it has been computed."""
        diff, (whole, _) = self.of(op), self.products(op)
        if diff.actual is None or op in self._checks:
            return replace(diff, check=self._checks.get(op))
        record, block = self._trace.ops[whole], None
        if whole != op:
            rows, columns = map(
                np.arange, diff.origin, np.add(diff.origin, diff.actual.shape)
            )
            block = rows, columns
        expected = reference(record, self._history.at(whole - 1), block)
        check = check_op(op, self._trace.ops[op], diff.actual, expected)
        first = check.first_over and tuple(map(add, check.first_over, diff.origin))
        return replace(diff, check=replace(check, first_over=first))

    def first_divergence(self, progress: Progress = no_progress) -> OpDiff | None:
        """The first op that differs from its oracle by more than rounding explains, three-way."""
        first = first_over(chain(tuple(self._checks.values()), self._told(progress)))
        return (
            None if first is None else self.beside(self.checked(first.position, True))
        )

    def beside(self, diff: OpDiff) -> OpDiff:
        """``diff`` with what the bench expects of that output, or Phase 1 saw of it."""
        record = self._trace.ops[diff.op]
        if (out := regions(record).write) is None or diff.actual is None:
            return diff
        found, source = np.full(prod(out.shape), np.nan), ""
        seen = [
            (f"expected {e.tensor}", e.space, e.addr, e.array, e.after)
            for e in self._trace.expects
        ]
        touched = self._history.touched
        later = self._history.accesses.at(out.space, out.addr, out.nbytes)
        later = later[(touched.row[later] > diff.op) & (touched.mode[later] == 0)][
            :_READERS
        ]
        for op in touched.row[later].tolist():
            reader = self._trace.ops[op]
            seen += [
                (f"Phase 1 at op {op:,}", r.space, addr, snapshot, op)
                for r, addr, snapshot in plan_of(reader).turn(reader).reads()
                if snapshot is not None
            ]
        for title, space, addr, array, before in seen:
            size = itemsize(out.dtype)
            own = np.arange(out.addr, out.addr + out.nbytes, size)
            own = own[(own >= addr) & (own < addr + array.nbytes)]
            if space != out.space or array.itemsize != size or not len(own):
                continue
            mine = [
                at
                for w, at in self._history.writers(space, own, before - 1)
                if w == diff.op
            ]
            for at in mine:
                found[(at - out.addr) // size] = array.reshape(-1)[(at - addr) // size]
                source = source or title
        return replace(
            diff,
            simulated=found.reshape(out.shape),
            source=source or "nothing recorded",
        )

    def over(self, progress: Progress = no_progress) -> list[int]:
        """All such ops, by executing everything."""
        return [
            c.position
            for c in (*self._checks.values(), *self._told(progress))
            if c.over
        ]

    def _compute(self, op: int) -> OpDiff:
        record = self._trace.ops[op]
        name, tile = record.op_name, record
        whole, _ = self.products(
            op
        )  # a tile changes no memory: its composite did, at once
        if whole < 0:
            return OpDiff(
                op, name, note="its composite had not ended when the recording stopped"
            )
        record = self._trace.ops[whole]
        out = regions(record).write
        if out is None:
            return OpDiff(
                op, name, note="this op writes nothing that could be compared"
            )
        found = OpDiff(op, name, out.space, out.addr, (0,) * len(out.shape))
        grid: tuple[Array, Array] | None = None
        part: Any = ...
        if whole != op:
            (m0, n0, _), (m, n, _) = tile.params["origin"], tile.params["extent"]
            where = f"rows {m0}..{m0 + m - 1}, columns {n0}..{n0 + n - 1}"
            note = f"written by composite #{whole}; this tile covers {where}"
            found = replace(found, origin=(m0, n0), note=note)
            ends = np.minimum((m0 + m, n0 + n), out.shape)
            rows, columns = map(np.arange, (m0, n0), ends)
            grid, part = (rows, columns), np.ix_(rows, columns)
        try:
            expected = oracle(record, self._history.at(whole - 1), grid)
            actual = self._history.at(whole).view(
                out.space, out.addr, out.shape, out.dtype
            )[part]
        except KernbenchError as why:
            return replace(found, note=f"{found.note}; {why}".removeprefix("; "))
        row = compare(
            actual, expected, dtype_row(out.dtype).tolerance, name, origin=found.origin
        )
        with np.errstate(invalid="ignore"):
            error = actual.astype(np.float64) - expected
        return replace(found, row=row, expected=expected, actual=actual, error=error)

    def outputs(self, op: int) -> Outputs:
        """Every expected tensor against memory at op ``op``, its shards and copies summed up."""
        executed, store = self._history.executed(op), self._history.at(op)
        stale, rows = self._stale(executed), self._last_outputs[1]
        for key in stale:
            e = self._expected[key[0]]
            if key not in self._judged:
                self._judged = {} if len(self._judged) > _ROWS else self._judged
                nbytes = e.array.size * itemsize(e.dtype)
                unwritten = self._history.unwritten(executed, e.space, e.addr, nbytes)
                note = f"{unwritten:,} of its {nbytes:,} bytes are not written yet"
                row = missing(key[0], e, note) if unwritten else judge(key[0], e, store)
                self._judged[key] = row
            rows[key[0]] = self._judged[key]
        new = {self._expected[name].tensor for name, _ in stale}
        merged = VerifyReport(
            tuple(r for r in rows.values() if r.tensor in new)
        ).by_tensor()
        self._by_tensor |= {row.tensor: row for row in merged}
        self._last_outputs = executed, rows
        return self._summed(op, tuple(self._by_tensor.values()))

    def output(self, view: TensorView) -> OpDiff:
        """What the bench expects of a tensor, beside it; NaN on both sides where not written."""
        mine = [e for e in self._expected.values() if e.tensor == view.name]
        if not mine:
            return OpDiff(view.op, view.name, note="the bench states nothing of it")
        wanted, values = (
            np.full(view.values.shape, np.nan),
            view.values.astype(np.float64),
        )
        for e in mine:
            shape = zip(e.origin, e.array.shape, strict=True)
            wanted[tuple(slice(o, o + n) for o, n in shape)] = e.array
        stated = np.where(view.written, wanted, values)
        row = compare(view.values, stated, mine[0].tolerance, view.name)
        expected, actual = (np.where(view.written, x, np.nan) for x in (wanted, values))
        with np.errstate(invalid="ignore"):
            grids, unwritten = (
                (expected, actual, actual - expected),
                int((~view.written).sum()),
            )
        note = f"{unwritten:,} not written yet are nan here" * bool(unwritten)
        return OpDiff(
            view.op, view.name, view.space, 0, (0,) * values.ndim, row, *grids, note
        )

    def _summed(self, op: int, by_tensor: tuple[VerifyRow, ...]) -> Outputs:
        last = ((self._due[row.tensor], row) for row in by_tensor)
        rows = [OutputRow(op + 1 >= due, due, row) for due, row in last]
        end = self._trace.end  # None where the file was cut off
        how = (
            "run ended"
            if end and end.get("error")
            else "recording stopped" * (end is None)
        )
        note = f"the {how} before expected outputs were stated" * bool(how)
        note = note or "the bench states no expected outputs"
        return Outputs(
            op, all(out.row.ok for out in rows if out.due), tuple(rows), note
        )

    @cached_property
    def _expected(self) -> dict[str, Expectation]:
        if self._trace.cut:
            self._trace.refuse()
        return {f"{e.tensor}.{e.shard}": e for e in self._trace.expects}

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        """(addr, nbytes) of each."""
        return [
            (e.addr, e.array.size * itemsize(e.dtype)) for e in self._expected.values()
        ]

    @cached_property
    def _due(self) -> dict[str, int]:
        """After how many ops all of a tensor was stated."""
        after: dict[str, int] = {}
        for e in self._expected.values():
            after[e.tensor] = max(e.after, after.get(e.tensor, 0))
        return after

    def verify(self, progress: Progress = no_progress) -> Outputs:
        """Every expected tensor when it was due, by executing the whole trace."""
        steps = self._history.executed(1 << 62)
        rows = dict[str, VerifyRow]()
        for name, e in sorted(self._expected.items(), key=lambda item: item[1].after):
            self._history.reach(self._history.executed(e.after - 1), progress)
            rows[name] = judge(name, e, self._history.at(e.after - 1))
        self._history.reach(steps, progress)
        report = VerifyReport(tuple(rows[name] for name in self._expected))
        return self._summed(len(self._trace.ops) - 1, report.by_tensor())
