"""The M_CPU of a cube: hands a launch on to the PE_CPU of every PE that takes part."""

from kernbench.common.messages import LaunchMsg
from kernbench.components.builtin.io_cpu import IoCpu


class MCpu(IoCpu):
    """Fans out as an IO CPU does, to PEs."""

    def targets(self, msg: LaunchMsg) -> list[str]:
        """The nodes that it hands ``msg`` on to."""
        here = (self.node.sip, self.node.cube)
        return [self.sim.graph.at(*pe, "pe_cpu") for pe in msg.pes if pe[:2] == here]
