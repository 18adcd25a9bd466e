"""What a writer remembers, no more of a long run than of a short; reading it back."""

import tracemalloc

import pytest

from kernbench.common.messages import HostReadCmd, Region
from kernbench.sim_engine.op_log import OpLogger
from kernbench.trace import Trace, TraceWriter


def record(logger, start, stop):
    """Reads of ever other places, each with a wait and a transfer."""
    for i in range(start, stop):
        rows = i % 7 + 1
        msg = HostReadCmd(src=Region("hbm", 64 * i, (rows, 2), "f16", 4 * rows))
        msg.cmd = i
        msg.wait("n", "link", i - 0.5, float(i), None)
        msg.transfers.append((("n", "m"), float(i), 64, 1, [float(i)]))
        logger.record_start(float(i), "n", msg)
        logger.record_end(i + 0.5, "n", msg)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("few", "many"),
    [(2_000, 8_000), pytest.param(10_000, 100_000, marks=pytest.mark.soak)],
)
def test_memory_is_flat_beyond_some_thousand_ops(tmp_path, monkeypatch, few, many):
    # Both peaks are at whole chunks then.
    monkeypatch.setattr("kernbench.trace.writer.CHUNK_ROWS", 1000)
    # Where the thread of the tail is late it holds a chunk while the next is buffered.
    monkeypatch.setattr("kernbench.trace.tail.EVERY_S", 3600.0)
    writer = TraceWriter(tmp_path / "x.msgpack")
    logger = OpLogger(sink=writer, keep=False)
    tracemalloc.start()
    record(logger, 0, few)
    first_peak = tracemalloc.get_traced_memory()[1]
    record(logger, few, many)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    writer.end(many)
    # Four times as much at least if rows were kept; garbage that waits for its
    # collector is a tenth or so.
    assert peak < 1.5 * first_peak
    assert len(Trace.open(tmp_path / "x.msgpack").ops) == many


@pytest.mark.parametrize("ended", [False, True])
def test_ops_are_read_back_while_the_run_goes_on_and_after_it(tmp_path, ended):
    writer = TraceWriter(tmp_path / "x.msgpack")
    record(OpLogger(sink=writer, keep=False), 0, 100)
    if ended:
        writer.end(100.0)
    log = writer.op_log()
    assert [op.params["src_addr"] for op in log] == [64 * i for i in range(100)]
    assert [op.t_end for op in log[:2]] == [0.5, 1.5]


def test_reading_back_loses_no_row(tmp_path):
    writer = TraceWriter(tmp_path / "x.msgpack")
    logger = OpLogger(sink=writer, keep=False)
    for start in range(0, 90, 30):
        record(logger, start, start + 30)
        assert len(writer.op_log()) == start + 30
    writer.end(90.0)
    trace = Trace.open(tmp_path / "x.msgpack")
    assert [trace.params(row)["src_addr"] for row in range(90)] == [
        64 * i for i in range(90)
    ]
    assert (len(trace.waits.cmd), len(trace.transfers.cmd)) == (90, 90)
