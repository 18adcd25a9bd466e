"""C = A @ B for a long k: each PE multiplies its part of k, then all add up.

Triton adds by atomics. There are none here: each PE writes a part of its own, and a
second launch, which begins when the first has ended, adds them, each PE some rows.
"""

from typing import Any

import numpy as np

from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import at_least_one, bench


def split_k_kernel(a: Any, b: Any, parts: Any, tl: Any) -> None:
    """The product of this PE's columns of A and rows of B."""
    part = parts[tl.program_id(0)]
    tl.composite(a=tl.ref(a), b=tl.ref(b), out_ptr=part, wait=True)


def reduce_kernel(parts: Any, c: Any, tl: Any) -> None:
    """The sum of all parts of this PE's rows of C."""
    rows, _ = tl.own(c)
    total = tl.sum(tl.load(parts[:, rows.start : rows.stop]), axis=0)
    tl.store(c, tl.cast(total, c.dtype))


@bench(
    name="tutorial_split_k",
    description="C = A @ B, split along k over PEs, and reduced",
)
def run(
    torch: Any,
    m: int = 48,
    k: int = 2048,
    n: int = 64,
    dtype: str = "f16",
    pes: int = 8,
) -> None:
    """Sizes in elements; ``pes`` PEs of a cube have a part of k each."""
    at_least_one(m=m, k=k, n=n, pes=pes)
    by_rows = DPPolicy(pe="row_wise", num_cubes=1, num_pes=pes)
    by_columns = DPPolicy(pe="column_wise", num_cubes=1, num_pes=pes)
    a = torch.tensor(torch.rng.standard_normal((m, k)), dtype, by_columns, name="a")
    b = torch.rng.standard_normal((k, n)) / np.sqrt(k)
    b = torch.tensor(b, dtype, by_rows, name="b")
    parts = torch.zeros((pes, m, n), "f32", by_rows, name="parts")
    c = torch.empty((m, n), dtype, by_rows, name="c")
    torch.launch("split_k", split_k_kernel, a, b, parts)
    torch.launch("reduce", reduce_kernel, parts, c)
    torch.expect(c, a.numpy().astype("f8") @ b.numpy().astype("f8"))
