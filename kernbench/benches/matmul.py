"""C = A @ B, sharded: A by cube rows, B by PE columns, C by both.

Each PE makes its block by one composite GEMM. Exercises the tiled pipeline (DMA_READ,
FETCH, GEMM, STORE, DMA_WRITE), sharding and replication. In its trace look at how long
the tiles' DMA_READs wait beside how long the array works.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.benches.grid import Grid, Pes, rounded
from kernbench.common.dtypes import is_float
from kernbench.errors import UsageError
from kernbench.runtime_api.registry import at_least_one, bench


def matmul_kernel(a: Any, b: Any, c: Any, tile: int, tl: Any) -> None:
    """One PE's block of C: its cube's rows of A times its own columns of B."""
    size = (tile, tile, tile)
    done = tl.composite(a=tl.ref(a), b=tl.ref(b), out_ptr=c, tile=size)
    tl.wait(done)


def multiply(
    torch: Any,
    kernel: Callable[..., None],
    shape: tuple[int, int, int],
    dtype: str,
    pes: Pes,
    *options: Any,
) -> None:
    """Launch ``kernel(a, b, c, *options)``, and expect A @ B of C."""
    m, k, n = shape
    at_least_one(m=m, k=k, n=n)
    _check_is_float(dtype)
    grid = Grid.of(torch, pes)
    a = torch.rng.standard_normal((m, k))
    # So that outputs are about 1.
    b = torch.rng.standard_normal((k, n)) / np.sqrt(k)
    ta = torch.tensor(a, dtype, grid.dp("row_wise", "replicate"), name="a")
    tb = torch.tensor(b, dtype, grid.dp("replicate", "column_wise"), name="b")
    tc = torch.empty((m, n), dtype, grid.dp("row_wise", "column_wise"), name="c")
    torch.launch("matmul", kernel, ta, tb, tc, *options)
    torch.expect(tc, rounded(a, dtype) @ rounded(b, dtype), name="c")


def _check_is_float(dtype: str) -> None:
    """UsageError for a dtype that is no float."""
    if not is_float(dtype):
        raise UsageError(
            f"dtype={dtype}: matmul multiplies floats; valid: f16, bf16, f32, f64"
        )


@bench(
    name="matmul",
    description="C = A @ B: one composite GEMM a PE, sharded over cubes and PEs",
)
def run(
    torch: Any,
    m: int = 256,
    k: int = 256,
    n: int = 256,
    dtype: str = "f16",
    tile: int = 64,
    pes: Pes = None,
) -> None:
    """Sizes in elements."""
    at_least_one(tile=tile)
    multiply(torch, matmul_kernel, (m, k, n), dtype, pes, tile)
