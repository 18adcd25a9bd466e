"""The shipped benches, one file each; importing this package registers them all.

A bench is found by its file: whatever lies in this package, in ``slow`` or in
``faults``, is imported. SHIPPED, SLOW and FAULTS are the names of those that are right,
of those that are right and slow on purpose, and of those that are wrong on purpose.
"""

from importlib import import_module
from pkgutil import walk_packages

from kernbench.runtime_api.registry import BENCHES, Bench, bench

__all__ = ["FAULTS", "SHIPPED", "SLOW", "bench"]

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)


def _is_ours(entry: Bench) -> bool:
    return entry.run.__module__.startswith(f"{__name__}.")


_OURS = [entry for entry in BENCHES.values() if _is_ours(entry)]
SHIPPED = tuple(
    entry.name for entry in _OURS if not entry.is_fault and not entry.is_slow
)
SLOW = tuple(entry.name for entry in _OURS if entry.is_slow)
FAULTS = tuple(entry.name for entry in _OURS if entry.is_fault)
