"""The kinds of node that a machine is made of: one row each.

``NODE_KINDS`` is the whole truth about a kind but its model in time, which is a class
in ``components``: how many there are, where each lies, what it is linked to, what a
passing header pays, and how it is drawn. ``components`` of topology.yaml has a field a
row, and the builder makes the nodes. Fields of the spec are named by their dotted path,
so that this table knows no spec.

To add a kind: write its class in ``components/builtin``, name it in COMPONENTS, add a
row here and a line to ``components`` of the shipped topology.yaml. An engine of a PE is
a ``PeEngine``, what a cube has one of a ``CubeUnit``, what an IO chiplet has one of an
``IoUnit``. Commands that a kernel issues to it name it in ``served_by``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class NodeKind:
    """One kind of node.

    ``name`` is the type of its nodes. ``impl`` is the model that it has unless the spec
    says otherwise, a name of ``COMPONENTS``. ``overhead`` is the field, in ns, that a
    passing header pays; "" is none. A kind with a ``label`` belongs to a PE, but is
    drawn beside it in its cube, as that label and the PE's number.
    """

    name: str
    impl: str
    overhead: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """A command edge, in both directions, from the CPU that commands a kind.

    ``by`` is that CPU's kind, ``bandwidth`` the field of the edge's GB/s.
    """

    by: str
    bandwidth: str


@dataclass(frozen=True, slots=True)
class PeEngine(NodeKind):
    """A kind that every PE has one of.

    ``cell`` is its row and column on the grid around the place of its PE; (1, 1) is the
    place itself. ``links`` are the engines of the same PE that it is linked to, in both
    directions, and ``feeds`` those that it is linked to in one. ``inward`` is the
    field of the GB/s of the way back on its ``links``; all other links of a PE are as
    fast as the TCM is read. With ``to_router`` (a field in GB/s) the engine is attached
    to the router of its PE.
    """

    cell: tuple[int, int] = (0, 0)
    links: tuple[str, ...] = ()
    feeds: tuple[str, ...] = ()
    inward: str = "pe.tcm.read_bw_gbs"
    to_router: str = ""
    command: Command | None = None


@dataclass(frozen=True, slots=True)
class CubeUnit(NodeKind):
    """A kind that every cube has one of, attached to the nearest router.

    ``at`` is its place as a share of the cube's width from the west and of its height
    from the north. ``edge`` names its links: ``{edge}_to_router`` and back, of
    ``to_router`` (a field in GB/s).
    """

    at: tuple[float, float] = (0.5, 0.5)
    edge: str = ""
    to_router: str = ""
    command: Command | None = None


@dataclass(frozen=True, slots=True)
class IoUnit(NodeKind):
    """A kind that every IO chiplet has one of.

    ``at_mm`` is its place: mm from the middle of the chiplet to the east, and from its
    northern edge to the south. ``links`` are the units of the same chiplet that it is
    linked to in both directions. No data are routed over the links of a ``is_cpu``.
    """

    at_mm: tuple[float, float] = (0.0, 0.0)
    links: tuple[str, ...] = ()
    is_cpu: bool = False


def _table(*kinds: NodeKind) -> dict[str, NodeKind]:
    return {kind.name: kind for kind in kinds}


# The order is that of the fields of ``components`` in topology.yaml.
NODE_KINDS: dict[str, NodeKind] = _table(
    PeEngine(
        "pe_cpu",
        "pe_cpu",
        cell=(0, 0),
        feeds=("pe_scheduler",),
        command=Command("m_cpu", "cube.m_cpu.to_router_bw_gbs"),
    ),
    PeEngine(
        "pe_scheduler",
        "pe_scheduler",
        cell=(0, 1),
        links=("pe_dma", "pe_fetch_store", "pe_gemm", "pe_math", "pe_ipcq"),
    ),
    PeEngine("pe_dma", "pe_dma", cell=(1, 0), to_router="pe.dma.to_router_bw_gbs"),
    PeEngine(
        "pe_fetch_store", "pe_fetch_store", cell=(2, 0), links=("pe_gemm", "pe_math")
    ),
    PeEngine("pe_gemm", "pe_gemm", cell=(2, 1)),
    PeEngine("pe_math", "pe_math", cell=(2, 2)),
    PeEngine("pe_mmu", "pe_mmu", cell=(0, 2), links=("pe_dma",)),
    PeEngine(
        "pe_tcm",
        "pe_tcm",
        cell=(1, 1),
        links=("pe_dma", "pe_fetch_store"),
        inward="pe.tcm.write_bw_gbs",
    ),
    PeEngine("pe_ipcq", "pe_ipcq", cell=(1, 2), links=("pe_dma",)),
    NodeKind("hbm_ctrl", "hbm_ctrl", label="HBM"),
    CubeUnit(
        "sram",
        "sram",
        at=(0.75, 0.5),
        edge="sram",
        to_router="cube.sram.to_router_bw_gbs",
    ),
    CubeUnit(
        "m_cpu",
        "m_cpu",
        "cube.m_cpu.overhead_ns",
        at=(0.25, 0.5),
        edge="mcpu",
        to_router="cube.m_cpu.to_router_bw_gbs",
        command=Command("io_cpu", "cube.m_cpu.to_router_bw_gbs"),
    ),
    IoUnit(
        "io_cpu",
        "io_cpu",
        "sip.io.cpu_overhead_ns",
        at_mm=(2.0, 2.0),
        links=("io_noc",),
        is_cpu=True,
    ),
    IoUnit(
        "pcie_ep",
        "pcie_ep",
        "sip.io.pcie_ep_overhead_ns",
        at_mm=(0.0, 0.5),
        links=("io_noc", "io_cpu"),
    ),
    NodeKind("router", "transit", "cube.router.overhead_ns"),
    NodeKind("ucie", "transit", "cube.ucie.overhead_ns"),
    NodeKind("ucie_conn", "transit"),
    IoUnit("io_noc", "transit", "sip.io.noc_overhead_ns", at_mm=(0.0, 2.0)),
    NodeKind("switch", "transit", "system.switch_overhead_ns"),
)

_Kind = TypeVar("_Kind", bound=NodeKind)


def pe_engines() -> list[PeEngine]:
    """The engines of a PE, row by row of the grid that they lie on."""
    return sorted(_of(PeEngine), key=lambda kind: kind.cell)


def cube_units() -> list[CubeUnit]:
    """The units of a cube, from the west."""
    return sorted(_of(CubeUnit), key=lambda kind: kind.at)


def io_units() -> list[IoUnit]:
    """The units of an IO chiplet, from the west; at one x the southern ones first."""

    def place(kind: IoUnit) -> tuple[float, float]:
        """Smaller is farther west, and then farther south."""
        east_mm, south_mm = kind.at_mm
        return east_mm, -south_mm

    return sorted(_of(IoUnit), key=place)


def label_of(node_type: str) -> str:
    """The ``label`` of a type of node; "" for one that is not in the table."""
    kind = NODE_KINDS.get(node_type)
    return "" if kind is None else kind.label


def _of(cls: type[_Kind]) -> Iterator[_Kind]:
    """The kinds of one sort, in the order of the table."""
    for kind in NODE_KINDS.values():
        if isinstance(kind, cls):
            yield kind
