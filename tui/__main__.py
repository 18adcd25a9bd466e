"""``kernbench-tui``: arguments to session to screen, script or plain text."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

import kernbench
from kernbench.errors import KernbenchError
from kernbench.replay import ReplaySession
from kernbench.replay.commands import run_command
from kernbench.replay.text import as_text
from kernbench.trace import Trace

_DEMO = "matmul.msgpack"
_USAGE = "usage: kernbench-tui FILE, or --demo for the bundled trace; --help has more"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(kernbench.__version__, prog_name="kernbench-tui")
@click.argument("file", required=False, type=click.Path())
@click.option("--demo", is_flag=True, help="Open the bundled trace of a matmul.")
@click.option("--script", type=click.Path(), help="Run the commands in a file (-: stdin), print.")
@click.option("--op", type=int, help="Where to start (default: the first op of a launch).")
@click.option("--ascii", "plain", is_flag=True, help="Draw with ASCII characters only.")
def main(file: str | None, demo: bool, script: str | None, op: int | None, plain: bool) -> None:
    """Replay a trace FILE: what happened, when, with which data, and why it is slow or wrong."""
    if file is None and not demo:
        click.echo(_USAGE, err=True)
        sys.exit(2)
    try:
        path = demo_path() if file is None else Path(file)
        session = open_session(path, op)
        if script is not None:
            run_script(session, script)
        elif not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
            answer(session, ["info", "op"] if session.cursor >= 0 else ["info"])
            click.echo("hint: no terminal here; --script FILE runs commands", err=True)
        else:
            from tui.app import KernbenchApp

            gc.freeze()  # what was loaded stays: collections need not look at it
            app = KernbenchApp(session, path.name, plain or not utf8_locale(os.environ))
            app.run()
            sys.exit(app.return_code or 0)
    except KernbenchError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


def demo_path() -> Path:
    """The bundled trace: in the package of a wheel, or in the checkout."""
    package = Path(kernbench.__file__).parent
    for folder in (package, package.parent):
        if (folder / "traces" / _DEMO).is_file():
            return folder / "traces" / _DEMO
    raise KernbenchError(f"no bundled {_DEMO}; record one: kernbench run matmul --trace FILE")


def open_session(path: Path, op: int | None) -> ReplaySession:
    """A session on the trace at ``path``, its cursor at ``op`` or at the first op of a launch."""
    if path.is_dir():
        raise KernbenchError(f"{path}: is a directory; give a trace file")
    try:
        session = ReplaySession(Trace.open(path))
    except OSError as error:
        raise KernbenchError(f"{path}: {error.strerror or error}") from None
    if op is None:
        launched = int(session.starts.searchsorted(session.launch_window()[0]))
        op = min(launched, len(session) - 1)
    session.goto(op)
    return session


def run_script(session: ReplaySession, script: str) -> None:
    """Run the lines of a file ('-' is stdin) and print each answer."""
    try:
        text = sys.stdin.read() if script == "-" else Path(script).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KernbenchError(f"{script}: cannot be read as a script: {error}") from None
    answer(session, text.splitlines())


def answer(session: ReplaySession, lines: Iterable[str]) -> None:
    """Run command lines and print what they answer, until the reader of a pipe has enough.

    ``# `` begins a comment. An error, as of a failed ``assert``, ends with the number of its line.
    """
    try:
        for number, line in enumerate(lines, 1):
            command = re.sub(r"^\s*#.*|\s#\s.*|\s#$", "", line).strip().removeprefix(":")
            try:
                if command:
                    click.echo(as_text(run_command(session, command)))
            except KernbenchError as error:
                raise KernbenchError(f"{error}; line {number}: {command}") from None
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # quiet the last flush


def utf8_locale(environ: Mapping[str, str]) -> bool:
    """Whether the locale writes UTF-8; Python itself sets LC_CTYPE=C.UTF-8 in the C locale."""
    ctype = environ.get("LC_CTYPE", "").replace("C.UTF-8", "")
    return "utf" in (environ.get("LC_ALL") or ctype or environ.get("LANG", "")).lower()


if __name__ == "__main__":
    main()
