"""The machine of a trace: what its ``topology`` frame holds, as columns and as rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Ints
from kernbench.errors import TraceFormatError
from kernbench.trace.columns import LOGS, EdgeColumns, NodeColumns
from kernbench.trace.frames import Frame, FrameFile
from kernbench.trace.schema import CODES, Columns, read_columns, whole
from kernbench.trace.tables import GrowingTable


class Machine(NamedTuple):
    """The columns of nodes and edges as they are stored: texts are strings' numbers.

    ``spec`` is the topology's, as maps, lists and scalars.
    """

    nodes: Columns
    edges: Columns
    spec: dict[str, Any]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A row of ``NodeColumns``: one component of the machine.

    ``id`` is the number of the row, which names the node in all other columns.
    """

    id: int
    type: str
    engine: str
    sip: int
    cube: int
    pe: int
    x_mm: float
    y_mm: float
    overhead_ns: float


@dataclass(frozen=True, slots=True)
class EdgeRow:
    """A row of ``EdgeColumns``: one link, from node ``src`` to node ``dst``.

    ``id`` is the number of the row. The bandwidth is in GB/s, which is bytes a ns.
    """

    id: int
    src: int
    dst: int
    kind: str
    distance_mm: float
    routing_weight_mm: float
    bandwidth_gbs: float


def read_machine(file: FrameFile, strings: GrowingTable[str]) -> Machine:
    """The machine of a file.

    Without a sound ``topology`` frame every string may be a node. Each is one then, and
    is nowhere: its sip, cube and pe are -1, and there are no edges.
    """

    def read(frame: Frame) -> Machine:
        body = file.inflate(frame)
        head = frame.head
        count = whole(head["nodes"]["n"], len(strings))
        tables = {"node": range(count), "string": strings}
        nodes = read_columns("nodes", head["nodes"], body, tables)
        edges = read_columns("edges", head["edges"], body, tables)
        if not isinstance(head["spec"], dict):
            raise TraceFormatError("its spec is no map")
        return Machine(nodes, edges, head["spec"])

    for machine in file.each("topology", read):
        return machine
    return _nowhere(strings.known())


def _nowhere(count: int) -> Machine:
    """A machine of so many nodes of which nothing is known, and without edges."""
    nodes: Columns = {}
    for name, column in LOGS["nodes"].items():
        value = 0
        if name in ("sip", "cube", "pe"):
            value = -1
        nodes[name] = np.full(count, value, CODES[column.widest])
    edges: Columns = {}
    for name, column in LOGS["edges"].items():
        edges[name] = np.empty(0, CODES[column.widest])
    return Machine(nodes, edges, {})


def node_columns(machine: Machine, strings: Sequence[str]) -> NodeColumns:
    """The nodes, with texts in place of the numbers of ``strings``."""
    stored: dict[str, Any] = dict(machine.nodes)
    for name in ("type", "engine"):
        stored[name] = _texts(stored[name], strings)
    return NodeColumns(**stored)


def edge_columns(machine: Machine, strings: Sequence[str]) -> EdgeColumns:
    """The edges, with texts in place of the numbers of ``strings``."""
    stored: dict[str, Any] = dict(machine.edges)
    stored["kind"] = _texts(stored["kind"], strings)
    return EdgeColumns(**stored)


def _texts(numbers: Array, strings: Sequence[str]) -> list[str]:
    """The text of each number; each text is looked up once."""
    texts = {number: strings[number] for number in set(numbers.tolist())}
    return [texts[number] for number in numbers.tolist()]


def node_rows(nodes: NodeColumns, rows: Ints) -> list[NodeRow]:
    """Some nodes as objects, in the order of ``rows``."""
    cells = zip(
        rows.tolist(),
        _picked(nodes.type, rows),
        _picked(nodes.engine, rows),
        nodes.sip[rows].tolist(),
        nodes.cube[rows].tolist(),
        nodes.pe[rows].tolist(),
        nodes.x_mm[rows].tolist(),
        nodes.y_mm[rows].tolist(),
        nodes.overhead_ns[rows].tolist(),
        strict=True,
    )
    return [NodeRow(*row) for row in cells]


def edge_rows(edges: EdgeColumns, rows: Ints) -> list[EdgeRow]:
    """Some edges as objects, in the order of ``rows``."""
    cells = zip(
        rows.tolist(),
        edges.src[rows].tolist(),
        edges.dst[rows].tolist(),
        _picked(edges.kind, rows),
        edges.distance_mm[rows].tolist(),
        edges.routing_weight_mm[rows].tolist(),
        edges.bandwidth_gbs[rows].tolist(),
        strict=True,
    )
    return [EdgeRow(*row) for row in cells]


def _picked(texts: Sequence[str], rows: Ints) -> list[str]:
    return [texts[row] for row in rows.tolist()]
