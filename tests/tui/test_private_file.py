"""What is kept of a trace, copied or reported is for nobody else to read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tui import clipboard, lifecycle, state
from tui.app import KernbenchApp
from tui.private_file import write_private

UMASKS = [0, 0o022]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the program keeps its state; it is not there yet, nor the folder above."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "local" / "state"))
    return tmp_path / "local" / "state" / "kernbench"


@pytest.fixture(params=UMASKS, ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_state_file_and_its_folders_are_the_users_alone(home, umask) -> None:
    state.write("traces/0.json", {"cursor": 1})
    assert mode_of(home / "traces" / "0.json") == 0o600
    assert mode_of(home / "traces") == 0o700
    assert mode_of(home) == 0o700


def test_nobody_else_may_write_where_the_folder_stands(home, umask) -> None:
    state.write("recent.json", {"files": []})
    assert not mode_of(home.parent) & 0o077


def test_a_crash_report_is_the_users_alone(home, umask, session) -> None:
    app = KernbenchApp(session, "matmul.msgpack")
    app.crash = "ValueError: \ud800\x1b"
    said = lifecycle.report(app)
    path = Path(said.removeprefix("crash report: "))
    assert path.parent == home
    assert mode_of(path) == 0o600
    assert mode_of(home) == 0o700
    assert r"ValueError: \ud800\x1b" in path.read_text(encoding="utf-8")


def test_what_is_copied_to_a_file_is_the_users_alone(home, umask, monkeypatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    clipboard.copy("text", lambda _: None)
    assert mode_of(home / "copied.txt") == 0o600


def test_files_and_folders_of_before_are_closed(home) -> None:
    traces = home / "traces"
    traces.mkdir(parents=True, mode=0o755)
    old = traces / "0.json"
    old.write_text("{}")
    old.chmod(0o644)
    write_private("traces/0.json", b"[]")
    assert mode_of(old) == 0o600
    assert mode_of(traces) == 0o700
    assert mode_of(home) == 0o700


def test_a_report_that_cannot_be_written_says_where(home, session) -> None:
    home.parent.mkdir(parents=True)
    home.write_text("a file")
    app = KernbenchApp(session, "matmul.msgpack")
    said = lifecycle.report(app)
    assert said == f"no crash report: {home}: File exists"
