"""The file of a run that goes wrong, and what is no trace: readable, or refused.

What is refused is refused in one line.
"""

import os
import random
import subprocess
import sys
import zlib

import msgpack
import pytest
from recordings import record_all, record_ops, touch

from kernbench.errors import KernbenchError, TraceFormatError
from kernbench.trace import Trace, TraceWriter
from kernbench.trace.schema import pack_frame


@pytest.fixture
def plain(tmp_path):
    """A small whole file without a machine."""
    path = tmp_path / "plain.msgpack"
    record_all(TraceWriter(path), None)
    return path


def frames_of(data):
    """(start, tag) of the frames of a file, and its end."""
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(data)
    found = []
    start = 0
    for tag, _, _ in unpacker:
        found.append((start, tag))
        start = unpacker.tell()
    return found, start


# -- the writer's side ------------------------------------------------------------


@pytest.fixture
def no_tails(monkeypatch):
    """However slow this machine is, no tail is written."""
    monkeypatch.setattr("kernbench.trace.tail.EVERY_S", 3600.0)


def test_until_the_end_the_file_is_partial_and_opens(tmp_path, no_tails):
    path = tmp_path / "x.msgpack"
    writer = TraceWriter(path)
    record_ops(writer, repeat=700, step=0.1)
    assert [p.name for p in tmp_path.iterdir()] == ["x.msgpack.partial"]
    trace = Trace.open(tmp_path / "x.msgpack.partial")
    assert trace.check() == []
    assert 8000 < len(trace.ops) < 700 * 12
    assert not trace.complete
    writer.end(1.0)
    assert [p.name for p in tmp_path.iterdir()] == ["x.msgpack"]
    assert len(Trace.open(path).ops) == 700 * 12 + 1


@pytest.mark.slow
def test_until_the_end_it_opens_with_its_tail_which_is_gone_then(tmp_path, no_tails):
    path = tmp_path / "x.msgpack"
    writer = TraceWriter(path)
    record_ops(writer, repeat=700, step=0.1)
    writer.write_tail()
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["x.msgpack.partial", "x.msgpack.partial.tail"]
    trace = Trace.open(tmp_path / "x.msgpack.partial")
    assert trace.check() == []
    assert len(trace.ops) == 700 * 12 + 1
    assert not trace.complete
    writer.end(1.0)
    assert [p.name for p in tmp_path.iterdir()] == ["x.msgpack"]


def test_an_error_that_ended_the_run_is_named(tmp_path):
    writer = TraceWriter(tmp_path / "x.msgpack")
    record_ops(writer)
    writer.end(7.0, error="DeadlockError: nothing can go on")
    trace = Trace.open(tmp_path / "x.msgpack")
    assert trace.complete
    assert trace.end["ok"] is False
    assert trace.end["error"] == "DeadlockError: nothing can go on"


def test_a_file_closed_without_an_end_counts_as_cut(tmp_path):
    writer = TraceWriter(tmp_path / "x.msgpack")
    record_ops(writer)
    writer.close()
    writer.close()
    trace = Trace.open(tmp_path / "x.msgpack")
    assert (trace.complete, trace.end) == (False, None)
    assert trace.end_ns == 121.0  # of the last op


def test_a_run_in_which_nothing_happened_is_a_trace(tmp_path):
    TraceWriter(tmp_path / "x.msgpack").close()
    trace = touch(Trace.open(tmp_path / "x.msgpack"))
    assert (len(trace.ops), trace.complete) == (0, False)


def test_an_abandoned_run_leaves_no_file(tmp_path):
    TraceWriter(tmp_path / "x.msgpack").abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_made_is_one_error(tmp_path):
    with pytest.raises(KernbenchError, match="cannot write trace"):
        TraceWriter(tmp_path / "missing" / "x.msgpack")


# -- the reader's side ------------------------------------------------------------


@pytest.mark.slow
def test_a_file_cut_at_any_byte_opens_up_to_its_last_whole_frame(tmp_path):
    plain = tmp_path / "plain.msgpack"
    record_all(TraceWriter(plain), None, kinds=2)
    data = plain.read_bytes()
    starts, _ = frames_of(data)
    first_end = starts[1][0]
    for size in reversed(range(len(data))):
        os.truncate(plain, size)
        if size < first_end:
            with pytest.raises(TraceFormatError, match="offset 0"):
                Trace.open(plain)
            continue
        trace = Trace.open(plain)
        assert (trace.complete, trace.damaged) == (False, [])
        if size % 97 == 0:
            touch(trace)


@pytest.mark.slow
def test_a_flipped_byte_is_never_more_than_a_damaged_frame(demo):
    path = demo[0]
    data = path.read_bytes()
    rng = random.Random(1)
    starts = [start for start, _ in frames_of(data)[0]]
    seen = 0
    for _ in range(100):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            near_a_head = rng.choice(starts) + rng.randrange(200)
            at = min(rng.choice([rng.randrange(len(data)), near_a_head]), len(data) - 1)
            broken[at] = rng.randrange(256)
        path.write_bytes(broken)
        try:
            seen += len(touch(Trace.open(path)).damaged)
        except TraceFormatError:
            seen += 1
    assert seen > 40


def test_a_damaged_body_is_skipped_and_named(plain):
    data = bytearray(plain.read_bytes())
    starts = dict((tag, start) for start, tag in frames_of(data)[0])
    data[starts["waits"] - 1] ^= 1  # the last byte of the frame before
    plain.write_bytes(data)
    trace = touch(Trace.open(plain))
    ((_, tag, reason),) = trace.damaged
    assert (tag, reason) == ("transfers", "its checksum does not match")
    assert len(trace.ops) == 13
    assert trace.transfers_of(0) == []
    assert len(trace.waits_of(1)) == 2


@pytest.mark.slow
def test_rows_are_counted_anew_past_a_damaged_chunk(tmp_path):
    path = tmp_path / "x.msgpack"
    writer = TraceWriter(path)
    recording = record_ops(writer, repeat=1200, step=0.1)
    writer.close()
    data = bytearray(path.read_bytes())
    starts, _ = frames_of(data)
    ops = [i for i, (_, tag) in enumerate(starts) if tag == "ops"]
    data[starts[ops[1] + 1][0] - 1] ^= 1
    path.write_bytes(data)
    trace = Trace.open(path)
    lost = 4096  # a chunk has so many ops, as each has two transfers
    row = lost  # the first after the gap
    assert len(trace.ops) == len(recording.records) - lost
    assert [damage.tag for damage in trace.damaged] == ["ops"]
    assert trace.op_columns.t_end[row] == recording.records[row + lost].t_end
    assert trace.deps(row).tolist() == []
    assert trace.deps(row + 1).tolist() == [row]
    assert trace.waits_of(row + 1)[0][4] == row
    assert trace.transfers_of(row) == recording.transfers[row + lost]


def test_a_damaged_head_costs_its_frame_only(plain):
    data = bytearray(plain.read_bytes())
    starts = dict((tag, start) for start, tag in frames_of(data)[0])
    data[starts["waits"]] = 0xC1  # never used in msgpack
    plain.write_bytes(data)
    trace = touch(Trace.open(plain))
    assert [damage.offset for damage in trace.damaged] == [starts["waits"]]
    assert (len(trace.launches), trace.complete) == (1, True)


def append(path, tag, head, body=b""):
    data = path.read_bytes()
    path.write_bytes(data + pack_frame(tag, head, body, len(data)))


def test_unknown_frames_are_skipped(plain):
    append(plain, "hologram", {"x": [1, {"y": 2}]}, b"abc")
    trace = touch(Trace.open(plain))
    assert (trace.damaged, trace.complete) == ([], True)


def column(name, code="u4", offset=0, count=1):
    return [name, code, offset, count]


MEGABYTE = zlib.compress(bytes(10**6))
SOURCE = {"file": "a", "kernel": "b"}
NO_OPS = {"n": 0, "first": 99}


@pytest.mark.parametrize(
    ("tag", "head", "body"),
    [
        ("strings", {"first": 10**6, "n": 1, "raw": 2}, zlib.compress(b"\x91\xa0")),
        ("strings", {"first": 0, "n": 1, "raw": 2}, zlib.compress(b"\x91\xa0")),
        ("source", SOURCE | {"raw": 1 << 40}, MEGABYTE),
        ("source", SOURCE | {"raw": 10}, MEGABYTE),
        ("source", SOURCE | {"raw": -1}, b""),
        ("text", {"n": 1 << 60, "columns": []}, b""),
        ("text", {"n": 1, "columns": [column("t", "f8")]}, b"short"),
        ("text", {"n": 1, "columns": [column("t", "O")]}, bytes(8)),
        ("text", {"n": 1, "columns": 5}, b""),
        ("text", {"n": -1, "columns": []}, b""),
        (
            "tensors",
            {"first": 99, "n": 1, "columns": [column("dtype", "u1", 1 << 62)]},
            b"",
        ),
        ("ops", NO_OPS | {"first_schema": 0, "schemas": [["a"]], "columns": []}, b""),
        ("ops", NO_OPS | {"first_schema": 1 << 50, "schemas": []}, b""),
        ("expect", {"name": "c", "dtype": "f16", "tensor": 1 << 70}, b""),
        ("alloc", {"n": 0, "columns": [], "spaces": []}, b""),
        ("topology", {"nodes": {"n": 5}, "raw": 0}, zlib.compress(b"")),
    ],
)
def test_a_frame_that_claims_too_much_is_skipped(plain, tag, head, body):
    with_front = plain.read_bytes()
    first = frames_of(with_front)[0][1][0]
    sayable = {key: value for key, value in head.items() if value != 1 << 70}
    crafted = pack_frame(tag, sayable, body, first)
    plain.write_bytes(with_front[:first] + crafted)
    trace = touch(Trace.open(plain))
    assert [damage.tag for damage in trace.damaged] == [tag] or tag == "strings"
    append(plain, "end", {"end_ns": 1.0})
    assert Trace.open(plain).complete


def test_deep_nesting_in_a_head_is_refused(tmp_path, plain):
    first = frames_of(plain.read_bytes())[0][1][0]
    deep = b"\x93\xa3ops\x81\xa1x" + b"\xdd\x00\x00\xff\xff" * 100_000
    plain.write_bytes(plain.read_bytes()[:first] + deep)
    trace = touch(Trace.open(plain))
    assert len(trace.damaged) == 1


def test_a_params_structure_nested_too_deep_is_refused(plain):
    tree = "i"
    for _ in range(40):
        tree = ["(", [tree]]
    schemas = [["memory", "x", [["a", tree]]]]
    head = NO_OPS | {"first_schema": 999, "params": [], "schemas": schemas}
    append(plain, "ops", head | {"columns": []})
    assert [d.tag for d in touch(Trace.open(plain)).damaged] == ["ops"]


def header(version=(1, 0), **changes):
    return pack_frame("kernbench-trace", {"version": list(version)} | changes, b"", 0)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"hello, world\n" * 50, "no kernbench trace"),
        (msgpack.packb(["other", {"crc": 0}, b""]), "first frame is 'other'"),
        (msgpack.packb({"a": 1}), "no kernbench trace"),
        (b"\xdd\xff\xff\xff\xff", "no kernbench trace"),
        (header((2, 0)), "reads 1.x"),
        (header(("x",)), "no kernbench trace"),
        (header(arguments=3), "arguments"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path, data, reason):
    path = tmp_path / "x.msgpack"
    path.write_bytes(data)
    with pytest.raises(TraceFormatError, match=reason) as caught:
        Trace.open(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_a_directory_and_a_pipe_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, reason in (
        (tmp_path / "nowhere", "No such file"),
        (tmp_path, "directory"),
        (tmp_path / "pipe", "no regular file"),
    ):
        with pytest.raises(TraceFormatError, match=reason):
            Trace.open(path)


def test_of_a_run_that_was_killed_the_file_that_it_left_is_named(tmp_path):
    """It said to record one, beside a file with all that the run had recorded."""
    path = tmp_path / "t.msgpack"
    left = tmp_path / "t.msgpack.partial"
    left.write_bytes(b"")
    with pytest.raises(TraceFormatError, match="was killed, or still goes on") as said:
        Trace.open(path)
    assert str(said.value).endswith(f": what it has recorded is {left}")


def test_without_a_machine_strings_stand_in_for_nodes(plain):
    trace = touch(Trace.open(plain))
    component = int(trace.op_columns.component[0])
    assert trace.node_ids[component] == "sip0.cube0.pe0.pe_dma"
    assert trace.nodes.pe[component] == -1
    assert trace.edges.src.tolist() == []
    assert trace.spec == {}


@pytest.mark.slow
def test_reading_imports_no_simulator():
    code = (
        "import sys, kernbench.trace; "
        "print([m for m in ('simpy', 'greenlet', 'textual') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
