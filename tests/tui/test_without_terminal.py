"""Without a terminal it prints as a pager does, and never waits; within tmux and ssh it behaves."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from terminals import PROGRAM, ROOT, Terminal, opened

ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", "COLUMNS": "100"}
ENVIRON |= {"LINES": "30", "TERM": "xterm"}


def run(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *map(str, arguments)]
    options = {"env": ENVIRON, "capture_output": True, "timeout": 60, **options}
    return subprocess.run(command, text=True, check=False, **options)


def test_into_a_pipe_it_prints_summary_and_screen(trace_path: Path) -> None:
    done = run(trace_path, "--op", 40)
    assert done.returncode == 0
    assert done.stdout.startswith("bench      matmul")
    screen = done.stdout.splitlines()[-30:]
    assert screen[0].startswith(" kernbench matmul.msgpack  op 40/151")
    assert "[1 Timeline]" in screen[2]
    assert "\x1b" not in done.stdout
    assert done.stderr == "hint: no terminal here; --script FILE runs commands\n"


def test_without_any_input_or_output_it_ends(trace_path: Path) -> None:
    nothing = {"stdin": subprocess.DEVNULL, "start_new_session": True}  # no tty at all
    assert run(trace_path, **nothing).returncode == 0


def test_a_dumb_terminal_gets_text(trace_path: Path, tmp_path: Path) -> None:
    with opened(trace_path, "--op", 40, state=tmp_path, TERM="dumb") as terminal:
        assert terminal.end() == 0
        assert b"op 40/151" in terminal.raw
        assert b"\x1b" not in terminal.raw


@pytest.mark.parametrize("arguments", [[], ["--info"], ["--script", "-"]], ids=str)
def test_a_reader_who_has_enough_is_no_error(arguments, trace_path: Path) -> None:
    command = shlex.join([*PROGRAM, str(trace_path), *arguments])
    text = f"yes ops | head -50 | {command} | head -1; echo ${{PIPESTATUS[2]}} >&2"
    done = subprocess.run(
        ["bash", "-c", text],
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr.splitlines()[-1] == "0"
    assert "Traceback" not in done.stderr


def test_info_says_what_the_terminal_can(tmp_path: Path) -> None:
    with opened(
        "--info", size=(91, 33), state=tmp_path, COLORTERM="truecolor"
    ) as terminal:
        assert terminal.end() == 0
        facts = dict(line.split(None, 1) for line in terminal.raw.decode().splitlines())
    wanted = {
        "size": "91x33",
        "colours": "truecolor",
        "glyphs": "UTF-8",
        "stdin": "terminal",
    }
    assert facts.items() >= {**wanted, "TERM": "xterm-256color", "TMUX": "-"}.items()
    assert facts["state"] == str(tmp_path / "kernbench")
    assert {"kernbench", "python", "textual", "numpy", "settings"} <= facts.keys()


@pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here")
def test_within_tmux(trace_path: Path, tmp_path: Path) -> None:
    tmux = ["tmux", "-f", "/dev/null", "-S", str(tmp_path / "socket")]
    program = f"echo before; {shlex.join([*PROGRAM, str(trace_path), '--op', '40'])}; echo code $?"
    quoted = shlex.quote(program + "; cat")
    shell = f"env PYTHONPATH={ROOT} XDG_STATE_HOME={tmp_path} sh -c {quoted}"
    terminal = Terminal([*tmux, "new-session", shell])
    try:
        terminal.until("op 40/151")
        terminal.press("s")
        terminal.until("op 41/151")
        terminal.press("/gemm\r")
        terminal.until("op 72/151")
        terminal.press("ss")
        terminal.until("op 74/151")
        terminal.press("\x1b[1;2R")  # Shift+F3
        terminal.until("op 73/151")
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


@pytest.mark.skipif(
    SSHD is None or os.getuid() != 0, reason="no sshd that may be started here"
)
def test_through_ssh(trace_path: Path, tmp_path: Path) -> None:
    """A connection that breaks ends the program too."""
    key, port = tmp_path / "key", 20_000 + os.getpid() % 20_000
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True
    )
    shutil.copy(f"{key}.pub", tmp_path / "authorized")
    Path("/run/sshd").mkdir(exist_ok=True)
    settings = [f"ListenAddress=127.0.0.1:{port}", f"HostKey={key}", "StrictModes=no"]
    settings += [f"AuthorizedKeysFile={tmp_path}/authorized", f"PidFile={tmp_path}/pid"]
    options = [word for setting in settings for word in ("-o", setting)]
    server = subprocess.Popen([SSHD, "-D", "-f", "/dev/null", *options])  # type: ignore[list-item]
    pid = tmp_path / "of-the-program"
    program = shlex.join([*PROGRAM, str(trace_path), "--op", "40"])
    environ = f"XDG_STATE_HOME={tmp_path} LANG=C.UTF-8"
    remote = f"cd {ROOT}; export {environ}; echo $$ > {pid}; exec {program}"
    ssh = ["ssh", "-tt", "-q", "-i", str(key), "-p", str(port), "-F", "/dev/null"]
    ssh += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    terminal = Terminal([*ssh, "-o", "ConnectionAttempts=20", "127.0.0.1", remote])
    try:
        terminal.until("op 40/151")
        terminal.press("s")
        terminal.until("op 41/151")
        gone = os.pidfd_open(int(pid.read_text()))
        os.kill(terminal.pid, signal.SIGKILL)
        assert select.select([gone], [], [], 20)[0]
    finally:
        terminal.close()
        server.terminate()
        server.wait()
