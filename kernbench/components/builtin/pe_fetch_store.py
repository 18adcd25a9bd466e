"""FETCH and STORE of tiles: TCM to the array and back, at the bandwidth of the TCM."""

from functools import cached_property

import simpy

from kernbench.common.exact_time import bytes_ns
from kernbench.common.messages import StageType, TileToken
from kernbench.components.base import ComponentBase, Process
from kernbench.components.builtin.pe_tcm import PeTcm

_FETCH = 0
_STORE = 1


class PeFetchStore(ComponentBase):
    """One fetch and one store at a time."""

    serves = (TileToken,)
    channels = 2

    @cached_property
    def _tcm(self) -> PeTcm:
        """The TCM of the same PE."""
        return self.sibling("pe_tcm", PeTcm)

    def channel(self, msg: TileToken) -> int:
        """Fetches and stores do not wait for each other."""
        return _FETCH if msg.stage.stage_type is StageType.FETCH else _STORE

    def run(self, env: simpy.Environment, msg: TileToken) -> Process:
        """Bytes / bandwidth of the channel, behind whoever has it."""
        tcm = self._tcm
        stage = msg.stage
        is_fetch = stage.stage_type is StageType.FETCH
        wire = tcm.read_channel if is_fetch else tcm.write_channel
        taken_ns = bytes_ns(stage.params["nbytes"], wire.bytes_per_ns)
        now: float = env._now  # the property costs a Python call
        yield env.timeout(wire.take(now, taken_ns) + taken_ns - now)
