"""Fault: a load with ``wait=False`` is used as an operand before its DMA has landed.

To be found as a hazard: the add reads bytes that the load is still writing. Phase 2
runs ops in program order, so the data are right: a machine's would depend on the DMA.
"""

from typing import Any

from kernbench.runtime_api.registry import bench


def kernel(x_ptr: Any, y_ptr: Any, tl: Any) -> None:
    """y = x + x."""
    x = tl.load(x_ptr, wait=False)  # writes
    tl.store(y_ptr, x + x)  # fault: no tl.wait(x)


@bench(
    name="fault_missing_wait", description="fault: an operand whose DMA has not landed"
)
def run(torch: Any, n: int = 1024) -> None:
    """``n`` elements on one PE."""
    data = torch.rng.standard_normal(n).astype("f4")
    x = torch.tensor(data, name="x")
    y = torch.empty((n,), "f32", name="y")
    torch.launch("missing_wait", kernel, x, y)
    torch.expect(y, 2 * data)
