"""Places where no trace can be written, and disks that fill up.

There is one error, and nothing is lost.
"""

import os
import resource
import subprocess
import sys

import pytest
from files import Disk, TornDisk, opened
from recordings import record_ops, touch

from kernbench.errors import KernbenchError, TraceFormatError
from kernbench.trace import Trace, TraceWriter, stream

FULL = """
import sys
sys.path.insert(0, sys.argv[2])
from recordings import record_ops
from kernbench.trace import TraceWriter
writer = TraceWriter(sys.argv[1])
record_ops(writer, repeat=900, step=5.0)
ops = len(writer.op_log())
writer.end(1.0)
print(ops, writer.error)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.msgpack"


def cut(path, repeat=225):
    """A writer whose disk was full half-way through so many recordings."""
    writer, disk = opened(path)
    record_ops(writer, repeat, step=5.0)
    disk.room = 0
    record_ops(writer, repeat, step=5.0)
    return writer


# -- places ------------------------------------------------------------


def test_a_directory_is_refused(tmp_path):
    (tmp_path / "x.msgpack").mkdir()
    with pytest.raises(KernbenchError, match="no regular file"):
        TraceWriter(tmp_path / "x.msgpack")
    assert [p.name for p in tmp_path.iterdir()] == ["x.msgpack"]


def test_a_folder_that_is_a_file_is_refused(path):
    path.write_bytes(b"")
    with pytest.raises(KernbenchError, match="Not a directory"):
        TraceWriter(path / "y.msgpack")


@pytest.mark.parametrize("name", ["x.msgpack", "x.msgpack.partial"])
def test_a_pipe_is_refused_and_nobody_waits_for_its_reader(tmp_path, path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(KernbenchError, match="no regular file"):
        TraceWriter(path)
    assert [p.name for p in tmp_path.iterdir()] == [name]


UNFINISHED = (".partial", ".partial.tail", ".partial.old", ".partial.old.tail")


@pytest.mark.parametrize("ending", UNFINISHED)
def test_names_of_what_a_run_has_not_ended_are_refused(tmp_path, ending):
    with pytest.raises(KernbenchError, match="a run gives such a name") as caught:
        TraceWriter(tmp_path / f"x{ending}")
    assert "name another" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_refused_and_stays_one():
    with pytest.raises(KernbenchError, match="no regular file"):
        TraceWriter("/dev/full")
    assert not os.path.isfile("/dev/full")
    assert not os.path.exists("/dev/full.partial")


def test_a_second_writer_to_one_path_is_refused_and_harms_nothing(path):
    first = TraceWriter(path)
    record_ops(first)
    with pytest.raises(KernbenchError, match="another run is writing it"):
        TraceWriter(path)
    first.end(1.0)
    assert touch(Trace.open(path)).complete


def test_the_path_is_free_when_the_first_writer_has_ended(path):
    for repeat in (1, 2):
        writer = TraceWriter(path)
        record_ops(writer, repeat=repeat)
        writer.end(1.0)
    assert len(Trace.open(path).ops) == 2 * 12 + 1


def test_an_older_trace_stays_until_the_new_one_has_ended(path):
    TraceWriter(path).end(1.0)
    writer = TraceWriter(path)
    record_ops(writer)
    assert Trace.open(path).end_ns == 1.0
    writer.end(2.0)
    assert Trace.open(path).end_ns == 2.0


def test_what_a_killed_run_left_is_kept_beside(tmp_path, path):
    killed, disk = opened(path)
    record_ops(killed, repeat=70, step=0.1)
    killed.flush()
    disk.close()  # as the kernel does
    left = Trace.open(tmp_path / "x.msgpack.partial")
    TraceWriter(path).end(1.0)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "x.msgpack",
        "x.msgpack.partial.old",
    ]
    kept = touch(Trace.open(tmp_path / "x.msgpack.partial.old"))
    assert len(kept.ops) == len(left.ops) > 800
    assert repr(touch(left).ops[800]) == repr(kept.ops[800])  # still mapped


# -- disks ------------------------------------------------------------


@pytest.mark.slow
def test_a_quota_stops_the_recording_and_the_ops_can_still_be_read_back(path):
    limit = 300_000
    run = subprocess.run(
        [sys.executable, "-B", "-c", FULL, str(path), os.path.dirname(__file__)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    ops, error = run.stdout.split(maxsplit=1)
    assert ops == str(900 * 12 + 1)
    assert "File too large" in error
    trace = touch(Trace.open(path))
    assert (trace.complete, trace.damaged) == (False, [])
    assert 0 < path.stat().st_size <= limit


def test_a_file_closed_behind_the_writer_is_an_error_and_not_silence(path):
    writer, disk = opened(path)
    record_ops(writer, repeat=70, step=0.1)
    writer.flush()
    disk.close()
    writer.end(1.0)
    assert "closed file" in writer.error
    assert touch(Trace.open(path)).damaged == []


@pytest.mark.slow
def test_the_ops_of_a_cut_recording_are_those_of_a_whole_one(tmp_path, path):
    whole = TraceWriter(tmp_path / "whole.msgpack")
    record_ops(whole, repeat=225, step=5.0)
    record_ops(whole, repeat=225, step=5.0)
    wanted = whole.op_log()
    found = cut(path).op_log()
    assert len(found) == len(wanted)
    for position in range(0, len(wanted), 97):
        assert repr(found[position]) == repr(wanted[position])


@pytest.mark.slow
def test_a_recording_cut_long_ago_says_that_its_ops_are_gone(path, monkeypatch):
    monkeypatch.setattr(stream, "SPILL_BYTES", 1000)
    recording = cut(path)
    with pytest.raises(
        KernbenchError, match=r"read back: .* stopped at .* No space left"
    ):
        recording.op_log()
    assert recording.bytes_held < 2_000_000


@pytest.mark.parametrize("room", [0, 10])
def test_what_could_not_be_begun_takes_the_place_of_no_older_trace(path, room):
    TraceWriter(path).end(1.0)
    recording, _ = opened(path, Disk, room=room)
    record_ops(recording)
    recording.end(2.0)
    assert "x.msgpack is what it was before" in recording.error
    assert Trace.open(path).end_ns == 1.0
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize("room", [0, 10, 20_000, 200_000])
@pytest.mark.slow
def test_a_full_disk_stops_the_recording_and_not_the_run(path, room):
    recording, _ = opened(path, Disk, room=room)
    record_ops(recording, repeat=225, step=5.0)
    recording.text(0.0, 0, "print", "x")
    recording.end(1.0)
    assert "No space left on device" in recording.error
    assert "\n" not in recording.error
    assert path.stat().st_size <= room
    if room < 100:
        with pytest.raises(TraceFormatError):
            Trace.open(path)
    else:
        trace = touch(Trace.open(path))
        assert (trace.complete, trace.damaged) == (False, [])


@pytest.mark.parametrize("written_before", [True, False])
def test_a_frame_torn_by_an_interrupt_is_overwritten(path, written_before):
    def interrupt():
        disk.torn = None
        disk.room = None
        raise KeyboardInterrupt

    writer, disk = opened(path, TornDisk)
    if written_before:
        record_ops(writer)
        writer.flush()
    record_ops(writer)
    disk.torn = interrupt
    with pytest.raises(KeyboardInterrupt):
        writer.flush()
    writer.end(1.0, error="KeyboardInterrupt")
    trace = touch(Trace.open(path))
    assert (trace.complete, trace.damaged) == (True, [])


@pytest.mark.slow
def test_rows_after_the_end_are_not_written(path):
    recording = TraceWriter(path)
    recording.end(1.0)
    record_ops(recording, repeat=700)
    recording.close()
    assert (len(Trace.open(path).ops), recording.error) == (0, None)
