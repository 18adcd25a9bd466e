"""Without a terminal it prints as a pager does, and never waits; so in tmux and ssh."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pace import first_fast
from terminals import PROGRAM, ROOT, Terminal, opened

ENVIRON = {
    **os.environ,
    "PYTHONPATH": str(ROOT),
    "LANG": "C.UTF-8",
    "COLUMNS": "100",
    "LINES": "30",
    "TERM": "xterm",
}


def run(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    """Run ``kernbench-tui ARGUMENTS`` with its output in a pipe."""
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(
        command,
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


# -- pipes and dumb terminals ------------------------------------------------------


@pytest.mark.slow
def test_into_a_pipe_it_prints_summary_and_screen(trace_path: Path) -> None:
    done = run(trace_path, "--op", 40)
    assert done.returncode == 0
    assert done.stdout.startswith("bench      matmul")
    assert "op 40  TileToken/DMA_READ" in done.stdout
    screen = done.stdout.splitlines()[-30:]
    assert screen[0].startswith(" kernbench matmul.msgpack  op 40/151")
    assert "[1 Timeline]" in screen[2]
    assert "\x1b" not in done.stdout
    assert done.stderr == "hint: no terminal here; --script FILE runs commands\n"


@pytest.mark.slow
def test_without_any_input_or_terminal_it_ends(trace_path: Path) -> None:
    done = run(trace_path, stdin=subprocess.DEVNULL, start_new_session=True)
    assert done.returncode == 0


@pytest.mark.slow
def test_a_dumb_terminal_gets_text(trace_path: Path, tmp_path: Path) -> None:
    with opened(trace_path, "--op", 40, state=tmp_path, TERM="dumb") as terminal:
        assert terminal.end() == 0
        assert b"op 40/151" in terminal.raw
        assert b"\x1b" not in terminal.raw


@pytest.mark.parametrize(
    "arguments", first_fast([["--info"], [], ["--script", "-"]]), ids=str
)
def test_a_reader_who_has_enough_is_no_error(
    arguments: list[str], trace_path: Path
) -> None:
    program = shlex.join([*PROGRAM, str(trace_path), *arguments])
    pipeline = f"yes ops | head -50 | {program} | head -1; echo ${{PIPESTATUS[2]}} >&2"
    done = subprocess.run(
        ["bash", "-c", pipeline],
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr.splitlines()[-1] == "0"
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_info_says_what_the_terminal_can(tmp_path: Path) -> None:
    with opened(
        "--info", size=(91, 33), state=tmp_path, COLORTERM="truecolor"
    ) as terminal:
        assert terminal.end() == 0
        lines = terminal.raw.decode().splitlines()
    facts = dict(line.split(None, 1) for line in lines)
    assert facts["size"] == "91x33"
    assert facts["colours"] == "truecolor"
    assert facts["glyphs"] == "UTF-8"
    assert facts["stdin"] == "terminal"
    assert facts["TERM"] == "xterm-256color"
    assert facts["TMUX"] == "-"
    assert facts["state"] == str(tmp_path / "kernbench")
    assert {"kernbench", "python", "textual", "numpy", "settings"} <= facts.keys()


# -- tmux and ssh ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here")
def test_within_tmux(trace_path: Path, tmp_path: Path) -> None:
    tmux = ["tmux", "-f", "/dev/null", "-S", str(tmp_path / "socket")]
    program = shlex.join([*PROGRAM, str(trace_path), "--op", "40"])
    script = shlex.quote(f"echo before; {program}; echo code $?; cat")
    shell = f"env PYTHONPATH={ROOT} XDG_STATE_HOME={tmp_path} sh -c {script}"
    terminal = Terminal([*tmux, "new-session", shell])
    try:
        terminal.until("op 40/151")
        terminal.press("s")
        terminal.until("op 41/151")
        terminal.press("/gemm\r")
        terminal.until("op 64/151")
        terminal.press("ss")
        terminal.until("op 66/151")
        terminal.press("\x1b[1;2R")  # Shift+F3
        terminal.until("op 65/151")
        terminal.press("y")
        terminal.until("copied by tmux")
        copied = subprocess.run(
            [*tmux, "show-buffer"], capture_output=True, text=True, check=True
        )
        assert "Timeline" in copied.stdout
        terminal.press("q")
        assert "before" in terminal.until("code 0")
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, capture_output=True)
        terminal.close()


SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")


@contextmanager
def ssh_server(folder: Path) -> Iterator[list[str]]:
    """Run sshd with a key of its own; give the ``ssh`` command that gets into it."""
    key = folder / "key"
    port = 20_000 + os.getpid() % 20_000
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
    subprocess.run(keygen, check=True)
    shutil.copy(f"{key}.pub", folder / "authorized")
    Path("/run/sshd").mkdir(exist_ok=True)
    settings = [
        f"ListenAddress=127.0.0.1:{port}",
        f"HostKey={key}",
        "StrictModes=no",
        f"AuthorizedKeysFile={folder}/authorized",
        f"PidFile={folder}/pid",
    ]
    server = subprocess.Popen([str(SSHD), "-D", "-f", "/dev/null", *options(settings)])
    client = [
        "ConnectionAttempts=20",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
    ]
    ssh = ["ssh", "-tt", "-q", "-i", str(key), "-p", str(port), "-F", "/dev/null"]
    try:
        yield [*ssh, *options(client), "127.0.0.1"]
    finally:
        server.terminate()
        server.wait()


def options(settings: list[str]) -> list[str]:
    """Settings as arguments of ssh and sshd."""
    return [word for setting in settings for word in ("-o", setting)]


@pytest.mark.skipif(
    SSHD is None or os.getuid() != 0, reason="no sshd that may be started here"
)
def test_a_connection_that_breaks_ends_the_program(
    trace_path: Path, tmp_path: Path
) -> None:
    pid = tmp_path / "of-the-program"
    program = shlex.join([*PROGRAM, str(trace_path), "--op", "40"])
    environ = f"XDG_STATE_HOME={tmp_path} LANG=C.UTF-8"
    remote = f"cd {ROOT}; export {environ}; echo $$ > {pid}; exec {program}"
    with ssh_server(tmp_path) as ssh:
        terminal = Terminal([*ssh, remote])
        try:
            terminal.until("op 40/151")
            terminal.press("s")
            terminal.until("op 41/151")
            gone = os.pidfd_open(int(pid.read_text()))
            os.kill(terminal.pid, signal.SIGKILL)
            assert select.select([gone], [], [], 20)[0]
        finally:
            terminal.close()
