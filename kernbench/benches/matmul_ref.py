"""C = A @ B with its operands taken in three ways: ``variant`` is ref, load or dot.

Exercises what a kernel may do with an operand. "ref": a composite streams it from HBM,
tile by tile. "load": one DMA brings the whole into the TCM, and the tiles find it
there. "dot": that DMA, then one GEMM without tiles, and a store by the kernel. In its
trace look at when the array starts: with "ref" after the first tile's DMA_READ, with
the others after the whole load.
"""

from typing import Any

from kernbench.benches.grid import Grid, Pes
from kernbench.benches.matmul import blocks, multiply
from kernbench.runtime_api.registry import bench, one_of


def matmul_ref_kernel(
    a_ptr: Any,
    b_ptr: Any,
    c_ptr: Any,
    m: int,
    k: int,
    n: int,
    grid: Grid,
    variant: str,
    tl: Any,
) -> None:
    """One PE's block of C."""
    a, b, c = blocks(a_ptr, b_ptr, c_ptr, m, k, n, grid, tl)
    take = tl.ref if variant == "ref" else tl.load
    if variant == "dot":
        tl.store(c, tl.dot(take(*a), take(*b)))
    else:
        tl.composite(op="gemm", a=take(*a), b=take(*b), out_ptr=c, wait=True)


@bench(
    name="matmul_ref",
    description="C = A @ B: operands by tl.ref, by tl.load, or by tl.dot",
)
def run(
    torch: Any,
    m: int = 256,
    k: int = 256,
    n: int = 256,
    dtype: str = "f16",
    variant: str = "ref",
    pes: Pes = None,
) -> None:
    """With "load" and "dot" a PE's rows of A and columns of B must fit its TCM."""
    one_of(("ref", "load", "dot"), variant=variant)
    multiply(torch, matmul_ref_kernel, (m, k, n), dtype, pes, variant)
