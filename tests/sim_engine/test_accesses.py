from typing import ClassVar

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

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
from kernbench.errors import TraceFormatError
from kernbench.sim_engine.accesses import Access, access_columns, accesses, regions
from kernbench.sim_engine.op_log import OpLogger, OpRecord
from kernbench.trace import Trace, TraceWriter


def region(space, addr, shape, dtype="f16"):
    return Region(space, addr, shape, dtype, nbytes_of(shape, dtype))


A = region("tcm", 0, (2, 4))
B = region("hbm", 64, (4, 3))
OUT = region("hbm", 128, (2, 3), "f32")
BIAS = region("hbm", 256, (3,), "bf16")


class Strange(MsgBase):
    data_op: ClassVar[bool] = True


def recorded(msg):
    logger = OpLogger()
    logger.record_start(0, "n", msg)
    logger.record_end(1, "n", msg)
    return logger.records[0]


def composite():
    steps = (
        Epilogue("bias", operand=BIAS),
        Epilogue("relu"),
        Epilogue("scale", scalar=2.0),
    )
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
        [
            Access("r", "tcm", 0, 16),
            Access("r", "hbm", 64, 24),
            Access("w", "hbm", 128, 24),
        ],
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
        [
            Access("r", "tcm", 40, 3),
            Access("r", "hbm", 256, 6),
            Access("w", "hbm", 128, 24),
        ],
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
    "of no bytes": (
        DmaWriteCmd(src=region("tcm", 0, (0, 4)), dst_addr=8, handle_id="h"),
        [],
    ),
    "tile": (
        TileToken(
            composite=composite(),
            index=(0, 0, 0),
            stages=(
                Stage(StageType.DMA_READ, "n", {"src_addr": 0, "src_space": "hbm"}),
            ),
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


# -- as columns --

REGIONS = st.builds(
    region,
    st.sampled_from(["hbm", "tcm", "sram"]),
    st.integers(0, 1 << 50),
    st.lists(st.integers(0, 5), max_size=3).map(tuple),
    st.sampled_from(["f16", "f32", "bool", "fp8_e4m3"]),
)
STEPS = st.lists(
    st.one_of(
        st.builds(lambda r: Epilogue("bias", operand=r), REGIONS),
        st.just(Epilogue("relu")),
    ),
    max_size=3,
)


def tile(**where):
    stage = Stage(
        StageType.DMA_READ, "n", {"addrs": [0], "spaces": ["hbm"], "sizes": [8]}
    )
    return TileToken(composite=composite(), index=(0, 0, 0), stages=(stage,))


MESSAGES = st.one_of(
    st.builds(lambda a, b: DmaReadCmd(src=a, dst=b, handle_id="h"), REGIONS, REGIONS),
    st.builds(lambda a: DmaWriteCmd(src=a, dst_addr=8, handle_id="h"), REGIONS),
    st.builds(lambda a: HostReadCmd(src=a), REGIONS),
    st.builds(lambda a: HostWriteCmd(dst=a, data=None), REGIONS),
    st.builds(
        lambda a, b, out, acc: GemmCmd(a=a, b=b, out=out, m=2, k=4, n=3, acc=acc),
        *[REGIONS] * 3,
        st.none() | REGIONS,
    ),
    st.builds(
        lambda a, out, steps: CompositeCmd(
            op="gemm",
            a=a,
            b=a,
            out=out,
            m=2,
            k=4,
            n=3,
            tile=(64, 64, 64),
            epilogue=tuple(steps),
        ),
        REGIONS,
        REGIONS,
        STEPS,
    ),
    st.builds(
        lambda ins, out: MathCmd(op="where", inputs=tuple(ins), out=out),
        st.lists(REGIONS, max_size=3),
        REGIONS,
    ),
    st.builds(tile),
    st.builds(Strange),
)


def rows(columns):
    pieces = columns.pieces(np.arange(len(columns.row)))
    of = columns.take(pieces.of)
    lists = [of.row, of.mode, of.space, pieces.addr, pieces.nbytes]
    return [
        (i, Access("rw"[m], columns.spaces[s], *at))
        for i, m, s, *at in zip(*[one.tolist() for one in lists], strict=True)
    ]


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(messages=st.lists(MESSAGES, max_size=12))
def test_the_columns_of_a_trace_are_the_accesses_of_its_ops(messages, tmp_path_factory):
    records = [recorded(msg) for msg in messages]
    path = tmp_path_factory.mktemp("columns") / "t"
    writer = TraceWriter(path)
    for row, record in enumerate(records):
        writer.op(row, record, 0, 0, [], [])
    writer.close()
    expected = [
        (i, access) for i, record in enumerate(records) for access in accesses(record)
    ]
    assert rows(access_columns(Trace.open(path))) == expected


def test_a_space_whose_name_is_stored_again_is_no_other_space(tmp_path, monkeypatch):
    """As in a long run, and in what there is of one that goes on."""
    monkeypatch.setattr("kernbench.trace.encoder.REMEMBERED", 0)
    writer = TraceWriter(tmp_path / "t")
    read = recorded(HostReadCmd(src=Region("hbm", 64, (2, 2), "f16", 8)))
    for row in range(3):
        writer.op(row, read, 0, 0, [], [])
        writer.flush()
    writer.close()
    trace = Trace.open(tmp_path / "t")
    assert [*trace.strings].count("hbm") == 3
    columns = access_columns(trace)
    assert columns.spaces == ("hbm",)
    assert columns.space.tolist() == [0, 0, 0]


def test_params_that_do_not_say_what_is_touched_are_one_error(tmp_path):
    writer = TraceWriter(tmp_path / "t")
    writer.op(
        0, OpRecord(0, 1, "n", "memory", "odd", {"src_space": "hbm"}), 0, 0, [], []
    )
    writer.close()
    with pytest.raises(
        TraceFormatError, match=r"'odd' lack src_space, src_addr or dtype"
    ):
        access_columns(Trace.open(tmp_path / "t"))
