"""All-reduce of the whole tensor in five phases (ADR-0032 D1), by the pe0 of every cube.

Rows reduce to the E, the last column to the S, the root cubes (SE corners) exchange between SIPs,
and the result goes back N and W. Every hop carries the whole tensor: few messages, so it wins for
small tensors, and ``ring_chunked_allreduce`` for large ones.
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
    _reduce(peers, acc, lanes.row)
    if lanes.row.ahead is None:
        _reduce(peers, acc, lanes.col)
        if lanes.col.ahead is None:
            _INTER_SIP[sip_topo_kind](peers, acc, lanes)
        _broadcast(peers, acc, lanes.col)
    _broadcast(peers, acc, lanes.row)


def _inter_sip_ring(peers: Peers, acc: Any, lanes: Lanes) -> None:
    _ring(peers, acc, lanes.sip_row)


def _inter_sip_torus_2d(peers: Peers, acc: Any, lanes: Lanes) -> None:
    _ring(peers, acc, lanes.sip_row)
    _ring(peers, acc, lanes.sip_col)


def _inter_sip_mesh_2d(peers: Peers, acc: Any, lanes: Lanes) -> None:
    for lane in (lanes.sip_row, lanes.sip_col):
        _reduce(peers, acc, lane)
        _broadcast(peers, acc, lane)


_INTER_SIP = {
    SIP_TOPO_RING: _inter_sip_ring,
    SIP_TOPO_TORUS: _inter_sip_torus_2d,
    SIP_TOPO_MESH: _inter_sip_mesh_2d,
}


def _reduce(peers: Peers, acc: Any, lane: Lane) -> None:
    peers.merge(lane.back, acc)
    peers.give(lane.ahead, acc)


def _broadcast(peers: Peers, acc: Any, lane: Lane) -> None:
    peers.take(lane.ahead, acc)
    peers.give(lane.back, acc)


def _ring(peers: Peers, acc: Any, lane: Lane) -> None:
    """Send on what came, size - 1 times, so that all see every tensor; two buffers take turns."""
    tl, moving, spare = peers.tl, acc, None
    with tl.scope():
        for _ in range(lane.size - 1):
            peers.give(lane.ahead, moving)
            came = tl.recv(lane.back, acc.shape, acc.dtype, out=spare)
            peers.combine(acc, came, out=acc)
            moving, spare = came, (None if moving is acc else moving)


kernel = all_reduce_kernel(_exchange)
