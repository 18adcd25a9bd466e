"""y = softmax(x) by rows, without going to memory in between.

A row of Triton is a block of rows here: the lanes of a PE are 64, and an op has to be
issued.
"""

from typing import Any

import numpy as np

from kernbench import tl
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import at_least_one, bench


def softmax_kernel(x: Any, y: Any, ROWS: tl.constexpr, tl: Any) -> None:
    """One PE's rows, some at a time."""
    rows, _ = tl.own(x)
    for first in rows[::ROWS]:
        block = slice(first, min(first + ROWS, rows.stop))
        with tl.scope():
            row = tl.load(x[block])
            numerator = tl.exp(row - tl.max(row, axis=1, keepdims=True))
            tl.store(y[block], numerator / tl.sum(numerator, axis=1, keepdims=True))


@bench(
    name="tutorial_softmax",
    description="softmax of every row, fused",
)
def run(
    torch: Any,
    m: int = 203,
    n: int = 781,
    dtype: str = "f32",
    rows: int = 4,
    pes: int = 8,
) -> None:
    """``m`` rows of ``n`` elements over ``pes`` PEs of a cube."""
    at_least_one(m=m, n=n, rows=rows, pes=pes)
    shared_out = DPPolicy(pe="row_wise", num_cubes=1, num_pes=pes)
    x = torch.tensor(torch.rng.standard_normal((m, n)), dtype, shared_out, name="x")
    y = torch.empty((m, n), dtype, shared_out, name="y")
    torch.launch("softmax", softmax_kernel, x, y, ROWS=rows)
    e = np.exp(x.numpy().astype("f8"))
    torch.expect(y, e / e.sum(axis=1, keepdims=True))
