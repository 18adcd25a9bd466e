"""The scheduler of a PE: commands go to their engine, composites are cut into tiles."""

import math
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any, TypeAlias

import simpy

from kernbench.common.dtypes import itemsize
from kernbench.common.messages import (
    STAGE_ENGINES,
    MsgBase,
    Region,
    Stage,
    StageType,
    TileToken,
    as_matrix,
    unserved,
)
from kernbench.common.pe_commands import CompositeCmd, CompositeMathCmd
from kernbench.common.rows import Rows
from kernbench.components.base import ComponentBase, Process, Sim
from kernbench.components.builtin.blocks import Block, params_of_blocks
from kernbench.errors import KernelError
from kernbench.topology.graph import Node

_itemsize = lru_cache(maxsize=1024)(itemsize)

Tile = list[TileToken]
"""One tile: a token for each of its stages, in order."""

Composite: TypeAlias = CompositeCmd | CompositeMathCmd

Box: TypeAlias = tuple[int, int, int]
"""The origin or the extent of a tile, or its index, along m, n and k."""

Plan: TypeAlias = list[tuple[StageType, int, dict[str, Any]]]
"""The stages of a tile: what, how many bytes, and further params."""


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
        for m, n, k in product(*_tile_counts(msg)):
            index = (m, n, k)
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

    def _plan(self, msg: Composite, index: Box) -> tuple[Stage, ...]:
        """Stages of one tile."""
        origin = []
        extent = []
        for at, step, size in zip(index, msg.tile, (msg.m, msg.n, msg.k), strict=True):
            origin.append(at * step)
            extent.append(min(step, size - at * step))
        m0, n0, k0 = origin
        m, n, k = extent
        if isinstance(msg, CompositeMathCmd):
            plan = _math_plan(msg, (m0, n0, k0), (m, n, k))
        else:
            plan = _gemm_plan(msg, (m0, n0, k0), (m, n, k))
        place = {"origin": (m0, n0, k0), "extent": (m, n, k)}
        nodes = self._stage_nodes
        return tuple(
            [
                Stage(stage, nodes[stage], {**place, "nbytes": nbytes, **more})
                for stage, nbytes, more in plan
            ]
        )


def _gemm_plan(msg: CompositeCmd, origin: Box, extent: Box) -> Plan:
    """The stages of a tile of a product; only the last of its K loop stores."""
    m0, n0, k0 = origin
    m, n, k = extent
    is_last = k0 + k == msg.k
    a = _stored_block(msg.a, m0, k0, m, k, msg.transpose_a)
    b = _stored_block(msg.b, k0, n0, k, n, msg.transpose_b)
    steps = [step for step in msg.epilogue if is_last or step.scope == "k_tile"]
    operands = [a, b]
    for step in steps:
        if step.operand is not None:
            operands.append(_operand_block(step.operand, m0, n0, m, n))
    fetched = a.nbytes + b.nbytes
    plan = _read(operands)
    plan.append((StageType.FETCH, fetched, {}))
    plan.append((StageType.GEMM, fetched, {}))
    if steps or is_last:
        out = _block(msg.out, m0, n0, m, n)
    if steps:
        ops = [step.op for step in steps]
        plan.append((StageType.MATH, out.nbytes, {"ops": ops}))
    if is_last:
        plan += _stored(out)
    return plan


def _math_plan(msg: CompositeMathCmd, origin: Box, extent: Box) -> Plan:
    """The stages of a tile of an elementwise op."""
    m0, n0, _ = origin
    m, n, _ = extent
    operands = [_operand_block(region, m0, n0, m, n) for region in msg.inputs]
    out = _operand_block(msg.out, m0, n0, m, n)
    plan = _read(operands)
    plan.append((StageType.FETCH, sum(block.nbytes for block in operands), {}))
    plan.append((StageType.MATH, out.nbytes, {"ops": [msg.op]}))
    return plan + _stored(out)


def _read(operands: list[Block]) -> Plan:
    """The stage that reads those operands which lie in HBM, if any do."""
    reads = [block for block in operands if block.space == "hbm"]
    if not reads:
        return []
    params = params_of_blocks(reads)
    return [(StageType.DMA_READ, sum(params["sizes"]), params)]


def _stored(out: Block) -> Plan:
    """The stages that bring a block of the output to HBM."""
    return [
        (StageType.STORE, out.nbytes, {}),
        (StageType.DMA_WRITE, out.nbytes, params_of_blocks([out])),
    ]


def _block(region: Region, row: int, col: int, rows: int, cols: int) -> Block:
    """A block of a region of at most two axes, where its elements lie."""
    size = _itemsize(region.dtype)
    all_cols = region.shape[-1] if region.shape else 1
    pitch = all_cols * size
    addr = region.addr + row * pitch + col * size
    nbytes = rows * cols * size
    if rows == 1 or cols == all_cols:
        return Block(region.space, Rows(addr, 1, nbytes, 0), nbytes)
    return Block(region.space, Rows(addr, rows, cols * size, pitch), nbytes)


def _stored_block(
    region: Region, row: int, col: int, rows: int, cols: int, transposed: bool
) -> Block:
    """As ``_block``, of a matrix that may be stored as its transpose."""
    if transposed:
        return _block(region, col, row, cols, rows)
    return _block(region, row, col, rows, cols)


def _operand_block(operand: Region, m0: int, n0: int, m: int, n: int) -> Block:
    """The part of an operand that a tile needs elementwise; an axis of 1 broadcasts."""
    all_rows, all_cols = as_matrix(operand.shape)
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


def _tile_counts(msg: Composite) -> list[range]:
    """The indices of a composite's tiles along m, n and k."""
    counts = []
    for size, step in zip((msg.m, msg.n, msg.k), msg.tile, strict=True):
        counts.append(range(-(-size // step)))
    return counts
