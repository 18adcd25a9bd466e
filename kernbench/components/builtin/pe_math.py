"""The MATH unit of a PE: lanes that work elementwise, with a pipeline latency."""

from collections.abc import Iterable
from math import prod

import simpy

from kernbench.common.dtypes import dtype
from kernbench.common.exact_time import cycles_ns
from kernbench.common.messages import MsgBase, Region, TileToken
from kernbench.common.pe_commands import CompositeCmd, MathCmd
from kernbench.components.base import ComponentBase, Process, Sim
from kernbench.components.builtin.pe_tcm import PeTcm, tcm_bytes
from kernbench.sim_engine.numpy_ops import cost_cycles
from kernbench.topology.graph import Node


class PeMath(ComponentBase):
    """Serves MathCmds and the MATH stage of tiles, one at a time."""

    serves = (MathCmd, TileToken)

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        self._composite: MsgBase | None = None
        self._rate = 1.0
        self._tile_ns: dict[tuple[int, tuple[str, ...]], float] = {}

    def run(self, env: simpy.Environment, msg: MathCmd | TileToken) -> Process:
        """Pay ceil(elements / lanes) * cost(op) / rate + latency, in cycles.

        Elements are the larger of input and output (docs/machine.md, "MATH"). The steps
        of a tile's epilogue follow one another.
        """
        if isinstance(msg, TileToken):
            duration = self._duration_of_tile(msg)
        else:
            duration = self._duration_of_op(env.now, msg)
        yield env.timeout(duration)

    def _duration_of_tile(self, token: TileToken) -> float:
        """How long the MATH stage of a tile takes, ns: its steps, one by one."""
        composite = token.composite
        if composite is not self._composite:
            self._composite = composite
            self._rate = self._slowest(_dtypes(composite))
            self._tile_ns = {}
        params = token.stage.params
        m, n, _ = params["extent"]
        ops = tuple(params["ops"])
        duration = self._tile_ns.get((m * n, ops))
        if duration is None:
            duration = sum(self._work_ns(m * n, op, self._rate) for op in ops)
            self._tile_ns[m * n, ops] = duration
        return duration

    def _duration_of_op(self, now: float, msg: MathCmd) -> float:
        """How long an op takes, ns: its work, or longer if its TCM is slower."""
        reads, writes = msg.regions()
        elements = max(prod(region.shape) for region in (*reads, *writes))
        rate = self._slowest(region.dtype for region in (*reads, *writes))
        work_ns = self._work_ns(elements, msg.op, rate)
        tcm = self.sibling("pe_tcm", PeTcm)
        return tcm.stream(now, tcm_bytes(reads), tcm_bytes(writes), work_ns) - now

    def _work_ns(self, elements: int, op: str, rate: float) -> float:
        """How long one op on so many elements takes, ns."""
        pe = self.sim.graph.spec.pe
        passes = -(-elements // pe.math.lanes)
        cycles = passes * cost_cycles(op) / rate + pe.math.latency_cycles
        return cycles_ns(cycles, pe.clock_ghz)

    def _slowest(self, dtypes: Iterable[str]) -> float:
        """The rate of the slowest of some dtypes; 1 where there are none."""
        rates = self.sim.graph.spec.pe.math.rate
        return min((getattr(rates, dtype(name).rate) for name in dtypes), default=1.0)


def _dtypes(composite: MsgBase) -> list[str]:
    """The dtypes that the MATH stage of a composite's tiles works on.

    An epilogue works on the accumulator.
    """
    reads, writes = composite.regions()
    if not isinstance(composite, CompositeCmd):
        return [region.dtype for region in (*reads, *writes)]
    operands: list[Region] = [
        step.operand for step in composite.epilogue if step.operand is not None
    ]
    return [composite.dtype_acc, *(region.dtype for region in operands)]
