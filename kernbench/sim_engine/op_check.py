"""Debug mode of Phase 2 (ADR-0020 D11): every op beside a float64 oracle that uses our own table.

On its own inputs an op shows its local error; on the oracle's, which are never rounded, what has
accumulated. The local error is judged. Rounding explains ``u_out |r| + n u_acc sum(|a| |b|)`` of a
sum of n products (u: half an ulp, relative), of other ops the ulps of ``NumpyOp``, nothing of a
copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import is_float, itemsize
from kernbench.common.messages import Region
from kernbench.errors import KernbenchError, MemoryStoreError, UsageError
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.numpy_ops import accumulator, numpy_op, rounded
from kernbench.sim_engine.op_log import OpRecord
from kernbench.sim_engine.plans import Turn, operands_of, plan_of
from kernbench.sim_engine.verify import first_index

_UNDERFLOW = 2.0**-126  # the smallest normal f32: what is below may be lost on the way


@dataclass(frozen=True, slots=True)
class OpCheck:
    """The op at canonical ``position`` beside the oracle.

    ``over`` elements, the first at ``first_over``, differ by more than rounding explains; ``local``
    is the |difference| there, else the largest (inf where one side is not finite), ``bound`` what
    rounding explains of it. ``accumulated`` is the largest, None where it is not known.
    """

    position: int
    op_name: str
    component_id: str
    local: float
    bound: float
    accumulated: float | None
    over: int
    first_over: tuple[int, ...] | None

    @property
    def overflows(self) -> bool:
        """Whether rounding alone makes infinity (or NaN) of what is finite."""
        return not self.over and self.local == inf

    def as_text(self) -> str:
        """One line: the op, its errors, and where it first is over its bound."""
        verdict = "overflow" if self.overflows else "ok"
        if self.over:
            verdict = f"{self.over} elements over, first {self.first_over}"
        return (
            f"op {self.position} {self.op_name} on {self.component_id}: local error "
            f"{self.local:.1e}, rounding explains {self.bound:.1e}"
            + (
                ""
                if self.accumulated is None
                else f", accumulated {self.accumulated:.1e}"
            )
            + f": {verdict}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """What an op gives in f64 (integers: exactly), never rounded.

    ``low`` and ``high``, in f64, are the least and the most that rounding makes of it.
    """

    value: Array
    low: Array
    high: Array

    @property
    @np.errstate(all="ignore")
    def bound(self) -> Array:
        """The largest |error| of each element that rounding explains."""
        value = self.value.astype(np.float64)
        return np.maximum(value - self.low, self.high - value)

    def over(self, actual: Array) -> Array:
        """True where rounding does not explain ``actual``."""
        a, nan = actual.astype(np.float64), np.isnan(actual)
        nan_is_right = np.isnan(self.low) | np.isnan(
            self.high
        )  # too large for fp8_e4m3 is NaN
        outside = (a < self.low) | (a > self.high)
        return np.asarray(
            np.where(nan | np.isnan(self.value), nan != nan_is_right, outside)
        )


def reference(
    record: OpRecord, store: MemoryStore, grid: tuple[Array, Array] | None = None
) -> Reference:
    """The oracle of ``record`` on its own inputs: its snapshots and ``store`` as it was before.

    ``grid``: of these rows and columns of a matrix product alone. UsageError for an op that writes
    nothing.
    """
    return _reference(*_inputs(record, store, grid))


def oracle(
    record: OpRecord, store: MemoryStore, grid: tuple[Array, Array] | None = None
) -> Array:
    """``reference(...).value`` in f64, at a third of the cost."""
    turn, out, operands = _inputs(record, store, grid)
    with np.errstate(all="ignore"):
        return turn.plan.compute(operands, out.shape).astype(np.float64, copy=False)


def _inputs(
    record: OpRecord, store: MemoryStore, grid: tuple[Array, Array] | None
) -> tuple[Turn, Region, list[Array]]:
    turn = plan_of(record, wide=True).turn(record)
    if (out := turn.plan.write) is None:
        raise UsageError(f"{record.op_name} has no output; ask for an op that writes")
    operands = operands_of(turn, store)
    if grid is not None:
        (rows, columns), (a, b, *rest), p = grid, operands, record.params
        own = a[:, rows] if p.get("transpose_a") else a[rows]
        others = b[columns] if p.get("transpose_b") else b[:, columns]
        spread = (np.broadcast_to(x, out.shape)[np.ix_(rows, columns)] for x in rest)
        operands, out = (
            [own, others, *spread],
            replace(out, shape=(len(rows), len(columns))),
        )
    return turn, out, operands


@np.errstate(all="ignore")
def _reference(turn: Turn, out: Region, operands: Sequence[Array]) -> Reference:
    value = turn.plan.compute(operands, out.shape)
    size = np.abs(value.astype(np.float64))
    spread = np.where(np.isfinite(size), _spread(turn, operands, size), 0.0)
    ends = (value - spread, value + spread) if spread.any() else (value, value)
    return Reference(value, *(rounded(x, out.dtype).astype(np.float64) for x in ends))


def _spread(turn: Turn, operands: Sequence[Array], size: Array) -> Array | float:
    """By how much an op in its own precision may be off before its result is rounded.

    ``size`` is that of the result. A gemm is off by as much as it moves when its sum is moved by n
    roundings of the terms' magnitudes.
    """
    record, p, dtypes = (
        turn.plan.record,
        turn.plan.record.params,
        [x.dtype for x in operands],
    )
    if record.op_kind == "gemm":
        steps = 2 * len(p.get("epilogue", ()))
        work = accumulator(dtypes[0], dtypes[1], p.get("dtype_acc", "f32"))
        if work.kind == "i" and not steps:
            return 0.0
        u = float(np.finfo(work if work.kind == "f" else np.float32).eps) / 2
        slack = u * (steps + 1 + (p["k"] if work.kind == "f" else 0))
        up, value, down = (
            turn.plan.compute(operands, size.shape, s) for s in (slack, 0.0, -slack)
        )
        moved = np.maximum(np.abs(up - value), np.abs(down - value))
        return np.asarray(moved + steps * u * size + _UNDERFLOW)
    op = numpy_op(p["op"]) if record.op_kind == "math" else None
    if op is None or not op.ulps or all(d.kind in "iub" for d in dtypes):
        return 0.0
    u = (
        float(
            np.finfo(np.float64 if np.dtype(np.float64) in dtypes else np.float32).eps
        )
        / 2
    )
    added = operands[0].size // max(size.size, 1) if op.kind == "reduction" else 0
    if op.sums:
        positive = replace(
            record, params=p | {"scalars": [abs(x) for x in p.get("scalars", ())]}
        )
        magnitudes = [np.abs(x.astype(np.float64)) for x in operands]
        size = plan_of(positive, wide=True).compute(magnitudes, size.shape)
    return np.asarray((2 * op.ulps + added) * u * size + _UNDERFLOW)


class _Wide:
    """The oracle's own memory: floats as f64, 8 bytes an element, in a space for each dtype and
    alignment. What else is read (integers, bytes as another dtype) goes on from real bytes.
    """

    def __init__(self) -> None:
        self._store = MemoryStore()
        self._lanes: set[tuple[str, int]] = set()

    def write(self, r: Region, value: Array) -> None:
        for dtype, phase in self._lanes:
            low, high = r.addr - phase, r.addr - phase + r.nbytes
            low, high = low // itemsize(dtype), -(-high // itemsize(dtype))
            self._store.drop(f"{r.space} {dtype} {phase}", 8 * low, 8 * (high - low))
        if is_float(r.dtype):
            self._lanes.add((r.dtype, r.addr % itemsize(r.dtype)))
            self._store.patch(*self._place(r), np.ascontiguousarray(value, np.float64))

    def read(self, r: Region, real: Array) -> Array:
        """What the oracle has of ``r``, else the ``real`` bytes."""
        try:
            return self._store.view(*self._place(r), r.shape, "f64")
        except MemoryStoreError:
            return real

    def _place(self, r: Region) -> tuple[str, int]:
        index, phase = divmod(r.addr, itemsize(r.dtype))
        return f"{r.space} {r.dtype} {phase}", 8 * index


def debug_check(executor: DataExecutor) -> Iterator[OpCheck]:
    """Run ``executor``, a fresh one, to its end, op by op: a check of each op that writes.

    Snapshots are ready data: the oracle goes on from them.
    """
    memory = _Wide()
    for position, record in executor.upcoming():
        turn = plan_of(record, wide=True).turn(record)
        if (out := turn.plan.write) is None:
            executor.run_until(executor.position + 1)
            continue
        try:
            own = operands_of(turn, executor.store)
        except KernbenchError:
            executor.run_until(executor.position + 1)  # raises it too, and names the op
            raise
        expected = _reference(turn, out, own)
        executor.run_until(executor.position + 1)
        actual = executor.store.view(out.space, out.addr, out.shape, out.dtype)
        inputs = [
            x if snapshot is not None else memory.read(r, x)
            for x, (r, _, snapshot) in zip(own, turn.reads(), strict=True)
        ]
        with np.errstate(all="ignore"):
            wide = turn.plan.compute(inputs, out.shape)
        memory.write(out, wide)
        yield check_op(position, record, actual, expected, wide)


def check_op(
    position: int,
    record: OpRecord,
    actual: Array,
    expected: Reference,
    wide: Array | None = None,
) -> OpCheck:
    """What an op wrote beside its oracle, and beside ``wide``, the oracle of all before too."""
    local, over = _apart(actual, expected.value), expected.over(actual)
    shown = first_index(over) or first_index(local == np.max(local, initial=0.0))
    return OpCheck(
        position,
        record.op_name,
        record.component_id,
        0.0 if shown is None else float(local[shown]),
        0.0 if shown is None else float(expected.bound[shown]),
        None if wide is None else float(np.max(_apart(actual, wide), initial=0.0)),
        int(np.count_nonzero(over)),
        first_index(over),
    )


def _apart(actual: Array, expected: Array) -> Array:
    """|difference| in f64; 0 for the same infinity or two NaN, inf where one alone is finite."""
    a, r = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.nan_to_num(np.abs(a - r), nan=inf, posinf=inf)
    return np.asarray(np.where((a == r) | (np.isnan(a) & np.isnan(r)), 0.0, apart))


def first_over(checks: Iterable[OpCheck]) -> OpCheck | None:
    """The first op that differs by more than rounding explains; else the first that overflows."""
    overflow = None
    for check in checks:
        if check.over:
            return check
        overflow = overflow or (check if check.overflows else None)
    return overflow
