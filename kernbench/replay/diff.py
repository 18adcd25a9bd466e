"""Phase 2 beside its float64 oracle, op by op, and outputs beside their references."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import dtype as dtype_row
from kernbench.errors import KernbenchError
from kernbench.replay.history import History
from kernbench.replay.tiles import composite_of
from kernbench.sim_engine.accesses import regions
from kernbench.sim_engine.data_executor import oracle
from kernbench.sim_engine.verify import Expectation, VerifyReport, VerifyRow, compare, judge
from kernbench.trace import Trace

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class OpDiff:
    """What op ``op`` wrote, beside what its own inputs give in float64 (local error).

    ``expected``, ``actual`` and ``error`` (actual - expected) have the shape of the output, or of
    the tile's block of it, which begins at ``origin``. ``row`` counts them; None where there is
    nothing to compare, as ``note`` says.
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


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One expected tensor at the cursor: ``due`` once the ops that it was stated after have run."""

    due: bool
    after: int
    shards: int
    row: VerifyRow


@dataclass(frozen=True, slots=True)
class Outputs:
    """All expected tensors at op ``op``."""

    op: int
    rows: tuple[OutputRow, ...]


class Diffs:
    """Compares on the memory of a History; keeps the last answer, as several panes ask for the
    same op.
    """

    def __init__(self, trace: Trace, history: History) -> None:
        self._trace = trace
        self._history = history
        self._last: OpDiff | None = None
        self._last_outputs: tuple[int, list[tuple[int, int, VerifyRow]]] | None = None

    def of(self, op: int) -> OpDiff:
        """The diff of the op at a canonical position."""
        if self._last is None or self._last.op != op:
            self._last = self._compute(op)
        return self._last

    def _compute(self, op: int) -> OpDiff:
        record = self._trace.ops[op]
        if record.op_name.startswith("TileToken/"):
            return self._tile(op, record.op_name, record.params)
        out = regions(record).write
        if out is None:
            return OpDiff(op, record.op_name, note="this op writes nothing that could be compared")
        try:
            expected = oracle(record, self._history.before(op))
            actual = self._history.at(op).view(out.space, out.addr, out.shape, out.dtype)
        except KernbenchError as why:
            return OpDiff(op, record.op_name, out.space, out.addr, note=str(why))
        row = compare(actual, expected, dtype_row(out.dtype).tolerance, record.op_name)
        error = actual.astype(np.float64) - expected
        return OpDiff(
            op,
            record.op_name,
            out.space,
            out.addr,
            (0,) * actual.ndim,
            row,
            expected,
            actual,
            error,
        )

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
        actual, expected = diff.actual[box], diff.expected[box]
        row = compare(actual, expected, diff.row.tolerance, name, origin=(m0, n0))
        return OpDiff(
            op,
            name,
            diff.space,
            diff.addr,
            (m0, n0),
            row,
            expected,
            actual,
            diff.error[box],
            note,
        )

    def outputs(self, op: int) -> Outputs:
        """Every expected tensor against memory at op ``op``, its shards and copies summed up."""
        executed = self._history.executed(op)
        if self._last_outputs is None or self._last_outputs[0] != executed:
            self._last_outputs = (executed, self._judge_all(op))
        totals = self._last_outputs[1]
        return Outputs(
            op, tuple(OutputRow(op + 1 >= after, after, n, row) for after, n, row in totals)
        )

    def _judge_all(self, op: int) -> list[tuple[int, int, VerifyRow]]:
        """(after, shards, row) of each expected tensor."""
        groups: dict[str, list[tuple[int, VerifyRow]]] = {}
        store = self._history.at(op)
        for e in self._trace.expects:
            expectation = Expectation(
                e.space, e.addr, e.array, e.dtype, e.tolerance, e.after, e.name, e.shard, e.origin
            )
            row = judge(f"{e.name}.{e.shard}", expectation, store)
            groups.setdefault(e.name, []).append((e.after, row))
        return [
            (max(a for a, _ in rows), len(rows), _sum_up(name, [row for _, row in rows]))
            for name, rows in groups.items()
        ]


def _sum_up(name: str, rows: list[VerifyRow]) -> VerifyRow:
    same = tuple(replace(row, tensor=name) for row in rows)
    return VerifyReport(same).by_tensor()[0]
