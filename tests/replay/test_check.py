"""What `kernbench trace check` finds in sound files, and in broken ones."""

import json

import pytest

from kernbench.errors import TraceFormatError
from kernbench.replay.check import check_file
from kernbench.replay.plain import as_data
from kernbench.replay.text import as_text
from kernbench.trace.frames import FrameFile
from kernbench.trace.schema import pack_frame


@pytest.fixture
def broken(recorded, tmp_path):
    """(a copy of a trace's path, its bytes, its frames by tag) to do harm to."""
    path = tmp_path / "x.msgpack"
    path.write_bytes(recorded.trace_path.read_bytes())
    return path, bytearray(path.read_bytes()), FrameFile(path).by_tag


def test_a_sound_trace_is_ok_and_its_frames_are_counted(recorded):
    check = check_file(recorded.trace_path)
    assert (check.ok, check.complete, check.damaged) == (True, True, ())
    assert check.bytes == recorded.trace_path.stat().st_size
    (ops,) = [row for row in check.tags if row.tag == "ops"]
    assert ops.rows == ops.told == recorded.summary()["ops"]
    assert as_text(check).splitlines()[0] == f"ok: {check.bytes:,} bytes"


def test_a_damaged_frame_is_listed_with_place_and_reason(broken):
    path, data, frames = broken
    (waits,) = frames["waits"]
    data[waits.start] ^= 1
    path.write_bytes(data)
    check = check_file(path)
    reason = "its checksum does not match"
    assert check.damaged == (
        {"offset": waits.offset, "tag": "waits", "reason": reason},
    )
    assert not check.ok
    assert f"damaged: waits at {waits.offset:,}: {reason}" in as_text(check)
    assert "waits: 0 rows of the" in as_text(check)


def test_a_frame_that_is_missing_is_seen_by_the_counts(broken):
    path, data, frames = broken
    (waits,) = frames["waits"]
    del data[waits.offset : waits.start + waits.size]
    path.write_bytes(data)
    check = check_file(path)
    assert (check.ok, check.complete, check.damaged) == (False, True, ())
    assert "waits: 0 rows of the" in as_text(check)


def test_a_file_that_was_cut_off_is_not_ok(broken):
    path, data, frames = broken
    path.write_bytes(data[: frames["ops"][0].start])
    check = check_file(path)
    assert (check.ok, check.complete) == (False, False)
    assert "cut off" in as_text(check)


def test_a_frame_of_an_unknown_tag_is_checked_too(broken):
    path, data, _ = broken
    extra = bytearray(pack_frame("future", {}, b"body", len(data)))
    extra[-1] ^= 1
    path.write_bytes(data + extra)
    assert [damage["tag"] for damage in check_file(path).damaged] == ["future"]


def test_a_file_of_which_only_the_first_frame_can_be_read_is_checked(broken):
    path, data, frames = broken
    first = frames["kernbench-trace"][0]
    path.write_bytes(data[: first.start + first.size] + bytes(range(256)) * 40)
    check = check_file(path)
    assert not check.ok
    assert [row.tag for row in check.tags] == ["kernbench-trace"]
    assert [damage["tag"] for damage in check.damaged] == ["?"]


@pytest.mark.parametrize(
    "counts", [5, {"ops": "many", b"x": 1, "waits": None}, {"ops": -1}]
)
def test_counts_that_are_none_do_no_harm(broken, counts):
    path, data, _ = broken
    path.write_bytes(
        data + pack_frame("end", {"counts": counts, "end_ns": 1.0}, b"", len(data))
    )
    assert check_file(path).ok == (counts != {"ops": -1})


def test_an_answer_is_json(recorded):
    data = json.loads(json.dumps(as_data(check_file(recorded.trace_path))))
    assert data["ok"] is True
    assert data["tags"][0]["tag"] == "kernbench-trace"


def test_what_is_no_trace_is_one_error(tmp_path):
    (tmp_path / "x").write_bytes(b"hello")
    with pytest.raises(TraceFormatError, match="no kernbench trace"):
        check_file(tmp_path / "x")
