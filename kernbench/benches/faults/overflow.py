"""Fault: a softmax in f16 that does not subtract the maximum first.

exp(12) is more than f16 holds: the exp gives inf, the quotient NaN. To be found by the
debug check, where the exp is the first infinite error, and by verification: the NaNs.
"""

from typing import Any

import numpy as np

from kernbench.runtime_api.registry import bench


def kernel(x_ptr: Any, y_ptr: Any, tl: Any) -> None:
    """y = softmax(x), but for large x."""
    x = tl.load(x_ptr)
    e = tl.exp(x)  # fault: x - max(x) would be at most 0
    tl.store(y_ptr, e / tl.sum(e, axis=1, keepdims=True))


@bench(
    name="fault_overflow", description="fault: an f16 softmax without max-subtraction"
)
def run(torch: Any, m: int = 8, n: int = 64) -> None:
    """``m`` rows of ``n`` elements on one PE, of which every second row overflows."""
    data = torch.rng.standard_normal((m, n)).astype("f2")
    data[1::2, 0] = 12
    x = torch.tensor(data, name="x")
    y = torch.empty((m, n), "f16", name="y")
    torch.launch("overflow", kernel, x, y)
    e = np.exp(data.astype("f8"))
    torch.expect(y, e / e.sum(axis=1, keepdims=True))
