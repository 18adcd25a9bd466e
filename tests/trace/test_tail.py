"""What is recorded and in no frame yet lies in the file's tail, and is read from there.

The file itself does not know of it.
"""

import gc
import os
import random
import shutil
import signal
import time
from mmap import mmap
from pathlib import Path

import numpy as np
import pytest
from files import Disk, opened
from recordings import LOGS, record_all, record_ops, shard, touch

from kernbench.common.dtypes import Tolerance
from kernbench.topology import load_topology
from kernbench.trace import Trace, TraceWriter
from kernbench.trace.encoder import RowEncoder
from kernbench.trace.tail import EVERY_S

FEW = 12 + 1  # ops of a recording, too few for a frame
LOST_S = 1.3  # a second is promised; the rest is for machines with other work


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.msgpack"


@pytest.fixture
def partial(tmp_path):
    return tmp_path / "x.msgpack.partial"


def names(folder):
    return sorted(place.name for place in folder.iterdir())


def begun(path, seed=0, graph=None):
    """A writer that has the front of its file written."""
    writer = TraceWriter(path)
    writer.begin({"bench": "x", "arguments": {}, "seed": seed}, graph)
    return writer


def everything(trace):
    """All that a trace tells, in words that do not depend on how it was numbered."""
    assert touch(trace).damaged == []
    logs = ("transfers", "waits", "commands", "alloc", "text")
    rows = {log: sorted(map(repr, trace.rows_as_recorded(log))) for log in logs}
    return {
        "ops": [repr(op) for op in trace.ops],
        "launches": trace.launches,
        "expects": repr(trace.expects),
        "strings": set(trace.strings),
        **rows,
    }


def rows_of_logs(trace):
    """How many rows each log has."""
    return {log: len(getattr(trace, log).cmd) for log in LOGS}


# -- a run that goes on, or was killed -------------------------------------------


@pytest.mark.parametrize("machine", [False, True])
def test_rows_that_no_frame_holds_are_read_from_the_tail(path, partial, machine):
    graph = load_topology(None) if machine else None
    writer = begun(path, graph=graph)
    record_ops(writer)
    assert len(Trace.open(partial).ops) == 0
    writer.write_tail()
    early = everything(Trace.open(partial))
    writer.flush()
    assert everything(Trace.open(partial)) == early
    assert len(early["ops"]) == FEW


@pytest.mark.slow
def test_a_tail_goes_on_from_the_frames_before_it(path, partial):
    writer = begun(path)
    record_ops(writer, repeat=25, step=100.0)
    in_frames = len(Trace.open(partial).ops)
    writer.write_tail()
    early = Trace.open(partial)
    found = everything(early)
    writer.flush()
    assert everything(Trace.open(partial)) == found
    assert 0 < in_frames < len(found["ops"]) == 25 * 12 + 1
    assert not early.complete


def test_arrays_and_references_are_in_the_tail(path, partial):
    writer = begun(path)
    wanted = np.arange(8, dtype=np.float16).reshape(2, 4)
    writer.expect("c", shard(), wanted, Tolerance(1e-3, 1e-3), 1)
    writer.write_tail()
    (found,) = Trace.open(partial).expects
    np.testing.assert_array_equal(found.array, wanted)
    assert not found.array.flags.writeable


def test_a_tail_that_was_read_stays_readable_when_the_run_ends(path, partial):
    writer = begun(path)
    record_ops(writer)
    writer.write_tail()
    early = Trace.open(partial)
    writer.end(1.0)
    assert len(touch(early).ops) == FEW


def test_a_flush_cut_off_in_the_middle_leaves_the_tail(tmp_path, path, partial):
    writer = begun(path)
    record_ops(writer, repeat=10, step=0.1)
    writer.write_tail()
    tail = partial.with_name("x.msgpack.partial.tail")
    shutil.copy(tail, tmp_path / "kept")
    whole = everything(Trace.open(partial))
    before = partial.stat().st_size
    writer.flush()
    after = partial.stat().st_size
    data = partial.read_bytes()
    for size in random.Random(0).sample(range(before, after), 3):
        copy = tmp_path / "copy"
        copy.write_bytes(data[:size])
        shutil.copy(tmp_path / "kept", tmp_path / "copy.tail")
        assert everything(Trace.open(copy)) == whole


@pytest.mark.parametrize("more", [0, 12])
def test_a_tail_that_a_flush_has_not_removed_yet_hides_nothing(path, partial, more):
    writer = begun(path)
    record_ops(writer, repeat=10, step=0.1)
    writer.write_tail()
    tail = partial.with_name("x.msgpack.partial.tail")
    kept = tail.read_bytes()
    if more:
        record_ops(writer, repeat=more, step=0.1)
    writer.flush()
    whole = everything(Trace.open(partial))
    tail.write_bytes(kept)  # as where the run is killed right before
    assert everything(Trace.open(partial)) == whole


@pytest.mark.slow
def test_a_flush_cut_off_in_the_middle_hides_nothing_behind_the_tail(
    tmp_path, path, partial
):
    writer = begun(path)
    record_ops(writer, repeat=10, step=0.1)
    writer.write_tail()
    kept = partial.with_name("x.msgpack.partial.tail").read_bytes()
    before = partial.stat().st_size
    in_tail = rows_of_logs(Trace.open(partial))
    record_ops(writer, repeat=12, step=0.1)
    writer.flush()
    data = partial.read_bytes()
    in_file = rows_of_logs(Trace.open(partial))
    copy = tmp_path / "copy"
    seen = set()
    for size in range(before, len(data), 97):
        copy.write_bytes(data[:size])
        alone = rows_of_logs(Trace.open(copy))
        copy.with_name("copy.tail").write_bytes(kept)
        trace = Trace.open(copy)
        assert trace.check() == []
        both = rows_of_logs(trace)
        copy.with_name("copy.tail").unlink()
        for log, rows in both.items():
            assert rows == max(alone[log], in_tail[log]), (size, log)
            seen.add(rows == in_file[log] > in_tail[log])
    assert seen == {True, False}


@pytest.mark.slow
def test_rows_are_kept_even_if_nothing_more_happens(path, partial):
    writer = begun(path)
    record_ops(writer)
    until = time.monotonic() + 10 * EVERY_S
    while not len(Trace.open(partial).ops) and time.monotonic() < until:
        time.sleep(0.05)
    assert len(Trace.open(partial).ops) == FEW
    writer.end(1.0)


# -- the end ---------------------------------------------------------------------


def test_a_finished_file_has_the_same_bytes_with_tails_and_without(tmp_path):
    def recorded(name, tails):
        writer = begun(tmp_path / name)
        for _ in range(3):
            record_ops(writer, repeat=9, step=10.0)
            if tails:
                writer.write_tail()
        writer.end(1.0)
        return (tmp_path / name).read_bytes()

    assert recorded("with", True) == recorded("without", False)
    assert names(tmp_path) == ["with", "without"]


@pytest.mark.parametrize(
    "end",
    [
        lambda writer: writer.end(1.0),
        lambda writer: writer.end(1.0, error="KernelError: x"),
        lambda writer: writer.close(),
        lambda writer: writer.flush(),
        lambda writer: writer.abandon(),
    ],
)
def test_when_all_is_in_the_file_there_is_no_tail(tmp_path, path, end):
    writer = begun(path)
    record_ops(writer)
    writer.write_tail()
    assert "x.msgpack.partial.tail" in names(tmp_path)
    end(writer)
    assert [name for name in names(tmp_path) if "tail" in name] == []
    writer.write_tail()
    assert [name for name in names(tmp_path) if "tail" in name] == []


def test_a_disk_that_takes_no_tail_ends_no_run(tmp_path, path):
    writer = begun(path)
    record_ops(writer)
    (tmp_path / "x.msgpack.partial.tail").mkdir()
    writer.write_tail()
    writer.end(1.0)
    assert writer.error is None
    assert len(Trace.open(path).ops) == FEW


def test_a_recording_that_has_stopped_has_no_tail(tmp_path, path):
    writer, _ = opened(path, Disk, room=20_000)
    record_ops(writer, repeat=45, step=5.0)
    writer.flush()
    record_ops(writer)
    writer.write_tail()
    assert writer.error is not None
    assert names(tmp_path) == ["x.msgpack.partial"]
    writer.close()


# -- tails of others ------------------------------------------------------------


def left_by_a_killed_run(path, seed):
    writer, disk = opened(path)
    writer.begin({"seed": seed}, None)
    record_ops(writer)
    writer.write_tail()
    disk.close()  # as the kernel does
    return writer


def test_the_tail_of_a_killed_run_goes_with_its_file(tmp_path, path, partial):
    killed = left_by_a_killed_run(path, seed=1)
    writer = begun(path, seed=2)
    assert len(Trace.open(partial).ops) == 0
    old = Trace.open(tmp_path / "x.msgpack.partial.old")
    assert (len(old.ops), old.header["seed"]) == (FEW, 1)
    writer.end(1.0)
    assert names(tmp_path) == [
        "x.msgpack",
        "x.msgpack.partial.old",
        "x.msgpack.partial.old.tail",
    ]
    del killed


def test_a_tail_without_its_file_is_removed(tmp_path, path, partial):
    killed = left_by_a_killed_run(path, seed=1)
    partial.unlink()
    begun(path, seed=1)
    assert names(tmp_path) == ["x.msgpack.partial"]
    del killed


def test_the_tail_of_another_run_is_not_joined(tmp_path, path):
    killed = left_by_a_killed_run(path, seed=1)
    other = begun(tmp_path / "y", seed=2)
    record_ops(other)
    shutil.copy(f"{path}.partial.tail", tmp_path / "y.partial.tail")
    assert len(Trace.open(tmp_path / "y.partial").ops) == 0
    del killed


def test_a_finished_file_asks_for_no_tail_of_its_making(path):
    record_all(TraceWriter(path), None)
    whole = everything(Trace.open(path))
    Path(f"{path}.partial.tail").write_bytes(b"x" * 1000)
    Path(f"{path}.tail").write_bytes(b"x" * 1000)
    assert everything(Trace.open(path)) == whole


def test_a_damaged_tail_is_as_none(path, partial):
    writer = begun(path)
    record_ops(writer)
    writer.write_tail()
    tail = Path(f"{partial}.tail")
    data = tail.read_bytes()
    rng = random.Random(0)
    seen = set()
    for _ in range(30):
        broken = bytearray(data)
        broken[min(rng.randrange(len(data)), rng.randrange(200))] ^= 1 << rng.randrange(
            8
        )
        kept = broken[: rng.choice([len(data), rng.randrange(len(data))])]
        tail.write_bytes(kept)
        seen.add(len(touch(Trace.open(partial)).ops))
    assert seen == {0}
    tail.unlink()
    os.mkfifo(tail)
    assert len(Trace.open(partial).ops) == 0


# -- kills ------------------------------------------------------------


def recorded_until_killed(path, times):
    """A process that records a row about every millisecond, and when it did."""
    pid = os.fork()
    if pid:
        return pid
    rng = random.Random(os.getpid())
    try:
        writer = begun(path)
        for row in range(len(times)):
            writer.text(float(row), 0, "print", f"row {row}")
            times[row] = time.monotonic()
            # Now and then a kernel computes for long.
            time.sleep(rng.choice([1e-3] * 400 + [0.8]))
    finally:
        os._exit(3)


def lost_seconds(folder, kills, seed):
    """How long before it was killed each run made the first row that was lost."""
    rng = random.Random(seed)
    runs = []
    for number in range(kills):
        times = np.frombuffer(mmap(-1, 8 * 20_000), np.float64)
        path = folder / f"{number}.msgpack"
        pid = recorded_until_killed(path, times)
        runs.append((time.monotonic() + rng.uniform(0.5, 4.0), path, pid, times))
    lost = []
    for until, path, pid, times in sorted(runs, key=lambda run: run[0]):
        time.sleep(max(until - time.monotonic(), 0))
        killed_at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        trace = touch(Trace.open(Path(f"{path}.partial")))
        assert trace.damaged == []
        texts = [text.message for text in trace.texts]
        assert texts == [f"row {row}" for row in range(len(texts))]
        lost.append(killed_at - times[len(texts)] if times[len(texts)] else 0.0)
    return lost


@pytest.mark.slow
def test_a_killed_run_loses_no_more_than_its_last_second(tmp_path):
    assert max(lost_seconds(tmp_path, kills=6, seed=0)) < LOST_S


@pytest.mark.soak
def test_a_hundred_killed_runs_lose_no_more_than_their_last_second(tmp_path):
    lost = []
    for seed in range(10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        lost += lost_seconds(folder, kills=10, seed=seed)
    assert max(lost) < LOST_S


@pytest.mark.slow
def test_no_tail_stays_in_memory_while_a_run_collects_no_garbage(path):
    def encoders():
        return sum(isinstance(item, RowEncoder) for item in gc.get_objects())

    writer = begun(path)
    gc.collect()
    before = encoders()
    gc.disable()  # as a run does
    try:
        for _ in range(3):
            record_ops(writer)
            writer.write_tail()
        assert encoders() == before
    finally:
        gc.enable()
        writer.end(0.0)
