"""What links and channels give those who share them, against their bandwidths."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from kernbench.common.phys_addr import PhysAddr
from kernbench.policy.routing.router import AddressResolver, PathRouter
from kernbench.topology import TopologyGraph, TopologySpec, build_topology
from kernbench.topology.graph import Place
from kernbench.topology.spec import HbmSpec
from kernbench.validation.machines import one_sip, read, served, slice_address, write
from kernbench.validation.table import Bound, Row, Table

STREAM_BYTES = 65536
PES = 8


def links_table() -> Table:
    """A link of the mesh, a pseudo-channel of HBM, and a UCIe connection."""
    return Table("Shared links", [*_mesh_link(), *_hbm_channel(), *_ucie_connection()])


def mesh_link_ends(
    graph: TopologyGraph, nbytes: int
) -> tuple[list[float], tuple[str, str]]:
    """Ends of 16 writes of two PEs to the slices of two others, in ns.

    And the link between routers that all of them take.
    """
    pairs = (((0, 0, 0), (0, 0, 2)), ((0, 0, 1), (0, 0, 3)))
    first, second = (set(pairwise(_path(graph, *pair))) for pair in pairs)
    shared = [
        ends
        for ends in first & second
        if graph.edge_by_ends[ends].kind == "router_mesh"
    ]
    writes = [
        (source, write(graph, target, nbytes, i * nbytes))
        for i in range(8)
        for source, target in pairs
    ]
    return served(graph, "pe_dma", writes), shared[0]


def _path(graph: TopologyGraph, source: Place, target: Place) -> tuple[str, ...]:
    """From a PE's DMA to a slice."""
    address = PhysAddr.decode(slice_address(graph, target))
    node = AddressResolver(graph).resolve(address)
    return PathRouter(graph).route("pe", graph.at(*source, "pe_dma"), node)


def _mesh_link() -> Iterator[Row]:
    """Many DMAs over one router link of the default cube."""
    graph = build_topology(one_sip(hbm=_plain_hbm()))
    ends, link = mesh_link_ends(graph, STREAM_BYTES)
    yield Row(
        what="one mesh link, 16 DMAs of 64 KiB",
        source="its bandwidth",
        reference=graph.edge_by_ends[link].bandwidth_gbs,
        model=len(ends) * STREAM_BYTES / max(ends),
        unit="GB/s",
        bound=Bound(5, never_above=True),
    )


def channel_ends(
    graph: TopologyGraph, count: int, nbytes: int, stride: int
) -> list[float]:
    """When each of 8 PEs has read its pieces of one slice, in ns.

    Each has ``count`` pieces, and all pieces lie ``stride`` bytes apart.
    """
    reads = [
        ((0, 0, pe), read(graph, (0, 0, 0), nbytes, (i * PES + pe) * stride))
        for i in range(count)
        for pe in range(PES)
    ]
    ends = served(graph, "pe_dma", reads)
    return [max(ends[pe::PES]) for pe in range(PES)]


def _hbm_channel() -> Iterator[Row]:
    """One pseudo-channel of 32 GB/s under 8 readers of 64 KiB each.

    In streams of bursts, and line by line, each PE with its 8 outstanding commands.
    There the near PEs, which have their data sooner, ask again sooner.
    """
    graph = build_topology(one_sip(hbm=_plain_hbm(channels=1)))
    streams = channel_ends(graph, 1, STREAM_BYTES, STREAM_BYTES)
    lines = channel_ends(graph, 256, 256, 256)
    for how, ends in (("64 KiB streams", streams), ("256 B reads", lines)):
        kind = f"one HBM channel, 8 PEs, {how}"
        total = PES * STREAM_BYTES / max(ends)
        below = Bound(5, never_above=True)
        yield Row(f"{kind}, total", "its bandwidth", 32, total, "GB/s", below)
        for which, end in (("slowest", max(ends)), ("fastest", min(ends))):
            what = f"{kind}, {which} PE"
            yield Row(what, "an eighth", 4, STREAM_BYTES / end, "GB/s", Bound(6))


def _plain_hbm(channels: int = 8) -> HbmSpec:
    """HBM whose channels give their bandwidth whatever is asked of them."""
    return HbmSpec(model="ideal", channels=channels)


def ucie_ends(op: Literal["read", "write"], nbytes: int) -> Sequence[float]:
    """Ends of two streams between cubes that one UCIe connection joins, in ns."""
    ucie = replace(TopologySpec().cube.ucie, connections_per_side=1)
    graph = build_topology(one_sip(w=2, ucie=ucie, hbm=_plain_hbm()))
    make = {"read": read, "write": write}[op]
    streams = [((0, 0, pe), make(graph, (0, 1, pe), nbytes)) for pe in (0, 1)]
    return served(graph, "pe_dma", streams)


def _ucie_connection() -> Iterator[Row]:
    """Two streams that interleave by bursts on a connection of 128 GB/s."""
    nbytes = 1 << 20
    ops: tuple[Literal["read", "write"], ...] = ("read", "write")
    for op in ops:
        for stream, end in enumerate(ucie_ends(op, nbytes), 1):
            what = f"one UCIe connection, {op} stream {stream} of 2"
            yield Row(what, "half of it", 64, nbytes / end, "GB/s", Bound(2))
