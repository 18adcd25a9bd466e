"""Fault: a sum that begins with what ``torch.empty`` holds.

To be found as a hazard: the load reads bytes that nothing has written. A run ends in an
error; with ``--warn-memory`` it goes on with 0xFF bytes, NaNs, and verification fails.
"""

from typing import Any

from kernbench.runtime_api.registry import bench


def kernel(x_ptr: Any, y_ptr: Any, tl: Any) -> None:
    """y = y + x."""
    total = tl.load(y_ptr)  # fault: y is torch.empty, not torch.zeros
    tl.store(y_ptr, total + tl.load(x_ptr))


@bench(
    name="fault_never_written",
    description="fault: a read of torch.empty (--warn-memory)",
)
def run(torch: Any, n: int = 64) -> None:
    """``n`` elements on one PE."""
    data = torch.rng.standard_normal(n).astype("f4")
    x = torch.tensor(data, name="x")
    y = torch.empty((n,), "f32", name="y")
    torch.launch("never_written", kernel, x, y)
    torch.expect(y, data)
