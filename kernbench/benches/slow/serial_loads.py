"""Slow: each block is loaded only once the one before it has been worked on.

To be found by ``diagnose``: loads hardly overlap compute, at the line of the load. A
second buffer, loaded while the first is worked on, would hide most of the loads.
"""

from typing import Any

import numpy as np

from kernbench.runtime_api.registry import at_least_one, bench


def kernel(x_ptr: Any, y_ptr: Any, blocks: int, n: int, tl: Any) -> None:
    """y = exp(exp(-x)), a block at a time."""
    for block in range(blocks):
        at = block * n * x_ptr.itemsize
        with tl.scope():
            x = tl.load(x_ptr + at, (n,), "f32")  # slow: nothing else goes on meanwhile
            e = tl.exp(0.0 - x)
            tl.store(y_ptr + at, tl.exp(e))


@bench(name="slow_serial_loads", description="slow: loads that wait for compute")
def run(torch: Any, blocks: int = 16, n: int = 2048) -> None:
    """``blocks`` of ``n`` elements on one PE."""
    at_least_one(blocks=blocks, n=n)
    data = np.abs(torch.rng.standard_normal(blocks * n))
    x = torch.tensor(data, "f32", name="x")
    y = torch.empty((blocks * n,), "f32", name="y")
    torch.launch("serial_loads", kernel, x, y, blocks, n)
    torch.expect(y, np.exp(np.exp(-data.astype("f4").astype("f8"))))
