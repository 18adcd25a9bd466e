"""What the tiles of a composite do, stage by stage, and where in memory.

Tiles of one extent do the same, but for where their blocks lie. So what they do is
worked out once for all of them, and of each tile only the addresses are.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, Literal, NamedTuple, TypeAlias

from kernbench.common.dtypes import itemsize
from kernbench.common.messages import Region, Stage, StageType, as_matrix
from kernbench.common.pe_commands import CompositeCmd, CompositeMathCmd
from kernbench.common.rows import Rows
from kernbench.components.builtin.blocks import Block, params_of_blocks

_itemsize = lru_cache(maxsize=1024)(itemsize)

Composite: TypeAlias = CompositeCmd | CompositeMathCmd

Box: TypeAlias = tuple[int, int, int]
"""The origin or the extent of a tile, or its index, along m, n and k."""

Axis: TypeAlias = Literal[0, 1, 2] | None
"""An axis of tiles: m, n or k. None is one of a matrix that all tiles have whole."""

_M: Axis = 0
_N: Axis = 1
_K: Axis = 2

Nodes: TypeAlias = Mapping[StageType, str]
"""The nodes that serve the stages of a PE's tiles."""

Corner: TypeAlias = tuple[int, int, int, int]
"""Where a block of the tile at the origin begins, and how many bytes further on that of
another tile does for each index along m, n and k."""


class _Step(NamedTuple):
    """A stage of all tiles of one extent, and the bytes that it handles.

    ``blocks`` is what it moves between memories, and ``ops`` what it computes beside
    the product.
    """

    stage_type: StageType
    nbytes: int
    blocks: tuple[Block, ...] = ()
    ops: tuple[str, ...] = ()


class _StageOfAll(NamedTuple):
    """A stage of all tiles of one extent: where it is served, and with what params.

    Of the params the origin is missing, and the addresses, one for each corner.
    """

    stage_type: StageType
    node: str
    params: dict[str, Any]
    corners: tuple[Corner, ...]


def tile_count(msg: Composite) -> int:
    """How many tiles a composite has."""
    axes = zip((msg.m, msg.n, msg.k), msg.tile, strict=True)
    return prod(-(-size // step) for size, step in axes)


def tile_plans(msg: Composite, nodes: Nodes) -> Iterator[tuple[Box, tuple[Stage, ...]]]:
    """The index and the stages of each tile of a composite, in order m, n, k.

    Each is made when it is its tile's turn. Params that are equal in all tiles of one
    extent are the same objects, lists too: nobody changes them.
    """
    known: dict[tuple[Box, bool], list[_StageOfAll]] = {}
    for (at_m, m0, m), (at_n, n0, n), (at_k, k0, k) in product(*_spans(msg)):
        alike = ((m, n, k), k0 + k == msg.k)
        stages_of_all = known.get(alike)
        if stages_of_all is None:
            stages_of_all = _stages_of_all(msg, *alike, nodes)
            known[alike] = stages_of_all
        origin = (m0, n0, k0)
        stages = []
        for stage_type, node, params, corners in stages_of_all:
            params = params.copy()
            params["origin"] = origin
            if corners:
                params["addrs"] = [
                    addr + m0 * a_m + n0 * a_n + k0 * a_k
                    for addr, a_m, a_n, a_k in corners
                ]
            stages.append(Stage(stage_type, node, params))
        yield (at_m, at_n, at_k), tuple(stages)


def _spans(msg: Composite) -> list[list[tuple[int, int, int]]]:
    """The index, the origin and the extent of a composite's tiles along m, n and k."""
    found = []
    for size, step in zip((msg.m, msg.n, msg.k), msg.tile, strict=True):
        starts = range(0, size, step)
        extents = [min(step, size - start) for start in starts]
        found.append([*zip(range(len(starts)), starts, extents, strict=True)])
    return found


def _stages_of_all(
    msg: Composite, extent: Box, is_last: bool, nodes: Nodes
) -> list[_StageOfAll]:
    """The stages of all tiles of one extent that are, or are not, last of a K loop."""
    if isinstance(msg, CompositeMathCmd):
        steps = _math_steps(msg, extent)
    else:
        steps = _gemm_steps(msg, extent, is_last)
    found = []
    for stage_type, nbytes, blocks, ops in steps:
        params = {"origin": (0, 0, 0), "extent": extent, "nbytes": nbytes}
        if blocks:
            params |= params_of_blocks(blocks)
        if ops:
            params["ops"] = list(ops)
        corners = tuple([(block.where.addr, *block.steps) for block in blocks])
        found.append(_StageOfAll(stage_type, nodes[stage_type], params, corners))
    return found


def _gemm_steps(msg: CompositeCmd, extent: Box, is_last: bool) -> list[_Step]:
    """The stages of tiles of a product; only the last of its K loop stores."""
    a = _stored_block(msg.a, _M, _K, extent, msg.transpose_a)
    b = _stored_block(msg.b, _K, _N, extent, msg.transpose_b)
    epilogue = [step for step in msg.epilogue if is_last or step.scope == "k_tile"]
    operands = [a, b]
    for step in epilogue:
        if step.operand is not None:
            operands.append(_operand_block(step.operand, extent))
    fetched = a.nbytes + b.nbytes
    steps = _read(operands)
    steps.append(_Step(StageType.FETCH, fetched))
    steps.append(_Step(StageType.GEMM, fetched))
    out = _block(msg.out, _M, _N, extent)
    if epilogue:
        ops = tuple([step.op for step in epilogue])
        steps.append(_Step(StageType.MATH, out.nbytes, ops=ops))
    if is_last:
        steps += _stored(out)
    return steps


def _math_steps(msg: CompositeMathCmd, extent: Box) -> list[_Step]:
    """The stages of tiles of an elementwise op."""
    operands = [_operand_block(region, extent) for region in msg.inputs]
    out = _operand_block(msg.out, extent)
    steps = _read(operands)
    fetched = sum(block.nbytes for block in operands)
    steps.append(_Step(StageType.FETCH, fetched))
    steps.append(_Step(StageType.MATH, out.nbytes, ops=(msg.op,)))
    return steps + _stored(out)


def _read(operands: list[Block]) -> list[_Step]:
    """The stage that reads those operands which lie in HBM, if any do."""
    reads = tuple([block for block in operands if block.space == "hbm"])
    if not reads:
        return []
    nbytes = sum(block.nbytes for block in reads)
    return [_Step(StageType.DMA_READ, nbytes, reads)]


def _stored(out: Block) -> list[_Step]:
    """The stages that bring a block of the output to HBM."""
    return [
        _Step(StageType.STORE, out.nbytes),
        _Step(StageType.DMA_WRITE, out.nbytes, (out,)),
    ]


def _stored_block(
    region: Region, row_axis: Axis, col_axis: Axis, extent: Box, transposed: bool
) -> Block:
    """As ``_block``, of a matrix that may be stored as its transpose."""
    if transposed:
        return _block(region, col_axis, row_axis, extent)
    return _block(region, row_axis, col_axis, extent)


def _operand_block(operand: Region, extent: Box) -> Block:
    """What tiles need of an operand elementwise; an axis of 1 broadcasts."""
    all_rows, all_cols = as_matrix(operand.shape)
    row_axis = _M if all_rows > 1 else None
    col_axis = _N if all_cols > 1 else None
    return _block(operand, row_axis, col_axis, extent)


def _block(region: Region, row_axis: Axis, col_axis: Axis, extent: Box) -> Block:
    """What tiles of an extent have of a region of at most two axes.

    Its rows lie along one axis of the tiles, and its columns along another. An axis of
    the region that is none of theirs is 1.
    """
    size = _itemsize(region.dtype)
    all_cols = region.shape[-1] if region.shape else 1
    pitch = all_cols * size
    is_contiguous = region.strided is None
    if region.strided is not None:
        pitch = region.strided.pitch
    steps = [0, 0, 0]
    rows = 1
    if row_axis is not None:
        rows = extent[row_axis]
        steps[row_axis] = pitch
    cols = 1
    if col_axis is not None:
        cols = extent[col_axis]
        steps[col_axis] = size
    nbytes = rows * cols * size
    where = Rows(region.addr, rows, cols * size, pitch)
    if rows == 1 or (is_contiguous and cols == all_cols):
        where = Rows(region.addr, 1, nbytes, 0)
    along_m, along_n, along_k = steps
    return Block(region.space, where, nbytes, (along_m, along_n, along_k))
