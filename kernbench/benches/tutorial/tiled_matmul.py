"""C = act(A @ B) in tiles, walked in groups of rows so that tiles of B are used again.

The walk is Triton's swizzle: PEs that work at the same time share rows of A and columns
of B. Which tile a PE is at is plain Python here.
"""

from typing import Any

import numpy as np

from kernbench import tl
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import at_least_one, bench, one_of


def matmul_kernel(
    a: Any,
    b: Any,
    c: Any,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    ACTIVATION: tl.constexpr,
    tl: Any,
) -> None:
    """Every so many-th tile of C."""
    m, k = a.shape
    _, n = b.shape
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    for pid in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        group, within = divmod(pid, GROUP_M * tiles_n)
        group_m = min(tiles_m - group * GROUP_M, GROUP_M)
        row = (group * GROUP_M + within % group_m) * BLOCK_M
        col = within // group_m * BLOCK_N
        rows = slice(row, min(row + BLOCK_M, m))
        cols = slice(col, min(col + BLOCK_N, n))
        with tl.scope():
            acc = tl.zeros((rows.stop - row, cols.stop - col), tl.float32)
            for at in range(0, k, BLOCK_K):
                deep = slice(at, min(at + BLOCK_K, k))
                with tl.scope():
                    tl.dot(tl.load(a[rows, deep]), tl.load(b[deep, cols]), acc=acc)
            if ACTIVATION == "leaky_relu":
                acc = tl.where(acc >= 0, acc, 0.01 * acc)
            tl.store(c[rows, cols], tl.cast(acc, c.dtype))


@bench(
    name="tutorial_matmul",
    description="C = act(A @ B) in tiles, with a swizzle",
)
def run(
    torch: Any,
    m: int = 200,
    k: int = 96,
    n: int = 160,
    dtype: str = "f16",
    block: int = 64,
    group: int = 2,
    activation: str = "leaky_relu",
    pes: int = 8,
) -> None:
    """Sizes in elements; A, B and C lie over ``pes`` PEs of a cube by rows."""
    at_least_one(m=m, k=k, n=n, block=block, group=group, pes=pes)
    one_of(("none", "leaky_relu"), activation=activation)
    shared_out = DPPolicy(pe="row_wise", num_cubes=1, num_pes=pes)
    a = torch.tensor(torch.rng.standard_normal((m, k)), dtype, shared_out, name="a")
    b = torch.rng.standard_normal((k, n)) / np.sqrt(k)
    b = torch.tensor(b, dtype, shared_out, name="b")
    c = torch.empty((m, n), dtype, shared_out, name="c")
    blocks = {"BLOCK_M": block, "BLOCK_N": block, "BLOCK_K": block, "GROUP_M": group}
    torch.launch("matmul", matmul_kernel, a, b, c, **blocks, ACTIVATION=activation)
    product = a.numpy().astype("f8") @ b.numpy().astype("f8")
    if activation == "leaky_relu":
        product = np.where(product >= 0, product, 0.01 * product)
    torch.expect(c, product)
