"""What alike ops share, and how several of them run in one numpy call.

Owns plans (regions and function of ops that differ in addresses only), turns (one op with its plan)
and the choice of operands: a Phase 1 snapshot where there is one. Knows no log and no order.
"""

from __future__ import annotations

import marshal
import math
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.dtypes import np_dtype
from kernbench.common.messages import Region
from kernbench.errors import KernbenchError, VerificationError
from kernbench.sim_engine import verify
from kernbench.sim_engine.accesses import places_of, regions
from kernbench.sim_engine.memory_store import MemoryStore, reinterpret
from kernbench.sim_engine.numpy_ops import (
    NUMPY_OPS,
    NumpyOp,
    Step,
    bind,
    gemm,
    numpy_op,
    rounded,
)
from kernbench.sim_engine.op_log import KIND_RANK, OpRecord, Params

Ops: TypeAlias = Mapping[str, NumpyOp]
Compute: TypeAlias = Callable[
    ..., Array
]  # (operands, shape of the output), not yet rounded
EXECUTED = frozenset(KIND_RANK) - {"unknown"}

# Params in which alike ops may differ
_OWN = {
    "src_addr",
    "src_a_addr",
    "src_b_addr",
    "src_acc_addr",
    "input_addrs",
    "epilogue_addrs",
}
_OWN |= {"dst_addr", "out_addr", "handle_id", "snapshot", "input_snapshots"}
_PLANS = 4096  # kept at a time
_BATCH = 256  # ops in a call at most: a piece of its result keeps all of it alive
_SMALL = (
    4096  # elements that an op of several may touch; gemms of 64^3, adds of 2,048 lose
)


class Plan(NamedTuple):
    """What alike ops share: regions (at the addresses of ``record``, one of them) and the function.

    ``places`` are the params that hold the addresses of the reads and of the write, ``guarded``
    (which, bytes) of the reads in the space of the write. ``axes`` are those of the widest operand
    of an op that may share its call, else 0.
    """

    record: OpRecord
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
        return Turn(
            self, where, p.get("input_snapshots") or [p.get("snapshot")], position
        )


class Turn(NamedTuple):
    """One op to be executed: where it reads and, last, writes, and its position in its log.

    ``snapshots`` are the Phase 1 values of its first operands, None where there is none.
    """

    plan: Plan
    where: list[int]
    snapshots: Sequence[Array | None]
    position: int

    def reads(self) -> Iterable[tuple[Region, int, Array | None]]:
        """Each operand: its region (at another op's address), its address, its snapshot."""
        return zip(
            self.plan.reads,
            self.where,
            chain(self.snapshots, repeat(None)),
            strict=False,
        )


def plan_of(record: OpRecord, ops: Ops = NUMPY_OPS, wide: bool = False) -> Plan:
    """The plan of one op; ``wide``: in f64, as the oracle computes."""
    p, kind = record.params, record.op_kind
    reads, write = regions(record)
    sources, target = places_of(record)
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
    guarded = [
        (i, r.nbytes) for i, r in enumerate(reads) if write and r.space == write.space
    ]
    return Plan(record, reads, write, held, guarded, compute, axes)


def _first(operands: Sequence[Array], shape: tuple[int, ...]) -> Array:
    return operands[0].reshape(shape)


def _gemm(p: Params, ops: Ops, wide: bool) -> Compute:
    columns = (
        "epilogue",
        "epilogue_scopes",
        "epilogue_scalars",
        "epilogue_has_operand",
    )
    steps = [
        (
            Step(numpy_op(name, ops), scope, None if math.isnan(scalar) else scalar),
            has_operand,
        )
        for name, scope, scalar, has_operand in zip(
            *(p.get(c, ()) for c in columns), strict=True
        )
    ]
    turned = [bool(p.get(f"transpose_{x}")) for x in "ab"]
    has_acc, tile_k = "src_acc_addr" in p, p["tile"][2] if "tile" in p else 0

    def compute(
        operands: Sequence[Array], shape: tuple[int, ...], slack: float = 0.0
    ) -> Array:
        a, b = (
            np.swapaxes(x, -1, -2) if t else x
            for x, t in zip(operands, turned, strict=False)
        )
        rest = iter(operands[2:])
        acc = next(rest) if has_acc else None
        own = [
            step._replace(operand=next(rest)) if has else step for step, has in steps
        ]
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
    for r, addr, snapshot in turn.reads():
        if snapshot is not None:
            data = np.ascontiguousarray(snapshot)
            operands.append(reinterpret(data, r.shape, np_dtype(r.dtype)))
            if found is None or r is write:
                continue
            if apart := _difference(operands[-1], store, addr, r):
                found.append(SnapshotFinding(turn.position, len(operands) - 1, apart))
        elif r is write:
            raise VerificationError(
                "the op holds no data; record the run again with data"
            )
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


class Plans:
    """The plans of ops by all that they share, as many as are in use."""

    def __init__(self, ops: Ops = NUMPY_OPS) -> None:
        self._ops = ops
        self._known: dict[
            tuple[str, ...], tuple[itemgetter[Any], dict[bytes, Plan]]
        ] = {}

    def of(self, record: OpRecord) -> Plan:
        """The plan of all ops that differ from ``record`` in the params of _OWN only."""
        names = (record.op_kind, *record.params)
        if (known := self._known.get(names)) is None:
            shared = itemgetter(*(name for name in names[1:] if name not in _OWN))
            known = self._known[names] = shared, {}
        shared, plans = known
        # marshal is quick and exact: it tells 0.0 from -0.0 and 1 from 1.0
        key = marshal.dumps(shared(record.params), 2)
        if (plan := plans.get(key)) is None:
            if len(plans) == _PLANS:
                plans.clear()
            plan = plans[key] = plan_of(record, self._ops)
        return plan


def gather(turn_of: Callable[[int], Turn], low: int, high: int) -> list[Turn]:
    """Turn ``low``, and those up to ``high`` that can run in one call with it."""
    first = turn_of(low)
    plan, alike = first.plan, [first]
    if (out := plan.write) is None or not plan.axes:
        return alike
    written = [first.where[-1]]  # sorted
    for position in range(low + 1, min(high, low + _BATCH)):
        try:
            turn = turn_of(position)
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


@np.errstate(all="ignore")
def perform(
    alike: Sequence[Turn],
    store: MemoryStore,
    found: list[SnapshotFinding] | None = None,
) -> list[Array]:
    """Execute ops that share a plan in one call on ``store``; what each has written."""
    plan, count = alike[0].plan, len(alike)
    if (out := plan.write) is None:
        return []
    taken = [operands_of(turn, store, found) for turn in alike]
    if count == 1:
        results = [rounded(plan.compute(taken[0], out.shape), out.dtype)]
    else:
        stacked = [
            np.concatenate(arrays).reshape(
                count, *(1,) * (plan.axes - len(r.shape)), *r.shape
            )
            for r, arrays in zip(plan.reads, zip(*taken, strict=True), strict=True)
        ]
        results = list(rounded(plan.compute(stacked, (count, *out.shape)), out.dtype))
    for turn, result in zip(alike, results, strict=True):
        store.patch(out.space, turn.where[-1], result)
    return results


def perform_next(
    turn_of: Callable[[int], Turn],
    step: int,
    stop: int,
    store: MemoryStore,
    where: Callable[[], str],
    found: list[SnapshotFinding] | None = None,
    room: int = 1 << 62,
) -> tuple[list[Turn], list[Array]]:
    """Execute turn ``step``, and those before ``stop`` that can run in one call with it.

    Of all that ran its turn and what it has written, of more than one at most ``room`` bytes.
    KernbenchError of ``where()``.
    """
    try:
        alike, mine = gather(turn_of, step, stop), list[SnapshotFinding]()
        if len(alike) > 1 and (out := alike[0].plan.write) is not None:
            alike = alike[: 1 + max(room, 0) // max(out.nbytes, 1)]
        results = perform(alike, store, None if found is None else mine)
    except Exception as why:
        if stop > step + 1:  # one of several may be wrong; one by one, to name it
            return perform_next(turn_of, step, step + 1, store, where, found, room)
        if isinstance(why, KernbenchError):
            raise type(why)(f"{where()}: {why}") from why
        raise VerificationError(f"{where()} cannot be executed: {why!r}") from why
    if found is not None:
        found += mine
    return alike, results


def turns(
    record_of: Callable[[int], tuple[int, OpRecord]], plan: Callable[[OpRecord], Plan]
) -> Callable[[int], Turn]:
    """The turn of each step, whose op and its position ``record_of`` tells; the last are kept."""

    @lru_cache(maxsize=2 * _BATCH)
    def turn_of(step: int) -> Turn:
        position, record = record_of(step)
        return plan(record).turn(record, position)

    return turn_of
