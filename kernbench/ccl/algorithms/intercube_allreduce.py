"""All-reduce of the whole tensor in five phases (ADR-0032 D1), by pe0 of every cube.

Rows reduce to the E, the last column to the S, the root cubes (SE corners) exchange
between SIPs, and the result goes back N and W. Every hop carries the whole tensor: few
messages, so it wins for small tensors, and ``ring_chunked_allreduce`` for large ones.
"""

from __future__ import annotations

from typing import Any

from kernbench.ccl.kernels import Lane, Lanes, Peers, all_reduce_kernel
from kernbench.ccl.kernels import kernel_args as kernel_args
from kernbench.ccl.topologies import SIP_TOPO_MESH as SIP_TOPO_MESH
from kernbench.ccl.topologies import SIP_TOPO_RING as SIP_TOPO_RING
from kernbench.ccl.topologies import SIP_TOPO_TORUS as SIP_TOPO_TORUS
from kernbench.ccl.topologies import TOPO_NAME_TO_KIND as TOPO_NAME_TO_KIND


def _exchange(peers: Peers, acc: Any, sip_topo_kind: int, lanes: Lanes) -> None:
    """The five phases for one cube: what it takes no part in is left out."""
    _reduce(peers, acc, lanes.row)
    if lanes.row.ahead is None:
        _reduce(peers, acc, lanes.col)
        if lanes.col.ahead is None:
            _INTER_SIP[sip_topo_kind](peers, acc, lanes)
        _broadcast(peers, acc, lanes.col)
    _broadcast(peers, acc, lanes.row)


def _inter_sip_ring(peers: Peers, acc: Any, lanes: Lanes) -> None:
    """Round the ring of SIPs."""
    _ring(peers, acc, lanes.sip_row)


def _inter_sip_torus_2d(peers: Peers, acc: Any, lanes: Lanes) -> None:
    """Round the ring of each row, then of each column."""
    _ring(peers, acc, lanes.sip_row)
    _ring(peers, acc, lanes.sip_col)


def _inter_sip_mesh_2d(peers: Peers, acc: Any, lanes: Lanes) -> None:
    """Along each row and back, then along each column and back."""
    for lane in (lanes.sip_row, lanes.sip_col):
        _reduce(peers, acc, lane)
        _broadcast(peers, acc, lane)


_INTER_SIP = {
    SIP_TOPO_RING: _inter_sip_ring,
    SIP_TOPO_TORUS: _inter_sip_torus_2d,
    SIP_TOPO_MESH: _inter_sip_mesh_2d,
}


def _reduce(peers: Peers, acc: Any, lane: Lane) -> None:
    """Add what comes from behind, and pass the sum on."""
    peers.merge(lane.back, acc)
    peers.give(lane.ahead, acc)


def _broadcast(peers: Peers, acc: Any, lane: Lane) -> None:
    """Take the result from ahead, and pass it back."""
    peers.take(lane.ahead, acc)
    peers.give(lane.back, acc)


def _ring(peers: Peers, acc: Any, lane: Lane) -> None:
    """Send on what came, size - 1 times, so that all see every tensor.

    What came lies in two buffers in turn: one is sent while the other is received into.
    """
    tl = peers.tl
    moving = acc
    unused = None
    with tl.scope():
        for _ in range(lane.size - 1):
            peers.give(lane.ahead, moving)
            came = tl.recv(lane.back, acc.shape, acc.dtype, out=unused)
            peers.combine(acc, came, out=acc)
            unused = None if moving is acc else moving
            moving = came


kernel = all_reduce_kernel(_exchange)
