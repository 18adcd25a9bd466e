"""The shipped benches, one file each; importing this package registers them all."""

from importlib import import_module
from pkgutil import walk_packages

from kernbench.runtime_api.registry import BENCHES, bench

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)

FAULTS = tuple(
    name for name in BENCHES if name.startswith("fault_")
)  # wrong on purpose
SHIPPED = tuple(name for name in BENCHES if name not in FAULTS)

__all__ = ["FAULTS", "SHIPPED", "bench"]
