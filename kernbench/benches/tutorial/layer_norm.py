"""y = (x - mean) / std * weight + bias by rows, and what a backward pass needs of it.

A row lies in scratch whole, so that one pass over memory is enough.
"""

from typing import Any

import numpy as np

from kernbench import tl
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import at_least_one, bench


def layer_norm_kernel(
    x: Any,
    y: Any,
    w: Any,
    b: Any,
    mean: Any,
    rstd: Any,
    eps: float,
    ROWS: tl.constexpr,
    tl: Any,
) -> None:
    """One PE's rows, some at a time, in f32."""
    rows, cols = tl.own(x)
    weight = tl.load(w)
    bias = tl.load(b)
    for first in rows[::ROWS]:
        block = slice(first, min(first + ROWS, rows.stop))
        with tl.scope():
            row = tl.cast(tl.load(x[block]), tl.float32)
            average = tl.sum(row, axis=1, keepdims=True) / len(cols)
            apart = row - average
            variance = tl.sum(apart * apart, axis=1, keepdims=True) / len(cols)
            scale = tl.rsqrt(variance + eps)
            tl.store(mean[block], average)
            tl.store(rstd[block], scale)
            tl.store(y[block], tl.cast(apart * scale * weight + bias, y.dtype))


@bench(
    name="tutorial_layer_norm",
    description="layer normalisation, forward, with mean and 1 / std",
)
def run(
    torch: Any,
    m: int = 151,
    n: int = 1000,
    dtype: str = "f16",
    rows: int = 8,
    pes: int = 8,
) -> None:
    """``m`` rows of ``n`` elements over ``pes`` PEs of a cube."""
    at_least_one(m=m, n=n, rows=rows, pes=pes)
    shared_out = DPPolicy(pe="row_wise", num_cubes=1, num_pes=pes)
    everywhere = DPPolicy(num_cubes=1, num_pes=pes)
    data = 0.5 * torch.rng.standard_normal((m, n)) - 2.3
    x = torch.tensor(data, dtype, shared_out, name="x")
    w = torch.tensor(torch.rng.random(n), dtype, everywhere, name="w")
    b = torch.tensor(torch.rng.random(n), dtype, everywhere, name="b")
    y = torch.empty((m, n), dtype, shared_out, name="y")
    mean = torch.empty((m, 1), "f32", shared_out, name="mean")
    rstd = torch.empty((m, 1), "f32", shared_out, name="rstd")
    torch.launch("layer_norm", layer_norm_kernel, x, y, w, b, mean, rstd, 1e-5, rows)
    exact = x.numpy().astype("f8")
    average = exact.mean(axis=1, keepdims=True)
    scale = 1 / np.sqrt(exact.var(axis=1, keepdims=True) + 1e-5)
    torch.expect(mean, average)
    torch.expect(rstd, scale)
    weight, bias = (each.numpy().astype("f8") for each in (w, b))
    torch.expect(y, (exact - average) * scale * weight + bias)
