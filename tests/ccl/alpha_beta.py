"""What the all-reduces should cost: alpha-beta-gamma formulas over messages measured
alone.

A hop of n bytes takes alpha + n beta while it fits the receiver's ring, and for each
ring more what a credit's round trip takes; these three come from messages of one pair
of PEs on the idle machine. Reducing n bytes takes gamma(n), from the spec of the MATH
unit. T0 is what the load and the store of a row take.
"""

from dataclasses import dataclass

import numpy as np
from ccl_machines import engine_of, timed

from kernbench.common.dtypes import itemsize
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.torch import Torch

SLOT = 4096
RING = 16384
PCIE_GBS = 63
LANES = 64
PIECE = 4096  # of the chunks of ring_chunked_allreduce


@dataclass(frozen=True)
class Hop:
    """alpha in ns, beta in ns a byte, and the ns that a full ring more takes."""

    alpha: float
    beta: float
    round_trip: float

    @classmethod
    def measured(cls, send):
        """From send(nbytes) -> ns of a slot, a ring and two rings."""
        slot, ring, two = (send(nbytes) for nbytes in (SLOT, RING, 2 * RING))
        beta = (ring - slot) / (RING - SLOT)
        return cls(slot - SLOT * beta, beta, two - ring)

    def __call__(self, nbytes):
        rings = max(nbytes / RING - 1, 0)
        return self.alpha + min(nbytes, RING) * self.beta + rings * self.round_trip


def gamma(nbytes, dtype):
    """The MATH unit: elements / lanes, its latency, and the issue of the call."""
    return -(-nbytes // itemsize(dtype) // LANES) + 4 + 1


class Model:
    """The hops of one machine, and from them the time of each algorithm."""

    def __init__(self, cache, mesh, dtype="f16"):
        self.cache = cache
        self.mesh = mesh
        self.dtype = dtype
        x, y = mesh
        self.inside = Hop.measured(lambda n: message_ns(cache, 1, mesh, 0, "E", "W", n))
        root = x * y - 1
        across = ("global_E", "global_W")
        self.across = Hop.measured(
            lambda n: message_ns(cache, 2, mesh, root, *across, n)
        )

    def t0(self, n_elem):
        """Of the load and the store: an all-reduce of one cube."""
        alone = np.zeros((1, 1, n_elem))
        args = (self.cache, "intercube_allreduce", "ring_1d", (1, 1))
        return timed(alone, self.dtype, *args).ns

    def intercube_allreduce(self, topology, shape, n_elem):
        """2 (X + Y - 2) hops of the whole tensor, and those between the root cubes."""
        nbytes = n_elem * itemsize(self.dtype)
        steps = sum(self.mesh) - 2
        h = self.inside(nbytes)
        g = gamma(nbytes, self.dtype)
        across = self.across(nbytes)
        between = sum(shape) - 2
        moves = (
            2 if topology == "mesh_2d_no_wrap" else 1
        )  # reduce and broadcast, or round and round
        return self.t0(n_elem) + steps * (2 * h + g) + between * (moves * across + g)

    def ring_chunked_allreduce(self, topology, shape, n_elem):
        """2 (N - 1) hops of 1/N; between SIPs N owners share a PCIe link."""
        nbytes = n_elem * itemsize(self.dtype)
        cubes = self.mesh[0] * self.mesh[1]
        chunk = nbytes / cubes
        piece = min(chunk, PIECE)
        more = chunk / piece - 1
        h = self.inside(piece)
        g = gamma(piece, self.dtype)
        scatter = h + g + more * max(piece * self.inside.beta, g)
        gather = h + more * piece * self.inside.beta
        total = self.t0(n_elem) + (cubes - 1) * (scatter + gather)
        for size in shape:
            chunk /= size
            step = max(self.across(chunk), cubes * chunk / PCIE_GBS)
            total += (size - 1) * (2 * step + gamma(chunk, self.dtype))
        return total


def message_ns(cache, sips, mesh, cube, way, back, nbytes):
    """From the send of one message to the end of its recv, on an idle machine."""
    engine = engine_of(cache, sips, "ring_1d", mesh)

    def kernel(ptr, tl):
        place = (tl.program_id(2), tl.program_id(1))
        if place == (0, cube):
            tl.send(way, tl.full((nbytes,), 0, "u8"), wait=False)
        elif place == receiver:
            tl.recv(back, (nbytes,), "u8")

    graph = engine.graph
    ipcq = engine.sim.component(engine.graph.at(0, cube, 0, "pe_ipcq"))
    peer = graph.nodes[ipcq.peers[way]]
    receiver = (peer.sip, peer.cube)
    torch = Torch(engine)

    def bench(_):
        dp = DPPolicy("row_wise", "replicate", num_pes=1)
        rows = torch.empty((sips * mesh[0] * mesh[1], 1), "u8", dp)
        torch.launch("message", kernel, rows)

    engine.run(bench)
    sent = min(r.t_end for r in engine.op_log if r.op_name == "full")
    return max(r.t_end for r in engine.op_log if r.op_name == "ipcq_recv") - sent
