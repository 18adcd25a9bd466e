"""relu(X @ A) @ B, tensor-parallel: A by columns and B by rows over all cubes.

Exercises ranks with shards of their own, composites that feed each other, and an
all-reduce of the partial products, in f32. In its trace look at how much longer the
all-reduce takes than the gemms whose results it joins, and at who waits for whom in it.
"""

from typing import Any

import numpy as np

from kernbench.benches.ccl_allreduce import ROW_A_CUBE, init_group
from kernbench.benches.grid import rounded, share
from kernbench.common.arrays import Floats
from kernbench.common.dtypes import dtype as dtype_row
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import at_least_one, bench, one_of


def mlp_kernel(x: Any, a: Any, b: Any, h: Any, y: Any, tl: Any) -> None:
    """One cube's partial Y, from its columns of the rank's A and the same rows of B."""
    hidden = tl.composite(a=tl.ref(x), b=tl.ref(a), out_ptr=h, epilogue=("relu",))
    tl.wait(hidden)
    tl.wait(tl.composite(a=hidden, b=tl.ref(b), out_ptr=y))


def worker(
    rank: int, torch: Any, x: Floats, a: Floats, b: Floats, y: Floats, dtype: str
) -> None:
    """One rank: its share of the hidden columns, and all of Y in each of its cubes.

    X is (m, d), A (d, hidden), B (hidden, d) and Y (m, d).
    """
    m, d = x.shape
    mesh = torch.engine.graph.spec.sip.cube_mesh
    cubes = mesh.w * mesh.h
    own = share(a.shape[1], torch.distributed.get_world_size(), rank)
    partial = torch.zeros((cubes * m, d), "f32", ROW_A_CUBE, name="y")
    if own:
        columns = DPPolicy(cube="column_wise", num_pes=1)
        args = [
            torch.tensor(x, dtype, DPPolicy(num_pes=1), name="x"),
            torch.tensor(a[:, own], dtype, columns, name="a"),
            torch.tensor(b[own], dtype, ROW_A_CUBE, name="b"),
            torch.empty((m, len(own)), dtype, columns, name="h"),
        ]
        torch.launch("mlp", mlp_kernel, *args, partial)
    torch.distributed.all_reduce(partial)
    bound = dtype_row(dtype).tolerance  # that of h, which is rounded to dtype
    torch.expect(partial, np.tile(y, (cubes, 1)), rtol=bound.rtol, atol=bound.atol)


@bench(
    name="mlp_tp",
    description="relu(X @ A) @ B, tensor-parallel over the cubes of all SIPs",
)
def run(
    torch: Any,
    tokens: int = 64,
    d: int = 64,
    hidden: int = 256,
    algorithm: str = "default",
    dtype: str = "f16",
) -> None:
    """``algorithm`` "default" is that of ccl.yaml."""
    at_least_one(tokens=tokens, d=d, hidden=hidden)
    one_of(("f16", "bf16", "f32"), dtype=dtype)
    x = torch.rng.standard_normal((tokens, d))
    a = torch.rng.standard_normal((d, hidden)) / np.sqrt(d)
    b = torch.rng.standard_normal((hidden, d)) / np.sqrt(hidden)
    h = rounded(np.maximum(rounded(x, dtype) @ rounded(a, dtype), 0), dtype)
    y = h @ rounded(b, dtype)
    init_group(torch, algorithm)
    torch.multiprocessing.spawn(worker, (torch, x, a, b, y, dtype))
