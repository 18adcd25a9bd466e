"""Softmax of every row: rows over all PEs, a few at a time through the TCM, in f32.

Exercises the MATH engine (exp, reductions with keepdims, broadcasting, casts) and
``tl.scope``. In its trace look at how DMA and MATH take turns, one idle while the other
works, and at what ``fused=true`` (one tl.softmax for five calls) saves.
"""

from typing import Any

import numpy as np

from kernbench.benches.grid import Grid, Pes, rounded
from kernbench.runtime_api.registry import at_least_one, bench, one_of


def softmax_kernel(x: Any, y: Any, block: int, fused: bool, tl: Any) -> None:
    """One PE's rows, ``block`` of them at a time."""
    rows, _ = tl.own(x)
    for low in rows[::block]:
        part = slice(low, min(low + block, rows.stop))
        with tl.scope():
            row = tl.cast(tl.load(x[part]), "f32")
            if fused:
                result = tl.softmax(row, axis=1)
            else:
                e = tl.exp(row - tl.max(row, axis=1, keepdims=True))
                result = e / tl.sum(e, axis=1, keepdims=True)
            tl.store(y[part], tl.cast(result, y.dtype))


@bench(
    name="softmax",
    description="softmax of every row, in f32, a block of rows at a time",
)
def run(
    torch: Any,
    m: int = 512,
    n: int = 512,
    dtype: str = "f16",
    block: int = 16,
    fused: bool = False,
    pes: Pes = None,
) -> None:
    """``m`` rows of ``n`` elements."""
    at_least_one(m=m, n=n, block=block)
    one_of(("f16", "bf16", "f32"), dtype=dtype)
    grid = Grid.of(torch, pes)
    data = 2 * torch.rng.standard_normal((m, n))
    x = torch.tensor(data, dtype, grid.dp(), name="x")
    y = torch.empty((m, n), dtype, grid.dp(), name="y")
    torch.launch("softmax", softmax_kernel, x, y, block, fused)
    e = np.exp(rounded(data, dtype))
    torch.expect(y, e / e.sum(axis=1, keepdims=True))
