"""``impl:`` to class: COMPONENTS holds ours, ``package.module:Class`` names a user's.

A row is a model that a kind of node (``topology/kinds.py``) can have. Nothing is
imported because a file names it: a class is ours, or in a module that is loaded.
"""

import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from kernbench.components import builtin
from kernbench.components.base import (
    ComponentBase,
    MemoryEndpoint,
    is_timed_by_run,
)
from kernbench.components.builtin.hbm_ctrl import HbmCtrl
from kernbench.components.builtin.io_cpu import IoCpu
from kernbench.components.builtin.m_cpu import MCpu
from kernbench.components.builtin.pcie_ep import PcieEp
from kernbench.components.builtin.pe_cpu import PeCpu
from kernbench.components.builtin.pe_dma import PeDma
from kernbench.components.builtin.pe_fetch_store import PeFetchStore
from kernbench.components.builtin.pe_gemm import PeGemm
from kernbench.components.builtin.pe_ipcq import PeIpcq
from kernbench.components.builtin.pe_math import PeMath
from kernbench.components.builtin.pe_mmu import PeMmu
from kernbench.components.builtin.pe_scheduler import PeScheduler
from kernbench.components.builtin.pe_tcm import PeTcm
from kernbench.components.builtin.sram import Sram
from kernbench.components.builtin.transit import Transit
from kernbench.errors import UsageError
from kernbench.topology.kinds import NODE_KINDS

COMPONENTS: dict[str, type[ComponentBase]] = {
    "hbm_ctrl": HbmCtrl,
    "io_cpu": IoCpu,
    "m_cpu": MCpu,
    "pcie_ep": PcieEp,
    "pe_cpu": PeCpu,
    "pe_dma": PeDma,
    "pe_fetch_store": PeFetchStore,
    "pe_gemm": PeGemm,
    "pe_ipcq": PeIpcq,
    "pe_math": PeMath,
    "pe_mmu": PeMmu,
    "pe_scheduler": PeScheduler,
    "pe_tcm": PeTcm,
    "sram": Sram,
    "transit": Transit,
}

RELIED_ON: dict[str, tuple[type[ComponentBase], str]] = {
    "pe_cpu": (PeCpu, "its run runs the kernel"),
    "pe_mmu": (PeMmu, "others call its translate"),
    "pe_scheduler": (PeScheduler, "others call its dispatch"),
    "pe_tcm": (PeTcm, "others use its read_channel and write_channel"),
}
"""The kinds of node of which more is needed than time: what a model has to subclass,
and why."""

# a model that somebody adds to the shipped ones can be named, though no row has it
for _module in iter_modules(builtin.__path__, f"{builtin.__name__}."):
    import_module(_module.name)


def component_class(impl: str) -> type[ComponentBase]:
    """The class of an ``impl:``.

    UsageError lists the valid names, or says why a user's class cannot be taken.
    """
    if ":" in impl:
        return _users_class(impl)
    if impl not in COMPONENTS:
        known = ", ".join(COMPONENTS)
        raise UsageError(
            f"unknown impl {impl!r}; valid: {known}, or package.module:Class"
        )
    return COMPONENTS[impl]


def check_model(kind: str, impl: str) -> None:
    """UsageError if nodes of a kind cannot have that model, or would not use it."""
    model = component_class(impl)
    problem = _problem(kind, model)
    if problem:
        raise UsageError(f"impl {impl!r} of {kind}: {problem}")


def _problem(kind: str, model: type[ComponentBase]) -> str:
    """What is wrong with a model for a kind of node, and what to do; "" if nothing."""
    if kind in RELIED_ON:
        ours, why = RELIED_ON[kind]
        if not issubclass(model, ours):
            return f"it must subclass the built-in one, {ours.__name__}: {why}"
    if kind == "pe_mmu" and model.run is not PeMmu.run:
        return (
            "its run is never called, as to translate is part of a command's issue; "
            "implement translate(va, nbytes, past_end), or take the time in the run of "
            "a model of pe_cpu"
        )
    shipped = COMPONENTS.get(NODE_KINDS[kind].impl) if kind in NODE_KINDS else None
    is_memory = shipped is not None and issubclass(shipped, MemoryEndpoint)
    if is_memory and not _is_memory(model):
        return (
            "nothing in it says how long a burst takes; subclass MemoryEndpoint and "
            "implement burst(now, addr, nbytes, owner), or implement run(env, msg) and "
            "have Burst among its serves"
        )
    return ""


def _is_memory(model: type[ComponentBase]) -> bool:
    """Whether a class says how long it takes to read or write a burst."""
    if is_timed_by_run(model):
        return True
    if not issubclass(model, MemoryEndpoint):
        return False
    return model.burst is not MemoryEndpoint.burst


def _users_class(impl: str) -> type[ComponentBase]:
    """The class at ``package.module:Class``, of a module that is loaded.

    Its name is looked up without the module's ``__getattr__``, which may import.
    """
    module, _, name = impl.partition(":")
    if module not in sys.modules:
        raise UsageError(
            f"impl {impl!r}: no module {module!r} is loaded, and a topology loads "
            "none; give the file that has it as --plugin FILE.py"
        )
    names = getattr(sys.modules[module], "__dict__", {})
    if name not in names:
        raise UsageError(f"impl {impl!r}: module {module!r} has no class {name!r}")
    found: Any = names[name]
    is_component = isinstance(found, type) and issubclass(found, ComponentBase)
    if not is_component:
        raise UsageError(f"impl {impl!r} is no subclass of ComponentBase")
    model: type[ComponentBase] = found
    return model
