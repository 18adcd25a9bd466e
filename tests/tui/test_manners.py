"""Whatever ends the program leaves the terminal as it was; in a real pseudo-terminal."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from threading import Semaphore

import pytest
from terminals import opened

import kernbench
from tui.manners import MannerlyApp

READY = "op 0/"  # of the status line: the trace is loaded


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)],
)
def test_a_signal_restores_the_terminal(
    number, code, trace_path: Path, tmp_path: Path
) -> None:
    with opened(trace_path, "--op", 0, state=tmp_path) as terminal:
        terminal.until(READY)
        assert not terminal.restored()
        os.kill(terminal.pid, number)
        assert terminal.end() == code
        assert terminal.restored()


def test_q_restores_the_terminal(trace_path: Path, tmp_path: Path) -> None:
    with opened(trace_path, "--op", 0, state=tmp_path) as terminal:
        terminal.until(READY)
        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.restored()


CRASHES = {
    "an action": "from tui.screens.debugger import DebuggerScreen as D; D._do_focus = boom",
    "a drawing": "from tui.widgets.tiles import TilesPane as T; T.draw = boom",
    "a timer": "from tui.screens.debugger import DebuggerScreen as D; D.look = boom",
    "the first screen": "from tui.screens.open_trace import LoadingScreen as L; L.compose = boom",
    "loading": "from kernbench.replay import ReplaySession as S; S.info = boom",
}


@pytest.mark.parametrize("where", CRASHES)
def test_a_crash_restores_the_terminal_and_is_reported(
    where: str, trace_path: Path, tmp_path: Path
) -> None:
    code = "def boom(*_): raise ZeroDivisionError('of a test')\n"
    code += f"{CRASHES[where]}\nfrom tui.__main__ import main; main()"
    options = {
        "program": [sys.executable, "-c", code],
        "state": tmp_path,
        "size": (120, 24),
    }
    with opened(trace_path, "--op", 0, **options) as terminal:
        if where == "an action":
            terminal.until(READY)
            terminal.press("su")
        assert terminal.end() == 1
        assert terminal.restored()
        (said,) = terminal.raw.decode().rpartition("\x1b")[2][3:].strip().splitlines()
    assert said.startswith("error: ZeroDivisionError: of a test; crash report: ")
    report = Path(said.split("crash report: ")[1]).read_text(encoding="utf-8")
    assert "in boom" in report
    assert f"kernbench  {kernbench.__version__}" in report
    assert "TERM       xterm-256color" in report
    if where == "an action":
        assert report.split("done last")[1].split()[:2] == ["step", "widen"]
        assert len(report.split("trace ")[1].split()[0]) == 64  # its hash


async def test_the_last_50_actions_and_command_lines_are_remembered(drive) -> None:
    async with drive(80, 24, *"Ss" * 30, ":", *"goto 7", "enter", "?", "j") as pilot:
        await pilot.pause()
        past = [*pilot.app.past]
    assert past == [*["step", "step_back"] * 23, "step", "command", ":goto 7", "help"]


SUSPENDING = {
    "the panes": "",
    "a command line": ":",
    "a page": "?",
    "the palette": "\x10",
}


@pytest.mark.parametrize("over", SUSPENDING)
def test_ctrl_z_suspends_whatever_is_open(
    over: str, trace_path: Path, tmp_path: Path
) -> None:
    with opened(trace_path, "--op", 0, state=tmp_path) as terminal:
        terminal.until(READY)
        terminal.press(SUSPENDING[over])
        os.write(terminal.fd, b"\x1a")
        assert os.WIFSTOPPED(terminal.wait(os.WUNTRACED))
        assert terminal.restored()
        os.kill(terminal.pid, signal.SIGCONT)


def test_ctrl_z_suspends_the_picker(tmp_path: Path) -> None:
    with opened(state=tmp_path) as terminal:
        terminal.until("which trace?")
        os.write(terminal.fd, b"\x1a")
        assert os.WIFSTOPPED(terminal.wait(os.WUNTRACED))
        os.kill(terminal.pid, signal.SIGCONT)


@pytest.mark.parametrize("how", ["key", "signal"])
def test_it_can_be_suspended(how: str, trace_path: Path, tmp_path: Path) -> None:
    with opened(trace_path, "--op", 0, state=tmp_path) as terminal:
        terminal.until(READY)
        if how == "key":
            terminal.press("\x1a")
        else:
            os.kill(terminal.pid, signal.SIGTSTP)
        assert os.WIFSTOPPED(terminal.wait(os.WUNTRACED))
        assert terminal.restored()
        terminal.screen.reset()  # the shell has written there
        os.kill(terminal.pid, signal.SIGCONT)
        terminal.until(READY)
        terminal.press("s")
        terminal.until("op 1/")
        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.restored()


@pytest.mark.parametrize(
    "ignore", [None, signal.SIGHUP], ids=["hangup", "as under nohup"]
)
def test_it_ends_when_the_terminal_is_gone(
    ignore, trace_path: Path, tmp_path: Path
) -> None:
    with opened(trace_path, "--op", 0, state=tmp_path, ignore=ignore) as terminal:
        terminal.until(READY)
        os.close(terminal.fd)
        pid, terminal.pid = terminal.pid, 0
        _, status, used = os.wait4(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 129
        assert used.ru_utime + used.ru_stime < 10  # it did not spin


def test_it_ends_though_nobody_reads_what_it_writes(
    trace_path: Path, tmp_path: Path
) -> None:
    with opened(trace_path, "--op", 0, state=tmp_path, size=(200, 50)) as terminal:
        terminal.until(READY)
        for _ in range(40):
            os.write(terminal.fd, b"z\x0cs")  # whole screens, until its writes block
        os.kill(terminal.pid, signal.SIGTERM)
        pid, terminal.pid = terminal.pid, 0
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 143


def test_garbage_is_collected_once_nothing_is_done(monkeypatch) -> None:
    app, collected, trimmed = MannerlyApp(), [], Semaphore(0)
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    monkeypatch.setattr("kernbench.replay.job.trim", trimmed.release)

    def look(keys: int) -> int:
        app._stirred += keys
        app._collect()
        return len(collected)

    assert [look(keys) for keys in (0, 2, 1, 0, 0, 3, 0)] == [0, 0, 0, 1, 1, 1, 2]
    assert [trimmed.acquire(timeout=10) for _ in collected] == [True, True]


def test_what_was_loaded_is_frozen_and_long_collections_wait(
    trace_path, tmp_path: Path
) -> None:
    code = "import gc\nfrom tui.screens.debugger import DebuggerScreen as D\n"
    code += "D._do_focus = lambda self, _: self.say("
    code += "f'{gc.get_threshold()[2]} {gc.get_freeze_count() > 50_000}')\n"
    code += "from tui.__main__ import main; main()"
    with opened(
        trace_path, "--op", 0, program=[sys.executable, "-c", code], state=tmp_path
    ) as t:
        t.until(READY)
        t.press("u")
        t.until("1000000 True")
