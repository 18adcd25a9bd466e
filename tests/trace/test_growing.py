"""A file that is opened while a run writes it: what is there can be read, and stays."""

import errno
import os

import pytest
from recordings import record_ops, touch

from kernbench.trace import Trace, TraceWriter


@pytest.fixture
def writer(tmp_path):
    writer = TraceWriter(tmp_path / "x.msgpack")
    yield writer
    writer.close()


def partial(writer):
    return writer.path.with_name("x.msgpack.partial")


def ends_well(work):
    """Whether a process that does ``work`` ends by itself: a lost page kills it."""
    if not (pid := os.fork()):
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


def test_a_trace_holds_what_was_there_and_opened_again_holds_more(writer):
    record_ops(writer, repeat=400, step=0.1)
    early = Trace.open(partial(writer))
    before = len(early.ops)
    assert 0 < before < 4800
    record_ops(writer, repeat=800, step=0.1)
    late = touch(Trace.open(partial(writer)))
    assert (len(touch(early).ops), early.complete, early.damaged) == (before, False, [])
    assert len(late.ops) > before
    assert late.op_columns.t_end[:before].tolist() == early.op_columns.t_end.tolist()


def test_an_open_trace_outlives_the_end_of_its_run(writer):
    record_ops(writer, repeat=700, step=0.1)
    early = Trace.open(partial(writer))
    writer.end(1.0)
    assert not partial(writer).exists()
    assert len(touch(early).ops) > 0
    assert Trace.open(writer.path).complete


def test_a_file_opened_within_a_write_ends_with_its_last_whole_frame(writer):
    record_ops(writer, repeat=700, step=0.1)
    data = partial(writer).read_bytes()
    for size in (len(data) - 1, len(data) - 5000):
        os.truncate(partial(writer), size)
        trace = touch(Trace.open(partial(writer)))
        assert (trace.complete, trace.damaged) == (False, [])


def test_a_full_disk_does_not_harm_who_has_the_file_open(writer):
    record_ops(writer, repeat=700, step=0.1)
    inner, opened = writer._file, []

    class Full:
        def __getattr__(self, name):
            return getattr(inner, name)

        def write(self, data):
            if opened:
                raise OSError(errno.ENOSPC, "No space left on device")
            inner.write(data[: len(data) // 2])
            opened.append(
                Trace.open(partial(writer))
            )  # maps the half that is taken back
            return len(data) // 2

    writer._file = Full()
    record_ops(writer, repeat=700, step=0.1)
    assert writer.error is not None
    assert partial(writer).stat().st_size < opened[0]._file.size
    assert ends_well(lambda: touch(opened[0]))


def test_a_run_recorded_anew_does_not_harm_who_has_the_old_file_open(writer, tmp_path):
    record_ops(writer, repeat=700, step=0.1)
    early = Trace.open(partial(writer))
    writer._file.close()  # as if it were killed
    again = TraceWriter(tmp_path / "x.msgpack")
    assert ends_well(lambda: touch(early))
    again.abandon()
