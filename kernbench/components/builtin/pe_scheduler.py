"""The scheduler of a PE: simple commands go to their engine, composites are cut into tiles that
route themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import simpy

from kernbench.common.dtypes import itemsize
from kernbench.common.messages import MsgBase, Region, Stage, StageType, TileToken
from kernbench.common.pe_commands import (
    CompositeCmd,
    DmaReadCmd,
    DmaWriteCmd,
    Epilogue,
    GemmCmd,
    MathCmd,
)
from kernbench.components.base import ComponentBase, Process
from kernbench.errors import KernelError

_ENGINE: dict[type[MsgBase], str] = {
    DmaReadCmd: "pe_dma",
    DmaWriteCmd: "pe_dma",
    GemmCmd: "pe_gemm",
    MathCmd: "pe_math",
    CompositeCmd: "pe_scheduler",
}


class PeScheduler(ComponentBase):
    """Serves one composite at a time; what it merely hands on does not queue behind one."""

    serves = (CompositeCmd,)

    def dispatch(self, msg: MsgBase) -> simpy.Process:
        """Start serving a command; the process ends when the command has."""
        engine = _ENGINE.get(type(msg))
        if engine is None:
            valid = ", ".join(kind.__name__ for kind in _ENGINE)
            raise KernelError(
                f"{self.node.id}: no engine serves {type(msg).__name__}; valid: {valid}"
            )
        process: simpy.Process = self.sim.env.process(
            self.sibling(engine)._forward_txn(self.sim.env, msg)
        )
        return process

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
        self, env: simpy.Environment, tile: _Tile, behind: simpy.Event | None, fed: simpy.Event
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
            yield from self.sim.component(stage.node)._forward_txn(env, token)
            cause = token

    def _tiles(self, msg: CompositeCmd) -> Iterator[_Tile]:
        """The tiles of a composite in order m, n, k; a plan is made when it is its tile's turn.

        A tile has a token for each stage, so that the row of a token is that of one record.
        """
        tile_m, tile_n, tile_k = msg.tile
        for i, m0 in enumerate(range(0, msg.m, tile_m)):
            for j, n0 in enumerate(range(0, msg.n, tile_n)):
                for p, k0 in enumerate(range(0, msg.k, tile_k)):
                    origin = (m0, n0, k0)
                    extent = (
                        min(tile_m, msg.m - m0),
                        min(tile_n, msg.n - n0),
                        min(tile_k, msg.k - k0),
                    )
                    stages = self._plan(msg, origin, extent)
                    yield [
                        TileToken(
                            cmd=msg.cmd,
                            resumed_by=msg.resumed_by,
                            composite=msg,
                            index=(i, j, p),
                            stages=stages,
                            stage_idx=s,
                        )
                        for s in range(len(stages))
                    ]

    def _plan(
        self, msg: CompositeCmd, origin: tuple[int, int, int], extent: tuple[int, int, int]
    ) -> tuple[Stage, ...]:
        """Stages of one tile; only the last of its K loop stores.

        A tile's DMA is modelled as contiguous from its first byte (simulator.md section 6).
        """
        (m0, n0, k0), (m, n, k) = origin, extent
        last = k0 + k == msg.k
        a = _block(msg.a, k0, m0, k, m) if msg.transpose_a else _block(msg.a, m0, k0, m, k)
        b = _block(msg.b, n0, k0, n, k) if msg.transpose_b else _block(msg.b, k0, n0, k, n)
        out = _block(msg.out, m0, n0, m, n)
        steps = [s for s in msg.epilogue if last or s.scope == "k_tile"]
        extra = [_operand_block(s, m0, n0, m, n) for s in steps if s.operand is not None]
        reads = [block for block in (a, b, *extra) if block[0] == "hbm"]
        plan: list[tuple[StageType, str, int, dict[str, Any]]] = []
        if reads:
            plan.append((StageType.DMA_READ, "pe_dma", sum(r[2] for r in reads), _places(reads)))
        plan.append((StageType.FETCH, "pe_fetch_store", a[2] + b[2], {}))
        plan.append((StageType.GEMM, "pe_gemm", a[2] + b[2], {}))
        if steps:
            plan.append((StageType.MATH, "pe_math", out[2], {"ops": [s.op for s in steps]}))
        if last:
            plan.append((StageType.STORE, "pe_fetch_store", out[2], {}))
            plan.append((StageType.DMA_WRITE, "pe_dma", out[2], _places([out])))
        return tuple(
            Stage(
                stage_type,
                self.sibling(engine).node.id,
                {"origin": origin, "extent": extent, "nbytes": nbytes, **more},
            )
            for stage_type, engine, nbytes, more in plan
        )


_Tile = list[TileToken]  # one token a stage
_Block = tuple[str, int, int]  # space, address, bytes


def _block(region: Region, row: int, col: int, rows: int, cols: int) -> _Block:
    """A block of a two-dimensional region as one contiguous piece from its first byte."""
    size = itemsize(region.dtype)
    first = region.addr + (row * region.shape[-1] + col) * size
    return region.space, first, rows * cols * size


def _operand_block(step: Epilogue, m0: int, n0: int, m: int, n: int) -> _Block:
    """The part of an epilogue operand that a tile needs: along the axes that it does not
    broadcast.
    """
    operand = step.operand
    assert operand is not None
    rows, cols = ((1, 1, *operand.shape)[-2], (1, *operand.shape)[-1])
    row, high = (m0, m) if rows > 1 else (0, 1)
    col, wide = (n0, n) if cols > 1 else (0, 1)
    size = itemsize(operand.dtype)
    return operand.space, operand.addr + (row * cols + col) * size, high * wide * size


def _places(blocks: list[_Block]) -> dict[str, Any]:
    return {
        "spaces": [block[0] for block in blocks],
        "addrs": [block[1] for block in blocks],
        "sizes": [block[2] for block in blocks],
    }
