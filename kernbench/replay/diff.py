"""Phase 2 beside its float64 oracle, op by op, and outputs beside their references."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import dtype as dtype_row
from kernbench.errors import KernbenchError
from kernbench.replay.history import History
from kernbench.replay.tiles import composite_of
from kernbench.sim_engine.accesses import regions
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_check import OpCheck, debug_check, first_over, reference
from kernbench.sim_engine.verify import Expectation, VerifyReport, VerifyRow, compare, judge
from kernbench.trace import Trace

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class OpDiff:
    """What op ``op`` wrote, beside what its own inputs give in float64 (local error).

    ``expected``, ``actual`` and ``error`` (actual - expected) have the shape of the output, or of
    the tile's block of it, which begins at ``origin``. ``row`` counts them; None where there is
    nothing to compare, as ``note`` says. ``check``, where it was asked for, tells rounding from
    bugs, and has the accumulated error.
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


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One expected tensor at the cursor: ``due`` once the ops that it was stated after have run."""

    due: bool
    after: int
    shards: int
    row: VerifyRow


@dataclass(frozen=True, slots=True)
class Outputs:
    """All expected tensors at op ``op``; ``ok`` unless one that is due differs."""

    op: int
    ok: bool
    rows: tuple[OutputRow, ...]


class Diffs:
    """Compares on the memory of a History; keeps the last answer, as several panes ask for the
    same op.
    """

    def __init__(self, trace: Trace, history: History) -> None:
        self._trace = trace
        self._history = history
        self._last: OpDiff | None = None
        self._last_outputs = -1, VerifyReport(())
        self._checks: dict[int, OpCheck] = {}

    def of(self, op: int) -> OpDiff:
        """The diff of the op at a canonical position."""
        if self._last is None or self._last.op != op:
            self._last = self._compute(op)
        return self._last

    @cached_property
    def _unchecked(self) -> Iterator[OpCheck]:
        positions = self._trace.executable_positions
        for check in debug_check(self._fresh()):
            done = replace(check, position=int(positions[check.position]))
            self._checks[done.position] = done
            yield done

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
        """A tile changes no memory itself: its block of the composite, which ran whole at its
        first instant.
        """
        whole = composite_of(self._trace, op)
        if whole is None:
            return OpDiff(op, name, note="its composite had not ended when the recording stopped")
        diff = self.of(whole)
        (m0, n0, _), (m, n, _) = params["origin"], params["extent"]
        note = (
            f"written by composite #{whole}; this tile covers rows {m0}..{m0 + m - 1}, "
            f"columns {n0}..{n0 + n - 1}"
        )
        if diff.row is None or diff.actual is None or diff.expected is None or diff.error is None:
            return replace(diff, op=op, name=name, note=f"{note}; {diff.note}")
        box = (slice(m0, m0 + m), slice(n0, n0 + n))
        block = {k: getattr(diff, k)[box] for k in ("expected", "actual", "error")}
        row = compare(block["actual"], block["expected"], diff.row.tolerance, name, origin=(m0, n0))
        return replace(diff, op=op, name=name, origin=(m0, n0), row=row, note=note, **block)

    def outputs(self, op: int) -> Outputs:
        """Every expected tensor against memory at op ``op``, its shards and copies summed up."""
        executed = self._history.executed(op)
        if self._last_outputs[0] != executed:
            store = self._history.at(op)
            rows = [judge(name, e, store) for name, e in self._expected.items()]
            self._last_outputs = executed, VerifyReport(tuple(rows))
        return self._summed(op, self._last_outputs[1])

    def _summed(self, op: int, report: VerifyReport) -> Outputs:
        afters: dict[str, list[int]] = {}
        for e in self._expected.values():
            afters.setdefault(e.tensor, []).append(e.after)
        last = ((max(afters[row.tensor]), row) for row in report.by_tensor())
        rows = [OutputRow(op + 1 >= after, after, len(afters[r.tensor]), r) for after, r in last]
        return Outputs(op, all(out.row.ok for out in rows if out.due), tuple(rows))

    @cached_property
    def _expected(self) -> dict[str, Expectation]:
        return {
            f"{e.name}.{e.shard}": Expectation(
                e.space, e.addr, e.array, e.dtype, e.tolerance, e.after, e.name, e.shard, e.origin
            )
            for e in self._trace.expects
        }

    @cached_property
    def executed(self) -> tuple[DataExecutor, VerifyReport]:
        """Phase 2 after the last op, and what it says of each tensor when that was due."""
        executor = self._fresh()
        due = {
            name: replace(e, after=self._history.executed(e.after - 1))
            for name, e in self._expected.items()
        }
        report = executor.verify(due)
        executor.run()
        return executor, report

    def verify(self) -> Outputs:
        """Every expected tensor when it was due, by executing the whole trace."""
        return self._summed(len(self._trace.ops) - 1, self.executed[1])
