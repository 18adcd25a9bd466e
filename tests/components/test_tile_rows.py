"""The bytes that the DMA stages of tiles move are those of the tile's elements."""

import numpy as np
import pytest

from kernbench.common.messages import Region
from kernbench.common.pe_commands import CompositeCmd, CompositeMathCmd, Epilogue
from kernbench.common.phys_addr import PhysAddr
from kernbench.sim_engine.engine import GraphEngine

SLICE = 48 * 2**30 // 8
SIZE = 2  # bytes of an f16


def hbm(offset, shape):
    addr = PhysAddr.pe_hbm_addr(0, 0, 0, offset, SLICE).encode()
    return Region("hbm", addr, shape, "f16", int(np.prod(shape)) * SIZE)


def bytes_of_elements(region, rows, cols):
    """The address of each byte of a part of a matrix, in order."""
    elements = np.arange(np.prod(region.shape)).reshape(region.shape)[rows, cols]
    addrs = region.addr + elements.reshape(-1, 1) * SIZE + np.arange(SIZE)
    return addrs.reshape(-1).tolist()


def bytes_of_blocks(params):
    """The address of each byte that a stage says it moves, by block."""
    blocks = []
    count = len(params["addrs"])
    rows = params.get("rows", [1] * count)
    row_bytes = params.get("row_bytes", params["sizes"])
    pitches = params.get("pitch", [0] * count)
    for at, addr in enumerate(params["addrs"]):
        block = []
        for row in range(rows[at]):
            start = addr + row * pitches[at]
            block += range(start, start + row_bytes[at])
        assert len(block) == params["sizes"][at]
        blocks.append(block)
    return blocks


def stages(small, command, stage):
    """The params of a stage of each tile of a command."""
    engine = GraphEngine(small)
    scheduler = engine.sim.component(small.at(0, 0, 0, "pe_scheduler"))
    scheduler.dispatch(command)
    engine.env.run()
    name = f"TileToken/{stage}"
    return [r.params for r in engine.op_log if r.op_name == name]


def span(params, axis):
    first = params["origin"][axis]
    return slice(first, first + params["extent"][axis])


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("tile", [(64, 64, 64), (32, 96, 80), (200, 200, 200)])
def test_tiles_of_a_product_move_the_rows_of_their_blocks(
    small, transpose_a, transpose_b, tile
):
    m, k, n = 100, 130, 150
    a = hbm(0, (k, m) if transpose_a else (m, k))
    b = hbm(1 << 20, (n, k) if transpose_b else (k, n))
    bias = hbm(1 << 21, (1, n))
    out = hbm(1 << 22, (m, n))
    command = CompositeCmd(
        op="gemm",
        a=a,
        b=b,
        out=out,
        m=m,
        k=k,
        n=n,
        tile=tile,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        epilogue=(Epilogue("add", operand=bias),),
    )
    for params in stages(small, command, "DMA_READ"):
        rows, cols, inner = (span(params, axis) for axis in range(3))
        of_a = (inner, rows) if transpose_a else (rows, inner)
        of_b = (cols, inner) if transpose_b else (inner, cols)
        expected = [bytes_of_elements(a, *of_a), bytes_of_elements(b, *of_b)]
        if inner.stop == k:
            expected.append(bytes_of_elements(bias, slice(0, 1), cols))
        assert bytes_of_blocks(params) == expected
    written = []
    for params in stages(small, command, "DMA_WRITE"):
        rows, cols, _ = (span(params, axis) for axis in range(3))
        (block,) = bytes_of_blocks(params)
        assert block == bytes_of_elements(out, rows, cols)
        written += block
    assert sorted(written) == [*range(out.addr, out.addr + out.nbytes)]


def test_tiles_of_an_elementwise_op_move_the_rows_of_their_blocks(small):
    x = hbm(0, (70, 90))
    column = hbm(1 << 20, (70, 1))
    out = hbm(1 << 21, (70, 90))
    command = CompositeMathCmd(op="add", inputs=(x, column), out=out, tile=(32, 32, 1))
    for params in stages(small, command, "DMA_READ"):
        rows, cols, _ = (span(params, axis) for axis in range(3))
        assert bytes_of_blocks(params) == [
            bytes_of_elements(x, rows, cols),
            bytes_of_elements(column, rows, slice(0, 1)),
        ]


def test_blocks_as_wide_as_their_matrix_are_one_row_and_say_nothing_of_rows(small):
    command = CompositeMathCmd(
        op="exp",
        inputs=(hbm(0, (70, 32)),),
        out=hbm(1 << 20, (70, 32)),
        tile=(8, 32, 1),
    )
    for params in stages(small, command, "DMA_READ"):
        assert not {"rows", "row_bytes", "pitch"} & params.keys()
