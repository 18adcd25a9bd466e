"""One trace that several threads read at once: each reads what one alone would."""

import random
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from threading import Barrier, Event

import pytest
from recordings import record_all

from kernbench.trace import Trace, TraceWriter
from kernbench.trace.frames import FrameFile
from kernbench.trace.hops import hop_columns, kernel_lines, tile_columns
from kernbench.trace.schema import pack_frame

THREADS = 6
ROUNDS = 2


def columns(log):
    """All columns of a log as lists, by name."""
    return {field.name: list(getattr(log, field.name)) for field in fields(log)}


def tensors(trace):
    """The arrays in params, by row."""
    found = {}
    for row in range(len(trace.ops)):
        params = trace.params(row)
        arrays = [params.get("snapshot"), *params.get("input_snapshots", [])]
        found[row] = [(a.dtype, a.tobytes()) for a in arrays if a is not None]
    return found


READINGS = {
    "op columns": lambda trace: columns(trace.op_columns),
    "waits": lambda trace: columns(trace.waits),
    "transfers": lambda trace: columns(trace.transfers),
    "commands": lambda trace: columns(trace.commands),
    "allocations": lambda trace: columns(trace.alloc_columns),
    "nodes": lambda trace: columns(trace.nodes),
    "edges": lambda trace: columns(trace.edges),
    "order": lambda trace: (trace.order.tolist(), trace.position.tolist()),
    "ops": lambda trace: [repr(op) for op in trace.ops],
    "executable": lambda trace: [repr(op) for op in trace.executable],
    "deps": lambda trace: [trace.deps(i).tolist() for i in range(len(trace.order))],
    "effects": lambda trace: [list(trace.effects(i)) for i in range(0, 100, 10)],
    "waits of ops": lambda trace: [trace.waits_of(i) for i in range(0, 100, 5)],
    "transfers of ops": lambda trace: [trace.transfers_of(i) for i in range(0, 100, 5)],
    "commands by number": lambda trace: [trace.command(cmd) for cmd in range(9)],
    "blocks": lambda trace: [
        repr((block.schema, block.values, block.rows)) for block in trace.param_blocks()
    ],
    "strings": lambda trace: (trace.strings[:], trace.paths[:], trace.node_index),
    "shards": lambda trace: (trace.shards(), trace.shards([0])),
    "hops": lambda trace: [column.tolist() for column in hop_columns(trace)],
    "tiles": lambda trace: [column.tolist() for column in tile_columns(trace)],
    "lines": lambda trace: kernel_lines(trace)[0],
    "tensors": tensors,
    "events": lambda trace: (trace.launches, trace.texts, trace.sources),
    "references": lambda trace: repr(trace.expects),
    "end": lambda trace: (trace.end_ns, trace.verify_report, trace.spec),
    "damage": lambda trace: sorted(trace.check()),
}


@pytest.fixture
def path(tmp_path, small, monkeypatch):
    """A trace of many frames, none of which is whole in memory."""
    monkeypatch.setattr("kernbench.trace.writer.CHUNK_ROWS", 32)
    monkeypatch.setattr("kernbench.trace.writer.QUIET_ROWS", 32)
    record_all(TraceWriter(tmp_path / "x.msgpack"), small, repeat=8)
    return tmp_path / "x.msgpack"


@pytest.fixture
def often_switched():
    """Threads take turns every few bytecodes."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def read_by_threads(trace, seed):
    """What each of some threads reads of a trace, all of it, each in another order."""
    start = Barrier(THREADS)

    def read(number):
        names = list(READINGS)
        random.Random(f"{seed} {number}").shuffle(names)
        start.wait()
        return {name: READINGS[name](trace) for name in names}

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(read, range(THREADS)))


def assert_read_alike(path):
    alone = Trace.open(path)
    wanted = {name: read(alone) for name, read in READINGS.items()}
    for seed in range(ROUNDS):
        for found in read_by_threads(Trace.open(path), seed):
            for name, value in wanted.items():
                assert found[name] == value, name
    return wanted


@pytest.mark.slow
@pytest.mark.usefixtures("often_switched")
def test_threads_read_what_one_reads_alone(path):
    assert assert_read_alike(path)["damage"] == []


def damage_second_frame(path, tag):
    """The offset of that frame, of which one byte is another now."""
    frame = FrameFile(path).by_tag[tag][1]
    data = bytearray(path.read_bytes())
    data[frame.start + frame.size - 1] ^= 1
    path.write_bytes(data)
    return frame.offset


@pytest.mark.slow
@pytest.mark.usefixtures("often_switched")
def test_threads_skip_the_same_damaged_frames(path):
    for tag in ("ops", "waits", "tensors"):
        damage_second_frame(path, tag)
    damage = assert_read_alike(path)["damage"]
    # The reference is damaged, since its tensor is.
    assert sorted(d.tag for d in damage) == ["expect", "ops", "tensors", "waits"]


def test_a_damage_that_two_threads_find_at_once_is_noted_once(path):
    damaged = damage_second_frame(path, "waits")
    both_read_it = Barrier(2)

    def on_frame(frame):
        if frame.offset == damaged:
            both_read_it.wait(10)

    trace = Trace.open(path, on_frame)
    with ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(getattr, trace, "waits") for _ in range(2)]
        assert waits[0].result() is waits[1].result()
    assert [damage.offset for damage in trace.damaged] == [damaged]


@pytest.mark.parametrize("name", ["op_columns", "order", "waits", "launches", "nodes"])
def test_a_thread_that_is_held_up_while_it_reads_holds_up_no_other(path, name):
    is_held = Event()
    go_on = Event()
    held = []

    def on_frame(frame):
        if held and not is_held.is_set():
            is_held.set()
            go_on.wait(10)

    trace = Trace.open(path, on_frame)
    with ThreadPoolExecutor(2) as pool:
        held.append("the next that reads a frame")
        slow = pool.submit(getattr, trace, name)
        assert is_held.wait(10)
        try:
            quick = pool.submit(getattr, trace, name).result(10)
        finally:
            go_on.set()
        assert slow.result(10) is quick  # the value of the first is that of both


@pytest.mark.slow
def test_a_body_that_is_inflated_twice_counts_once(tmp_path):
    """A file may inflate to 24 MiB and twice its size, whoever reads it, how often."""
    text = bytes(20 << 20)
    head = {"file": "a", "kernel": "b", "raw": len(text)}
    data = pack_frame("kernbench-trace", {"version": [1, 0]}, b"", 0)
    data += pack_frame("source", head, zlib.compress(text), len(data))
    path = Path(tmp_path / "x.msgpack")
    path.write_bytes(data)
    file = FrameFile(path)
    for _ in range(3):
        assert [len(body) for body in file.each("source", file.inflate)] == [len(text)]
    assert file.damaged == []
