"""C = A @ B with operands taken in four ways: ``variant`` is ref, load, dot or slices.

Exercises what a kernel may do with an operand. "ref": a composite streams it from HBM,
tile by tile. "load": one DMA brings the whole into the TCM, and the tiles find it
there. "dot": that DMA, then one GEMM without tiles, and a store by the kernel.
"slices": the kernel walks over the tiles itself, and loads and stores each as a slice
of its matrix. In its trace look at when the array starts: with "ref" and "slices" after
the first tile has been read, with the others after the whole load.
"""

from itertools import product
from typing import Any

from kernbench.benches.grid import Grid, Pes
from kernbench.benches.matmul import Operand, blocks, multiply
from kernbench.common.dtypes import itemsize
from kernbench.runtime_api.registry import bench, one_of

_TILE = 64
"""Rows and columns of a tile that the kernel loads itself."""


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
    if variant == "slices":
        _by_slices(a, b, c, c_ptr.dtype, tl)
        return
    take = tl.ref if variant == "ref" else tl.load
    if variant == "dot":
        tl.store(c, tl.dot(take(*a), take(*b)))
    else:
        tl.composite(op="gemm", a=take(*a), b=take(*b), out_ptr=c, wait=True)


def _by_slices(a: Operand, b: Operand, c: Any, dtype: str, tl: Any) -> None:
    """One PE's block of C, of ``dtype`` at ``c``: tiles, loaded one by one."""
    m, k = a.shape
    n = b.shape[1]
    for row, col in product(range(0, m, _TILE), range(0, n, _TILE)):
        rows = min(_TILE, m - row)
        cols = min(_TILE, n - col)
        with tl.scope():
            total = tl.zeros((rows, cols), "f64" if dtype == "f64" else "f32")
            for at in range(0, k, _TILE):
                depth = min(_TILE, k - at)
                with tl.scope():
                    left = _tile(a, row, at, (rows, depth), tl)
                    right = _tile(b, at, col, (depth, cols), tl)
                    tl.dot(left, right, acc=total)
            corner = c + (row * n + col) * itemsize(dtype)
            tl.store(corner, tl.cast(total, dtype), strides=(n, 1))


def _tile(x: Operand, row: int, col: int, shape: tuple[int, int], tl: Any) -> Any:
    """The tile of a matrix whose first element is at that row and column."""
    width = x.shape[1]
    corner = x.ptr + (row * width + col) * itemsize(x.dtype)
    return tl.load(corner, shape, x.dtype, strides=(width, 1))


@bench(
    name="matmul_ref",
    description="C = A @ B: operands by tl.ref, tl.load, tl.dot, or by slices",
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
    one_of(("ref", "load", "dot", "slices"), variant=variant)
    multiply(torch, matmul_ref_kernel, (m, k, n), dtype, pes, variant)
