"""Phase 2: executes an op log on a memory store (ADR-0020 D6, D10, D11).

Owns the order (canonical, held back by dependency_ids), the choice of operands (a snapshot where
there is one) and what may run in one numpy call. There is no pool of threads: two ran f16 gemms of
32^3 to 512^3 at 0.77 to 0.84 times the speed of one, as BLAS uses both cores by itself.
"""

from __future__ import annotations

import marshal
import math
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.dtypes import np_dtype
from kernbench.common.messages import Region
from kernbench.errors import KernbenchError, UsageError, VerificationError
from kernbench.sim_engine import verify
from kernbench.sim_engine.accesses import places, regions
from kernbench.sim_engine.memory_store import Array, MemoryStore, reinterpret
from kernbench.sim_engine.numpy_ops import NUMPY_OPS, NumpyOp, Step, bind, gemm, numpy_op, rounded
from kernbench.sim_engine.op_log import KIND_RANK, OpRecord, Params, canonical_rows

Ops: TypeAlias = Mapping[str, NumpyOp]
Compute: TypeAlias = Callable[..., Array]  # (operands, shape of the output), not yet rounded
EXECUTED = frozenset(KIND_RANK) - {"unknown"}

# Params in which alike ops may differ
_OWN = {"src_addr", "src_a_addr", "src_b_addr", "src_acc_addr", "input_addrs", "epilogue_addrs"}
_OWN |= {"dst_addr", "out_addr", "handle_id", "snapshot", "input_snapshots"}
_PLANS = 4096  # kept at a time
_BATCH = 256  # ops in a call at most: a piece of its result keeps all of it alive
_SMALL = 4096  # elements that an op of several may touch; gemms of 64^3, adds of 2,048 lose


class Plan(NamedTuple):
    """What alike ops share: regions (at the addresses of one of them) and the function.

    ``places`` are the params that hold the addresses of the reads and of the write, ``guarded``
    (which, bytes) of the reads in the space of the write. ``axes`` are those of the widest operand
    of an op that may share its call, else 0.
    """

    reads: tuple[Region, ...]
    write: Region | None
    places: list[tuple[str, int | None]]
    guarded: list[tuple[int, int]]
    compute: Compute
    axes: int

    def turn(self, record: OpRecord, position: int = 0) -> Turn:
        """The turn of an op that has this plan."""
        p = record.params
        where = [p[key] if at is None else p[key][at] for key, at in self.places]
        return Turn(record, self, where, position)


class Turn(NamedTuple):
    """One op to be executed: where it reads and, last, writes, and its canonical position."""

    record: OpRecord
    plan: Plan
    where: list[int]
    position: int

    def snapshots(self) -> Iterable[Array | None]:
        """Phase 1 values of the operands, None where there is none; goes on without end."""
        p = self.record.params
        return chain(p.get("input_snapshots") or [p.get("snapshot")], repeat(None))


def plan_of(record: OpRecord, ops: Ops = NUMPY_OPS, wide: bool = False) -> Plan:
    """The plan of one op; ``wide``: in f64, as the oracle computes."""
    p, kind = record.params, record.op_kind
    reads, write = regions(record)
    fields = tuple(p)
    sources, target = places(kind, fields, len(reads) - len(places(kind, fields, 0)[0]))
    held = [(x.keys[1], x.at) for x in (*sources, target) if x is not None]
    if not reads and kind == "memory" and write is not None:
        reads, held = (write,), held * 2  # host_write: its snapshot
    batched = False
    compute: Compute = _first
    if kind == "gemm":
        batched, compute = True, _gemm(p, ops, wide)
    elif kind == "math":
        op = numpy_op(p["op"], ops)
        slots: list[Any] = [np_dtype(r.dtype) for r in reads]
        scalars = zip(p.get("scalar_positions", ()), p.get("scalars", ()), strict=True)
        for position, scalar in sorted(scalars):
            slots.insert(position, scalar)
        compute = bind(op, slots, p.get("axis"), p.get("keepdims", False), wide)
        batched = op.kind == "elementwise"
    shapes = [r.shape for r in (*reads, write) if r is not None]
    batched &= bool(reads) and all(shapes) and sum(map(math.prod, shapes)) <= _SMALL
    axes = max(len(r.shape) for r in reads) if batched else 0
    guarded = [(i, r.nbytes) for i, r in enumerate(reads) if write and r.space == write.space]
    return Plan(reads, write, held, guarded, compute, axes)


def _first(operands: Sequence[Array], shape: tuple[int, ...]) -> Array:
    return operands[0].reshape(shape)


def _gemm(p: Params, ops: Ops, wide: bool) -> Compute:
    columns = ("epilogue", "epilogue_scopes", "epilogue_scalars", "epilogue_has_operand")
    steps = [
        (Step(numpy_op(name, ops), scope, None if math.isnan(scalar) else scalar), has_operand)
        for name, scope, scalar, has_operand in zip(*(p.get(c, ()) for c in columns), strict=True)
    ]
    turned = [bool(p.get(f"transpose_{x}")) for x in "ab"]
    has_acc, tile_k = "src_acc_addr" in p, p["tile"][2] if "tile" in p else 0

    def compute(operands: Sequence[Array], shape: tuple[int, ...], slack: float = 0.0) -> Array:
        a, b = (np.swapaxes(x, -1, -2) if t else x for x, t in zip(operands, turned, strict=False))
        rest = iter(operands[2:])
        acc = next(rest) if has_acc else None
        own = [step._replace(operand=next(rest)) if has else step for step, has in steps]
        dtype_acc = p.get("dtype_acc", "f32")
        return gemm(a, b, acc, dtype_acc, own, tile_k, wide, slack).reshape(shape)

    return compute


@dataclass(frozen=True, slots=True)
class SnapshotFinding:
    """Operand ``which`` of the op at canonical ``position`` differs between Phase 1 and Phase 2.

    ``max_error`` is the largest |difference|, inf if only non-finite elements differ.
    """

    position: int
    which: int
    max_error: float


def operands_of(
    turn: Turn, store: MemoryStore, found: list[SnapshotFinding] | None = None
) -> list[Array]:
    """What an op takes: Phase 1's snapshot where there is one, else the bytes in ``store``.

    ``found`` gets the snapshots that differ from ``store`` by more than D11 allows; those of bytes
    that are not in it never do.
    """
    operands, write = list[Array](), turn.plan.write
    for r, addr, snapshot in zip(turn.plan.reads, turn.where, turn.snapshots(), strict=False):
        if snapshot is not None:
            data = np.ascontiguousarray(snapshot)
            operands.append(reinterpret(data, r.shape, np_dtype(r.dtype)))
            if found is None or r is write:
                continue
            if apart := _difference(operands[-1], store, addr, r):
                found.append(SnapshotFinding(turn.position, len(operands) - 1, apart))
        elif r is write:
            raise VerificationError("the op holds no data; record the run again with data")
        else:
            operands.append(store.view(r.space, addr, r.shape, r.dtype))
    return operands


def _difference(snapshot: Array, store: MemoryStore, addr: int, r: Region) -> float:
    """By how much a snapshot is wrong; inf where only non-finite elements are, 0 if it is right."""
    try:
        own = store.view(r.space, addr, r.shape, r.dtype)
    except KernbenchError:
        return 0.0
    if own.tobytes() == snapshot.tobytes():
        return 0.0
    row = verify.compare(snapshot, own, dtype_row(r.dtype).tolerance)
    return 0.0 if row.ok else row.max_abs or math.inf


@np.errstate(all="ignore")
def execute(record: OpRecord, store: MemoryStore, ops: Ops = NUMPY_OPS) -> None:
    """Patch what ``record``, if it writes, makes of its snapshots and ``store`` into ``store``."""
    plan = plan_of(record, ops)
    if (out := plan.write) is not None:
        operands = operands_of(plan.turn(record), store)
        store.patch(out.space, out.addr, rounded(plan.compute(operands, out.shape), out.dtype))


class DataExecutor:
    """Executes ``op_log``, which its dependency_ids index, on ``initial_store`` itself.

    ``position`` counts the records that have run, skipped ones too; ``skipped`` counts records of
    unknown kind by name, TileToken stages aside. An op that failed has not run: the next step tries
    it again. VerificationError for a log whose dependency_ids lead nowhere or in a circle.

    Consecutive small gemms and elementwise ops that are alike in all but addresses, none of which
    reads what an earlier one of them writes, run in one numpy call, with the same bits. All are
    read before any is written, in order, so other overlaps need no care. ``batch=False``: one by
    one.
    """

    def __init__(
        self,
        op_log: Sequence[OpRecord],
        initial_store: MemoryStore | None = None,
        ops: Ops = NUMPY_OPS,
        batch: bool = True,
    ) -> None:
        self.store = MemoryStore() if initial_store is None else initial_store
        self.position = 0
        self.skipped: Counter[str] = Counter()
        self.findings: list[SnapshotFinding] = []
        self._initial, self._ops, self._batch = self.store.snapshot(), ops, batch
        self._records: list[OpRecord] = []  # in canonical order; a rank is an index of it
        self._order: list[int] = []  # ranks as they are executed
        self._plans: dict[tuple[str, ...], tuple[itemgetter[Any], dict[bytes, Plan]]] = {}
        self._ahead: dict[int, Turn] = {}  # looked at, yet to run
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
        ranks = {base + row: rank for rank, row in enumerate(rows, base)}
        self._order += _execution_order(
            {
                rank: {ranks[d] for d in records[row].dependency_ids if d >= base}
                for rank, row in enumerate(rows, base)
            }
        )
        self._records += [records[row] for row in rows]

    def upcoming(self) -> Iterator[tuple[int, OpRecord]]:
        """(canonical position, record) of all that has not run, in the order in which it will."""
        return ((rank, self._records[rank]) for rank in self._order[self.position :])

    @np.errstate(all="ignore")
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

    @np.errstate(all="ignore")
    def run_until(self, position: int) -> None:
        """Execute until ``position`` records have run; UsageError if that is behind or beyond."""
        if not self.position <= position <= len(self._records):
            raise UsageError(
                f"position {position} is not within {self.position} (now) and "
                f"{len(self._records)} (all records); to go back make a new executor"
            )
        while self.position < position:
            self._run(position if self._batch else 0)

    def _run(self, limit: int = 0) -> OpRecord:
        """Run the next op, and those before ``limit`` that can go into one numpy call with it."""
        rank, count = self._order[self.position], 1
        record = self._records[rank]
        if record.op_kind in EXECUTED:
            try:
                alike = self._alike(limit)
                count = len(alike)
                self._execute(alike)
            except Exception as error:
                if count > 1:  # one of them is wrong; one by one, to name it
                    return self._run()
                where = f"op {rank} ({record.op_name} on {record.component_id})"
                if isinstance(error, KernbenchError):
                    raise type(error)(f"{where}: {error}") from error
                raise VerificationError(f"{where} cannot be executed: {error!r}") from error
        elif not record.op_name.startswith("TileToken"):
            self.skipped[record.op_name] += 1
        self.position += count
        return record

    def _execute(self, alike: Sequence[Turn]) -> None:
        """Execute ops that share a plan in one call."""
        plan, count = alike[0].plan, len(alike)
        if (out := plan.write) is None:
            return
        found: list[SnapshotFinding] = []
        taken = [operands_of(turn, self.store, found) for turn in alike]
        results: Iterable[Array]
        if count == 1:
            results = [rounded(plan.compute(taken[0], out.shape), out.dtype)]
        else:
            stacked = [
                np.concatenate(arrays).reshape(count, *(1,) * (plan.axes - len(r.shape)), *r.shape)
                for r, arrays in zip(plan.reads, zip(*taken, strict=True), strict=True)
            ]
            results = rounded(plan.compute(stacked, (count, *out.shape)), out.dtype)
        for turn, result in zip(alike, results, strict=True):
            self.store.patch(out.space, turn.where[-1], result)
            self._ahead.pop(turn.position, None)
        self.findings += found

    def _alike(self, limit: int) -> list[Turn]:
        """The next op, and those before ``limit`` that run in one call with it."""
        first = self._turn(self._order[self.position])
        (plan, where), alike = first[1:3], [first]
        if (out := plan.write) is None or not plan.axes:
            return alike
        written = [where[-1]]  # sorted
        for position in range(self.position + 1, min(limit, self.position + _BATCH)):
            try:
                turn = self._turn(self._order[position])
            except Exception:  # what is wrong with it is said when its turn comes
                break
            if turn.plan is not plan:
                break
            where = turn.where
            for i, size in plan.guarded:
                at = bisect_right(written, where[i] - out.nbytes)
                if at < len(written) and written[at] < where[i] + size:
                    return alike
            alike.append(turn)
            insort(written, where[-1])
        return alike

    def _turn(self, rank: int) -> Turn:
        """The turn of an op; its plan is that of all that differ in the params of _OWN only."""
        if rank in self._ahead:
            return self._ahead[rank]
        record = self._records[rank]
        if not self._batch:
            return plan_of(record, self._ops).turn(record, rank)
        names = (record.op_kind, *record.params)
        if (known := self._plans.get(names)) is None:
            shared = itemgetter(*(name for name in names[1:] if name not in _OWN))
            known = self._plans[names] = shared, {}
        shared, plans = known
        # marshal is quick and exact: it tells 0.0 from -0.0 and 1 from 1.0
        key = marshal.dumps(shared(record.params), 2)
        if (plan := plans.get(key)) is None:
            if len(plans) == _PLANS:
                plans.clear()
            plan = plans[key] = plan_of(record, self._ops)
        self._ahead[rank] = turn = plan.turn(record, rank)
        return turn

    def verify(self, expected: Mapping[str, verify.Expectation]) -> verify.VerifyReport:
        """Judge each expectation when its ``after`` ops have run; this executor goes on until then.

        If it is already past one, a fresh executor replays the log on the initial store instead.
        """
        ordered = sorted(expected.items(), key=lambda item: item[1].after)
        executor, total = self, len(self._records)
        if ordered and ordered[0][1].after < self.position:
            executor = DataExecutor((), self._initial.snapshot(), self._ops, self._batch)
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
