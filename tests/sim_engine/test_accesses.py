from typing import ClassVar

import pytest

from kernbench.common.dtypes import nbytes_of
from kernbench.common.messages import (
    HostReadCmd,
    HostWriteCmd,
    MsgBase,
    Region,
    Stage,
    StageType,
    TileToken,
)
from kernbench.common.pe_commands import (
    CompositeCmd,
    DmaReadCmd,
    DmaWriteCmd,
    Epilogue,
    GemmCmd,
    MathCmd,
)
from kernbench.sim_engine.accesses import Access, accesses, regions
from kernbench.sim_engine.op_log import OpLogger


def region(space, addr, shape, dtype="f16"):
    return Region(space, addr, shape, dtype, nbytes_of(shape, dtype))


A, B = region("tcm", 0, (2, 4)), region("hbm", 64, (4, 3))
OUT, BIAS = region("hbm", 128, (2, 3), "f32"), region("hbm", 256, (3,), "bf16")


class Strange(MsgBase):
    data_op: ClassVar[bool] = True


def recorded(msg):
    logger = OpLogger()
    logger.record_start(0, "n", msg)
    logger.record_end(1, "n", msg)
    return logger.records[0]


def composite():
    steps = (Epilogue("bias", operand=BIAS), Epilogue("relu"), Epilogue("scale", scalar=2.0))
    return CompositeCmd(
        op="gemm", a=A, b=B, out=OUT, m=2, k=4, n=3, tile=(64, 64, 64), epilogue=steps
    )


CASES = {
    "dma_read": (
        DmaReadCmd(src=B, dst=region("tcm", 8, (4, 3)), handle_id="h"),
        [Access("r", "hbm", 64, 24), Access("w", "tcm", 8, 24)],
    ),
    "dma_write": (
        DmaWriteCmd(src=A, dst_addr=512, handle_id="h"),
        [Access("r", "tcm", 0, 16), Access("w", "hbm", 512, 16)],
    ),
    "host_write": (HostWriteCmd(dst=B, data=None), [Access("w", "hbm", 64, 24)]),
    "host_read": (HostReadCmd(src=B), [Access("r", "hbm", 64, 24)]),
    "gemm": (
        GemmCmd(a=A, b=B, out=OUT, m=2, k=4, n=3),
        [Access("r", "tcm", 0, 16), Access("r", "hbm", 64, 24), Access("w", "hbm", 128, 24)],
    ),
    "gemm with accumulator": (
        GemmCmd(a=A, b=B, out=OUT, m=2, k=4, n=3, acc=OUT),
        [
            Access("r", "tcm", 0, 16),
            Access("r", "hbm", 64, 24),
            Access("r", "hbm", 128, 24),
            Access("w", "hbm", 128, 24),
        ],
    ),
    "math": (
        MathCmd(op="where", inputs=(region("tcm", 40, (3,), "bool"), BIAS), out=OUT),
        [Access("r", "tcm", 40, 3), Access("r", "hbm", 256, 6), Access("w", "hbm", 128, 24)],
    ),
    "composite": (
        composite(),
        [
            Access("r", "tcm", 0, 16),
            Access("r", "hbm", 64, 24),
            Access("r", "hbm", 256, 6),
            Access("w", "hbm", 128, 24),
        ],
    ),
    "of no bytes": (DmaWriteCmd(src=region("tcm", 0, (0, 4)), dst_addr=8, handle_id="h"), []),
    "tile": (
        TileToken(
            composite=composite(),
            index=(0, 0, 0),
            stages=(Stage(StageType.DMA_READ, "n", {"src_addr": 0, "src_space": "hbm"}),),
        ),
        [],
    ),
    "unknown": (Strange(), []),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_recorded_op_touches(name):
    msg, expected = CASES[name]
    assert accesses(recorded(msg)) == expected


@pytest.mark.parametrize("name", ["ipcq_copy", "ipcq_recv"])
def test_a_copy_between_pes_reads_its_source_and_writes_its_destination(name):
    logger = OpLogger()
    logger.record_copy(0, 1, "n", "tcm", 8, "sram", 64, (4,), "f32", 16, op_name=name)
    expected = [Access("r", "tcm", 8, 16), Access("w", "sram", 64, 16)]
    assert accesses(logger.records[0]) == expected


def test_regions_keep_shape_and_dtype_of_every_operand():
    assert regions(recorded(composite())) == ((A, B, BIAS), OUT)
