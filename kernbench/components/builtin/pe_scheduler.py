"""The scheduler of a PE: commands go to their engine, composites are cut into tiles."""

import math
from collections import deque
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import simpy

from kernbench.common.dtypes import itemsize
from kernbench.common.messages import (
    STAGE_ENGINES,
    MsgBase,
    Region,
    Stage,
    StageType,
    TileToken,
    unserved,
)
from kernbench.common.pe_commands import CompositeCmd
from kernbench.components.base import ComponentBase, Process, Sim
from kernbench.errors import KernelError
from kernbench.topology.graph import Node

Tile = list[TileToken]
"""One tile: a token for each of its stages, in order."""


class Block(NamedTuple):
    """A piece of a memory that a tile reads or writes: contiguous, by its address."""

    space: str
    addr: int
    nbytes: int


class PeScheduler(ComponentBase):
    """Serves one composite at a time.

    What it merely hands on to an engine does not queue behind one.
    """

    serves = (CompositeCmd,)

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

    def run(self, env: simpy.Environment, msg: CompositeCmd) -> Process:
        """Feed the tiles in order, at most a window of them in flight; await all."""
        window = self.sim.graph.spec.pe.tile.window
        flying: deque[tuple[Tile, simpy.Process]] = deque()
        fed: simpy.Event | None = None
        tiles = self.sim.tiles
        tiles.known += math.prod(map(len, _tile_counts(msg)))
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
        for token in tile:
            stage = token.stage
            if stage.stage_type is StageType.FETCH:
                if behind is not None:
                    t0 = env.now
                    opened_by = yield behind
                    token.wait(stage.node, "operand", t0, env.now, opened_by)
                    if env.now > t0:
                        cause = opened_by
                fed.succeed(cause)
            yield from self.sim.components[stage.node]._forward_txn(env, token)
            cause = token

    def _tiles(self, msg: CompositeCmd) -> Iterator[Tile]:
        """The tiles of a composite in order m, n, k.

        A plan is made when it is its tile's turn. A tile has a token for each stage, so
        that the row of a token is that of one record.
        """
        for index in product(*_tile_counts(msg)):
            stages = self._plan(msg, index)
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

    def _plan(self, msg: CompositeCmd, index: tuple[int, ...]) -> tuple[Stage, ...]:
        """Stages of one tile; only the last of its K loop stores.

        A tile's DMA is modelled as contiguous from its first byte (docs/machine.md,
        "Composites and tiles").
        """
        step_m, step_n, step_k = msg.tile
        m0 = index[0] * step_m
        n0 = index[1] * step_n
        k0 = index[2] * step_k
        m = min(step_m, msg.m - m0)
        n = min(step_n, msg.n - n0)
        k = min(step_k, msg.k - k0)
        is_last = k0 + k == msg.k
        a = _stored_block(msg.a, m0, k0, m, k, msg.transpose_a)
        b = _stored_block(msg.b, k0, n0, k, n, msg.transpose_b)
        out = _block(msg.out, m0, n0, m, n)
        steps = [step for step in msg.epilogue if is_last or step.scope == "k_tile"]
        operands = [a, b]
        for step in steps:
            if step.operand is not None:
                operands.append(_operand_block(step.operand, m0, n0, m, n))
        reads = [block for block in operands if block.space == "hbm"]
        fetched = a.nbytes + b.nbytes
        plan: list[tuple[StageType, int, dict[str, Any]]] = []
        if reads:
            read = sum(block.nbytes for block in reads)
            plan.append((StageType.DMA_READ, read, _places(reads)))
        plan.append((StageType.FETCH, fetched, {}))
        plan.append((StageType.GEMM, fetched, {}))
        if steps:
            ops = [step.op for step in steps]
            plan.append((StageType.MATH, out.nbytes, {"ops": ops}))
        if is_last:
            plan.append((StageType.STORE, out.nbytes, {}))
            plan.append((StageType.DMA_WRITE, out.nbytes, _places([out])))
        place = {"origin": (m0, n0, k0), "extent": (m, n, k)}
        return tuple(
            Stage(stage, self._stage_nodes[stage], {**place, "nbytes": nbytes, **more})
            for stage, nbytes, more in plan
        )


def _block(region: Region, row: int, col: int, rows: int, cols: int) -> Block:
    """A block of a region of at most two axes, as one piece from its first byte."""
    size = itemsize(region.dtype)
    pitch = region.shape[-1] if region.shape else 1
    addr = region.addr + (row * pitch + col) * size
    return Block(region.space, addr, rows * cols * size)


def _stored_block(
    region: Region, row: int, col: int, rows: int, cols: int, transposed: bool
) -> Block:
    """As ``_block``, of a matrix that may be stored as its transpose."""
    if transposed:
        return _block(region, col, row, cols, rows)
    return _block(region, row, col, rows, cols)


def _operand_block(operand: Region, m0: int, n0: int, m: int, n: int) -> Block:
    """The part of an epilogue operand that a tile needs: an axis of 1 is broadcast."""
    all_rows, all_cols = (1, 1, *operand.shape)[-2:]
    row = 0
    rows = 1
    if all_rows > 1:
        row = m0
        rows = m
    col = 0
    cols = 1
    if all_cols > 1:
        col = n0
        cols = n
    return _block(operand, row, col, rows, cols)


def _places(blocks: list[Block]) -> dict[str, Any]:
    """The blocks that a DMA stage moves, as its record has them."""
    return {
        "spaces": [block.space for block in blocks],
        "addrs": [block.addr for block in blocks],
        "sizes": [block.nbytes for block in blocks],
    }


def _tile_counts(msg: CompositeCmd) -> list[range]:
    """The indices of a composite's tiles along m, n and k."""
    counts = []
    for size, step in zip((msg.m, msg.n, msg.k), msg.tile, strict=True):
        counts.append(range(-(-size // step)))
    return counts
