"""FETCH and STORE of tiles: TCM to the array and back, at the bandwidth of the TCM."""

import simpy

from kernbench.common.messages import StageType, TileToken
from kernbench.components.base import ComponentBase, Process
from kernbench.components.builtin.pe_tcm import PeTcm

_FETCH = 0
_STORE = 1


class PeFetchStore(ComponentBase):
    """One fetch and one store at a time."""

    serves = (TileToken,)
    channels = 2

    def channel(self, msg: TileToken) -> int:
        """Fetches and stores do not wait for each other."""
        return _FETCH if msg.stage.stage_type is StageType.FETCH else _STORE

    def run(self, env: simpy.Environment, msg: TileToken) -> Process:
        """Bytes / bandwidth of the channel, behind whoever has it."""
        tcm = self.sibling("pe_tcm", PeTcm)
        is_fetch = self.channel(msg) == _FETCH
        wire = tcm.read_channel if is_fetch else tcm.write_channel
        nbytes = msg.stage.params["nbytes"]
        start = wire.enter(env.now, nbytes)
        yield env.timeout(start + nbytes / wire.bytes_per_ns - env.now)
