"""C = A @ B, sharded: A by cube rows, B by PE columns, C by both; one composite GEMM a PE.

Exercises the tiled pipeline (DMA_READ, FETCH, GEMM, STORE, DMA_WRITE), sharding and replication.
In its trace look at how long the tiles' DMA_READs wait beside how long the array works.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernbench.common.dtypes import is_float, np_dtype
from kernbench.errors import UsageError
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import at_least_one, bench


def matmul_kernel(
    a_ptr: Any,
    b_ptr: Any,
    c_ptr: Any,
    m: int,
    k: int,
    n: int,
    grid: tuple[int, int],
    tile: int,
    tl: Any,
) -> None:
    """One PE's block of C: its cube's rows of A times its own columns of B."""
    cubes, pes = grid
    cubes_per_sip = tl.num_programs(1)
    cube, pe = tl.program_id(2) * cubes_per_sip + tl.program_id(1), tl.program_id(0)
    row_step, col_step = tl.cdiv(m, cubes), tl.cdiv(n, pes)
    rows = min(row_step, m - cube * row_step)
    cols = min(col_step, n - pe * col_step)
    a = tl.ref(a_ptr + cube * row_step * k * a_ptr.itemsize, (rows, k), a_ptr.dtype)
    b = tl.ref(b_ptr + pe * col_step * k * b_ptr.itemsize, (k, cols), b_ptr.dtype)
    c = c_ptr + (cube * row_step * n + pe * col_step * rows) * c_ptr.itemsize
    done = tl.composite(op="gemm", a=a, b=b, out_ptr=c, tile=(tile, tile, tile))
    tl.wait(done)


@bench(name="matmul", description="C = A @ B: one composite GEMM a PE, sharded over cubes and PEs")
def run(
    torch: Any,
    m: int = 256,
    k: int = 256,
    n: int = 256,
    dtype: str = "f16",
    tile: int = 64,
    pes: int | None = None,
) -> None:
    """Sizes in elements; ``pes`` is how many PEs take part: 1 to 8 of one cube, or whole cubes
    (None: all).
    """
    at_least_one(m=m, k=k, n=n, tile=tile, pes=pes)
    if not is_float(dtype):
        raise UsageError(f"dtype={dtype}: matmul multiplies floats; valid: f16, bf16, f32, f64")
    cubes, width = _grid(torch.engine.graph.spec, pes)
    grid = {"num_cubes": cubes, "num_pes": width}
    a = torch.rng.standard_normal((m, k))
    b = torch.rng.standard_normal((k, n)) / np.sqrt(k)  # so that outputs are about 1
    ta = torch.tensor(a, dtype, DPPolicy(cube="row_wise", pe="replicate", **grid), name="a")
    tb = torch.tensor(b, dtype, DPPolicy(cube="replicate", pe="column_wise", **grid), name="b")
    tc = torch.empty((m, n), dtype, DPPolicy(cube="row_wise", pe="column_wise", **grid), name="c")
    torch.launch("matmul", matmul_kernel, ta, tb, tc, m, k, n, (cubes, width), tile)
    rounded_a, rounded_b = (x.astype(np_dtype(dtype)).astype(np.float64) for x in (a, b))
    torch.expect(tc, rounded_a @ rounded_b, name="c")


def _grid(spec: Any, pes: int | None) -> tuple[int, int]:
    """(cubes, PEs a cube) of ``pes`` PEs."""
    width = spec.cube.pes
    total = spec.system.sips.count * spec.sip.cube_mesh.w * spec.sip.cube_mesh.h * width
    if pes is None:
        pes = total
    if pes <= width:
        return 1, pes
    if pes % width or pes > total:
        raise UsageError(
            f"pes={pes}: valid are 1 to {width}, or a multiple of {width} up to {total}"
        )
    return pes // width, width
