"""The IO CPU of a SIP, where a launch parts to the M_CPUs of its cubes."""

from typing import Any, ClassVar

import simpy

from kernbench.common.messages import LaunchMsg
from kernbench.components.base import ComponentBase, Process


class IoCpu(ComponentBase):
    """Its own time is the overhead that the header of the launch has paid."""

    serves: ClassVar[tuple[type[Any], ...]] = (LaunchMsg,)

    def run(self, env: simpy.Environment, msg: LaunchMsg) -> Process:
        """No more time; ``kernbench/components/launches.py`` hands the launch on."""
        yield env.timeout(0)
