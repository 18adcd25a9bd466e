"""The shipped benches; importing this package registers them."""

from kernbench.benches import matmul
from kernbench.runtime_api.registry import BENCHES, bench

SHIPPED = tuple(BENCHES)

__all__ = ["SHIPPED", "bench", "matmul"]
