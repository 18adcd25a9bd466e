"""The line on top: what it says of the trace and the cursor, and what it leaves out."""

from __future__ import annotations

from os import utime
from pathlib import Path
from shutil import copy2

import pytest

from kernbench.replay.index import Index
from kernbench.replay.query import Session
from kernbench.trace import Trace
from tui.draw import UNICODE
from tui.widgets.status import Status

TRACES = Path(__file__).parents[2] / "traces"
LONG_NAME = "attention_of_all_heads.msgpack"


@pytest.fixture(scope="module")
def wrong() -> Index:
    """A trace whose outputs are wrong."""
    return Index(Trace.open(TRACES / "fault_overflow.msgpack"))


def status(
    index: Index,
    width: int,
    note: str = "",
    hazards: int = 0,
    marks: tuple[tuple[str, int], ...] = (),
    name: str = LONG_NAME,
) -> str:
    widget = Status(index, name, UNICODE)
    widget.update_line(Session(2, marks=marks), width, note, (), hazards)
    text = "".join(part for part, _ in widget.line)
    assert len(text) == width
    return text


def test_with_room_for_all_it_says_all(wrong):
    text = status(wrong, 200, "z: all panes", hazards=2)
    for part in ("kernbench", LONG_NAME, "op 2/", "t=", "in flight", "verify FAILED"):
        assert part in text
    assert "!2 HAZARDS" in text


@pytest.mark.parametrize("hazards", [0, 1, 12])
@pytest.mark.parametrize("note", ["", "z: all panes", "3 damaged frames"])
@pytest.mark.parametrize("marks", [(), (("a", 1), ("b", 2))])
def test_at_80_columns_it_names_the_file(wrong, hazards, note, marks):
    """Which of two traces was open could not be seen where one had races."""
    text = status(wrong, 80, note, hazards, marks)
    assert text.startswith((" attent", " kernbench attent"))
    assert "op 2/" in text
    assert "DIFF" in text


def test_a_name_that_is_cut_ends_in_an_ellipsis_and_takes_what_is_free(wrong):
    name = status(wrong, 80, hazards=12, note="z: all panes").split("  ")[0]
    assert name.endswith("…")
    assert len(name) >= 8


def test_a_short_name_is_worth_as_much(wrong):
    text = status(wrong, 80, "3 damaged frames", 12, name="a")
    assert text.startswith((" a ", " kernbench a "))


def test_where_there_is_room_for_little_it_says_where_the_cursor_is(wrong):
    assert status(wrong, 20).split()[:2] == ["op", "2/5"]


def test_a_later_run_that_was_killed_is_told(tmp_path):
    """Its recording is in FILE.partial, and FILE was shown as if it were that."""
    path = tmp_path / "matmul.msgpack"
    copy2(TRACES / path.name, path)
    index = Index(Trace.open(path))
    assert ".partial" not in status(index, 80)
    assert "later run" not in index.ops.info().facts()
    partial = tmp_path / "matmul.msgpack.partial"
    partial.touch()
    utime(path, (1.0, 1.0))
    assert "later run: .partial" in status(index, 80)
    assert str(partial) in index.ops.info().facts()["later run"]
