"""What the work, the bytes and the time of a run cost in energy: the one formula.

A run does so many multiply-adds and element ops of each type, moves so many bytes into
and out of each memory, and carries bytes along paths. Owns what each of these costs,
for a run that has just ended as well as for one that a trace holds; it knows neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kernbench.common.dtypes import DTYPES

CLASSES = (
    "array",
    "math",
    "tcm",
    "sram",
    "hbm",
    "routers",
    "ucie",
    "pcie",
    "wires",
    "static",
)
"""The classes of components that energy is told apart by."""

ENERGY_DTYPES = tuple(dict.fromkeys(row.rate for row in DTYPES.values()))
"""The types that have a cost of their own: those that have a rate."""

_ROUTERS = ("router", "io_noc")
_DIE_CROSSINGS = ("ucie_mesh", "io_to_cube", "cube_to_io")
_PCIE = "pcie"
_PORTS = 2
"""UCIe ports of a link between two dies, one at each end."""

PJ = 1e-12
"""Joules in a pJ."""


def cost_dtype(dtype: str) -> str:
    """The type of ENERGY_DTYPES whose cost an element type has; f32 of an unknown."""
    known = DTYPES.get(dtype)
    if known is None:
        return "f32"
    return known.rate


class Passed(NamedTuple):
    """What every byte passes on one path: counts of each, and mm of wire on dies."""

    routers: int
    ucie_ports: int
    pcie_links: int
    wire_mm: float


def passed(node_types: Iterable[str], links: Iterable[tuple[str, float]]) -> Passed:
    """What lies on a path: the types of its nodes, the kinds and mm of its links.

    The wire of a link between dies is in the cost of its ports, that of PCIe in that of
    its links.
    """
    routers = sum(kind in _ROUTERS for kind in node_types)
    ports = 0
    pcie_links = 0
    wire_mm = 0.0
    for kind, length_mm in links:
        if kind in _DIE_CROSSINGS:
            ports += _PORTS
        elif kind == _PCIE:
            pcie_links += 1
        else:
            wire_mm += length_mm
    return Passed(routers, ports, pcie_links, wire_mm)


@dataclass(frozen=True, slots=True)
class EnergyRates:
    """The fields of ``energy:``: pJ a multiply-add, element and byte, and static W.

    ``memory`` is by space, ``mac`` and ``element`` by type of ENERGY_DTYPES.
    """

    mac: Mapping[str, float]
    element: Mapping[str, float]
    memory: Mapping[str, float]
    router: float
    ucie_port: float
    pcie: float
    wire: float
    pe_static_w: float
    cube_static_w: float

    @classmethod
    def of(cls, number: Callable[[str], float]) -> EnergyRates:
        """The rates of a machine; ``number`` gives a field of its spec by dotted path.

        So the machine may be a spec as well as what a trace has kept of one.
        """

        def by_dtype(section: str) -> dict[str, float]:
            return {name: number(f"energy.{section}.{name}") for name in ENERGY_DTYPES}

        spaces = ("tcm", "sram", "hbm")
        return cls(
            mac=by_dtype("mac_pj"),
            element=by_dtype("element_pj"),
            memory={space: number(f"energy.{space}_pj_byte") for space in spaces},
            router=number("energy.router_pj_byte"),
            ucie_port=number("energy.ucie_port_pj_byte"),
            pcie=number("energy.pcie_pj_byte"),
            wire=number("energy.wire_pj_byte_mm"),
            pe_static_w=number("energy.pe_static_w"),
            cube_static_w=number("energy.cube_static_w"),
        )

    def way_pj(self, way: Passed) -> dict[str, float]:
        """What a byte costs on a path, in pJ by class."""
        return {
            "routers": way.routers * self.router,
            "ucie": way.ucie_ports * self.ucie_port,
            "pcie": way.pcie_links * self.pcie,
            "wires": way.wire_mm * self.wire,
        }

    def static_w(self, pes: int, cubes: int) -> float:
        """The power of a machine of so many PEs and cubes that does nothing."""
        return pes * self.pe_static_w + cubes * self.cube_static_w


@dataclass(slots=True)
class Spent:
    """What a run has spent: pJ by class, and the bytes of each memory by space."""

    pj: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CLASSES, 0.0))
    memory_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def joules(self) -> float:
        """All of it."""
        return sum(self.pj.values()) * PJ

    @property
    def hbm_bytes(self) -> int:
        """What was read from and written to HBM."""
        return self.memory_bytes.get("hbm", 0)

    def add_memory(self, rates: EnergyRates, space: str, nbytes: int) -> None:
        """Bytes read from or written to a memory; those of an unknown one are free."""
        self.memory_bytes[space] = self.memory_bytes.get(space, 0) + nbytes
        if space in rates.memory:
            self.pj[space] += nbytes * rates.memory[space]
