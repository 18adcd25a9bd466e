"""The shipped benches; importing this package registers them."""

from kernbench.benches import (  # noqa: F401
    faults,
    flash_attention,
    layernorm,
    matmul,
    matmul_ref,
    moe_route,
    pointer_chase,
    softmax,
)
from kernbench.runtime_api.registry import BENCHES, bench

FAULTS = tuple(name for name in BENCHES if name.startswith("fault_"))  # wrong on purpose
SHIPPED = tuple(name for name in BENCHES if name not in FAULTS)

__all__ = ["FAULTS", "SHIPPED", "bench"]
