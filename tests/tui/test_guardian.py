"""Whatever ends the debugger: the terminal is given back, and the exit code says why.

Here the process that draws is ended or stopped from outside, so it can do nothing
itself; and a shell treats it and the one that waits as one job.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from terminals import LIMIT_S, PROGRAM, ROOT, Terminal, opened, program_of

READY = "op 0/"  # of the status line: the trace is loaded
ENDINGS = 50


def drawing(pid: int) -> int:
    """The process that draws, which is the only child of ``pid``."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    until(lambda: children.read_text() != "")
    return int(children.read_text())


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return True
    return state.split()[0] == "Z"


def stops(pid: int) -> int:
    """How often a stopped process has given a processor away; 0 while it runs."""
    status = Path(f"/proc/{pid}/status").read_text()
    facts = dict(line.split(":\t", 1) for line in status.splitlines())
    if not facts["State"].startswith("T"):
        return 0
    return int(facts["voluntary_ctxt_switches"])


def as_found(terminal: Terminal) -> bool:
    """Whether the terminal is as it was found; so it is if it was never taken."""
    return b"\x1b[?1049h" not in terminal.raw or terminal.restored()


def last_line(terminal: Terminal) -> str:
    """What was said behind the last sequence."""
    return terminal.raw.decode(errors="replace").rpartition("\x1b[0m")[2].strip()


# -- ends --------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
@pytest.mark.slow
def test_what_kills_the_debugger_leaves_the_terminal_as_found(
    number: signal.Signals, trace_path: Path, tmp_path: Path
) -> None:
    with opened(trace_path, "--op", 0, state=tmp_path) as terminal:
        terminal.until(READY)
        os.kill(drawing(terminal.pid), number)
        assert terminal.end() == 128 + number
        assert terminal.restored()
        said = f"error: kernbench-tui was ended by {number.name}: "
        assert last_line(terminal).startswith(said)
        assert last_line(terminal).count("\n") == 0


@pytest.mark.slow
def test_a_trace_that_is_cut_while_it_is_open_ends_in_one_line(
    trace_path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "cut.msgpack"
    shutil.copy(trace_path, copy)
    with opened(copy, "--op", 0, state=tmp_path) as terminal:
        terminal.until(READY)
        os.truncate(copy, 0)
        terminal.press("sGs4G3:outputs\r")
        assert terminal.end() == 128 + signal.SIGBUS
        assert terminal.restored()
        assert "SIGBUS: was the trace cut while it was open" in last_line(terminal)


@pytest.mark.slow
def test_no_memory_left_gives_the_terminal_back(
    trace_path: Path, tmp_path: Path
) -> None:
    code = (
        "import resource\n"
        "from tui.app import KernbenchApp\n"
        "def hog(app):\n"
        "    resource.setrlimit(resource.RLIMIT_AS, (1 << 20, -1))\n"
        "    [bytes(1 << 20) for _ in range(100)]\n"
        "KernbenchApp.action_command_palette = hog"
    )
    program = program_of(code)
    with opened(
        trace_path, "--op", 0, program=program, state=tmp_path, size=(120, 24)
    ) as terminal:
        terminal.until(READY)
        os.write(terminal.fd, b"\x10")
        assert terminal.end() in (1, 128 + signal.SIGSEGV, 128 + signal.SIGABRT)
        assert terminal.restored()


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """A control group whose processes get so many bytes of memory from now on."""
    root = Path("/sys/fs/cgroup")
    unified = not (root / "memory").exists()
    group = root / ("" if unified else "memory") / f"kernbench-{os.getpid()}"
    try:
        group.mkdir()
        name = "memory.max" if unified else "memory.limit_in_bytes"
        (group / name).write_text(str(limit))
    except OSError as why:
        pytest.skip(f"no control group of memory here: {why}")
    try:
        yield group
    finally:
        with suppress(OSError):
            until(lambda: not (group / "cgroup.procs").read_text())
            group.rmdir()


@pytest.mark.slow
def test_what_the_system_kills_for_its_memory_gives_the_terminal_back(
    trace_path: Path, tmp_path: Path
) -> None:
    code = (
        "from tui.app import KernbenchApp\n"
        "def hog(app):\n"
        "    app.hoard = [b'x' * (1 << 20) for _ in range(1000)]\n"
        "KernbenchApp.action_command_palette = hog"
    )
    with (
        memory_group(limit=100 << 20) as group,
        opened(
            trace_path, "--op", 0, program=program_of(code), state=tmp_path
        ) as terminal,
    ):
        terminal.until(READY)
        (group / "cgroup.procs").write_text(str(drawing(terminal.pid)))
        os.write(terminal.fd, b"\x10")
        assert terminal.end() == 128 + signal.SIGKILL
        assert terminal.restored()
        said = "error: kernbench-tui was ended by SIGKILL: "
        assert last_line(terminal).startswith(said)


@pytest.mark.slow
def test_an_end_before_the_screen_is_taken_changes_nothing(
    trace_path: Path, tmp_path: Path
) -> None:
    with opened(trace_path, state=tmp_path) as terminal:
        os.kill(drawing(terminal.pid), signal.SIGKILL)
        assert terminal.end() == 128 + signal.SIGKILL
        assert b"\x1b" not in terminal.raw


@pytest.mark.slow
def test_an_interrupt_before_the_screen_is_taken_shows_no_traceback(
    trace_path: Path, tmp_path: Path
) -> None:
    with opened(trace_path, state=tmp_path) as terminal:
        drawing(terminal.pid)
        os.write(terminal.fd, b"\x03")
        assert terminal.end() == 128 + signal.SIGINT
        assert as_found(terminal)
        assert b"Traceback" not in terminal.raw


@pytest.mark.slow
def test_it_ends_with_the_process_that_waits_for_it(
    trace_path: Path, tmp_path: Path
) -> None:
    with opened(trace_path, "--op", 0, state=tmp_path) as terminal:
        terminal.until(READY)
        child = drawing(terminal.pid)
        os.kill(terminal.pid, signal.SIGKILL)
        until(lambda: gone(child))


ENDED_BY_ITSELF = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
KILLED = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(ENDINGS))
def test_the_terminal_is_as_found_after_an_end_at_a_random_moment(
    seed: int, trace_path: Path, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    number = chance.choice(ENDED_BY_ITSELF + KILLED)
    with opened(trace_path, "--op", 0, state=tmp_path) as terminal:
        child = drawing(terminal.pid)
        end = time.monotonic() + chance.uniform(0.0, 2.0)
        while time.monotonic() < end:
            terminal.read(0.02)
            if b"op " in terminal.raw:
                terminal.press(chance.choice("sSG4137"), 0.02)
        if number in KILLED:
            os.kill(child, number)
        elif chance.random() < 0.5:
            os.kill(terminal.pid, number)
        else:
            os.killpg(terminal.pid, number)
        assert terminal.end() == 128 + number
        assert as_found(terminal)
        assert b"Traceback" not in terminal.raw
        if number in KILLED:
            assert f"ended by {number.name}" in last_line(terminal)


# -- one process where nothing is drawn --------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--script", "-"], ["--info"]], ids=str)
def test_text_is_written_by_one_process(
    arguments: list[str], trace_path: Path, tmp_path: Path
) -> None:
    code = "import os; os.fork = lambda: os._exit(9)"
    with opened(
        trace_path, *arguments, program=program_of(code), state=tmp_path
    ) as terminal:
        terminal.press("\x04")
        assert terminal.end() == 0


@pytest.mark.slow
def test_a_pipe_is_written_by_one_process(trace_path: Path) -> None:
    code = "import os; os.fork = lambda: os._exit(9)"
    done = subprocess.run(
        [*program_of(code), trace_path, "--info"],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0


# -- jobs of a shell ---------------------------------------------------------------

SHELLS = {"bash": ["bash", "--norc", "--noprofile", "-i"], "dash": ["dash", "-i"]}


@contextmanager
def shell_of(name: str, state: Path) -> Iterator[Terminal]:
    if shutil.which(name) is None:
        pytest.skip(f"no {name} here")
    terminal = Terminal(
        SHELLS[name], PS1="$ ", ENV="", HISTFILE="", XDG_STATE_HOME=str(state)
    )
    try:
        terminal.until("$")
        yield terminal
    finally:
        terminal.close()


def run(terminal: Terminal, line: str, shown: str) -> None:
    """Type a line to the shell; wait for a text on a screen that was cleared before."""
    terminal.read(0.2)
    terminal.screen.reset()
    os.write(terminal.fd, f"{line}\r".encode())
    terminal.until(shown)


def end_with(terminal: Terminal, key: str) -> None:
    """Press a key that ends or stops the program; wait for the shell's prompt behind
    what gives the terminal back, since a line that is typed before it is lost.
    """
    before = len(terminal.raw)
    os.write(terminal.fd, key.encode())

    def is_prompted() -> bool:
        terminal.read(0.05)
        return b"$ " in terminal.raw[before:].partition(b"\x1b[?1049l")[2]

    until(is_prompted)


def until_job(terminal: Terminal, state: str) -> None:
    """Ask the shell for its jobs until it says that of the only one."""
    end = time.monotonic() + LIMIT_S
    while state not in terminal.text:
        assert time.monotonic() < end, terminal.text
        run(terminal, "jobs; echo as''ked", "asked")


def modes(terminal: Terminal, state: Path, name: str) -> str:
    """What the shell's ``stty`` says of the terminal."""
    run(terminal, f"stty -a > {state}/{name}; echo wr''itten", "written")
    return (state / name).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", SHELLS)
def test_a_shell_stops_it_and_goes_on_with_it(
    name: str, trace_path: Path, tmp_path: Path
) -> None:
    program = shlex.join([*PROGRAM, str(trace_path), "--op", "0"])
    with shell_of(name, tmp_path) as terminal:
        found = modes(terminal, tmp_path, "found")
        run(terminal, program, READY)
        end_with(terminal, "\x1a")
        run(terminal, "echo sto''pped", "stopped")
        assert modes(terminal, tmp_path, "stopped") == found
        run(terminal, "bg; sleep 0.5; jobs", "Stopped")
        before = len(terminal.raw)
        run(terminal, "fg", READY)
        assert terminal.raw[before:].count(b"\x1b[?1049h") == 1
        terminal.press("s")
        terminal.until("op 1/")
        end_with(terminal, "q")
        run(terminal, "echo code $?", "code 0")
        assert modes(terminal, tmp_path, "ended") == found


@pytest.mark.slow
@pytest.mark.parametrize("name", SHELLS)
def test_a_shell_can_begin_it_in_the_background_and_end_it_while_it_is_stopped(
    name: str, trace_path: Path, tmp_path: Path
) -> None:
    program = shlex.join([*PROGRAM, str(trace_path), "--op", "0"])
    with shell_of(name, tmp_path) as terminal:
        found = modes(terminal, tmp_path, "found")
        run(terminal, f"{program} & echo beg''un", "begun")
        until_job(terminal, "Stopped")
        run(terminal, "fg", READY)
        terminal.press("s")
        terminal.until("op 1/")
        end_with(terminal, "\x1a")
        run(terminal, "fg", "op 1/")
        end_with(terminal, "\x1a")
        run(terminal, "kill %1; kill -CONT %1; echo kil''led", "killed")
        until_job(terminal, "143")
        assert modes(terminal, tmp_path, "ended") == found


@pytest.mark.slow
@pytest.mark.parametrize("name", SHELLS)
def test_what_was_told_to_end_does_not_stop_again(
    name: str, trace_path: Path, tmp_path: Path
) -> None:
    """In the background the child stops again, once it has run for a moment.

    If it does so before the parent has read the signal that ends both, the parent must
    not stop with it: nobody would continue them.
    """
    program = shlex.join([*PROGRAM, str(trace_path), "--op", "0"])
    with shell_of(name, tmp_path) as terminal:
        found = modes(terminal, tmp_path, "found")
        run(terminal, program, READY)
        waits = drawing(terminal.pid)
        draws = drawing(waits)
        end_with(terminal, "\x1a")
        until(lambda: stops(draws) > 0)
        before = stops(draws)
        os.kill(waits, signal.SIGTERM)
        os.kill(draws, signal.SIGCONT)
        until(lambda: stops(draws) > before)
        os.kill(waits, signal.SIGCONT)
        until_job(terminal, "143")
        assert modes(terminal, tmp_path, "ended") == found


@pytest.mark.slow
@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("victim", ["that draws", "that waits"])
def test_a_shell_has_its_terminal_back_after_a_kill(
    victim: str, name: str, trace_path: Path, tmp_path: Path
) -> None:
    program = shlex.join([*PROGRAM, str(trace_path), "--op", "0"])
    with shell_of(name, tmp_path) as terminal:
        found = modes(terminal, tmp_path, "found")
        run(terminal, program, READY)
        waits = drawing(terminal.pid)  # the only child of the shell
        draws = drawing(waits)
        if victim == "that draws":
            os.kill(draws, signal.SIGKILL)
            terminal.until("ended by SIGKILL")
        else:
            os.kill(waits, signal.SIGKILL)
            until(lambda: gone(draws))
        run(terminal, "echo code $?", "code 137")
        assert modes(terminal, tmp_path, "ended") == found
        assert terminal.raw.rfind(b"\x1b[?1049l") > terminal.raw.rfind(b"\x1b[?1049h")


@pytest.mark.slow
def test_what_stops_it_from_outside_gives_the_terminal_back(
    terminal: Terminal,
) -> None:
    os.kill(drawing(terminal.pid), signal.SIGSTOP)
    assert os.WIFSTOPPED(terminal.wait(os.WUNTRACED))
    assert terminal.restored()
    terminal.screen.reset()
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.until("op 40/")
    terminal.press("s")
    terminal.until("op 41/")


@pytest.mark.slow
def test_going_on_without_having_stopped_changes_nothing(terminal: Terminal) -> None:
    before = len(terminal.raw)
    os.killpg(terminal.pid, signal.SIGCONT)
    terminal.press("s")
    terminal.until("op 41/")
    assert b"\x1b[?1049h" not in terminal.raw[before:]


@pytest.mark.slow
def test_a_stop_that_all_of_the_job_is_sent_is_one_stop(terminal: Terminal) -> None:
    os.killpg(terminal.pid, signal.SIGTSTP)
    assert os.WIFSTOPPED(terminal.wait(os.WUNTRACED))
    terminal.screen.reset()
    os.killpg(terminal.pid, signal.SIGCONT)
    terminal.until("op 40/")
    terminal.press("s")
    terminal.until("op 41/")


@pytest.mark.slow
def test_a_stop_that_comes_twice_at_the_worst_moment_is_one_stop(
    trace_path: Path, tmp_path: Path
) -> None:
    # The second comes while the first is handled, just before it would be ignored.
    code = (
        "import os, signal\n"
        "handle = signal.signal\n"
        "def handle_late(number, action):\n"
        "    if (number, action) == (signal.SIGTSTP, signal.SIG_IGN):\n"
        "        os.kill(os.getpid(), number)\n"
        "    return handle(number, action)\n"
        "signal.signal = handle_late"
    )
    with opened(
        trace_path, "--op", 40, program=program_of(code), state=tmp_path
    ) as terminal:
        terminal.until("op 40/")
        os.kill(terminal.pid, signal.SIGTSTP)
        assert os.WIFSTOPPED(terminal.wait(os.WUNTRACED))
        assert terminal.restored()
        terminal.screen.reset()
        os.killpg(terminal.pid, signal.SIGCONT)
        terminal.until("op 40/")
