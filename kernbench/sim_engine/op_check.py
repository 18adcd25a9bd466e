"""Debug mode of Phase 2 (ADR-0020 D11): every op beside a float64 oracle.

The oracle uses our own table of ops. On its own inputs an op shows its local error; on
the oracle's inputs, which are never rounded, it shows what has accumulated. The local
error is judged. Rounding explains ``u_out |r| + n u_acc sum(|a| |b|)`` of a sum of n
products (u is half an ulp, relative), of other ops the ulps of their ``OpSpec``, and
nothing of a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Array, Bools, Floats, Ints, as_f64
from kernbench.common.dtypes import is_float, itemsize
from kernbench.common.messages import Region, as_matrix
from kernbench.common.progress import Progress, no_progress
from kernbench.common.rows import Rows
from kernbench.errors import KernbenchError, MemoryStoreError, UsageError
from kernbench.sim_engine.arithmetic import rounded
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.numpy_ops import CAST
from kernbench.sim_engine.op_kinds import KINDS
from kernbench.sim_engine.op_log import OpRecord
from kernbench.sim_engine.plans import (
    Turn,
    bytes_at,
    computed_in_time,
    operands_of,
    plan_of,
)
from kernbench.sim_engine.verify import first_index, fits

Grid: TypeAlias = tuple[Ints, Ints]
"""Some rows and some columns of what a composite writes."""


@dataclass(frozen=True, slots=True)
class OpCheck:
    """The op at canonical ``position`` beside the oracle.

    ``over`` elements, the first of them at ``first_over``, differ by more than rounding
    explains. ``local`` is the |difference| there, else the largest one (inf where one
    side is not finite), and ``bound`` what rounding explains of it. ``accumulated`` is
    the largest difference from the oracle of all ops before too, None where it is not
    known.
    """

    position: int
    op_name: str
    component_id: str
    local: float
    bound: float
    accumulated: float | None
    over: int
    first_over: tuple[int, ...] | None
    is_of_nan: bool = False
    """Whether the first that is over is an integer in place of NaN."""

    @property
    def overflows(self) -> bool:
        """Whether rounding alone makes infinity (or NaN) of what is finite."""
        return not self.over and self.local == inf

    def as_text(self) -> str:
        """One line: the op, its errors, and where it first is over its bound."""
        verdict = "overflow" if self.overflows else "ok"
        if self.over:
            verdict = f"{self.over} elements over, first {self.first_over}"
        if self.is_of_nan:
            verdict += ", where NaN has no integer"
        accumulated = ""
        if self.accumulated is not None:
            accumulated = f", accumulated {self.accumulated:.1e}"
        return (
            f"op {self.position} {self.op_name} on {self.component_id}: "
            f"local error {self.local:.1e}, rounding explains {self.bound:.1e}"
            f"{accumulated}: {verdict}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """What an op gives in f64 (integers: exactly), never rounded.

    ``low`` and ``high``, in f64, are the least and the most that rounding makes of it.
    """

    value: Array
    low: Floats
    high: Floats

    @property
    @np.errstate(all="ignore")
    def bound(self) -> Floats:
        """The largest |error| of each element that rounding explains."""
        value = as_f64(self.value)
        return np.maximum(value - self.low, self.high - value)

    def over(self, actual: Array) -> Bools:
        """True where rounding does not explain ``actual``."""
        wide = as_f64(actual)
        is_nan = np.isnan(actual)
        # what is too large for fp8_e4m3 is NaN
        nan_is_right = np.isnan(self.low) | np.isnan(self.high)
        outside = (wide < self.low) | (wide > self.high)
        either_is_nan = is_nan | np.isnan(self.value)
        return np.asarray(np.where(either_is_nan, is_nan != nan_is_right, outside))


def reference(
    record: OpRecord, store: MemoryStore, grid: Grid | None = None
) -> Reference:
    """The oracle of ``record`` on its own inputs.

    Those are its snapshots, and ``store`` as it was before the op. With a ``grid`` it
    is made of these rows and columns alone of what a composite writes. Raises
    UsageError for an op that writes nothing.
    """
    return _reference(_inputs(record, store, grid))


def oracle(record: OpRecord, store: MemoryStore, grid: Grid | None = None) -> Floats:
    """``reference(...).value`` in f64, at a third of the cost."""
    inputs = _inputs(record, store, grid)
    with np.errstate(all="ignore"):
        value = inputs.turn.plan.compute(inputs.operands, inputs.out.shape)
        return as_f64(value, copy=False)


class _Inputs(NamedTuple):
    """An op for the oracle: its turn, with a plan in f64, and its operands.

    ``out`` is what it writes, or as much of that as is asked for.
    """

    turn: Turn
    out: Region
    operands: Sequence[Array]


def _inputs(record: OpRecord, store: MemoryStore, grid: Grid | None) -> _Inputs:
    """What the oracle of ``record`` is made of; see ``reference``."""
    turn = plan_of(record, wide=True).turn(record)
    out = turn.plan.write
    if out is None:
        raise UsageError(f"{record.op_name} has no output; ask for an op that writes")
    operands = operands_of(turn, store)
    if grid is None:
        return _Inputs(turn, out, operands)
    rows, columns = grid
    part_of_out = replace(out, shape=(len(rows), len(columns)))
    if record.op_kind != "gemm":
        return _Inputs(turn, part_of_out, _at_grid(operands, out.shape, grid))
    a, b, *others = operands
    own = a[:, rows] if record.params.get("transpose_a") else a[rows]
    other = b[columns] if record.params.get("transpose_b") else b[:, columns]
    part = [own, other, *_at_grid(others, out.shape, grid)]
    return _Inputs(turn, part_of_out, part)


def _at_grid(
    operands: Sequence[Array], shape: tuple[int, ...], grid: Grid
) -> list[Array]:
    """What an elementwise op of an output of ``shape`` takes at a grid of it."""
    matrix = as_matrix(shape)
    return [np.broadcast_to(x, matrix)[np.ix_(*grid)] for x in operands]


@np.errstate(all="ignore")
def _reference(inputs: _Inputs) -> Reference:
    """The oracle of an op, and how far rounding may move it."""
    turn, out, operands = inputs
    plan = turn.plan
    value = plan.compute(operands, out.shape)
    record = plan.record
    spread = KINDS[record.op_kind].spread(record.params, plan.reads, operands, value)
    low = value
    high = value
    if np.any(spread):
        low = value - spread
        high = value + spread
    written = _cast if record.params.get("op") == CAST.name else _as_written
    return Reference(value, written(low, out.dtype), written(high, out.dtype))


def _as_written(value: Array, dtype: str) -> Floats:
    """``value`` rounded to the output's dtype, in f64 again."""
    return as_f64(rounded(value, dtype))


def _cast(value: Array, dtype: str) -> Floats:
    """What a cast makes of a ``value`` by rounding, in f64.

    Of one that an integer dtype has not there is none, and of NaN neither: what is
    written instead, as -56 for 200 in i8, has nothing to do with it. Sums and products
    of integers may be meant to wrap; a cast is not.
    """
    written = _as_written(value, dtype)
    return np.where(fits(value, dtype), written, np.trunc(as_f64(value)))


class _OracleMemory:
    """What the oracle has written, which is never rounded.

    Floats are held as f64, so an element takes 8 bytes whatever its dtype; each dtype
    and alignment has a space of its own, which we call a lane. What else is read
    (integers, bytes as another dtype) is not here, and goes on from the real bytes.
    """

    def __init__(self) -> None:
        self._store = MemoryStore()
        self._lanes: set[tuple[str, int]] = set()

    def write(self, r: Region, value: Array) -> None:
        """Hold the ``value`` of ``r``, and forget its bytes in other lanes."""
        for dtype, phase in self._lanes:
            size = itemsize(dtype)
            space = _lane(r.space, dtype, phase)
            for addr, nbytes in r.where.each():
                start = addr - phase
                first = start // size
                end = -(-(start + nbytes) // size)
                self._store.drop(space, 8 * first, 8 * (end - first))
        place = _place(r)
        if is_float(r.dtype) and place is not None:
            self._lanes.add((r.dtype, r.addr % itemsize(r.dtype)))
            space, rows = place
            self._store.patch_rows(
                space, rows, np.ascontiguousarray(as_f64(value, copy=False))
            )

    def read(self, r: Region, real: Array) -> Array:
        """What the oracle has of ``r``, else the ``real`` bytes."""
        place = _place(r)
        if place is None:
            return real
        space, rows = place
        try:
            return self._store.view_rows(space, rows, r.shape, "f64")
        except MemoryStoreError:
            return real


def _lane(space: str, dtype: str, phase: int) -> str:
    """The space that holds elements of ``dtype`` at addresses of that remainder."""
    return f"{space} {dtype} {phase}"


def _place(r: Region) -> tuple[str, Rows] | None:
    """Where the oracle's memory holds the elements of ``r``: space and rows.

    None of rows that are no whole number of elements long, or apart: not in one lane.
    """
    size = itemsize(r.dtype)
    where = r.where
    index, phase = divmod(where.addr, size)
    if where.row_bytes % size or any(pitch % size for _, pitch in where.axes):
        return None
    axes = tuple((count, pitch // size * 8) for count, pitch in where.axes)
    rows = Rows.of(8 * index, axes, where.row_bytes // size * 8)
    return _lane(r.space, r.dtype, phase), rows


class Born(NamedTuple):
    """How many NaN, and how many infinities, an op made though it was given none."""

    nans: int
    infinities: int

    def as_text(self) -> str:
        """What has come into being; empty if nothing has."""
        found = []
        if self.nans:
            found.append(f"{self.nans:,} NaN")
        if self.infinities:
            found.append(f"{self.infinities:,} infinities")
        if not found:
            return ""
        return f"{' and '.join(found)} of operands that have none"


def born(record: OpRecord, operands: Sequence[Array], actual: Array) -> Born:
    """What of an op's output is not finite, and is so of nothing that it was given.

    A NaN is born where neither an operand nor a scalar of the op is one, an infinity
    likewise. ``actual`` is the output, or the part of it that is of interest, and
    ``operands`` are what that was made of.
    """
    scalars = np.array(record.params.get("scalars", ()), np.float64)
    given = [scalars, *(as_f64(operand) for operand in operands)]
    made = as_f64(actual)
    counts = []
    for is_odd in (np.isnan, np.isinf):
        was_given = any(is_odd(x).any() for x in given)
        counts.append(0 if was_given else int(np.count_nonzero(is_odd(made))))
    return Born(*counts)


class Written(NamedTuple):
    """An op that has run beside the oracle: what it was given and wrote, and what the
    oracle of it and of all before it has of that.
    """

    record: OpRecord
    operands: Sequence[Array]
    actual: Array
    wide: Array


class _Ran(NamedTuple):
    """An op that has run; ``compare()`` makes its check, which takes ``work``."""

    compare: Callable[[], OpCheck]
    work: int


class OracleRun:
    """An executor that runs op by op beside the oracle. Owns the oracle's memory.

    ``last`` is the op of the last check, None before the first. The executor is a fresh
    one that nobody else runs. Snapshots are ready data: the oracle goes on from them.
    """

    def __init__(self, executor: DataExecutor) -> None:
        self.last: Written | None = None
        self._executor = executor
        self._memory = _OracleMemory()
        # the op that has run and has no check yet: one was cancelled there
        self._ran: _Ran | None = None

    def next_check(self, progress: Progress = no_progress) -> OpCheck | None:
        """Run on to the next op that writes, and check it; None when all have run.

        ``progress`` is called with the share of the records that have run. If it
        raises, no check is lost: the next call goes on from there. Raises what the
        executor raises.
        """
        executor = self._executor
        while self._ran is None:
            upcoming = executor.upcoming
            if upcoming is None:
                return None
            progress(executor.position / executor.total)
            position, record = upcoming
            plan = plan_of(record, wide=True)
            if plan.write is None:
                executor.run_one()
            else:
                self._run_op(position, plan.turn(record), plan.write, progress)
        done = executor.position / executor.total
        check = computed_in_time(self._ran.compare, self._ran.work, progress, done)
        self._ran = None
        return check

    def _run_op(
        self, position: int, turn: Turn, out: Region, progress: Progress
    ) -> None:
        """Run one op in the executor and in the oracle; comparing is left to do."""
        executor = self._executor
        record = turn.plan.record
        done = executor.position / executor.total
        try:
            own = operands_of(turn, executor.store)
        except KernbenchError:
            # the executor raises it too, and names the op
            executor.run_one()
            raise
        unrounded = []
        for real, (r, _, snapshot) in zip(own, turn.reads(), strict=True):
            known = real if snapshot is not None else self._memory.read(r, real)
            unrounded.append(known)

        def compute() -> tuple[Reference, Array]:
            expected = _reference(_Inputs(turn, out, own))
            with np.errstate(all="ignore"):
                return expected, turn.plan.compute(unrounded, out.shape)

        work = turn.plan.work
        expected, wide = computed_in_time(compute, work, progress, done)
        executor.run_one(progress, done)
        actual = bytes_at(executor.store, out.addr, out)
        self._memory.write(out, wide)
        self.last = Written(record, own, actual, wide)
        compare = partial(check_op, position, record, actual, expected, wide)
        self._ran = _Ran(compare, work)


def debug_check(
    executor: DataExecutor, progress: Progress = no_progress
) -> Iterator[OpCheck]:
    """Run ``executor``, a fresh one, op by op to its end.

    Yields a check of each op that writes.
    """
    run = OracleRun(executor)
    while True:
        check = run.next_check(progress)
        if check is None:
            return
        yield check


def check_op(
    position: int,
    record: OpRecord,
    actual: Array,
    expected: Reference,
    wide: Array | None = None,
) -> OpCheck:
    """What an op wrote beside its oracle.

    ``wide`` is the oracle of the op and of all before it.
    """
    local = _apart(actual, expected.value)
    over = expected.over(actual)
    first = first_index(over)
    shown = first
    if shown is None:
        shown = first_index(local == np.max(local, initial=0.0))
    error = 0.0
    bound = 0.0
    is_of_nan = False
    if shown is not None:
        error = float(local[shown])
        bound = float(expected.bound[shown])
        is_of_nan = bool(integers_of_nan(actual, expected.value)[shown])
    accumulated = None
    if wide is not None:
        accumulated = float(np.max(_apart(actual, wide), initial=0.0))
    return OpCheck(
        position=position,
        op_name=record.op_name,
        component_id=record.component_id,
        local=error,
        bound=bound,
        accumulated=accumulated,
        over=int(np.count_nonzero(over)),
        first_over=first,
        is_of_nan=is_of_nan,
    )


def integers_of_nan(actual: Array, expected: Array) -> Bools:
    """Where ``actual`` has an integer, and NaN was ``expected``."""
    has_integers = actual.dtype.kind in "iu"
    return np.asarray(np.isnan(as_f64(expected)) & has_integers)


def _apart(actual: Array, expected: Array) -> Floats:
    """|difference| in f64.

    It is 0 for the same infinity or two NaN, and inf where one alone is finite.
    """
    a = as_f64(actual)
    r = as_f64(expected)
    same = (a == r) | (np.isnan(a) & np.isnan(r))
    with np.errstate(all="ignore"):
        apart = np.nan_to_num(np.abs(a - r), nan=inf, posinf=inf)
    return np.asarray(np.where(same, 0.0, apart))


def first_over(checks: Iterable[OpCheck]) -> OpCheck | None:
    """The first op that differs by more than rounding explains.

    If there is none, the first that overflows.
    """
    overflow = None
    for check in checks:
        if check.over:
            return check
        if overflow is None and check.overflows:
            overflow = check
    return overflow
