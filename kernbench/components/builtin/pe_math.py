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
        """ceil(elements / lanes) * cost(op) + latency, summed over the steps of a tile's epilogue.

        Elements are the larger of input and output (simulator.md section 5).
        """
        if isinstance(msg, TileToken):
            m, n, _ = msg.stage.params["extent"]
            steps = [(m * n, op) for op in msg.stage.params["ops"]]
        else:
            shapes = [region.shape for region in (*msg.inputs, msg.out)]
            steps = [(max(prod(shape) for shape in shapes), msg.op)]
        math = self.sim.graph.spec.pe.math
        cycles = sum(
            -(-elements // math.lanes) * cost_cycles(op) + math.latency_cycles
            for elements, op in steps
        )
        yield env.timeout(cycles / self.sim.graph.spec.pe.clock_ghz)
