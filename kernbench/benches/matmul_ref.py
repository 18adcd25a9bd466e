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

from kernbench.benches.grid import Pes
from kernbench.benches.matmul import multiply
from kernbench.runtime_api.registry import bench, one_of

_TILE = 64
"""Rows and columns of a tile that the kernel loads itself."""


def matmul_ref_kernel(a: Any, b: Any, c: Any, variant: str, tl: Any) -> None:
    """One PE's block of C."""
    if variant == "slices":
        _by_slices(a, b, c, tl)
    elif variant == "dot":
        tl.store(c, tl.dot(tl.load(a), tl.load(b)))
    else:
        take = tl.ref if variant == "ref" else tl.load
        tl.composite(a=take(a), b=take(b), out_ptr=c, wait=True)


def _by_slices(a: Any, b: Any, c: Any, tl: Any) -> None:
    """One PE's block of C in tiles, whose operands are loaded one by one."""
    rows, depth = tl.own(a)
    _, cols = tl.own(b)
    for row, col in product(rows[::_TILE], cols[::_TILE]):
        down = slice(row, min(row + _TILE, rows.stop))
        across = slice(col, min(col + _TILE, cols.stop))
        shape = (down.stop - row, across.stop - col)
        with tl.scope():
            total = tl.zeros(shape, "f64" if c.dtype == "f64" else "f32")
            for at in depth[::_TILE]:
                deep = slice(at, min(at + _TILE, depth.stop))
                with tl.scope():
                    tl.dot(tl.load(a[down, deep]), tl.load(b[deep, across]), acc=total)
            tl.store(c[down, across], tl.cast(total, c.dtype))


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
