"""What alike ops share, and how several of them run in one numpy call.

Owns plans (regions and function of ops that differ in addresses only), turns (one op
with its plan) and the choice of operands: a Phase 1 snapshot where there is one. Knows
no log and no order.
"""

from __future__ import annotations

import marshal
import math
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.dtypes import np_dtype
from kernbench.common.messages import Region
from kernbench.common.progress import (
    Cancelled,
    Progress,
    computed_beside,
    no_progress,
)
from kernbench.common.room import make_room
from kernbench.errors import KernbenchError, VerificationError
from kernbench.sim_engine import verify
from kernbench.sim_engine.accesses import Place, places_of, regions
from kernbench.sim_engine.arithmetic import rounded
from kernbench.sim_engine.memory_store import MemoryStore, reinterpret
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.sim_engine.op_kinds import KINDS, Compute, Ops, work_of
from kernbench.sim_engine.op_log import OpRecord

T = TypeVar("T")

EXECUTED = frozenset(KINDS)
"""The kinds of op that are executed."""

_OWN = {
    *("src_addr", "src_a_addr", "src_b_addr", "src_acc_addr"),
    *("input_addrs", "epilogue_addrs", "dst_addr", "out_addr"),
    *("handle_id", "snapshot", "input_snapshots"),
}
"""Params in which alike ops may differ."""

_PLANS = 4096
"""Plans that are kept at a time."""

_BATCH = 256
"""Ops in a call at most: a piece of its result keeps all of it alive."""

_SMALL = {"gemm": 1 << 14, "math": 1 << 12}
"""Elements that an op of several may touch, by kind.

Products of 64^3 take 0.74 to 0.86 of the time that they take one by one; those of
128^3, and sums of 4,096 numbers, as long or longer.
"""

_CACHED = 1 << 17
"""Elements that all ops of a call touch at most: ten times as many leave the cache."""

_WIDEST = 8  # bytes of an element while it is computed with
_COMPARED = 64  # the same beside the oracle: both, bounds and differences, in f64

_LONG_WORK = 1 << 17
"""Elements from which on an op may take some ms, with its oracle and all."""

_ORACLE = 2
"""How many times as long an op takes with its oracle, at least."""


class Plan(NamedTuple):
    """What alike ops share.

    ``reads`` and ``write`` are regions at the addresses of ``record``, which is one of
    the ops, and ``compute`` is their function. ``addresses`` are the params that hold
    the addresses of the reads and, last, of the write. ``guarded`` are (which, bytes)
    of the reads in the space of the write. ``most`` are the ops that a call takes at
    most, and ``axes`` those of the widest operand. ``work`` is ``work_of`` each of the
    ops.
    """

    record: OpRecord
    reads: tuple[Region, ...]
    write: Region | None
    addresses: list[tuple[str, int | None]]
    guarded: list[tuple[int, int]]
    compute: Compute
    most: int
    axes: int
    work: int

    def turn(self, record: OpRecord, position: int = 0) -> Turn:
        """The turn of an op that has this plan."""
        params = record.params
        where = []
        for key, at in self.addresses:
            held = params[key]
            where.append(held if at is None else held[at])
        return Turn(self, where, snapshots_of(record), position)


class Turn(NamedTuple):
    """One op to be executed.

    ``where`` are the addresses that it reads and, last, the one that it writes;
    ``position`` is its place in its log. ``snapshots`` are the Phase 1 values of its
    first operands, None where there is none.
    """

    plan: Plan
    where: list[int]
    snapshots: Sequence[Array | None]
    position: int

    def reads(self) -> Iterable[tuple[Region, int, Array | None]]:
        """Each operand: its region, its address, its snapshot.

        The region is at the address of another op of the plan.
        """
        snapshots = chain(self.snapshots, repeat(None))
        return zip(self.plan.reads, self.where, snapshots, strict=False)


def snapshots_of(record: OpRecord) -> Sequence[Array | None]:
    """The Phase 1 values of an op's first operands, None where there is none."""
    params = record.params
    return params.get("input_snapshots") or [params.get("snapshot")]


def plan_of(record: OpRecord, ops: Ops = NUMPY_OPS, wide: bool = False) -> Plan:
    """The plan of one op; ``wide``: in f64, as the oracle computes."""
    params = record.params
    reads, write = regions(record)
    places = places_of(record)
    held = [_address(place) for place in places.reads]
    if places.write is not None:
        held.append(_address(places.write))
    if not reads and record.op_kind == "memory" and write is not None:
        # a host_write reads its snapshot, which is to be of the shape that it writes
        reads = (write,)
        held = held * 2
    kind = KINDS.get(record.op_kind, KINDS["memory"])
    kind.check(params, reads, write, ops)
    touched = reads if write is None else (*reads, write)
    elements = sum(math.prod(r.shape) for r in touched)
    per_element = _COMPARED if wide else _WIDEST
    make_room(per_element * elements, "what it reads and writes")
    compute = kind.compute(params, reads, ops, wide)
    most = 1
    has_axes = bool(reads) and all(r.shape for r in touched)
    stacks = has_axes and kind.stacks(params, ops)
    if stacks and elements <= _SMALL[record.op_kind]:
        most = min(_BATCH, _CACHED // max(elements, 1))
    axes = max((len(r.shape) for r in reads), default=0)
    guarded = []
    if write is not None:
        for i, r in enumerate(reads):
            if r.space == write.space:
                guarded.append((i, r.where.span))
    work = work_of(reads, write, params)
    return Plan(record, reads, write, held, guarded, compute, most, axes, work)


def _nothing(operands: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """What an op computes that is never executed."""
    return np.empty(shape)


def _address(place: Place) -> tuple[str, int | None]:
    """The param that holds the address of a region, and where in it if it is a list."""
    return place.addr, place.at


@dataclass(frozen=True, slots=True)
class SnapshotFinding:
    """An operand that Phase 2 has other bytes of than Phase 1 had.

    It is operand ``which`` of the op at canonical ``position``. ``max_error`` is the
    largest |difference|, inf if only elements differ that are not finite.
    """

    position: int
    which: int
    max_error: float


def operands_of(
    turn: Turn, store: MemoryStore, found: list[SnapshotFinding] | None = None
) -> list[Array]:
    """What an op takes: Phase 1's snapshot where there is one, else ``store``'s bytes.

    ``found`` gets the snapshots that differ from ``store`` by more than D11 allows;
    those of bytes that are not in it never do. VerificationError for a host_write
    without data.
    """
    operands: list[Array] = []
    write = turn.plan.write
    for r, addr, snapshot in turn.reads():
        if snapshot is not None:
            data = np.ascontiguousarray(snapshot)
            operand = reinterpret(data, r.shape, np_dtype(r.dtype))
            operands.append(operand)
            if found is not None and r is not write:
                apart = _difference(operand, store, addr, r)
                if apart:
                    which = len(operands) - 1
                    found.append(SnapshotFinding(turn.position, which, apart))
        elif r is write:
            raise VerificationError(
                "the op holds no data; record the run again without --no-data"
            )
        else:
            operands.append(bytes_at(store, addr, r))
    return operands


def _difference(snapshot: Array, store: MemoryStore, addr: int, r: Region) -> float:
    """By how much a snapshot is wrong; 0 if it is right.

    It is inf where only elements differ that are not finite.
    """
    try:
        own = bytes_at(store, addr, r)
    except KernbenchError:
        return 0.0
    if own.tobytes() == snapshot.tobytes():
        return 0.0
    row = verify.compare(snapshot, own, dtype_row(r.dtype).tolerance)
    if row.ok:
        return 0.0
    return row.max_abs or math.inf


class Plans:
    """The plans of ops by all that they share, as many as are in use.

    One thread at a time asks it; a ``DataExecutor`` and a ``History`` have one of their
    own.
    """

    def __init__(self, ops: Ops = NUMPY_OPS) -> None:
        self._ops = ops
        # by kind and names of the params: what picks the shared ones, and plans by them
        self._known: dict[
            tuple[str, ...], tuple[itemgetter[Any], dict[bytes, Plan]]
        ] = {}

    def of(self, record: OpRecord) -> Plan:
        """The plan of all ops that differ from ``record`` in params of _OWN only.

        An op that is never executed does nothing.
        """
        if record.op_kind not in EXECUTED:
            return Plan(record, (), None, [], [], _nothing, 1, 0, 0)
        names = (record.op_kind, *record.params)
        known = self._known.get(names)
        if known is None:
            shared = itemgetter(*(name for name in names[1:] if name not in _OWN))
            known = self._known[names] = (shared, {})
        shared, plans = known
        # marshal is quick and exact: it tells 0.0 from -0.0 and 1 from 1.0
        try:
            key = marshal.dumps(shared(record.params), 2)
        except ValueError:  # a param that nobody reads is an array
            return plan_of(record, self._ops)
        plan = plans.get(key)
        if plan is None:
            if len(plans) == _PLANS:
                plans.clear()
            plan = plans[key] = plan_of(record, self._ops)
        return plan


def gather(turn_of: Callable[[int], Turn], low: int, high: int) -> list[Turn]:
    """Turn ``low``, and those up to ``high`` that can run in one call with it.

    They have its plan, follow it without a gap, and none reads what one before it
    writes.
    """
    first = turn_of(low)
    plan = first.plan
    alike = [first]
    out = plan.write
    if out is None:
        return alike
    written = [first.where[-1]]  # sorted
    for position in range(low + 1, min(high, low + plan.most)):
        try:
            turn = turn_of(position)
        except KernbenchError:  # what is wrong with it is said when its turn comes
            break
        if turn.plan is not plan:
            break
        where = turn.where
        for i, size in plan.guarded:
            at = bisect_right(written, where[i] - out.where.span)
            if at < len(written) and written[at] < where[i] + size:
                return alike
        alike.append(turn)
        insort(written, where[-1])
    return alike


def perform(
    alike: Sequence[Turn],
    store: MemoryStore,
    found: list[SnapshotFinding] | None = None,
    progress: Progress = no_progress,
    done: float = 0.0,
) -> list[Array]:
    """Execute ops that share a plan in one call; return what each has written.

    All are read before any is written. While an op computes that takes long,
    ``progress(done)`` is called; if it raises, nothing has been written.
    """
    plan = alike[0].plan
    out = plan.write
    if out is None:
        return []
    results = computed_in_time(
        lambda: _computed(alike, out, store, found),
        plan.work // _ORACLE,
        progress,
        done,
    )
    for turn, result in zip(alike, results, strict=True):
        put_at(store, turn.where[-1], out, result)
    return results


def bytes_at(store: MemoryStore, addr: int, r: Region) -> Array:
    """The tensor in a region of this form that begins at ``addr``."""
    if r.strided is not None:
        return store.view_rows(r.space, r.strided.at(addr), r.shape, r.dtype)
    return store.view(r.space, addr, r.shape, r.dtype)


def put_at(store: MemoryStore, addr: int, r: Region, data: Array) -> None:
    """Write a tensor to a region of this form that begins at ``addr``."""
    if r.strided is not None:
        store.patch_rows(r.space, r.strided.at(addr), data)
    else:
        store.patch(r.space, addr, data)


def computed_in_time(
    compute: Callable[[], T], work: int, progress: Progress, done: float
) -> T:
    """The result of ``compute()``, beside which progress is called if it takes long.

    ``work`` is ``work_of`` the op that is computed, with its oracle.
    """
    if work < _LONG_WORK:
        return compute()
    return computed_beside(compute, progress, done)


@np.errstate(all="ignore")
def _computed(
    alike: Sequence[Turn],
    out: Region,
    store: MemoryStore,
    found: list[SnapshotFinding] | None,
) -> list[Array]:
    """The rounded results of ops that share a plan; ``store`` is only read."""
    plan = alike[0].plan
    taken = [operands_of(turn, store, found) for turn in alike]
    count = len(alike)
    if count == 1:
        return [rounded(plan.compute(taken[0], out.shape), out.dtype)]
    stacked = []
    for r, arrays in zip(plan.reads, zip(*taken, strict=True), strict=True):
        # an operand of fewer axes broadcasts within its own op
        missing = (1,) * (plan.axes - len(r.shape))
        shape = (count, *missing, *r.shape)
        stacked.append(np.concatenate(arrays).reshape(shape))
    result = plan.compute(stacked, (count, *out.shape))
    return list(rounded(result, out.dtype))


def perform_next(
    turn_of: Callable[[int], Turn],
    step: int,
    stop: int,
    store: MemoryStore,
    where: Callable[[], str],
    found: list[SnapshotFinding] | None = None,
    room: int = 1 << 62,
    progress: Progress = no_progress,
    done: float = 0.0,
) -> tuple[list[Turn], list[Array]]:
    """Execute turn ``step``, and those before ``stop`` that can share its call.

    Return the turn of each that ran and what it has written, of more than one at most
    ``room`` bytes. ``progress(done)`` is called as by ``perform``. Raises a
    KernbenchError that begins with ``where()``, and what ``progress`` raises; then
    nothing has run.
    """
    mine: list[SnapshotFinding] | None = None if found is None else []
    try:
        alike = gather(turn_of, step, stop)
        out = alike[0].plan.write
        if len(alike) > 1 and out is not None:
            alike = alike[: 1 + max(room, 0) // max(out.nbytes, 1)]
        results = perform(alike, store, mine, progress, done)
    except Cancelled:
        raise
    except KernbenchError as why:
        if stop > step + 1:
            # one of several may be wrong; run one by one, so that it can be named
            return perform_next(
                turn_of, step, step + 1, store, where, found, room, progress, done
            )
        raise type(why)(f"{where()}: {why}") from why
    if found is not None and mine is not None:
        found += mine
    return alike, results


def turns(
    record_of: Callable[[int], tuple[int, OpRecord]], plan: Callable[[OpRecord], Plan]
) -> Callable[[int], Turn]:
    """Return the function that gives the turn of each step.

    ``record_of(step)`` gives the op's position and record. The last turns are kept,
    since a step is looked at when it is gathered and again when it runs.
    """

    @lru_cache(maxsize=2 * _BATCH)
    def turn_of(step: int) -> Turn:
        position, record = record_of(step)
        return plan(record).turn(record, position)

    return turn_of
