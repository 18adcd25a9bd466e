"""Whatever ends the program leaves the terminal as it was; keys keep their order."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Semaphore, Thread

import pytest
from pilots import fast_keys, still
from terminals import PROGRAM, Terminal, opened, program_of
from textual import events
from textual.screen import Screen
from textual.widgets import Static

import kernbench
from tui import lifecycle
from tui.ansi import screen_lines
from tui.lifecycle import IdleCollector, PendingKeys, TerminalApp

READY = "op 0/"  # of the status line: the trace is loaded


# -- signals and ends --------------------------------------------------------------


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT],
)
@pytest.mark.slow
def test_a_signal_restores_the_terminal(
    number: signal.Signals, trace_path: Path, tmp_path: Path
) -> None:
    with opened(trace_path, "--op", 0, state=tmp_path) as terminal:
        terminal.until(READY)
        assert not terminal.restored()
        os.kill(terminal.pid, number)
        assert terminal.end() == 128 + number
        assert terminal.restored()


ALONE = [sys.executable, "-c", "from tui.__main__ import main; main()"]


@pytest.mark.parametrize(
    ("program", "ignore"),
    [
        pytest.param(PROGRAM, None, id="hangup"),
        pytest.param(PROGRAM, signal.SIGHUP, id="as under nohup"),
        pytest.param(ALONE, signal.SIGHUP, id="with nobody who waits for it"),
    ],
)
@pytest.mark.slow
def test_it_ends_when_the_terminal_is_gone(
    program: list[str],
    ignore: signal.Signals | None,
    trace_path: Path,
    tmp_path: Path,
) -> None:
    with opened(
        trace_path, "--op", 0, state=tmp_path, program=program, ignore=ignore
    ) as terminal:
        terminal.until(READY)
        os.close(terminal.fd)
        pid = terminal.pid
        terminal.pid = 0
        _, status, used = os.wait4(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 129
        assert used.ru_utime + used.ru_stime < 10  # it did not spin


@pytest.mark.slow
def test_it_ends_though_nobody_reads_what_it_writes(
    trace_path: Path, tmp_path: Path
) -> None:
    with opened(trace_path, "--op", 0, state=tmp_path, size=(200, 50)) as terminal:
        terminal.until(READY)
        for _ in range(40):
            os.write(terminal.fd, b"z\x0cs")  # whole screens, until its writes block
        os.kill(terminal.pid, signal.SIGTERM)
        pid = terminal.pid
        terminal.pid = 0
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 143
        terminal.read(0.5)
        assert terminal.restored()


# -- crashes -----------------------------------------------------------------------

_BOOM = "def boom(*_, **__): raise ZeroDivisionError('of a test')\n"
CRASHES = {
    "an action": (
        "from tui.app import KernbenchApp as A; A.action_command_palette = boom"
    ),
    "a drawing": "from tui.panes.timeline import TimelinePane as T; T.render = boom",
    "a timer": "from tui.screens.debugger import DebuggerScreen as D; D.look = boom",
    "the first screen": (
        "from tui.screens.open_trace import LoadingScreen as L; L.compose = boom"
    ),
    "loading": "from kernbench.replay.index import Index as I; I.prepare = boom",
}


@pytest.mark.parametrize("where", CRASHES)
@pytest.mark.slow
def test_a_crash_restores_the_terminal_and_is_reported(
    where: str, trace_path: Path, tmp_path: Path
) -> None:
    program = program_of(_BOOM + CRASHES[where])
    with opened(
        trace_path, "--op", 0, program=program, state=tmp_path, size=(120, 24)
    ) as terminal:
        if where == "an action":
            terminal.until(READY)
            terminal.press("s\x10")
        assert terminal.end() == 1
        assert terminal.restored()
        behind_last_sequence = terminal.raw.decode().rpartition("\x1b[0m")[2]
        (said,) = behind_last_sequence.strip().splitlines()
    assert said.startswith("error: ZeroDivisionError: of a test; crash report: ")
    report = Path(said.split("crash report: ")[1]).read_text(encoding="utf-8")
    assert "in boom" in report
    assert f"kernbench  {kernbench.__version__}" in report
    assert "TERM       xterm-256color" in report
    if where == "an action":
        assert report.split("done last")[1].split()[:2] == ["step", "palette"]
        assert len(report.split("trace ")[1].split()[0]) == 64  # its hash


@pytest.mark.slow
async def test_the_last_50_actions_and_command_lines_are_remembered(drive) -> None:
    async with drive(80, 24) as pilot:
        with fast_keys(pilot.app):
            await pilot.press(*"Ss" * 30, ":", *"goto 7", "enter", "?", "j")
        await still(pilot)
        past = list(pilot.app.past)
    assert past == [*["step", "step_back"] * 23, "step", "command", ":goto 7", "help"]


# -- suspending --------------------------------------------------------------------

OVER = {"the panes": "", "a command line": ":", "a page": "?", "the palette": "\x10"}


@pytest.mark.parametrize("over", OVER)
@pytest.mark.slow
def test_ctrl_z_suspends_whatever_is_open(over: str, terminal: Terminal) -> None:
    terminal.press(OVER[over])
    assert not terminal.restored()
    os.write(terminal.fd, b"\x1a")
    assert os.WIFSTOPPED(terminal.wait(os.WUNTRACED))
    assert terminal.restored()
    os.kill(terminal.pid, signal.SIGCONT)


@pytest.mark.slow
def test_ctrl_z_suspends_the_picker(tmp_path: Path) -> None:
    with opened(state=tmp_path) as terminal:
        terminal.until("which trace?")
        os.write(terminal.fd, b"\x1a")
        assert os.WIFSTOPPED(terminal.wait(os.WUNTRACED))
        os.kill(terminal.pid, signal.SIGCONT)


@pytest.mark.slow
def test_it_goes_on_after_it_was_suspended(trace_path: Path, tmp_path: Path) -> None:
    """By its key, then by a signal."""
    with opened(trace_path, "--op", 0, state=tmp_path) as terminal:
        terminal.until(READY)
        for op, how in enumerate(("key", "signal")):
            if how == "key":
                terminal.press("\x1a")
            else:
                os.kill(terminal.pid, signal.SIGTSTP)
            assert os.WIFSTOPPED(terminal.wait(os.WUNTRACED)), how
            assert terminal.restored(), how
            terminal.screen.reset()  # the shell has written there
            os.kill(terminal.pid, signal.SIGCONT)
            terminal.until(f"op {op}/")
            terminal.press("s")
            terminal.until(f"op {op + 1}/")
        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.restored()


# -- garbage -----------------------------------------------------------------------


def test_garbage_is_collected_once_after_each_spell_of_work() -> None:
    collections: list[int] = []
    collector = IdleCollector(lambda: collections.append(1))
    collected_at_look: list[int] = []
    for keys in (0, 2, 1, 0, 0, 3, 0):
        for _ in range(keys):
            collector.note_work()
        collector.look()
        collected_at_look.append(len(collections))
    assert collected_at_look == [0, 0, 0, 1, 1, 1, 2]


def test_free_memory_is_given_back_with_the_garbage(monkeypatch) -> None:
    trimmed = Semaphore(0)
    monkeypatch.setattr(gc, "collect", lambda: 0)
    monkeypatch.setattr("tui.runner.trim", trimmed.release)
    lifecycle.collect_garbage()
    assert trimmed.acquire(timeout=10)


@pytest.mark.slow
def test_a_timer_looks_whether_garbage_is_to_be_collected(
    trace_path: Path, tmp_path: Path
) -> None:
    code = (
        "import os, tui.lifecycle as lifecycle\n"
        "lifecycle.IDLE_S = 0.05\n"
        "lifecycle.IdleCollector.look = lambda self: os._exit(7)"
    )
    with opened(
        trace_path, "--op", 0, program=program_of(code), state=tmp_path
    ) as terminal:
        assert terminal.end() == 7


@pytest.mark.slow
def test_what_was_loaded_is_frozen_and_collections_are_short_or_wait(
    trace_path: Path, tmp_path: Path
) -> None:
    code = (
        "import gc\n"
        "from tui.app import KernbenchApp\n"
        "def say(app):\n"
        "    many = gc.get_freeze_count() > 50_000\n"
        "    new, repeated, full = gc.get_threshold()\n"
        "    app.debugger.say(f'{full} {many} {new * repeated <= 10_000}')\n"
        "KernbenchApp.action_command_palette = say"
    )
    with opened(
        trace_path, "--op", 0, program=program_of(code), state=tmp_path
    ) as terminal:
        terminal.until(READY)
        terminal.press("\x10")
        terminal.until("1000000 True True")


# -- keys that wait ----------------------------------------------------------------


def test_it_is_quiet_until_a_key_is_read() -> None:
    keys = PendingKeys()
    assert keys.quiet.is_set()
    keys.read()
    assert not keys.quiet.is_set()
    assert keys.waiting


def test_it_is_quiet_again_once_the_key_is_acted_on_and_drawn() -> None:
    keys = PendingKeys()
    keys.read()
    keys.began()
    keys.drawn()  # a frame that was under way
    assert not keys.quiet.is_set()
    keys.acted_on()
    assert not keys.waiting
    assert not keys.quiet.is_set()
    keys.drawn()
    assert keys.quiet.is_set()


def test_it_is_not_quiet_before_the_last_of_some_keys_is_drawn() -> None:
    keys = PendingKeys()
    keys.read()
    keys.read()
    keys.began()
    keys.acted_on()
    keys.drawn()
    assert keys.waiting
    assert not keys.quiet.is_set()
    keys.began()
    keys.acted_on()
    keys.drawn()
    assert keys.quiet.is_set()


def test_a_key_that_no_thread_has_read_counts_from_when_it_is_acted_on() -> None:
    keys = PendingKeys()
    keys.began()
    assert keys.waiting
    keys.acted_on()
    keys.drawn()
    assert keys.quiet.is_set()


class Counter(Screen[None], inherit_bindings=False):
    """Shows how many "+" were pressed; other keys draw nothing."""

    def compose(self):
        self.count = 0
        self.body = Static("0")
        yield self.body

    def on_key(self, event: events.Key) -> None:
        event.stop()
        if event.key == "plus":
            self.count += 1
            self.body.update(str(self.count))


class CounterApp(TerminalApp):
    """Notes what was on the screen when it became quiet."""

    def __init__(self) -> None:
        super().__init__()
        self.seen_when_quiet: list[str] = []
        self._drawn = self.pending_keys.drawn
        self.pending_keys.drawn = self.note

    def on_mount(self) -> None:
        self.push_screen(Counter())

    def note(self) -> None:
        """A frame was drawn, or a key turned out to make none."""
        before = self.quiet.is_set()
        self._drawn()
        if self.quiet.is_set() and not before:
            self.seen_when_quiet.append(screen_lines(self.screen)[0])


def read_by_a_thread(app: TerminalApp) -> Callable[[str], None]:
    """``read("+")``: the thread that reads the terminal has read that key."""
    driver = app.driver_class(app)

    def read(character: str) -> None:
        key = "plus" if character == "+" else character
        message = events.Key(key, character)
        thread = Thread(target=driver.send_message, args=(message,))
        thread.start()
        thread.join()

    return read


async def until_quiet(pilot) -> None:
    for _ in range(200):
        if pilot.app.quiet.is_set():
            break
        await pilot.pause(0.01)
    assert pilot.app.quiet.is_set()


async def test_quiet_is_cleared_when_a_key_is_read_and_set_with_its_frame() -> None:
    app = CounterApp()
    async with app.run_test(size=(20, 3)) as pilot:
        await still(pilot)
        read = read_by_a_thread(app)
        read("+")
        assert not app.quiet.is_set()
        assert app.input_pending
        await until_quiet(pilot)
        assert not app.input_pending
        assert app.seen_when_quiet == ["1"]


async def test_quiet_is_set_with_the_frame_of_the_last_of_some_keys() -> None:
    app = CounterApp()
    async with app.run_test(size=(20, 3)) as pilot:
        await still(pilot)
        read = read_by_a_thread(app)
        for _ in range(5):
            read("+")
        await until_quiet(pilot)
        assert app.seen_when_quiet[-1] == "5"


async def test_quiet_is_set_again_after_a_key_that_draws_nothing() -> None:
    app = CounterApp()
    async with app.run_test(size=(20, 3)) as pilot:
        await still(pilot)
        read_by_a_thread(app)("x")
        assert not app.quiet.is_set()
        await until_quiet(pilot)
        assert screen_lines(app.screen)[0] == "0"


@pytest.mark.parametrize("keys", ["s", ":ab", "?jq", "\x10ab"], ids=ascii)
@pytest.mark.slow
async def test_it_is_quiet_again_whatever_a_key_opens_or_closes(keys, drive) -> None:
    async with drive(80, 24) as pilot:
        read = read_by_a_thread(pilot.app)
        for character in keys:
            read(character)
        await until_quiet(pilot)
        await pilot.press("escape")
        await until_quiet(pilot)
