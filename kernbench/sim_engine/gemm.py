"""The matrix product with its epilogue: what a gemm computes. Knows no record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array
from kernbench.sim_engine.arithmetic import NumpyDtype, accumulator, oracle_dtype
from kernbench.sim_engine.op_spec import OpSpec


class Step(NamedTuple):
    """One epilogue step: ``op(sum, operand)``, or ``op(sum)`` if it has no operand.

    Of scope "k_tile" it runs on each partial product, of "output_tile" on the whole
    sum.
    """

    op: OpSpec
    scope: str = "output_tile"
    operand: Array | float | None = None


@np.errstate(all="ignore")
def gemm(
    a: Array,
    b: Array,
    acc: Array | None = None,
    dtype_acc: str = "f32",
    steps: Sequence[Step] = (),
    tile_k: int = 0,
    wide: bool = False,
    slack: float = 0.0,
) -> Array:
    """Return a[…, m, k] @ b[…, k, n] (+ acc[…, m, n]) with its epilogue.

    It is not yet rounded. It is multiplied and summed in ``accumulator``'s dtype,
    ``wide`` in the oracle's. Steps of scope "k_tile" run on the product of each
    ``tile_k`` columns before it is added, the others on the finished sum. ``slack``
    times the sum of the terms' magnitudes is added before the steps, which error bounds
    are made of.
    """
    work = accumulator(a.dtype, b.dtype, dtype_acc)
    if wide:
        work = oracle_dtype(work)
    a = a.astype(work, copy=False)
    b = b.astype(work, copy=False)
    if np.may_share_memory(a, b):
        # or numpy takes syrk for a @ a.T, which sums in another order
        b = b.copy(order="K")
    inner = [step for step in steps if step.scope == "k_tile"]
    outer = [step for step in steps if step.scope != "k_tile"]
    k = max(a.shape[-1], 1)
    width = k
    if inner and tile_k > 0:
        width = min(tile_k, k)
    total = None
    if acc is not None:
        total = _moved(acc.astype(work, copy=False), slack)
    for low in range(0, k, width):
        left = a[..., low : low + width]
        right = b[..., low : low + width, :]
        product = left @ right
        if slack:
            product = product + slack * (np.abs(left) @ np.abs(right))
        product = _with_steps(product, inner, wide)
        total = product if total is None else product + total
    return _with_steps(np.asarray(total), outer, wide)


def _moved(acc: Array, slack: float) -> Array:
    """``acc`` moved by ``slack`` times its magnitude."""
    if not slack:
        return acc
    return np.asarray(acc + slack * np.abs(acc))


def _with_steps(total: Array, steps: Sequence[Step], wide: bool) -> Array:
    """``total`` after the epilogue ``steps``, in their order."""
    for op, _, operand in steps:
        slots: list[NumpyDtype | float] = [total.dtype]
        arrays = [total]
        if isinstance(operand, np.ndarray):
            slots.append(operand.dtype)
            arrays.append(operand)
        elif operand is not None:
            slots.append(operand)
        total = op.bind(slots, wide=wide)(arrays, total.shape)
    return total
