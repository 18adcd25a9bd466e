"""The GEMM array of a PE: R x C MACs, in one of three dataflows.

Owns the cycles of a product (docs/machine.md, "GEMM"). The formulas are SCALE-Sim's
(Samajdar et al., ISPASS 2020, equation 3).
"""

from typing import NamedTuple

import simpy

from kernbench.common.dtypes import dtype
from kernbench.common.exact_time import cycles_ns, exact_ns
from kernbench.common.messages import MsgBase, Region, TileToken
from kernbench.common.pe_commands import GemmCmd, ProductCmd
from kernbench.components.base import ComponentBase, Process, Sim
from kernbench.components.builtin.pe_tcm import PeTcm, tcm_bytes
from kernbench.topology.graph import Node

Shape = tuple[int, int, int]
"""m, n and k of a product: the order of a tile's extent."""


class Folds(NamedTuple):
    """How often the array is filled, and the vectors that stream through each time."""

    number: int
    vectors: int


def folds(m: int, k: int, n: int, rows: int, cols: int, dataflow: str = "ws") -> Folds:
    """The folds of a product on an array of ``rows`` x ``cols``.

    What stays in the array lies along its rows and columns: k x n weights, m x n
    outputs, or k x m inputs. The third extent is the time.
    """
    along_rows, along_cols, vectors = {
        "ws": (k, n, m),
        "os": (m, n, k),
        "is": (k, m, n),
    }[dataflow]
    number = -(-along_rows // rows) * -(-along_cols // cols)
    return Folds(number, vectors)


def cold_cycles(
    m: int, k: int, n: int, rows: int, cols: int, dataflow: str = "ws"
) -> int:
    """Cycles of a dot on an idle array (SCALE-Sim): every fold fills it anew.

    A fold of T vectors loads what stays, or drains it (R), and streams the vectors
    through (R + C + T - 2).
    """
    number, vectors = folds(m, k, n, rows, cols, dataflow)
    return number * (2 * rows + cols + vectors - 2)


def streaming_cycles(
    m: int, k: int, n: int, rows: int, cols: int, dataflow: str = "ws"
) -> int:
    """Cycles of a tile behind another of its composite.

    The array is filled for the next fold while vectors stream, so a fold takes the
    longer of the two.
    """
    number, vectors = folds(m, k, n, rows, cols, dataflow)
    return number * max(vectors, rows)


def first_tile_cycles(
    m: int, k: int, n: int, rows: int, cols: int, dataflow: str = "ws"
) -> int:
    """Cycles of a tile that finds the array idle.

    Its first fold is cold, and the others stream behind it.
    """
    number, vectors = folds(m, k, n, rows, cols, dataflow)
    first = 2 * rows + cols + vectors - 2
    return first + (number - 1) * max(vectors, rows)


class PeGemm(ComponentBase):
    """Serves dots and the GEMM stage of tiles, one at a time.

    A tile streams when the array ended the tile before it, of the same composite, in
    the same instant; a gap drains the array, and the next tile is cold. A dot that
    queued behind another fills the array as far as it can meanwhile.
    """

    serves = (GemmCmd, TileToken)

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        pe = sim.graph.spec.pe
        self._spec = pe.gemm
        self._clock_ghz = pe.clock_ghz
        self._overhead_ns = exact_ns(pe.gemm.overhead_ns)
        self._last: MsgBase | None = None
        self._free_since = -1.0
        self._composite: MsgBase | None = None
        self._tile_ns: dict[tuple[Shape, bool], float] = {}

    def run(self, env: simpy.Environment, msg: GemmCmd | TileToken) -> Process:
        """Pay the cycles of one GEMM."""
        owner: MsgBase
        if isinstance(msg, TileToken):
            owner = msg.composite
            duration = self._duration_of_tile(env._now, msg)
        else:
            owner = msg
            duration = self._duration_of_dot(env.now, msg)
        yield env.timeout(duration)
        self._last = owner
        self._free_since = env._now

    def _duration_of_tile(self, now: float, token: TileToken) -> float:
        """How long a tile takes, ns; once a composite that costs the overhead too."""
        composite = token.composite
        if composite is not self._composite:
            self._composite = composite
            self._tile_ns = {}
        extent = token.stage.params["extent"]
        streams = composite is self._last and now == self._free_since
        duration = self._tile_ns.get((extent, streams))
        if duration is None:
            m, n, k = extent
            cycles_of = streaming_cycles if streams else first_tile_cycles
            cycles = cycles_of(m, k, n, *self._array(composite))
            duration = self._ns(cycles, composite)
            self._tile_ns[extent, streams] = duration
        if self._overhead_ns and not any(token.index):
            duration += self._overhead_ns
        return duration

    def _duration_of_dot(self, now: float, dot: GemmCmd) -> float:
        """How long a dot takes, ns: its folds, or longer if its TCM is slower."""
        cycles = cold_cycles(dot.m, dot.k, dot.n, *self._array(dot))
        work_ns = self._ns(cycles, dot) - self._filled_ns(now, dot)
        reads, writes = dot.regions()
        tcm = self.sibling("pe_tcm", PeTcm)
        end = tcm.stream(now, tcm_bytes(reads), tcm_bytes(writes), work_ns)
        return end - now + self._overhead_ns

    def _filled_ns(self, now: float, dot: GemmCmd) -> float:
        """For how long a dot has filled the array behind the dot before it, ns.

        It can do so while it waits for that dot, if what it fills the array with is not
        that dot's result.
        """
        before = self._last
        if not isinstance(before, GemmCmd) or now != self._free_since:
            return 0.0
        if any(_overlap(before.out, region) for region in self._needed_early(dot)):
            return 0.0
        for node, _, since, until, _ in reversed(dot.waits):
            if node == self.node.id and until == now:
                waited = now - max(since, before.t_start)
                return min(waited, self._ns(self._spec.rows, dot))
        return 0.0

    def _needed_early(self, dot: GemmCmd) -> tuple[Region, ...]:
        """The operands that a dot needs before the one before it has ended.

        While outputs of one dot drain, the next one streams both of its operands.
        """
        dataflow = dot.dataflow or self._spec.dataflow
        return {"ws": (dot.b,), "os": (dot.a, dot.b), "is": (dot.a,)}[dataflow]

    def _array(self, product: MsgBase) -> tuple[int, int, str]:
        """Rows, columns and the dataflow that a product asks for."""
        dataflow = getattr(product, "dataflow", "") or self._spec.dataflow
        return self._spec.rows, self._spec.cols, dataflow

    def _ns(self, cycles: int, product: MsgBase) -> float:
        """How long so many cycles take in the dtype of a product."""
        rate = 1.0
        if isinstance(product, ProductCmd):
            rate = getattr(self._spec.rate, dtype(product.a.dtype).rate)
        return cycles_ns(cycles, self._clock_ghz * rate)


def _overlap(a: Region, b: Region) -> bool:
    """Whether two regions share a byte."""
    if a.space != b.space:
        return False
    return a.addr < b.addr + b.nbytes and b.addr < a.addr + a.nbytes
