"""The IO CPU of a SIP: hands a launch on to the M_CPU of every cube that takes part."""

import simpy

from kernbench.common.messages import LaunchMsg
from kernbench.components.base import ComponentBase, Process
from kernbench.components.builtin.pcie_ep import LAUNCH_BYTES


class IoCpu(ComponentBase):
    """Fans out to all at once.

    Its own time is the overhead that the header of the launch has paid.
    """

    serves = (LaunchMsg,)

    def targets(self, msg: LaunchMsg) -> list[str]:
        """The nodes that it hands ``msg`` on to."""
        here = self.node.sip
        cubes = {cube for sip, cube, _ in msg.pes if sip == here}
        return [self.sim.resolver.find_m_cpu(here, cube) for cube in sorted(cubes)]

    def run(self, env: simpy.Environment, msg: LaunchMsg) -> Process:
        """Send; the launch does not wait here for its targets."""
        for node_id in self.targets(msg):
            env.process(self.sim.deliver(msg, self.node.id, node_id, LAUNCH_BYTES))
        yield env.timeout(0)
