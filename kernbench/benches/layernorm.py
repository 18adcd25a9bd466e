"""Layer normalisation of every row, with a scale and a shift: rows over all PEs, in f32.

Exercises two reductions that depend on each other, rsqrt, and operands that every PE has a copy of
(gamma and beta). In its trace look at what a PE with few rows does: on all 256 PEs half of the
launch goes into short DMAs, with ``pes=8`` MATH works for four fifths of it.
"""

from typing import Any

import numpy as np

from kernbench.benches.grid import Grid, Pes, rounded
from kernbench.runtime_api.registry import at_least_one, bench, one_of

EPSILON = 1e-5


def layernorm_kernel(
    x_ptr: Any,
    g_ptr: Any,
    b_ptr: Any,
    y_ptr: Any,
    m: int,
    n: int,
    grid: Grid,
    block: int,
    tl: Any,
) -> None:
    """One PE's rows, ``block`` of them at a time."""
    gamma, beta = (tl.cast(tl.load(p, (1, n), p.dtype), "f32") for p in (g_ptr, b_ptr))
    rows = grid.rows(m, tl)
    for low in range(0, len(rows), block):
        part = rows[low : low + block]
        at = part.start * n * x_ptr.itemsize
        with tl.scope():
            x = tl.cast(tl.load(x_ptr + at, (len(part), n), x_ptr.dtype), "f32")
            apart = x - tl.sum(x, axis=1, keepdims=True) / n
            variance = tl.sum(apart * apart, axis=1, keepdims=True) / n
            y = tl.fma(apart * tl.rsqrt(variance + EPSILON), gamma, beta)
            tl.store(y_ptr + at, tl.cast(y, y_ptr.dtype))


@bench(
    name="layernorm",
    description="layer normalisation of every row, with scale and shift",
)
def run(
    torch: Any,
    m: int = 512,
    n: int = 512,
    dtype: str = "f16",
    block: int = 16,
    pes: Pes = None,
) -> None:
    """``m`` rows of ``n`` elements."""
    at_least_one(m=m, n=n, block=block)
    one_of(("f16", "bf16", "f32"), dtype=dtype)
    grid = Grid.of(torch, pes)
    data = [torch.rng.standard_normal(shape) for shape in ((m, n), (1, n), (1, n))]
    copies = grid.dp("replicate", "replicate")
    policies = (("x", grid.dp()), ("gamma", copies), ("beta", copies))
    tensors = [
        torch.tensor(d, dtype, dp, n) for d, (n, dp) in zip(data, policies, strict=True)
    ]
    y = torch.empty((m, n), dtype, grid.dp(), name="y")
    torch.launch("layernorm", layernorm_kernel, *tensors, y, m, n, grid, block)
    x, gamma, beta = (rounded(d, dtype) for d in data)
    apart = x - x.mean(axis=1, keepdims=True)
    scale = np.sqrt((apart**2).mean(axis=1, keepdims=True) + EPSILON)
    torch.expect(y, apart / scale * gamma + beta)
