"""The scheduler of a PE: commands go to their engine, composites are cut into tiles."""

from collections import deque
from collections.abc import Iterator

import simpy

from kernbench.common.messages import (
    STAGE_ENGINES,
    MsgBase,
    StageType,
    TileToken,
    unserved,
)
from kernbench.common.pe_commands import CompositeCmd, CompositeMathCmd
from kernbench.components.base import ComponentBase, Process, Sim
from kernbench.components.builtin.tile_plans import Composite, tile_count, tile_plans
from kernbench.errors import KernelError
from kernbench.topology.graph import Node

Tile = list[TileToken]
"""One tile: a token for each of its stages, in order."""


class PeScheduler(ComponentBase):
    """Serves one composite at a time.

    What it merely hands on to an engine does not queue behind one.
    """

    serves = (CompositeCmd, CompositeMathCmd)

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        self._stage_nodes = {
            stage: sim.graph.at(*node.place, engine)
            for stage, engine in STAGE_ENGINES.items()
        }

    def dispatch(self, msg: MsgBase) -> simpy.Process:
        """Start serving a command; the process ends when the command has.

        Its class says which engine serves it (``register_command``). KernelError if
        none does.
        """
        engine = getattr(msg, "served_by", "")
        if not engine:
            raise KernelError(f"{self.node.id}: {unserved(msg)}")
        sim = self.sim
        server = sim.component(sim.graph.at(*self.node.place, engine))
        return sim.env.process(server._forward_txn(sim.env, msg))

    def run(self, env: simpy.Environment, msg: Composite) -> Process:
        """Feed the tiles in order, at most a window of them in flight; await all."""
        window = self.sim.graph.spec.pe.tile.window
        flying: deque[tuple[Tile, simpy.Process]] = deque()
        fed: simpy.Event | None = None
        tiles = self.sim.tiles
        tiles.known += tile_count(msg)
        for tile in self._tiles(msg):
            tiles.begun += 1
            if len(flying) == window:
                oldest, process = flying.popleft()
                t0 = env.now
                yield process
                tile[0].wait(self.node.id, "window", t0, env.now, oldest[-1])
            behind = fed
            fed = env.event()
            flying.append((tile, env.process(self._flow(env, tile, behind, fed))))
        for _, process in flying:
            yield process

    def _flow(
        self,
        env: simpy.Environment,
        tile: Tile,
        behind: simpy.Event | None,
        fed: simpy.Event,
    ) -> Process:
        """Take a tile through its plan; it enters FETCH behind the tile before it.

        So tiles reach the array in program order, and the accumulator of a K loop can
        stay there. ``behind`` and ``fed`` carry the op whose end let the tiles go on.
        """
        cause: MsgBase | None = None
        for token, stage in zip(tile, tile[0].stages, strict=True):
            if stage.stage_type is StageType.FETCH:
                if behind is not None:
                    t0 = env._now  # the property costs a Python call
                    opened_by = yield behind
                    until = env._now
                    token.wait(stage.node, "operand", t0, until, opened_by)
                    if until > t0:
                        cause = opened_by
                fed.succeed(cause)
            yield from self.sim.components[stage.node]._forward_txn(env, token)
            cause = token

    def _tiles(self, msg: Composite) -> Iterator[Tile]:
        """The tiles of a composite in order m, n, k.

        A plan is made when it is its tile's turn. A tile has a token for each stage, so
        that the row of a token is that of one record.
        """
        for index, stages in tile_plans(msg, self._stage_nodes):
            yield [
                TileToken(
                    cmd=msg.cmd,
                    resumed_by=msg.resumed_by,
                    composite=msg,
                    index=index,
                    stages=stages,
                    stage_idx=stage_idx,
                )
                for stage_idx in range(len(stages))
            ]
