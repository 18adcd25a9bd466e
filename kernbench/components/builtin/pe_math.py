"""The MATH unit of a PE: lanes that work elementwise, with a pipeline latency."""

from math import prod

import simpy

from kernbench.common.messages import TileToken
from kernbench.common.pe_commands import MathCmd
from kernbench.components.base import ComponentBase, Process
from kernbench.sim_engine.numpy_ops import cost_cycles


class PeMath(ComponentBase):
    """Serves MathCmds and the MATH stage of tiles, one at a time."""

    serves = (MathCmd, TileToken)

    def run(self, env: simpy.Environment, msg: MathCmd | TileToken) -> Process:
        """Pay ceil(elements / lanes) * cost(op) + latency, in cycles.

        Elements are the larger of input and output (docs/machine.md, "MATH"). The steps
        of a tile's epilogue follow one another.
        """
        if isinstance(msg, TileToken):
            m, n, _ = msg.stage.params["extent"]
            cycles = sum(self._cycles(m * n, op) for op in msg.stage.params["ops"])
        else:
            shapes = [region.shape for region in (*msg.inputs, msg.out)]
            elements = max(prod(shape) for shape in shapes)
            cycles = self._cycles(elements, msg.op)
        yield env.timeout(cycles / self.sim.graph.spec.pe.clock_ghz)

    def _cycles(self, elements: int, op: str) -> int:
        """Cycles of one op on so many elements."""
        math = self.sim.graph.spec.pe.math
        passes = -(-elements // math.lanes)
        return passes * cost_cycles(op) + math.latency_cycles
