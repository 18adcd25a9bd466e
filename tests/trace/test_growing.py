"""A file that is opened while a run writes it: what is there can be read, and stays."""

import os

import pytest
from files import TornDisk, opened
from recordings import record_ops, touch

from kernbench.trace import Trace, TraceWriter

REPEAT = 40
OPS = 12 * REPEAT + 1  # of a recording that is so often repeated


@pytest.fixture
def partial(tmp_path):
    return tmp_path / "x.msgpack.partial"


@pytest.fixture
def writer(tmp_path):
    writer = TraceWriter(tmp_path / "x.msgpack")
    yield writer
    writer.close()


def record(writer):
    """OPS ops, all of which are in the file then."""
    record_ops(writer, REPEAT, step=0.1)
    writer.flush()


def ends_well(work):
    """Whether a process that does ``work`` ends by itself: a lost page kills it."""
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.slow
def test_a_trace_holds_what_was_there_and_opened_again_holds_more(writer, partial):
    record(writer)
    early = Trace.open(partial)
    record(writer)
    late = touch(Trace.open(partial))
    assert (len(touch(early).ops), early.complete, early.damaged) == (OPS, False, [])
    assert len(late.ops) == 2 * OPS
    assert late.op_columns.t_end[:OPS].tolist() == early.op_columns.t_end.tolist()


def test_an_open_trace_outlives_the_end_of_its_run(writer, partial):
    record(writer)
    early = Trace.open(partial)
    writer.end(1.0)
    assert not partial.exists()
    assert len(touch(early).ops) == OPS
    assert Trace.open(writer.path).complete


def test_a_file_opened_within_a_write_ends_with_its_last_whole_frame(writer, partial):
    record(writer)
    data = partial.read_bytes()
    for size in (len(data) - 1, len(data) - 5000):
        os.truncate(partial, size)
        trace = touch(Trace.open(partial))
        assert (trace.complete, trace.damaged) == (False, [])


@pytest.mark.slow
def test_a_full_disk_does_not_harm_who_has_the_file_open(tmp_path, partial):
    writer, disk = opened(tmp_path / "x.msgpack", TornDisk)
    record(writer)
    traces = []
    sizes = []

    def open_what_is_there():
        traces.append(Trace.open(partial))
        sizes.append(partial.stat().st_size)

    disk.torn = open_what_is_there
    record(writer)
    assert writer.error is not None
    assert partial.stat().st_size < sizes[0]  # the torn frame was taken back
    assert ends_well(lambda: touch(traces[0]))
    writer.close()


@pytest.mark.slow
def test_a_run_recorded_anew_does_not_harm_who_has_the_old_file_open(tmp_path, partial):
    killed, disk = opened(tmp_path / "x.msgpack")
    record(killed)
    early = Trace.open(partial)
    disk.close()  # as if the run were killed
    again = TraceWriter(tmp_path / "x.msgpack")
    assert ends_well(lambda: touch(early))
    again.abandon()
