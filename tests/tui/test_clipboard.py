"""Where copied text goes, by what is open here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tui import clipboard


@pytest.fixture
def copied_file(monkeypatch, tmp_path: Path) -> Path:
    """The file that copies go to where nothing else is open."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "kernbench" / "copied.txt"


@pytest.fixture
def sent() -> list[str]:
    """What the terminal was sent by OSC 52."""
    return []


def test_a_terminal_is_sent_osc_52(monkeypatch, sent) -> None:
    monkeypatch.setenv("TERM", "xterm")
    how = clipboard.copy("a\nb", sent.append)
    assert "OSC 52" in how
    assert sent == ["a\nb"]


def test_within_tmux_its_buffer_is_loaded(monkeypatch, sent) -> None:
    calls: list[tuple[object, bytes]] = []

    def run(args, **options) -> None:
        calls.append((args, options["input"]))

    monkeypatch.setenv("TMUX", "/tmp/tmux")
    monkeypatch.setattr(subprocess, "run", run)
    assert clipboard.copy("c", sent.append) == "by tmux load-buffer -w"
    assert calls == [(("tmux", "load-buffer", "-w", "-"), b"c")]
    assert sent == []


def test_where_tmux_fails_it_is_a_file(monkeypatch, sent, copied_file) -> None:
    def fail(args, **options) -> None:
        raise FileNotFoundError("tmux")

    monkeypatch.setenv("TMUX", "/tmp/tmux")
    monkeypatch.setattr(subprocess, "run", fail)
    assert clipboard.copy("d→", sent.append) == f"to {copied_file}"
    assert copied_file.read_text(encoding="utf-8") == "d→"
    assert sent == []


@pytest.mark.parametrize("term", ["linux", "dumb"])
def test_a_terminal_without_osc_52_gets_a_file(
    term, monkeypatch, sent, copied_file
) -> None:
    monkeypatch.setenv("TERM", term)
    assert clipboard.copy("e", sent.append) == f"to {copied_file}"
    assert sent == []


def test_a_text_of_74_000_bytes_is_sent(monkeypatch, sent) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = "a" * 74_000
    clipboard.copy(text, sent.append)
    assert sent == [text]


def test_a_text_of_74_001_bytes_goes_to_a_file(monkeypatch, sent, copied_file) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = "─" * 24_667  # of three bytes each
    clipboard.copy(text, sent.append)
    assert sent == []
    assert copied_file.read_text(encoding="utf-8") == text


def test_a_text_that_can_be_copied_nowhere_is_reported(monkeypatch, tmp_path) -> None:
    (tmp_path / "kernbench").write_text("in the way")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("TERM", "dumb")
    assert clipboard.copy("e", print).startswith("nowhere: ")
