"""``kernbench-tui``: arguments to session to screen, script or plain text."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

import kernbench
from kernbench.errors import KernbenchError
from kernbench.trace.frames import Frame, FrameFile, ignore_frame
from tui.terminal import info_lines, is_terminal, utf8_locale

if TYPE_CHECKING:  # heavy: imported when the first frame is there
    from kernbench.replay import ReplaySession

_DEMO = "matmul.msgpack"
_LOOKS = 100  # at the screen's jobs, before it is printed as it is
_USAGE = "usage: kernbench-tui FILE, or --demo for the bundled trace; --help has more"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(kernbench.__version__, prog_name="kernbench-tui")
@click.argument("file", required=False, type=click.Path())
@click.option("--demo", is_flag=True, help="Open the bundled trace of a matmul.")
@click.option(
    "--script", type=click.Path(), help="Run the commands in a file (-: stdin), print."
)
@click.option(
    "--op", type=int, help="Where to start (default: the first op of a launch)."
)
@click.option("--ascii", "plain", is_flag=True, help="Draw with ASCII characters only.")
@click.option(
    "--info", is_flag=True, help="Print versions, paths and what the terminal can do."
)
def main(
    file: str | None,
    demo: bool,
    script: str | None,
    op: int | None,
    plain: bool,
    info: bool,
) -> None:
    """Replay a trace FILE: what happened, when, with which data, and why it is slow or wrong.

    Without FILE it shows the traces opened last, and those that came with kernbench.
    """
    screen, plain = is_terminal(os.environ), plain or not utf8_locale(os.environ)
    try:
        path = demo_path() if demo and file is None else file and Path(file)
        if info:
            click.echo("\n".join(info_lines(os.environ)))
        elif screen and script is None:
            show(path or None, op, plain)
        elif not path:
            click.echo(_USAGE, err=True)
            sys.exit(2)
        elif script is not None:
            run_script(open_session(path, op), script)
        else:
            print_screen(open_session(path, op), path.name, plain)
            click.echo("hint: no terminal here; --script FILE runs commands", err=True)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe has enough
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # quiet the last flush
    except KernbenchError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


def show(path: Path | None, op: int | None, plain: bool) -> None:
    """The program on a terminal; ends the process, and waits for no thread that still computes."""
    if path is not None:
        FrameFile(
            path, scan=False
        )  # else it ends in one line, before the screen is taken
    from tui import manners
    from tui.opening import OpeningApp
    from tui.state import recent

    paths = dict.fromkeys(recent(), "opened before")
    paths |= dict.fromkeys(sorted(_bundled().glob("*.msgpack")), "comes with kernbench")
    app = OpeningApp(
        path, paths, partial(open_session, op=op), plain, stay=op is not None
    )
    code = manners.run(app)
    if app.failure:
        click.echo(f"error: {app.failure}", err=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def print_screen(session: ReplaySession, name: str, plain: bool) -> None:
    """The trace's summary, the cursor's op, and the screen there as plain text."""
    from tui.app import KernbenchApp

    app = KernbenchApp(session, name, plain)

    async def drawn() -> str:
        wide, high = shutil.get_terminal_size()
        async with app.run_test(size=(wide, high)) as pilot:
            await pilot.pause()
            for _ in range(_LOOKS):
                await pilot.pause(0.1)
                if not app.debugger.runner.busy:
                    break
            strips = app.screen._compositor.render_strips()
            return "\n".join(strip.text.rstrip() for strip in strips)

    answer(session, ["info", "op"] if session.cursor >= 0 else ["info"])
    click.echo(f"\n{asyncio.run(drawn())}")


def _bundled() -> Path:
    """The folder of the bundled traces: in the package of a wheel, or in the checkout."""
    package = Path(kernbench.__file__).parent / "traces"
    return package if package.is_dir() else package.parents[1] / "traces"


def demo_path() -> Path:
    """The bundled trace."""
    if not (path := _bundled() / _DEMO).is_file():
        raise KernbenchError(
            f"no bundled {_DEMO}; record one: kernbench run matmul --trace FILE"
        )
    return path


def open_session(
    path: Path, op: int | None, told: Callable[[Frame], None] = ignore_frame
) -> ReplaySession:
    """A session on the trace at ``path``, its cursor at ``op`` or at the first op of a launch."""
    from kernbench.replay import ReplaySession
    from kernbench.trace import Trace

    if path.is_dir():
        raise KernbenchError(f"{path}: is a directory; give a trace file")
    try:
        session = ReplaySession(Trace.open(path, told))
    except OSError as error:
        raise KernbenchError(f"{path}: {error.strerror or error}") from None
    if op is None:
        launched = int(
            session.index.ops.starts.searchsorted(session.launch_window()[0])
        )
        op = min(launched, len(session) - 1)
    session.goto(op)
    return session


def run_script(session: ReplaySession, script: str) -> None:
    """Run the lines of a file ('-' is stdin) and print each answer."""
    try:
        text = (
            sys.stdin.read()
            if script == "-"
            else Path(script).read_text(encoding="utf-8")
        )
    except (OSError, UnicodeDecodeError) as error:
        raise KernbenchError(f"{script}: cannot be read as a script: {error}") from None
    answer(session, text.splitlines())


def answer(session: ReplaySession, lines: Iterable[str]) -> None:
    """Run command lines and print what they answer.

    ``# `` begins a comment. An error, as of a failed ``assert``, ends with the number of its line.
    """
    from kernbench.replay.text import as_text

    for number, line in enumerate(lines, 1):
        command = re.sub(r"^\s*#.*|\s#\s.*|\s#$", "", line).strip().removeprefix(":")
        try:
            if command:
                click.echo(as_text(session.run_line(command)))
        except KernbenchError as error:
            raise KernbenchError(f"{error}; line {number}: {command}") from None


if __name__ == "__main__":
    main()
