"""The GEMM array of a PE: weight-stationary, R x C MACs."""

import simpy

from kernbench.common.messages import MsgBase, TileToken
from kernbench.common.pe_commands import GemmCmd
from kernbench.components.base import ComponentBase, Process, Sim
from kernbench.topology.graph import Node


def cold_cycles(m: int, k: int, n: int, rows: int, cols: int) -> int:
    """Cycles of a GEMM that finds the array empty (SCALE-Sim, weight stationary).

    Each of the ceil(k/R) * ceil(n/C) folds loads its weights (R), and streams m rows
    through (R + C + m - 2).
    """
    return _folds(k, n, rows, cols) * (2 * rows + cols + m - 2)


def streaming_cycles(m: int, k: int, n: int, rows: int, cols: int) -> int:
    """Cycles of a tile behind another of its composite.

    The next weights load while rows stream, so a fold takes the longer of the two.
    """
    return _folds(k, n, rows, cols) * max(m, rows)


def _folds(k: int, n: int, rows: int, cols: int) -> int:
    """How often the array is filled with weights: ceil(k/R) * ceil(n/C)."""
    return -(-k // rows) * -(-n // cols)


class PeGemm(ComponentBase):
    """Serves dots and the GEMM stage of tiles, one at a time.

    A tile streams when the array ended the tile before it, of the same composite, in
    the same instant; a gap drains the array, and the next tile is cold.
    """

    serves = (GemmCmd, TileToken)

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        self._last: MsgBase | None = None
        self._free_since = -1.0

    def run(self, env: simpy.Environment, msg: GemmCmd | TileToken) -> Process:
        """Pay the cycles of one GEMM."""
        owner: MsgBase
        if isinstance(msg, TileToken):
            m, n, k = msg.stage.params["extent"]
            owner = msg.composite
        else:
            m = msg.m
            k = msg.k
            n = msg.n
            owner = msg
        streams = owner is self._last and env.now == self._free_since
        cycles_of = streaming_cycles if streams else cold_cycles
        pe = self.sim.graph.spec.pe
        cycles = cycles_of(m, k, n, pe.gemm.rows, pe.gemm.cols)
        yield env.timeout(cycles / pe.clock_ghz)
        self._last = owner
        self._free_since = env.now
