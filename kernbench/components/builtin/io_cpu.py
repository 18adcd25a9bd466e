"""The IO CPU of a SIP: hands a launch on to the M_CPU of every cube that takes part."""

from typing import ClassVar

import simpy

from kernbench.common.messages import LaunchMsg, MsgBase, Transaction
from kernbench.components.base import ComponentBase, Process
from kernbench.components.builtin.pcie_ep import LAUNCH_BYTES


class IoCpu(ComponentBase):
    """Fans out to all at once.

    Its own time is the overhead that the header of the launch has paid.
    """

    serves: ClassVar[tuple[type[MsgBase], ...]] = (LaunchMsg,)

    def targets(self, msg: LaunchMsg) -> list[str]:
        """The nodes that it hands ``msg`` on to."""
        here = self.node.sip
        cubes = {cube for sip, cube, _ in msg.pes if sip == here}
        return [self.sim.resolver.find_m_cpu(here, cube) for cube in sorted(cubes)]

    def run(self, env: simpy.Environment, msg: LaunchMsg) -> Process:
        """Send; the launch does not wait here for its targets."""
        for node_id in self.targets(msg):
            env.process(self._hand_on(env, msg, node_id))
        yield env.timeout(0)

    def _hand_on(self, env: simpy.Environment, msg: LaunchMsg, node_id: str) -> Process:
        """Carry the launch to a node, over command edges, and have it served there."""
        path = self.sim.router.find_node_path(self.node.id, node_id)
        yield from self.sim.transfer(Transaction(tuple(path), LAUNCH_BYTES, msg))
        yield from self.sim.component(node_id)._forward_txn(env, msg)
