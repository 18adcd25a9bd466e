"""The IO CPU of a SIP: hands a launch on to the M_CPU of every cube that takes part."""

import simpy

from kernbench.common.messages import LaunchMsg
from kernbench.components.base import ComponentBase, Process
from kernbench.components.builtin.pcie_ep import LAUNCH_BYTES


class IoCpu(ComponentBase):
    """Fans out to all at once; its own time is the overhead that the launch's header has paid."""

    serves = (LaunchMsg,)

    def targets(self, msg: LaunchMsg) -> list[str]:
        """The nodes that it hands ``msg`` on to."""
        sip = self.node.sip
        cubes = sorted({place[1] for place in msg.pes if place[0] == sip})
        return [self.sim.resolver.find_m_cpu(sip, cube) for cube in cubes]

    def run(self, env: simpy.Environment, msg: LaunchMsg) -> Process:
        """Send; the launch does not wait here for its targets."""
        for node_id in self.targets(msg):
            env.process(self.sim.deliver(msg, self.node.id, node_id, LAUNCH_BYTES))
        yield env.timeout(0)
