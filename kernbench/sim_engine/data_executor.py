"""Phase 2: executes an op log on a memory store, one op after the other (ADR-0020 D6, D10, D11).

Owns the order (canonical, held back by dependency_ids) and the choice of operands (a snapshot where
there is one). What an op touches is ``accesses.regions``, what it computes ``numpy_ops``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain, repeat
from typing import Any, TypeAlias

import numpy as np

from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.dtypes import np_dtype
from kernbench.errors import KernbenchError, UsageError, VerificationError
from kernbench.sim_engine import verify
from kernbench.sim_engine.accesses import Regions, regions
from kernbench.sim_engine.memory_store import Array, MemoryStore, reinterpret
from kernbench.sim_engine.numpy_ops import NUMPY_OPS, NumpyOp, Step, apply, gemm, numpy_op, rounded
from kernbench.sim_engine.op_log import KIND_RANK, OpRecord, canonical_order

Ops: TypeAlias = Mapping[str, NumpyOp]
Params: TypeAlias = dict[str, Any]
EXECUTED = frozenset(KIND_RANK) - {"unknown"}


def _memory(p: Params, operands: list[Array], ops: Ops, wide: bool) -> Array:
    return operands[0]


def _gemm(p: Params, operands: list[Array], ops: Ops, wide: bool) -> Array:
    a, b, *others = operands
    rest = iter(others)
    acc = next(rest) if "src_acc_addr" in p else None
    columns = ("epilogue", "epilogue_scopes", "epilogue_has_operand", "epilogue_scalars")
    steps = []
    for name, scope, has_operand, scalar in zip(*(p.get(c, ()) for c in columns), strict=True):
        operand = next(rest) if has_operand else None if math.isnan(scalar) else scalar
        steps.append(Step(numpy_op(name, ops), scope, operand))
    return gemm(
        a.T if p.get("transpose_a") else a,
        b.T if p.get("transpose_b") else b,
        acc,
        p.get("dtype_acc", "f32"),
        steps,
        p["tile"][2] if "tile" in p else 0,
        wide,
    )


def _math(p: Params, operands: list[Array], ops: Ops, wide: bool) -> Array:
    mixed: list[Array | float] = list(operands)
    scalars = zip(p.get("scalar_positions", ()), p.get("scalars", ()), strict=True)
    for position, scalar in sorted(scalars):
        mixed.insert(position, scalar)
    op, shape = numpy_op(p["op"], ops), tuple(p["shape_out"])
    return apply(op, mixed, shape, p.get("axis"), p.get("keepdims", False), wide)


_COMPUTE = {"memory": _memory, "gemm": _gemm, "math": _math}


def _snapshots(record: OpRecord) -> list[Array | None]:
    """Phase 1 values of the first operands, None where there is none (simulator.md section 7)."""
    return record.params.get("input_snapshots") or [record.params.get("snapshot")]


def _compute(record: OpRecord, touched: Regions, store: MemoryStore, ops: Ops, wide: bool) -> Array:
    """The output of an op that writes, not yet rounded."""
    reads, write = touched
    assert write is not None
    snapshots = _snapshots(record)
    if not reads and record.op_kind == "memory":  # host_write: all that it has is the snapshot
        reads = (write,)
        if snapshots[0] is None:
            raise VerificationError("the op holds no data; record the run again with data")
    operands = [
        store.view(r.space, r.addr, r.shape, r.dtype)
        if snapshot is None
        else reinterpret(np.ascontiguousarray(snapshot), r.shape, np_dtype(r.dtype))
        for r, snapshot in zip(reads, chain(snapshots, repeat(None)), strict=False)
    ]
    result = _COMPUTE[record.op_kind](record.params, operands, ops, wide)
    return result.reshape(write.shape)


def execute(record: OpRecord, store: MemoryStore, ops: Ops = NUMPY_OPS) -> None:
    """Patch the output of ``record``, made from its snapshots and ``store``, into ``store``.

    Nothing happens for an op that writes nothing (host_read, kinds that are not executed).
    """
    touched = regions(record)
    if (out := touched.write) is not None:
        result = _compute(record, touched, store, ops, False)
        store.patch(out.space, out.addr, rounded(result, out.dtype))


def oracle(record: OpRecord, store: MemoryStore) -> Array:
    """The output of ``record`` in f64, from its own operands and never rounded; always our table.

    Integers are exact up to 2^53. UsageError for an op that writes nothing.
    """
    touched = regions(record)
    if touched.write is None:
        raise UsageError(f"{record.op_name} has no output; ask for an op that writes")
    return _compute(record, touched, store, NUMPY_OPS, True).astype(np.float64)


@dataclass(frozen=True, slots=True)
class SnapshotFinding:
    """Operand ``which`` of the op at canonical ``position`` differs between Phase 1 and Phase 2.

    ``max_error`` is the largest |difference|, inf if only non-finite elements differ.
    """

    position: int
    which: int
    max_error: float


def snapshot_errors(record: OpRecord, store: MemoryStore) -> list[tuple[int, float]]:
    """(operand, max error) of each snapshot that differs from ``store`` by more than D11 allows.

    Bytes that ``store`` never saw differ from nothing.
    """
    found: list[tuple[int, float]] = []
    snapshots = _snapshots(record)
    if all(snapshot is None for snapshot in snapshots):
        return found
    for which, (r, snapshot) in enumerate(zip(regions(record).reads, snapshots, strict=False)):
        if snapshot is None:
            continue
        try:
            own = store.view(r.space, r.addr, r.shape, r.dtype)
        except KernbenchError:
            continue
        if snapshot.tobytes() != own.tobytes():
            phase1 = reinterpret(np.ascontiguousarray(snapshot), own.shape, own.dtype)
            row = verify.compare(phase1, own, dtype_row(r.dtype).tolerance)
            if not row.ok:
                found.append((which, row.max_abs or math.inf))
    return found


class DataExecutor:
    """Executes ``op_log``, which its dependency_ids index, on ``initial_store`` itself.

    ``position`` counts the records that have run, skipped ones too; ``skipped`` counts records of
    unknown kind by name, TileToken stages aside. An op that failed has not run: the next step tries
    it again.
    """

    def __init__(
        self,
        op_log: Sequence[OpRecord],
        initial_store: MemoryStore | None = None,
        ops: Ops = NUMPY_OPS,
    ) -> None:
        self.store = MemoryStore() if initial_store is None else initial_store
        self.position = 0
        self.skipped: Counter[str] = Counter()
        self.findings: list[SnapshotFinding] = []
        self._initial, self._ops = self.store.snapshot(), ops
        self._records: list[OpRecord] = []
        self._order: list[int] = []  # rows in canonical order; a rank is an index of it
        self._done = bytearray()  # by row
        self._cursor = 0  # ranks below it have run or are held
        self._held: dict[int, int] = {}  # rank -> how many of its dependencies have not run
        self._waiting: dict[int, list[int]] = {}  # row -> ranks that it holds
        self._freed: list[int] = []  # heap of ranks that were held
        self.extend(op_log)

    def extend(self, records: Sequence[OpRecord]) -> None:
        """Append ``records``, none of which starts before one that is already here.

        Their dependency_ids index all records so far, these included.
        """
        base, total = len(self._records), len(self._records) + len(records)
        t = np.fromiter((r.t_start for r in records), np.float64, len(records))
        kinds = np.fromiter((KIND_RANK.get(r.op_kind, 3) for r in records), np.uint8, len(records))
        latest = self._records[self._order[-1]].t_start if base else -math.inf
        for record in records:
            if record.t_start < latest or any(not 0 <= d < total for d in record.dependency_ids):
                raise VerificationError(
                    f"{record.op_name} at {record.t_start} ns with dependencies "
                    f"{record.dependency_ids} does not fit a log of {total} records, of which the "
                    f"earlier {base} start by {latest} ns; give the whole log, in order"
                )
        self._records += records
        self._order += (canonical_order(t, kinds) + base).tolist()
        self._done += bytes(len(records))

    def step(self) -> OpRecord | None:
        """Execute the next op, passing over skipped ones; None when all have run."""
        while (rank := self._next()) is not None:
            record = self._run(rank)
            if record.op_kind in EXECUTED:
                return record
        return None

    def run(self) -> None:
        """Execute all that has not run."""
        self.run_until(len(self._records))

    def run_until(self, position: int) -> None:
        """Execute until ``position`` records have run; UsageError if that is behind or beyond."""
        if not self.position <= position <= len(self._records):
            raise UsageError(
                f"position {position} is not within {self.position} (now) and "
                f"{len(self._records)} (all records); to go back make a new executor"
            )
        while self.position < position and (rank := self._next()) is not None:
            self._run(rank)

    def verify(self, expected: Mapping[str, verify.Expectation]) -> verify.VerifyReport:
        """Judge each expectation when its ``after`` ops have run; this executor goes on until then.

        If it is already past one, a fresh executor replays the log on the initial store instead.
        """
        ordered = sorted(expected.items(), key=lambda item: item[1].after)
        executor = self
        if ordered and ordered[0][1].after < self.position:
            executor = DataExecutor(self._records, self._initial.snapshot(), self._ops)
        rows: dict[str, verify.VerifyRow] = {}
        for name, e in ordered:
            if 0 <= e.after <= len(self._records):
                executor.run_until(e.after)
                rows[name] = verify.judge(name, e, executor.store)
            else:
                note = f"to be judged after {e.after} ops of a log of {len(self._records)}"
                rows[name] = verify.missing(name, e, note)
        return verify.VerifyReport(tuple(rows[name] for name in expected))

    def _next(self) -> int | None:
        """The lowest rank that has not run and whose dependencies have."""
        if self._freed:
            return heappop(self._freed)
        while self._cursor < len(self._order):
            rank = self._cursor
            self._cursor += 1
            dependencies = self._records[self._order[rank]].dependency_ids
            unmet = {d for d in dependencies if not self._done[d]}
            if not unmet:
                return rank
            self._held[rank] = len(unmet)
            for row in unmet:
                self._waiting.setdefault(row, []).append(rank)
        if self._held:
            raise VerificationError(
                f"ops {sorted(self._held)[:8]} wait for one another and can never run; "
                "their dependency_ids form a cycle"
            )
        return None

    def _run(self, rank: int) -> OpRecord:
        row = self._order[rank]
        record = self._records[row]
        if record.op_kind in EXECUTED:
            try:
                errors = snapshot_errors(record, self.store)
                execute(record, self.store, self._ops)
            except Exception as error:
                heappush(self._freed, rank)
                where = f"op {rank} ({record.op_name} on {record.component_id})"
                if isinstance(error, KernbenchError):
                    raise type(error)(f"{where}: {error}") from error
                raise VerificationError(f"{where} cannot be executed: {error!r}") from error
            self.findings += [SnapshotFinding(rank, which, size) for which, size in errors]
        elif not record.op_name.startswith("TileToken"):
            self.skipped[record.op_name] += 1
        self._done[row] = 1
        self.position += 1
        for held in self._waiting.pop(row, ()):
            self._held[held] -= 1
            if not self._held[held]:
                del self._held[held]
                heappush(self._freed, held)
        return record
