"""What an all-reduce module must have (ADR-0032 D7), and how it is called.

To add an all-reduce: write a module that exports SYMBOLS, and name it in a ccl.yaml:

    algorithms:
      mine: {module: my_package.my_allreduce}

A module may say more than D7 does: its ``kernel`` may take the operator as ``op``, its
``kernel_args`` the mesh of cubes. It is given what its signatures take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, signature
from types import ModuleType
from typing import Any

from kernbench.errors import UsageError

SYMBOLS = (
    "kernel",
    "kernel_args",
    "TOPO_NAME_TO_KIND",
    "SIP_TOPO_RING",
    "SIP_TOPO_TORUS",
    "SIP_TOPO_MESH",
)
"""The names that the module of an algorithm exports."""

DEFAULT_OP = "sum"
"""The operator of a kernel that takes none."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An all-reduce of a ccl.yaml: its name there, and its module."""

    name: str
    module: ModuleType

    def kernel(self, op: str) -> Callable[..., None]:
        """The kernel that reduces by ``op``.

        UsageError if that is not the sum, and the kernel takes no operator.
        """
        kernel: Callable[..., None] = self.module.kernel
        if _takes(kernel, "op"):
            return partial(kernel, op=op)
        if op != DEFAULT_OP:
            raise UsageError(
                f"all_reduce: algorithm {self.name!r} takes no op; valid: {DEFAULT_OP}"
            )
        return kernel

    def sizes(self, world_size: int, n_elem: int, w: int, h: int) -> tuple[Any, ...]:
        """The kernel's arguments after its tensor: ``n_elem`` elements a cube.

        There are ``world_size`` SIPs of ``w`` by ``h`` cubes.
        """
        kernel_args: Callable[..., tuple[Any, ...]] = self.module.kernel_args
        if _positional(kernel_args) < 4:
            return kernel_args(world_size, n_elem)
        return kernel_args(world_size, n_elem, w, h)

    def kind(self, sip_topology: str) -> int:
        """What the kernel calls a topology of the SIPs."""
        kinds: dict[str, int] = self.module.TOPO_NAME_TO_KIND
        return kinds[sip_topology]


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of that name, or takes any."""
    parameters = signature(function).parameters
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
    return name in parameters or takes_any


def _positional(function: Callable[..., Any]) -> float:
    """How many arguments a function takes without their names."""
    count = 0
    for parameter in signature(function).parameters.values():
        if parameter.kind is Parameter.VAR_POSITIONAL:
            return float("inf")
        if parameter.kind in (
            Parameter.POSITIONAL_ONLY,
            Parameter.POSITIONAL_OR_KEYWORD,
        ):
            count += 1
    return count
