"""Phase 2 beside its float64 oracle, op by op, and outputs beside their references."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from kernbench.common.dtypes import dtype as dtype_row
from kernbench.errors import KernbenchError
from kernbench.replay.history import History
from kernbench.replay.text import grid_text
from kernbench.replay.tiles import composite_of
from kernbench.sim_engine.accesses import regions
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.memory_store import Array, MemoryStore
from kernbench.sim_engine.op_check import OpCheck, debug_check, first_over, reference
from kernbench.sim_engine.verify import Expectation, VerifyReport, VerifyRow, compare, judge
from kernbench.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class OpDiff:
    """What op ``op`` wrote, beside what its own inputs give in float64 (local error).

    ``expected``, ``actual`` and ``error`` (actual - expected) are the output, or the tile's block
    of it from ``origin``; None, like ``row``, where there is nothing to compare, as ``note`` says.
    ``check``, where it was asked for, tells rounding from bugs, and has the accumulated error.
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

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        if self.op < 0:
            return [self.note]
        lines = [f"op {self.op:,}  {self.name}" + (f": {self.note}" if self.note else "")]
        lines += [] if self.check is None else [self.check.as_text()]
        if (r := self.row) is None:
            return lines
        lines.append(
            f"{'ok' if r.ok else 'DIFFERS'}: {r.mismatches:,} of {r.elements:,} beyond "
            f"rtol {r.tolerance.rtol:g} atol {r.tolerance.atol:g}; "
            f"max abs {r.max_abs:.2e} rel {r.max_rel:.2e} ulp {r.max_ulp}"
            + (f"; first at {list(r.first_bad)}" if r.first_bad else "")
        )
        for title in ("expected", "actual", "error"):
            lines += [title, *grid_text(getattr(self, title), 4, width)]
        return lines


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One expected tensor at the cursor: ``due`` once the ops that it was stated after have run."""

    due: bool
    after: int
    row: VerifyRow


@dataclass(frozen=True, slots=True)
class Outputs:
    """All expected tensors at op ``op``; ``ok`` unless one that is due differs."""

    op: int
    ok: bool
    rows: tuple[OutputRow, ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        if not self.rows:
            return ["the bench expects nothing"]
        report = VerifyReport(tuple(out.row for out in self.rows))
        late = [f"{r.row.tensor} is due at op {r.after - 1:,}" for r in self.rows if not r.due]
        return report.as_text().splitlines() + late


class Diffs:
    """Compares on the memory of a History; keeps its last answers, as every redrawing asks."""

    def __init__(self, trace: Trace, history: History) -> None:
        self._trace, self._history = trace, history
        self._last = OpDiff(-1, "")
        self._last_outputs = -1, VerifyReport(())
        self._checks: dict[int, OpCheck] = {}

    def of(self, op: int) -> OpDiff:
        """The diff of the op at a canonical position."""
        if self._last.op != op:
            self._last = self._compute(op)
        return self._last

    @cached_property
    def _unchecked(self) -> Iterator[OpCheck]:
        for check in debug_check(self._fresh()):
            op = int(self._trace.executable_positions[check.position])
            self._checks[op] = replace(check, position=op)
            yield self._checks[op]

    def check(self, op: int) -> OpCheck | None:
        """Local and accumulated error of an op that writes; executes all before it."""
        while op not in self._checks and next(self._unchecked, None) is not None:
            pass
        return self._checks.get(op)

    def first_divergence(self) -> OpCheck | None:
        """The first op that differs from its oracle by more than rounding explains."""
        return first_over(chain(tuple(self._checks.values()), self._unchecked))

    def _fresh(self) -> DataExecutor:
        return DataExecutor(self._trace.executable, MemoryStore(self._history.fill))

    def _compute(self, op: int) -> OpDiff:
        record = self._trace.ops[op]
        if record.op_name.startswith("TileToken/"):
            return self._tile(op, record.op_name, record.params)
        out = regions(record).write
        if out is None:
            return OpDiff(op, record.op_name, note="this op writes nothing that could be compared")
        found = OpDiff(op, record.op_name, out.space, out.addr, (0,) * len(out.shape))
        try:
            expected = reference(record, self._history.at(op - 1)).value.astype(np.float64)
            actual = self._history.at(op).view(out.space, out.addr, out.shape, out.dtype)
        except KernbenchError as why:
            return replace(found, note=str(why))
        row = compare(actual, expected, dtype_row(out.dtype).tolerance, record.op_name)
        error = actual.astype(np.float64) - expected
        return replace(found, row=row, expected=expected, actual=actual, error=error)

    def _tile(self, op: int, name: str, params: dict[str, Any]) -> OpDiff:
        """A tile changes no memory: its block of the composite, which ran at its first instant."""
        whole = composite_of(self._trace, op)
        if whole is None:
            return OpDiff(op, name, note="its composite had not ended when the recording stopped")
        diff = self.of(whole)
        (m0, n0, _), (m, n, _) = params["origin"], params["extent"]
        note = f"written by composite #{whole}; this tile covers rows {m0}..{m0 + m - 1}, "
        note += f"columns {n0}..{n0 + n - 1}"
        if diff.row is None or diff.actual is None or diff.expected is None or diff.error is None:
            return replace(diff, op=op, name=name, note=f"{note}; {diff.note}")
        box, at = (slice(m0, m0 + m), slice(n0, n0 + n)), (m0, n0)
        expected, actual, error = diff.expected[box], diff.actual[box], diff.error[box]
        row = compare(actual, expected, diff.row.tolerance, name, origin=at)
        found = replace(diff, op=op, name=name, origin=at, row=row, note=note)
        return replace(found, expected=expected, actual=actual, error=error)

    def outputs(self, op: int) -> Outputs:
        """Every expected tensor against memory at op ``op``, its shards and copies summed up."""
        executed = self._history.executed(op)
        if self._last_outputs[0] != executed:
            store = self._history.at(op)
            rows = [judge(name, e, store) for name, e in self._expected.items()]
            self._last_outputs = executed, VerifyReport(tuple(rows))
        return self._summed(op, self._last_outputs[1])

    def _summed(self, op: int, report: VerifyReport) -> Outputs:
        after: dict[str, int] = {}
        for e in self._expected.values():
            after[e.tensor] = max(e.after, after.get(e.tensor, 0))
        last = ((after[row.tensor], row) for row in report.by_tensor())
        rows = [OutputRow(op + 1 >= due, due, row) for due, row in last]
        return Outputs(op, all(out.row.ok for out in rows if out.due), tuple(rows))

    @cached_property
    def _expected(self) -> dict[str, Expectation]:
        return {f"{e.tensor}.{e.shard}": e for e in self._trace.expects}

    @cached_property
    def executed(self) -> tuple[DataExecutor, VerifyReport]:
        """Phase 2 after the last op, and what it says of each tensor when that was due."""
        executor, executed = self._fresh(), self._history.executed
        due = {name: replace(e, after=executed(e.after - 1)) for name, e in self._expected.items()}
        report = executor.verify(due)
        executor.run()
        return executor, report

    def verify(self) -> Outputs:
        """Every expected tensor when it was due, by executing the whole trace."""
        return self._summed(len(self._trace.ops) - 1, self.executed[1])
