"""Phase 2: executes an op log on a memory store, one op after the other (ADR-0020 D6, D10, D11).

Owns the order (canonical, held back by dependency_ids) and the choice of operands (a snapshot where
there is one). What an op touches is ``accesses.regions``, what it computes ``numpy_ops``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from itertools import chain, repeat
from typing import TypeAlias

import numpy as np

from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.dtypes import np_dtype
from kernbench.errors import KernbenchError, UsageError, VerificationError
from kernbench.sim_engine import verify
from kernbench.sim_engine.accesses import Regions, regions
from kernbench.sim_engine.memory_store import Array, MemoryStore, reinterpret
from kernbench.sim_engine.numpy_ops import NUMPY_OPS, NumpyOp, Step, apply, gemm, numpy_op, rounded
from kernbench.sim_engine.op_log import KIND_RANK, OpRecord, Params, canonical_rows

Ops: TypeAlias = Mapping[str, NumpyOp]
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
    return _COMPUTE[record.op_kind](record.params, operands, ops, wide).reshape(write.shape)


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


def _findings(position: int, record: OpRecord, store: MemoryStore) -> list[SnapshotFinding]:
    """Snapshots that differ from ``store`` by more than D11 allows; bytes not in it never do."""
    found = []
    snapshots = _snapshots(record)
    reads = regions(record).reads if any(s is not None for s in snapshots) else ()
    for which, (r, snapshot) in enumerate(zip(reads, snapshots, strict=False)):
        if snapshot is None:
            continue
        with suppress(KernbenchError):
            own = store.view(r.space, r.addr, r.shape, r.dtype)
            if snapshot.tobytes() == own.tobytes():
                continue
            phase1 = reinterpret(np.ascontiguousarray(snapshot), r.shape, own.dtype)
            row = verify.compare(phase1, own, dtype_row(r.dtype).tolerance)
            if not row.ok:
                found.append(SnapshotFinding(position, which, row.max_abs or math.inf))
    return found


class DataExecutor:
    """Executes ``op_log``, which its dependency_ids index, on ``initial_store`` itself.

    ``position`` counts the records that have run, skipped ones too; ``skipped`` counts records of
    unknown kind by name, TileToken stages aside. An op that failed has not run: the next step tries
    it again. VerificationError for a log whose dependency_ids lead nowhere or in a circle.
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
        self._records: list[OpRecord] = []  # in canonical order; a rank is an index of it
        self._ranks: list[int] = []  # of the records as they were given
        self._order: list[int] = []  # ranks as they are executed
        self.extend(op_log)

    def extend(self, records: Sequence[OpRecord]) -> None:
        """Append ``records``, none of which starts before one that is already here.

        Their dependency_ids index all records so far, these included.
        """
        base, total = len(self._records), len(self._records) + len(records)
        latest = self._records[-1].t_start if base else -math.inf
        for record in records:
            if record.t_start < latest or any(not 0 <= d < total for d in record.dependency_ids):
                raise VerificationError(
                    f"{record.op_name} at {record.t_start} ns with dependencies "
                    f"{record.dependency_ids} does not fit a log of {total} records, of which the "
                    f"earlier {base} start by {latest} ns; give the whole log, in order"
                )
        rows = canonical_rows(records)
        ranks = self._ranks + [0] * len(records)
        for rank, row in enumerate(rows, base):
            ranks[base + row] = rank
        self._order += _execution_order(
            {
                rank: {ranks[d] for d in records[row].dependency_ids if ranks[d] >= base}
                for rank, row in enumerate(rows, base)
            }
        )
        self._ranks = ranks
        self._records += [records[row] for row in rows]

    def step(self) -> OpRecord | None:
        """Execute the next op, passing over skipped ones; None when all have run."""
        while self.position < len(self._order):
            record = self._run()
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
        while self.position < position:
            self._run()

    def _run(self) -> OpRecord:
        rank = self._order[self.position]
        record = self._records[rank]
        if record.op_kind in EXECUTED:
            try:
                findings = _findings(rank, record, self.store)
                execute(record, self.store, self._ops)
            except Exception as error:
                where = f"op {rank} ({record.op_name} on {record.component_id})"
                if isinstance(error, KernbenchError):
                    raise type(error)(f"{where}: {error}") from error
                raise VerificationError(f"{where} cannot be executed: {error!r}") from error
            self.findings += findings
        elif not record.op_name.startswith("TileToken"):
            self.skipped[record.op_name] += 1
        self.position += 1
        return record

    def verify(self, expected: Mapping[str, verify.Expectation]) -> verify.VerifyReport:
        """Judge each expectation when its ``after`` ops have run; this executor goes on until then.

        If it is already past one, a fresh executor replays the log on the initial store instead.
        """
        ordered = sorted(expected.items(), key=lambda item: item[1].after)
        executor, total = self, len(self._records)
        if ordered and ordered[0][1].after < self.position:
            executor = DataExecutor((), self._initial.snapshot(), self._ops)
            executor._records, executor._order = self._records, self._order
        rows: dict[str, verify.VerifyRow] = {}
        for name, e in ordered:
            if 0 <= e.after <= total:
                executor.run_until(e.after)
                rows[name] = verify.judge(name, e, executor.store)
            else:
                note = f"to be judged after {e.after} ops of a log of {total}"
                rows[name] = verify.missing(name, e, note)
        return verify.VerifyReport(tuple(rows[name] for name in expected))


def _execution_order(dependencies: Mapping[int, set[int]]) -> Iterable[int]:
    """The ranks, in turn the lowest of those whose dependencies have run."""
    if all(d < rank for rank, held in dependencies.items() for d in held):
        return dependencies
    sorter, ready, order = TopologicalSorter(dependencies), list[int](), list[int]()
    try:
        sorter.prepare()
    except CycleError as error:
        raise VerificationError(
            f"ops {sorted(set(error.args[1]))} wait for one another and can never run; "
            "their dependency_ids form a cycle"
        ) from None
    while sorter.is_active():
        for rank in sorter.get_ready():
            heappush(ready, rank)
        order.append(heappop(ready))
        sorter.done(order[-1])
    return order
