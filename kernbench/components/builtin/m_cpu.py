"""The M_CPU of a cube: hands a launch on to the PE_CPU of every PE of the cube that takes part."""

from __future__ import annotations

import simpy

from kernbench.common.messages import LaunchMsg, Transaction
from kernbench.components.base import ComponentBase, Process
from kernbench.components.builtin.pcie_ep import LAUNCH_BYTES


class MCpu(ComponentBase):
    """Fans out; its own time is the overhead that the launch's header has paid."""

    serves = (LaunchMsg,)

    def run(self, env: simpy.Environment, msg: LaunchMsg) -> Process:
        """Send to all PEs at once; the launch does not wait here for them."""
        here = (self.node.sip, self.node.cube)
        for sip, cube, pe in msg.pes:
            if (sip, cube) == here:
                pe_cpu = self.sim.graph.at(sip, cube, pe, "pe_cpu")
                env.process(self._deliver(env, msg, pe_cpu))
        yield env.timeout(0)

    def _deliver(self, env: simpy.Environment, msg: LaunchMsg, pe_cpu: str) -> Process:
        path = self.sim.router.route("node", self.node.id, pe_cpu)
        yield from self.sim.transfer(Transaction(path=path, nbytes=LAUNCH_BYTES, owner=msg))
        yield from self.sim.component(pe_cpu)._forward_txn(env, msg)
