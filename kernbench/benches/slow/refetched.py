"""Slow: an operand that every block needs is loaded again for each.

To be found by ``diagnose``: the tensor is fetched as often as there are blocks; its
line takes most of the time. Loaded once, before the loop, it would stay in the TCM.
"""

from typing import Any

from kernbench.runtime_api.registry import at_least_one, bench


def kernel(x_ptr: Any, w_ptr: Any, y_ptr: Any, blocks: int, n: int, tl: Any) -> None:
    """y = x * w for every block of x."""
    for block in range(blocks):
        at = block * n * x_ptr.itemsize
        with tl.scope():
            w = tl.load(w_ptr, (8, n), "f32")  # slow: the same for every block
            x = tl.load(x_ptr + at, (n,), "f32")
            tl.store(y_ptr + at, x * tl.sum(w, axis=0))


@bench(name="slow_refetched", description="slow: an operand loaded for every block")
def run(torch: Any, blocks: int = 16, n: int = 512) -> None:
    """``blocks`` of ``n`` elements on one PE, and eight rows of weights."""
    at_least_one(blocks=blocks, n=n)
    data = torch.rng.standard_normal(blocks * n).astype("f4")
    weights = torch.rng.standard_normal((8, n)).astype("f4")
    x = torch.tensor(data, "f32", name="x")
    w = torch.tensor(weights, "f32", name="w")
    y = torch.empty((blocks * n,), "f32", name="y")
    torch.launch("refetched", kernel, x, w, y, blocks, n)
    total = weights.astype("f8").sum(axis=0)
    torch.expect(y, (data.reshape(blocks, n) * total).reshape(-1))
