"""Fault: ``tl.scope`` ends, and its scratch is written while an op still reads it.

To be found as a hazard: the second load writes over bytes that the ``reader``, a store
or a composite that nobody waits for, is reading. Phase 2 runs each op whole when it
starts, so the data come out right: on a machine they would be mixed.
"""

from typing import Any

from kernbench.runtime_api.registry import bench, one_of


def kernel(x_ptr: Any, y_ptr: Any, n: int, reader: str, tl: Any) -> None:
    """y = x, or x @ x; then the second half of x in the scratch of the first."""
    with tl.scope():
        x = tl.load(x_ptr[:n])
        if reader == "store":
            tl.store(y_ptr, x, wait=False)  # reads in store
        else:
            tl.composite(a=x, b=x, out_ptr=y_ptr)  # reads in composite
    with tl.scope():
        tl.load(x_ptr[n:])  # fault: no wait before the scope's end


@bench(
    name="fault_scratch_reused", description="fault: scratch is reused under a reader"
)
def run(torch: Any, n: int = 64, reader: str = "store") -> None:
    """Two squares of ``n`` elements a side on one PE; store or composite reads one."""
    one_of(("store", "composite"), reader=reader)
    data = torch.rng.integers(-1, 2, (2 * n, n)).astype("f4")
    x = torch.tensor(data, name="x")
    y = torch.empty((n, n), "f32", name="y")
    torch.launch("scratch_reused", kernel, x, y, n, reader)
    first = data[:n]
    torch.expect(y, first if reader == "store" else first @ first)
