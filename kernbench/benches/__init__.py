"""The shipped benches, one file each; importing this package registers them all.

A bench is found by its file: whatever lies in this package, in ``tutorial``, ``slow``
or ``faults``, is imported. SHIPPED, TUTORIALS, SLOW and FAULTS are the names of those
that stand for workloads, of those that teach, of those that are right but slow on
purpose, and of those that are wrong on purpose.
"""

from importlib import import_module
from pkgutil import walk_packages

from kernbench.runtime_api.registry import BENCHES, bench

__all__ = ["FAULTS", "SHIPPED", "SLOW", "TUTORIALS", "bench"]

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)


_OURS = [
    entry
    for entry in BENCHES.values()
    if entry.run.__module__.startswith(f"{__name__}.")
]


def _of_kind(kind: str) -> tuple[str, ...]:
    """The names of our benches of a kind."""
    return tuple(entry.name for entry in _OURS if entry.kind == kind)


SHIPPED = _of_kind("bench")
TUTORIALS = _of_kind("tutorial")
SLOW = _of_kind("slow")
FAULTS = _of_kind("fault")
