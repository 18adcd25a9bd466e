"""TEXTUAL_DRIVER says who draws: here Textual's driver for browsers, through pipes.

A packet is a letter (D: bytes of a terminal, M: JSON about it), the size in four bytes,
and the content.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyte
import pytest
from pace import first_fast
from terminals import LIMIT_S, PROGRAM, ROOT

WEB = "textual.drivers.web_driver:WebDriver"
PRELUDE = b"__GANGLION__\n"


class Piped:
    """``kernbench-tui ARGUMENTS``, drawn through pipes. ``meta`` is what it said."""

    def __init__(self, *arguments: object, state: Path, **environ: str) -> None:
        self.meta: list[dict[str, Any]] = []
        self.screen = pyte.Screen(100, 30)
        self._stream = pyte.ByteStream(self.screen)
        self._left = b""
        self.process = subprocess.Popen(
            [*PROGRAM, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={
                **os.environ,
                "TEXTUAL_DRIVER": WEB,
                "PYTHONPATH": str(ROOT),
                "XDG_STATE_HOME": str(state),
                "COLUMNS": "100",
                "ROWS": "30",
                **environ,
            },
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == PRELUDE

    def send(self, kind: bytes, content: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(kind + len(content).to_bytes(4, "big") + content)
        self.process.stdin.flush()

    def press(self, keys: str) -> None:
        self.send(b"D", keys.encode())

    def tell(self, **meta: object) -> None:
        self.send(b"M", json.dumps(meta).encode())

    def read(self) -> bool:
        """Take what was written; whether there may be more."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], 0.1)[0]:
            return True
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        self._left += data
        while len(self._left) >= 5:
            end = 5 + int.from_bytes(self._left[1:5], "big")
            if len(self._left) < end:
                break
            content = self._left[5:end]
            if self._left[:1] == b"D":
                self._stream.feed(content)
            else:
                self.meta.append(json.loads(content))
            self._left = self._left[end:]
        return data != b""

    def until(self, sought: str | Callable[[], bool]) -> None:
        """Read until a text is on the screen, or until something is so."""

        def is_so() -> bool:
            if isinstance(sought, str):
                return sought in "\n".join(self.screen.display)
            return sought()

        end = time.monotonic() + LIMIT_S
        while not is_so():
            assert time.monotonic() < end, "\n".join(self.screen.display)
            assert self.read(), self.error()

    def end(self) -> int:
        """Read to the end; the exit code."""
        end = time.monotonic() + LIMIT_S
        while self.read():
            assert time.monotonic() < end
        return self.process.wait(LIMIT_S)

    def error(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


@contextmanager
def piped(*arguments: object, state: Path, **environ: str) -> Iterator[Piped]:
    program = Piped(*arguments, state=state, **environ)
    try:
        yield program
    finally:
        program.process.kill()
        program.process.communicate()


@pytest.mark.slow
def test_the_driver_that_is_named_draws_and_takes_keys(
    trace_path: Path, tmp_path: Path
) -> None:
    with piped(trace_path, "--op", 40, state=tmp_path, LANG="C") as program:
        program.until("op 40/151")
        program.until("─[1 Timeline]")  # whatever the locale of who serves it
        program.press("s")
        program.until("op 41/151")
        program.tell(type="resize", width=60, height=20)
        program.press("s")
        program.until("op 42/151")
        program.until(lambda: "verify ok" in program.screen.display[0][:60])
        program.press("q")
        assert program.end() == 0
        assert program.meta == [{"type": "exit"}]
        assert program.error() == ""


@pytest.mark.slow
def test_all_of_the_screen_is_drawn_where_another_size_is_shown(
    trace_path: Path, tmp_path: Path
) -> None:
    """The process has no terminal, or one of another size."""
    with piped(trace_path, state=tmp_path, LINES="20") as program:
        program.until(lambda: "quit" in program.screen.display[29])
        program.screen.resize(40, 120)
        program.tell(type="resize", width=120, height=40)
        program.until(lambda: "quit" in program.screen.display[39])
        program.until(lambda: program.screen.display[2][119] == "╮")


@pytest.mark.slow
def test_without_who_draws_the_program_ends(trace_path: Path, tmp_path: Path) -> None:
    with piped(trace_path, "--op", 40, state=tmp_path) as program:
        program.until("op 40/151")
        assert program.process.stdin is not None
        program.process.stdin.close()
        program.process.stdin = None
        assert program.end() == 129


@pytest.mark.slow
def test_a_file_that_cannot_be_read_is_said_where_one_looks(tmp_path: Path) -> None:
    missing = tmp_path / "none.msgpack"
    with piped(missing, state=tmp_path) as program:
        program.until("which trace?")
        program.until("none.msgpack: No such file")
        program.press("q")
        assert program.end() == 0


@pytest.mark.parametrize(
    "name",
    first_fast(
        ["no_such_module:Driver", "textual.app:App", "textual.app", "os:sep", ":"]
    ),
)
def test_a_driver_that_is_none_is_an_error_of_one_line(
    name: str, trace_path: Path
) -> None:
    done = subprocess.run(
        [*PROGRAM, str(trace_path)],
        env={**os.environ, "TEXTUAL_DRIVER": name, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: TEXTUAL_DRIVER={name}: ")
    assert "unset it" in line


@pytest.mark.slow
def test_only_text_is_printed_whatever_draws(trace_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, str(trace_path), "--script", "-"],
        env={**os.environ, "TEXTUAL_DRIVER": WEB, "PYTHONPATH": str(ROOT)},
        input="goto 7\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("op 7 of 152")


@pytest.mark.slow
def test_another_package_of_that_name_is_not_taken(
    trace_path: Path, tmp_path: Path
) -> None:
    other = tmp_path / "tui"
    other.mkdir()
    (other / "__init__.py").write_text("raise SystemExit('another tui')\n")
    script = Path(sys.executable).with_name("kernbench-tui")
    for program in ([str(script)], [sys.executable, "-m", "kernbench.debugger"]):
        done = subprocess.run(
            [*program, str(trace_path), "--script", "-"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
            input="goto 7\n",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("op 7 of 152")
