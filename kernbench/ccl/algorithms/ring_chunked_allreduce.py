"""All-reduce by reduce-scatter and all-gather in chunks, by the pe0 of every cube.

The cubes of a SIP are a line (a snake through the mesh, which has no wraparound) with a chunk of
the tensor a cube: each is reduced towards its owner from both ends, and spreads from there. In
between its owner does the same with its peers in the other SIPs, in rings or lines as their
topology has it. All links work at once, each on another chunk, where ``intercube_allreduce`` has
one hop after the other carry the whole tensor: it wins for large tensors, and loses by the latency
of its many messages for small ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kernbench.ccl.kernels import Lane, Lanes, Peers, all_reduce_kernel
from kernbench.ccl.kernels import kernel_args as kernel_args
from kernbench.ccl.topologies import SIP_TOPO_MESH as SIP_TOPO_MESH
from kernbench.ccl.topologies import SIP_TOPO_RING as SIP_TOPO_RING
from kernbench.ccl.topologies import SIP_TOPO_TORUS as SIP_TOPO_TORUS
from kernbench.ccl.topologies import TOPO_NAME_TO_KIND as TOPO_NAME_TO_KIND
from kernbench.common.dtypes import nbytes_of

PIECE_BYTES = (
    4096  # of a chunk, a slot of the shipped rings: one is reduced while the next comes
)
Move = tuple[
    str | None, int, str | None
]  # take a chunk from there and pass it on to there


def _exchange(peers: Peers, acc: Any, sip_topo_kind: int, lanes: Lanes) -> None:
    along = [snake(lanes.row, lanes.col), lanes.sip_row, lanes.sip_col]
    _all_reduce(peers, acc, range(acc.shape[0]), along)


def snake(row: Lane, col: Lane) -> Lane:
    """The line through a mesh of cubes: E along even rows, W along odd ones, S in between."""
    on, back = (row.ahead, row.back) if col.place % 2 == 0 else (row.back, row.ahead)
    along = row.place if col.place % 2 == 0 else row.size - 1 - row.place
    place = col.place * row.size + along
    return Lane(row.size * col.size, place, on or col.ahead, back or col.back)


def reduce_scatter(lane: Lane) -> Iterator[Move]:
    """The moves of one place, in order, after which its ``owned`` chunk is whole.

    On a line a chunk comes from both ends, the farthest first, so that all links work at once.
    """
    size, place, ahead, back, ring = lane
    for t in range(size):
        if ring:
            yield (
                back if t else None,
                (place - t) % size,
                ahead if t < size - 1 else None,
            )
            continue
        if (chunk := size - 1 - t + place) < size:
            yield back, chunk, ahead if chunk > place else None
        if (chunk := t - (size - 1 - place)) >= 0:
            yield ahead, chunk, back if chunk < place else None


def all_gather(lane: Lane) -> Iterator[Move]:
    """The moves of one place that spread every owner's chunk to all."""
    size, place, ahead, back, ring = lane
    for t in range(size):
        if ring:
            chunk = (owned(lane) - t) % size
            yield back if t else None, chunk, ahead if t < size - 1 else None
            continue
        if place - t >= 0:
            yield back if t else None, place - t, ahead
        if place + t < size:
            yield ahead if t else None, place + t, back


def owned(lane: Lane) -> int:
    """The chunk that is whole at this place after the reduce-scatter."""
    return (lane.place + 1) % lane.size if lane.ring else lane.place


def _all_reduce(peers: Peers, acc: Any, block: range, lanes: Sequence[Lane]) -> None:
    """All-reduce of a block of elements of ``acc`` along the first lane; of a chunk in the rest."""
    if not lanes:
        return
    lane, *others = lanes
    chunks = [_part(block, index, lane.size) for index in range(lane.size)]
    for source, chunk, target in reduce_scatter(lane):
        for piece in _pieces(peers, acc, chunks[chunk]):
            peers.merge(source, piece)
            peers.give(target, piece)
    _all_reduce(peers, acc, chunks[owned(lane)], others)
    for source, chunk, target in all_gather(lane):
        for piece in _pieces(peers, acc, chunks[chunk]):
            peers.take(source, piece)
            peers.give(target, piece)


def _part(block: range, index: int, count: int) -> range:
    """One of ``count`` parts that differ by one element at most; empty if there are too few."""
    return block[len(block) * index // count : len(block) * (index + 1) // count]


def _pieces(peers: Peers, acc: Any, chunk: range) -> Iterator[Any]:
    """Views of a chunk of ``acc``, of PIECE_BYTES at most."""
    count = -(-nbytes_of((len(chunk),), acc.dtype) // PIECE_BYTES)
    for index in range(count):
        piece = _part(chunk, index, count)
        yield peers.tl.slice(acc, (piece.start,), (len(piece),))


kernel = all_reduce_kernel(_exchange)
