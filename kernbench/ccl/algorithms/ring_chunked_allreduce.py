"""All-reduce by reduce-scatter and all-gather in chunks, by pe0 of every cube.

The cubes of a SIP are a line (a snake through the mesh, which has no wraparound) with a
chunk of the tensor a cube: each is reduced towards its owner from both ends, and
spreads from there. In between its owner does the same with its peers in the other SIPs,
in rings or lines as their topology has it.

All links work at once, each on another chunk, where ``intercube_allreduce`` has one hop
after the other carry the whole tensor: it wins for large tensors, and loses by the
latency of its many messages for small ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kernbench.ccl.kernels import Lane, Lanes, Peers, all_reduce_kernel
from kernbench.ccl.kernels import kernel_args as kernel_args
from kernbench.ccl.topologies import SIP_TOPO_MESH as SIP_TOPO_MESH
from kernbench.ccl.topologies import SIP_TOPO_RING as SIP_TOPO_RING
from kernbench.ccl.topologies import SIP_TOPO_TORUS as SIP_TOPO_TORUS
from kernbench.ccl.topologies import TOPO_NAME_TO_KIND as TOPO_NAME_TO_KIND
from kernbench.common.dtypes import itemsize


class Move(NamedTuple):
    """Take a chunk from one neighbour and pass it on to another; None is neither."""

    source: str | None
    chunk: int
    target: str | None


def _exchange(peers: Peers, acc: Any, sip_topo_kind: int, lanes: Lanes) -> None:
    """Along the cubes of the SIP, and in between along the SIPs."""
    along = [snake(lanes.row, lanes.col), lanes.sip_row, lanes.sip_col]
    _all_reduce(peers, acc, range(acc.shape[0]), along)


def snake(row: Lane, col: Lane) -> Lane:
    """The line through a mesh of cubes: E on even rows, W on odd ones, S in between."""
    ahead = row.ahead
    back = row.back
    along = row.place
    if col.place % 2 == 1:
        ahead = row.back
        back = row.ahead
        along = row.size - 1 - row.place
    place = col.place * row.size + along
    return Lane(row.size * col.size, place, ahead or col.ahead, back or col.back)


def reduce_scatter(lane: Lane) -> Iterator[Move]:
    """The moves of one place, in order, after which its ``owned`` chunk is whole."""
    if lane.ring:
        yield from _ring_moves(lane, first_chunk=lane.place)
        return
    # A chunk comes from both ends, the farthest first, so that all links work at once.
    for t in range(lane.size):
        chunk = lane.size - 1 - t + lane.place
        if chunk < lane.size:
            yield Move(lane.back, chunk, lane.ahead if chunk > lane.place else None)
        chunk = t - (lane.size - 1 - lane.place)
        if chunk >= 0:
            yield Move(lane.ahead, chunk, lane.back if chunk < lane.place else None)


def all_gather(lane: Lane) -> Iterator[Move]:
    """The moves of one place that spread every owner's chunk to all."""
    if lane.ring:
        yield from _ring_moves(lane, first_chunk=owned(lane))
        return
    # The own chunk goes out to both ends; what comes from one is passed to the other.
    for t in range(lane.size):
        own = t == 0
        chunk = lane.place - t
        if chunk >= 0:
            yield Move(None if own else lane.back, chunk, lane.ahead)
        chunk = lane.place + t
        if chunk < lane.size:
            yield Move(None if own else lane.ahead, chunk, lane.back)


def _ring_moves(lane: Lane, first_chunk: int) -> Iterator[Move]:
    """Once round a ring: each step takes from behind and passes ahead."""
    last = lane.size - 1
    for t in range(lane.size):
        source = None if t == 0 else lane.back
        target = None if t == last else lane.ahead
        yield Move(source, (first_chunk - t) % lane.size, target)


def owned(lane: Lane) -> int:
    """The chunk that is whole at this place after the reduce-scatter."""
    return (lane.place + 1) % lane.size if lane.ring else lane.place


def _all_reduce(peers: Peers, acc: Any, block: range, lanes: Sequence[Lane]) -> None:
    """All-reduce of a block of elements of ``acc`` along the first lane.

    In between the chunk that this place owns is reduced along the rest of the lanes.
    """
    if not lanes:
        return
    lane, *others = lanes
    chunks = [_part(block, index, lane.size) for index in range(lane.size)]
    for move in reduce_scatter(lane):
        for piece in _pieces(peers, acc, chunks[move.chunk], move):
            peers.merge(move.source, piece)
            peers.give(move.target, piece)
    _all_reduce(peers, acc, chunks[owned(lane)], others)
    for move in all_gather(lane):
        for piece in _pieces(peers, acc, chunks[move.chunk], move):
            peers.take(move.source, piece)
            peers.give(move.target, piece)


def _part(block: range, index: int, count: int) -> range:
    """One of ``count`` parts of a block; they differ by one element at most.

    A part is empty if there are too few elements.
    """
    start = len(block) * index // count
    stop = len(block) * (index + 1) // count
    return block[start:stop]


def _pieces(peers: Peers, acc: Any, chunk: range, move: Move) -> Iterator[Any]:
    """Views of a chunk of ``acc``, of a slot each: one is reduced as the next comes.

    The last holds what is left.
    """
    way = move.source or move.target
    if way is None:
        return
    elements = max(peers.slot_bytes(way) // itemsize(acc.dtype), 1)
    for start in range(chunk.start, chunk.stop, elements):
        length = min(elements, chunk.stop - start)
        yield peers.tl.slice(acc, (start,), (length,))


kernel = all_reduce_kernel(_exchange)
