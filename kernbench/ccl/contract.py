"""What an all-reduce module must have (ADR-0032 D7), and how it is called.

To add an all-reduce: write a module that exports SYMBOLS, and name it in a ccl.yaml:

    algorithms:
      mine: {module: my_allreduce}

Its functions may take more than D7 says: ``kernel`` the operator and the root,
``kernel_args`` the mesh of cubes. They are given what their signatures name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature, unwrap
from numbers import Integral
from reprlib import repr as short_repr
from types import ModuleType
from typing import Any

from kernbench.errors import TopologyError, UsageError
from kernbench.topology.spec import CubeMeshSpec

SYMBOLS = (
    "kernel",
    "kernel_args",
    "TOPO_NAME_TO_KIND",
    "SIP_TOPO_RING",
    "SIP_TOPO_TORUS",
    "SIP_TOPO_MESH",
)
"""The names that the module of an algorithm exports."""

SIZES = ("n_elem", "cube_w", "cube_h", "n_sips")
"""What ``kernel_args`` gives: the kernel's arguments after its tensor."""

DEFAULT_OP = "sum"
"""The operator of a kernel that takes none."""

SE_CORNER = -1
"""The ``root_cube`` that follows from the mesh: its last cube."""


@dataclass(frozen=True, slots=True)
class Convention:
    """The arguments of a function of a module: by position, by name, and ``more``.

    Of ``more`` it gets those that are parameters of its own, by name.
    """

    by_position: tuple[str, ...]
    by_name: tuple[str, ...]
    more: tuple[str, ...]

    def problem(self, function: Any) -> str:
        """Why a function cannot be called so; "" if it can."""
        try:
            by_name = dict.fromkeys(self.by_name)
            more = named(function, dict.fromkeys(self.more))
            signature(function).bind(*self.by_position, **by_name, **more)
        except (TypeError, ValueError) as error:
            given = ", ".join(self.by_position + self.by_name)
            return (
                f"{error}; it is called with ({given}), and also with "
                f"{' and '.join(self.more)} if it has parameters of these names"
            )
        return ""


CONVENTIONS = {
    "kernel": Convention(
        by_position=(
            "t_ptr",
            *SIZES,
            "sip_rank",
            "sip_topo_kind",
            "sip_topo_w",
            "sip_topo_h",
        ),
        by_name=("tl",),
        more=("op", "root_cube"),
    ),
    "kernel_args": Convention(
        by_position=("world_size", "n_elem"),
        by_name=(),
        more=("cube_w", "cube_h"),
    ),
}
"""How the functions of a module are called."""


def named(function: Callable[..., Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Those arguments of ``more`` that a function has parameters for."""
    parameters = signature(function).parameters
    return {name: value for name, value in more.items() if name in parameters}


def unkept(module: ModuleType) -> str:
    """What of the contract a module does not keep; "" if nothing."""
    exports = getattr(module, "__dict__", {})
    lacking = [name for name in SYMBOLS if name not in exports]
    if lacking:
        return f"lacks {', '.join(lacking)}; it must export {', '.join(SYMBOLS)}"
    for name, convention in CONVENTIONS.items():
        problem = convention.problem(exports[name])
        if problem:
            return f"cannot be used: {name} at {place_of(module, name)}: {problem}"
    return ""


def _has_code(function: Callable[..., Any]) -> bool:
    return hasattr(function, "__code__")


def place_of(module: ModuleType, name: str) -> str:
    """The file and line of a module's function; without a line if it has no code."""
    function = unwrap(vars(module)[name], stop=_has_code)
    code = getattr(function, "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    return getattr(module, "__file__", None) or module.__name__


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An all-reduce of a ccl.yaml: its name there, and its module."""

    name: str
    module: ModuleType

    def kernel(self, op: str, root_cube: int) -> Callable[..., None]:
        """The kernel that reduces by ``op`` to ``root_cube`` of each SIP.

        UsageError if that is not the sum, and the kernel takes no operator.
        """
        kernel: Callable[..., None] = self.module.kernel
        more = named(kernel, {"op": op, "root_cube": root_cube})
        if "op" not in more and op != DEFAULT_OP:
            raise UsageError(
                f"all_reduce: algorithm {self.name!r} takes no op; valid: {DEFAULT_OP}"
            )
        return partial(kernel, **more)

    def sizes(
        self, world_size: int, n_elem: int, mesh: CubeMeshSpec
    ) -> tuple[int, ...]:
        """The kernel's arguments after its tensor, SIZES: ``n_elem`` elements a cube.

        There are ``world_size`` SIPs of that mesh. UsageError if the module gives
        anything but four whole numbers.
        """
        kernel_args: Callable[..., Any] = self.module.kernel_args
        more = named(kernel_args, {"cube_w": mesh.w, "cube_h": mesh.h})
        sizes = kernel_args(world_size, n_elem, **more)
        is_row = isinstance(sizes, tuple | list) and len(sizes) == len(SIZES)
        if not is_row or not all(isinstance(size, Integral) for size in sizes):
            raise UsageError(
                f"all_reduce: algorithm {self.name!r}: kernel_args at "
                f"{place_of(self.module, 'kernel_args')} gives {short_repr(sizes)}; "
                f"it must give four whole numbers, ({', '.join(SIZES)})"
            )
        return tuple(sizes)

    def kind(self, sip_topology: str) -> int:
        """What the kernel calls a topology of the SIPs.

        TopologyError if the module has no number for it.
        """
        kinds = self.module.TOPO_NAME_TO_KIND
        kind = kinds.get(sip_topology) if isinstance(kinds, Mapping) else None
        if not isinstance(kind, int):
            raise TopologyError(
                f"ccl: algorithms.{self.name}: TOPO_NAME_TO_KIND of "
                f"{self.module.__name__} is {short_repr(kinds)}, which has no number "
                f"for system.sips.topology {sip_topology}; add it there, or take a "
                "topology that it has"
            )
        return kind

    def root(self, root_cube: int, mesh: CubeMeshSpec) -> int:
        """The cube that the kernel reduces to in each SIP.

        It is the SE corner if ``root_cube`` is SE_CORNER. TopologyError for a cube that
        there is not, and for another one if the kernel cannot be told.
        """
        cubes = mesh.w * mesh.h
        corner = cubes - 1
        if root_cube in (SE_CORNER, corner):
            return corner
        given = f"ccl: algorithms.{self.name}.root_cube is {root_cube}, but"
        if not 0 <= root_cube < cubes:
            raise TopologyError(
                f"{given} the {mesh.w} x {mesh.h} mesh has cubes 0 to {corner}; "
                f"leave it out for the SE corner, cube {corner}"
            )
        if not named(self.module.kernel, {"root_cube": root_cube}):
            raise TopologyError(
                f"{given} its kernel has no parameter root_cube, so that is the SE "
                f"corner, cube {corner} of the {mesh.w} x {mesh.h} mesh; leave it out"
            )
        return root_cube
