"""Fault: a loop over blocks of rows loads a whole last block where fewer rows are left.

The block is addressed by bytes: a slice of the tensor would have been refused.

To be found as a hazard: that load reads bytes outside of the allocation. A run ends in
an error; with ``--warn-memory`` it reads what lies behind, and verification fails.
"""

from typing import Any

from kernbench.runtime_api.registry import bench


def kernel(x_ptr: Any, y_ptr: Any, m: int, n: int, block: int, tl: Any) -> None:
    """y = the sum of the rows of x."""
    total = tl.zeros((n,), "f32")
    for row in range(0, m, block):
        at = x_ptr + row * n * x_ptr.itemsize
        x = tl.load(at, (block, n), "f32")  # fault: min(block, m - row) rows are left
        tl.add(total, tl.sum(x, axis=0), out=total)
    tl.store(y_ptr, total)


@bench(
    name="fault_past_shard",
    description="fault: a load past a tensor's end (--warn-memory)",
)
def run(torch: Any, m: int = 5, n: int = 64, block: int = 2) -> None:
    """``m`` rows of ``n`` elements on one PE."""
    data = torch.rng.integers(-8, 9, (m, n)).astype("f4")
    x = torch.tensor(data, name="x")
    torch.full((block, n), 100.0, "f32", name="behind")
    y = torch.empty((n,), "f32", name="y")
    torch.launch("past_shard", kernel, x, y, m, n, block)
    torch.expect(y, data.sum(axis=0))
