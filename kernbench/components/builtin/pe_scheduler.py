"""The scheduler of a PE: commands go to their engine, composites are cut into tiles."""

from collections import deque
from collections.abc import Iterator
from itertools import product
from typing import Any

import simpy

from kernbench.common.dtypes import itemsize
from kernbench.common.messages import MsgBase, Region, Stage, StageType, TileToken
from kernbench.common.pe_commands import (
    CompositeCmd,
    DmaReadCmd,
    DmaWriteCmd,
    GemmCmd,
    MathCmd,
    RecvCmd,
    SendCmd,
)
from kernbench.components.base import ComponentBase, Process, Sim
from kernbench.errors import KernelError
from kernbench.topology.graph import Node

_Tile = list[TileToken]  # one token a stage
_Block = tuple[str, int, int]  # space, address, bytes
_ENGINES: dict[type[MsgBase] | StageType, str] = {
    DmaReadCmd: "pe_dma",
    DmaWriteCmd: "pe_dma",
    GemmCmd: "pe_gemm",
    MathCmd: "pe_math",
    SendCmd: "pe_ipcq",
    RecvCmd: "pe_ipcq",
    CompositeCmd: "pe_scheduler",
    StageType.DMA_READ: "pe_dma",
    StageType.FETCH: "pe_fetch_store",
    StageType.GEMM: "pe_gemm",
    StageType.MATH: "pe_math",
    StageType.STORE: "pe_fetch_store",
    StageType.DMA_WRITE: "pe_dma",
}


class PeScheduler(ComponentBase):
    """Serves one composite at a time; what it merely hands on does not queue behind one."""

    serves = (CompositeCmd,)

    def __init__(self, node: Node, sim: Sim) -> None:
        super().__init__(node, sim)
        self._nodes = {
            what: sim.graph.at(*node.place, engine) for what, engine in _ENGINES.items()
        }

    def dispatch(self, msg: MsgBase) -> simpy.Process:
        """Start serving a command; the process ends when the command has."""
        node_id = self._nodes.get(type(msg))
        if node_id is None:
            valid = ", ".join(
                kind.__name__ for kind in _ENGINES if isinstance(kind, type)
            )
            name = type(msg).__name__
            raise KernelError(
                f"{self.node.id}: no engine serves {name}; valid: {valid}"
            )
        return self.sim.env.process(
            self.sim.component(node_id)._forward_txn(self.sim.env, msg)
        )

    def run(self, env: simpy.Environment, msg: CompositeCmd) -> Process:
        """Feed the tiles in order, at most a window of them in flight, until the last has ended."""
        window = self.sim.graph.spec.pe.tile.window
        flying: deque[tuple[_Tile, simpy.Process]] = deque()
        fed: simpy.Event | None = None
        for tile in self._tiles(msg):
            if len(flying) == window:
                oldest, process = flying.popleft()
                t0 = env.now
                yield process
                tile[0].wait(self.node.id, "window", t0, env.now, oldest[-1])
            behind, fed = fed, env.event()
            flying.append((tile, env.process(self._flow(env, tile, behind, fed))))
        for _, process in flying:
            yield process

    def _flow(
        self,
        env: simpy.Environment,
        tile: _Tile,
        behind: simpy.Event | None,
        fed: simpy.Event,
    ) -> Process:
        """Take a tile through its plan; it enters FETCH behind the tile before it.

        So tiles reach the array in program order, and the accumulator of a K loop can stay there.
        ``behind`` and ``fed`` carry the op whose end let the tiles go on.
        """
        cause: MsgBase | None = None
        for token in tile:
            stage = token.stage
            if stage.stage_type is StageType.FETCH:
                if behind is not None:
                    t0 = env.now
                    opened_by = yield behind
                    token.wait(stage.node, "operand", t0, env.now, opened_by)
                    cause = opened_by if env.now > t0 else cause
                fed.succeed(cause)
            yield from self.sim.components[stage.node]._forward_txn(env, token)
            cause = token

    def _tiles(self, msg: CompositeCmd) -> Iterator[_Tile]:
        """The tiles of a composite in order m, n, k; a plan is made when it is its tile's turn.

        A tile has a token for each stage, so that the row of a token is that of one record.
        """
        steps = zip(msg.tile, (msg.m, msg.n, msg.k), strict=True)
        counts = [range(-(-size // step)) for step, size in steps]
        for index in product(*counts):
            stages = self._plan(msg, index)
            yield [
                TileToken(
                    cmd=msg.cmd,
                    resumed_by=msg.resumed_by,
                    composite=msg,
                    index=index,
                    stages=stages,
                    stage_idx=s,
                )
                for s in range(len(stages))
            ]

    def _plan(self, msg: CompositeCmd, index: tuple[int, ...]) -> tuple[Stage, ...]:
        """Stages of one tile; only the last of its K loop stores.

        A tile's DMA is modelled as contiguous from its first byte (simulator.md section 6).
        """
        tile = msg.tile
        m0, n0, k0 = index[0] * tile[0], index[1] * tile[1], index[2] * tile[2]
        m, n, k = (
            min(tile[0], msg.m - m0),
            min(tile[1], msg.n - n0),
            min(tile[2], msg.k - k0),
        )
        last = k0 + k == msg.k
        a = (
            _block(msg.a, k0, m0, k, m)
            if msg.transpose_a
            else _block(msg.a, m0, k0, m, k)
        )
        b = (
            _block(msg.b, n0, k0, n, k)
            if msg.transpose_b
            else _block(msg.b, k0, n0, k, n)
        )
        out = _block(msg.out, m0, n0, m, n)
        steps = [s for s in msg.epilogue if last or s.scope == "k_tile"]
        extra = [
            _operand_block(s.operand, m0, n0, m, n)
            for s in steps
            if s.operand is not None
        ]
        reads = [block for block in (a, b, *extra) if block[0] == "hbm"]
        inputs = a[2] + b[2]
        plan: list[tuple[StageType, int, dict[str, Any]]] = []
        if reads:
            plan.append((StageType.DMA_READ, sum(r[2] for r in reads), _places(reads)))
        plan += ((StageType.FETCH, inputs, {}), (StageType.GEMM, inputs, {}))
        if steps:
            plan.append((StageType.MATH, out[2], {"ops": [s.op for s in steps]}))
        if last:
            plan.append((StageType.STORE, out[2], {}))
            plan.append((StageType.DMA_WRITE, out[2], _places([out])))
        place = {"origin": (m0, n0, k0), "extent": (m, n, k)}
        return tuple(
            Stage(stage, self._nodes[stage], {**place, "nbytes": nbytes, **more})
            for stage, nbytes, more in plan
        )


def _block(region: Region, row: int, col: int, rows: int, cols: int) -> _Block:
    """A block of a region of at most two axes as one contiguous piece from its first byte."""
    size, pitch = itemsize(region.dtype), region.shape[-1] if region.shape else 1
    return region.space, region.addr + (row * pitch + col) * size, rows * cols * size


def _operand_block(operand: Region, m0: int, n0: int, m: int, n: int) -> _Block:
    """The part of an epilogue operand that a tile needs: an axis of 1 is broadcast."""
    rows, cols = (1, 1, *operand.shape)[-2:]
    row, high = (m0, m) if rows > 1 else (0, 1)
    col, wide = (n0, n) if cols > 1 else (0, 1)
    return _block(operand, row, col, high, wide)


def _places(blocks: list[_Block]) -> dict[str, Any]:
    spaces, addrs, sizes = map(list, zip(*blocks, strict=True))
    return {"spaces": spaces, "addrs": addrs, "sizes": sizes}
