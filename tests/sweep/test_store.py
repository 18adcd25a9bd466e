"""What is in a folder of results after kills, damage, and with a disk that is full."""

import json
import math
import resource
from contextlib import contextmanager

import pytest
from pyarrow import parquet

from kernbench.errors import KernbenchError, UsageError
from kernbench.sweep.point import Outcome
from kernbench.sweep.space import Point
from kernbench.sweep.store import (
    OLDER,
    POINTS,
    WALL,
    Row,
    Store,
    locked,
    read_rows,
    replace_file,
    row_of,
    write_parquet,
)


def row(key, error=None):
    result = {"end_ns": 1.5, "ok": True} if error is None else None
    return Row(key, Point({"m": 64}, {"pe.clock_ghz": 2.0}, 0), result, error)


@pytest.fixture
def opened():
    """Opens the store of a folder; it is closed at the end."""
    stores = []

    def open_(folder):
        stores.append(Store(folder))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


def test_a_row_is_read_as_it_was_written():
    for made in (row("a"), row("b", "KernelError: it\nfailed")):
        assert row_of(made.line()) == made


def test_a_line_is_json_whatever_numbers_a_row_has():
    params = {"nan": math.nan, "inf": math.inf, "less": -math.inf, "one": 1.0}
    result = {"end_ns": math.nan, "ok": True}
    line = Row("a", Point(params, {}, 0), result, None).line()

    def refused(constant):
        raise AssertionError(f"{constant} is no JSON")

    data = json.loads(line, parse_constant=refused)
    assert data["set"] == {"nan": "nan", "inf": "inf", "less": "-inf", "one": 1.0}
    assert row_of(line).key == "a"


def test_rows_are_there_when_added_and_sorted_at_the_end(opened, tmp_path):
    store = opened(tmp_path)
    store.add([row("c")])
    store.add([row("a"), row("b", "no")])
    assert list(read_rows(tmp_path / POINTS).rows) == ["c", "a", "b"]
    rows = store.finish(["a", "b", "c"])
    assert [found.key for found in rows] == ["a", "b", "c"]
    text = (tmp_path / POINTS).read_text().splitlines()
    assert [json.loads(line)["key"] for line in text] == ["a", "b", "c"]
    assert not (tmp_path / OLDER).exists()


@pytest.mark.parametrize("cut", range(1, len(row("b").line()) + 1, 7))
def test_a_line_that_was_not_written_to_its_end_is_no_point(opened, tmp_path, cut):
    whole = row("a").line()
    (tmp_path / POINTS).write_bytes(whole + row("b").line()[:-cut])
    store = opened(tmp_path)
    assert (list(store.rows), store.damaged) == (["a"], ())
    store.add([row("c")])
    assert (tmp_path / POINTS).read_bytes() == whole + row("c").line()


@pytest.mark.parametrize(
    "damage",
    [
        b"\0" * 40,
        b"[1]",
        b"{}",
        b'{"key": "x"}',
        b"\xff\xfe",
        b"[" * 100_000,
        row("x").line().replace(b"null", b'"both"').strip(),
        row("x", "no").line().replace(b'"no"', b"null").strip(),
        row("x").line().replace(b"64}", b"64]").strip(),
        row("x").line().replace(b'"ok"', b'"oj"').strip(),
        row("x").line().replace(b'"end_ns": 1.5, "ok": true', b"").strip(),
    ],
)
def test_a_damaged_line_is_named_and_leaves_the_others(opened, tmp_path, damage):
    lines = row("a").line() + damage + b"\n" + row("b").line()
    (tmp_path / POINTS).write_bytes(lines)
    store = opened(tmp_path)
    assert (sorted(store.rows), store.damaged) == (["a", "b"], (2,))


def test_points_of_another_sweep_are_kept_aside_and_found_again(opened, tmp_path):
    store = opened(tmp_path)
    store.add([row("a"), row("b")])
    store.finish(["b"])
    assert list(read_rows(tmp_path / POINTS).rows) == ["b"]
    again = opened(tmp_path)
    assert sorted(again.rows) == ["a", "b"]
    again.finish(["a"])
    assert list(read_rows(tmp_path / POINTS).rows) == ["a"]
    assert sorted(opened(tmp_path).rows) == ["a", "b"]


def test_rows_of_another_sweep_are_out_of_sight_from_the_beginning(opened, tmp_path):
    store = opened(tmp_path)
    store.add([row("a"), row("b")])
    store.finish(["b"])
    again = opened(tmp_path)
    again.begin(["a", "c"])
    assert list(read_rows(tmp_path / POINTS).rows) == ["a"]
    again.add([row("c")])
    assert list(read_rows(tmp_path / POINTS).rows) == ["a", "c"]
    assert sorted(opened(tmp_path).rows) == ["a", "b", "c"]


@contextmanager
def disk_with_room_for(nbytes):
    """No file may become longer than ``nbytes``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_loses_nothing_that_was_written(opened, tmp_path):
    store = opened(tmp_path)
    store.add([row("a")])
    with disk_with_room_for(len(row("a").line()) + 10):
        with pytest.raises(KernbenchError, match="1 points are kept, the same command"):
            store.add([row("b")])
        with pytest.raises(KernbenchError, match="File too large"):
            store.add([row("b")])
    assert (tmp_path / POINTS).read_bytes() == row("a").line()
    store.add([row("b")])
    assert list(read_rows(tmp_path / POINTS).rows) == ["a", "b"]


@pytest.mark.parametrize("room", [0, 10])
def test_a_file_that_a_full_disk_does_not_take_leaves_no_half(tmp_path, room):
    path = tmp_path / "sweep.json"
    path.write_bytes(b"old")
    records = [{"m": number, "end_ns": 1.5} for number in range(100)]
    with disk_with_room_for(room):
        with pytest.raises(KernbenchError, match="File too large"):
            replace_file(path, b"x" * 100)
        with pytest.raises(KernbenchError, match="File too large"):
            write_parquet(records, tmp_path / "points.parquet")
    assert [found.name for found in tmp_path.iterdir()] == ["sweep.json"]
    assert path.read_bytes() == b"old"


def test_a_file_that_was_interrupted_leaves_no_half(tmp_path, monkeypatch):
    def interrupted(file):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_file(tmp_path / "sweep.json", b"new")
    assert not list(tmp_path.iterdir())


def test_the_log_of_the_clock_has_whole_lines_after_a_full_disk(opened, tmp_path):
    store = opened(tmp_path)
    outcome = Outcome(result={}, worker="here")
    store.log("a", 1, outcome)
    whole = (tmp_path / WALL).read_bytes()
    with disk_with_room_for(len(whole) + 10), pytest.raises(KernbenchError):
        store.log("b", 1, outcome)
    assert (tmp_path / WALL).read_bytes() == whole
    store.log("b", 1, outcome)
    logged = (tmp_path / WALL).read_text().splitlines()
    assert [json.loads(line)["key"] for line in logged] == ["a", "b"]


def test_two_sweeps_do_not_write_to_one_folder(tmp_path):
    with (
        locked(tmp_path / "new"),
        pytest.raises(UsageError, match="another sweep writes there"),
        locked(tmp_path / "new"),
    ):
        pass
    with locked(tmp_path / "new"):
        pass


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(KernbenchError, match="file/out: Not a directory"),
        locked(tmp_path / "file" / "out"),
    ):
        pass


def test_parquet_has_the_records(tmp_path):
    records = [
        {"m": 64, "clock": 1, "dtype": "f16", "end_ns": 1.5, "wrong": None},
        {"m": 32, "clock": 1.5, "dtype": True, "end_ns": None, "wrong": "x differs"},
    ]
    assert write_parquet(records, tmp_path / "points.parquet")
    table = parquet.read_table(tmp_path / "points.parquet").to_pylist()
    assert table == [
        {"m": 64, "clock": 1.0, "dtype": "f16", "end_ns": 1.5, "wrong": None},
        {"m": 32, "clock": 1.5, "dtype": "True", "end_ns": None, "wrong": "x differs"},
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["points.parquet"]
