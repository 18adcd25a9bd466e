"""The IO CPU of a SIP: hands a launch on to the M_CPU of every cube that takes part."""

from __future__ import annotations

import simpy

from kernbench.common.messages import LaunchMsg, Transaction
from kernbench.components.base import ComponentBase, Process
from kernbench.components.builtin.pcie_ep import LAUNCH_BYTES


class IoCpu(ComponentBase):
    """Fans out; its own time is the overhead that the launch's header has paid."""

    serves = (LaunchMsg,)

    def run(self, env: simpy.Environment, msg: LaunchMsg) -> Process:
        """Send to all cubes at once; the launch does not wait here for them."""
        for cube in sorted({cube for sip, cube, _ in msg.pes if sip == self.node.sip}):
            env.process(self._deliver(env, msg, self.sim.resolver.find_m_cpu(self.node.sip, cube)))
        yield env.timeout(0)

    def _deliver(self, env: simpy.Environment, msg: LaunchMsg, m_cpu: str) -> Process:
        path = self.sim.router.route("node", self.node.id, m_cpu)
        yield from self.sim.transfer(Transaction(path=path, nbytes=LAUNCH_BYTES, owner=msg))
        yield from self.sim.component(m_cpu)._forward_txn(env, msg)
