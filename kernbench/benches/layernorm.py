"""Layer normalisation of every row, with a scale and a shift, in f32.

Rows lie over all PEs. Exercises two reductions that depend on each other, rsqrt, and
operands that every PE has a copy of (gamma and beta). In its trace look at what a PE
with few rows does: on all 256 PEs half of the launch goes into short DMAs, with
``pes=8`` MATH works for four fifths of it.
"""

from typing import Any

import numpy as np

from kernbench.benches.grid import Grid, Pes, rounded
from kernbench.runtime_api.registry import at_least_one, bench, one_of

EPSILON = 1e-5


def layernorm_kernel(
    x: Any, gamma: Any, beta: Any, y: Any, block: int, tl: Any
) -> None:
    """One PE's rows, ``block`` of them at a time."""
    scale = tl.cast(tl.load(gamma), "f32")
    shift = tl.cast(tl.load(beta), "f32")
    rows, cols = tl.own(x)
    for low in rows[::block]:
        part = slice(low, min(low + block, rows.stop))
        with tl.scope():
            row = tl.cast(tl.load(x[part]), "f32")
            apart = row - tl.sum(row, axis=1, keepdims=True) / len(cols)
            variance = tl.sum(apart * apart, axis=1, keepdims=True) / len(cols)
            result = tl.fma(apart * tl.rsqrt(variance + EPSILON), scale, shift)
            tl.store(y[part], tl.cast(result, y.dtype))


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
    copies = grid.dp("replicate", "replicate")
    x_data = torch.rng.standard_normal((m, n))
    gamma_data = torch.rng.standard_normal((1, n))
    beta_data = torch.rng.standard_normal((1, n))
    x = torch.tensor(x_data, dtype, grid.dp(), "x")
    gamma = torch.tensor(gamma_data, dtype, copies, "gamma")
    beta = torch.tensor(beta_data, dtype, copies, "beta")
    y = torch.empty((m, n), dtype, grid.dp(), name="y")
    torch.launch("layernorm", layernorm_kernel, x, gamma, beta, y, block)
    rows = rounded(x_data, dtype)
    apart = rows - rows.mean(axis=1, keepdims=True)
    scale = np.sqrt((apart**2).mean(axis=1, keepdims=True) + EPSILON)
    normal = apart / scale
    torch.expect(y, normal * rounded(gamma_data, dtype) + rounded(beta_data, dtype))
