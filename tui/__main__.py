"""``kernbench-tui``: from arguments to a session, and on to screen, script or text.

numpy, Textual and what imports them are imported within functions. The first frame
would wait for them, and numpy must not be imported before ``main`` has begun.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

import kernbench
from kernbench.console import Program, drop_stdout, say
from kernbench.errors import KernbenchError, RefusedError
from kernbench.visible import guard_tracebacks
from tui import guardian
from tui.config import configured_theme
from tui.terminal import info_lines, is_terminal, named_driver, utf8_locale
from tui.themes import THEMES, chosen

if TYPE_CHECKING:
    from kernbench.replay import ReplaySession
    from kernbench.trace.frames import OnFrame
    from tui.app import KernbenchApp
    from tui.follow import RunFile

THEME_NAMES = tuple(THEMES)
_DEMO = "matmul.msgpack"
_USAGE = "usage: kernbench-tui FILE, or --demo for the bundled trace; --help has more"
_HINT = "hint: no terminal here; --script FILE runs commands"

# The screen that is printed is looked at so often, so many seconds apart, until its
# jobs are done.
_MAX_LOOKS = 100
_LOOK_S = 0.1

# A comment in a script: a whole line, or behind a blank up to the end of the line.
_COMMENT = re.compile(r"^\s*#.*|\s#\s.*|\s#$")


@click.command(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(kernbench.__version__, prog_name="kernbench-tui")
@click.argument("file", required=False, type=click.Path())
@click.option("--demo", is_flag=True, help="Open the bundled trace of a matmul.")
@click.option(
    "--script", type=click.Path(), help="Run the commands in a file (-: stdin), print."
)
@click.option(
    "--op", type=int, help="Where to start (default: at an error, else a launch)."
)
@click.option("--ascii", "plain", is_flag=True, help="Draw with ASCII characters only.")
@click.option(
    "--follow", is_flag=True, help="Show a run while it goes on and writes FILE."
)
@click.option(
    "--serve",
    is_flag=False,
    flag_value="",
    metavar="[PORT]",
    help="Show it in a browser of this machine, at 127.0.0.1:PORT (default: 8000).",
)
@click.option(
    "--theme",
    type=click.Choice(THEME_NAMES),
    help="Colours (default: of config.toml, else dark; NO_COLOR: none; of 16 "
    "colours the terminal's own).",
)
@click.option(
    "--info", is_flag=True, help="Print versions, paths and what the terminal can do."
)
def main(
    file: str | None,
    demo: bool,
    script: str | None,
    op: int | None,
    plain: bool,
    follow: bool,
    serve: str | None,
    theme: str | None,
    info: bool,
) -> None:
    """Replay a trace FILE: what happened, when, with which data, and why it is slow
    or wrong.

    Without FILE it shows the traces opened last, and those that came with kernbench.
    """
    guard_tracebacks()
    try:
        path = None
        if demo and file is not None:
            raise click.UsageError("--demo opens a bundled trace: it takes no FILE")
        if file:
            path = Path(file)
        elif demo:
            path = demo_path()
        driver = named_driver(os.environ)
        ascii_only = plain
        colours = theme or configured_theme()
        if driver:  # TERM and the locale say nothing of where that draws
            colours = colours or "dark"
        else:
            ascii_only = plain or not utf8_locale(os.environ)
        if follow and (path is None or script is not None):
            raise click.UsageError("--follow shows a run: it takes FILE, no --script")
        if info:
            say("\n".join(info_lines(os.environ)))
        elif serve is not None:
            if script is not None:
                raise click.UsageError("--serve shows a screen, --script has none")
            serve_screen(serve, path, op, plain, follow, theme)
        elif script is None and (driver or is_terminal(os.environ)):
            show(path, op, ascii_only, follow, chosen(colours, os.environ))
        elif path is None:
            say(_USAGE, err=True)
            sys.exit(2)
        elif script is not None:
            run_script(open_session(path, op), script)
        else:
            if follow:
                path = file_of_run(path).now
            print_screen(open_session(path, op), path.name, ascii_only)
            say(_HINT, err=True)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe has enough
        drop_stdout()
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except KernbenchError as error:
        say(f"error: {error}", err=True)
        sys.exit(error.exit_code)


def serve_screen(
    port_text: str,
    path: Path | None,
    op: int | None,
    ascii_only: bool,
    follow: bool,
    theme: str | None,
) -> None:
    """Show the program in browsers, until Ctrl+C.

    ``port_text`` is what stands behind ``--serve``; "" is nothing. It is the FILE if
    none is given otherwise and it is no number. KernbenchError says what is missing:
    the file, the port, or textual-serve.
    """
    if path is None and port_text and not port_text.isdecimal():
        path = Path(port_text)
        port_text = ""
    if path is not None:
        expect_trace(file_of_run(path).now if follow else path)
    from tui.serve import DEFAULT_PORT, parse_port, serve

    port = DEFAULT_PORT
    if port_text:
        port = parse_port(port_text)
    arguments: list[str] = []
    name = ""
    if op is not None:
        arguments += ["--op", str(op)]
    if ascii_only:
        arguments.append("--ascii")
    if follow:
        arguments.append("--follow")
    if theme is not None:
        arguments += ["--theme", theme]
    if path is not None:
        arguments += ["--", str(path)]
        name = path.name
    serve(arguments, name, port)


def expect_trace(path: Path) -> None:
    """Raise KernbenchError unless there is a trace at ``path``, by its first frame."""
    from kernbench.trace.frames import FrameFile

    FrameFile(path, scan=False)


def file_of_run(path: Path) -> RunFile:
    """The file of a run that goes on; KernbenchError if there is none."""
    from tui.follow import RunFile

    return RunFile(path)


def show(
    path: Path | None,
    op: int | None,
    ascii_only: bool,
    follow: bool,
    theme: str,
) -> None:
    """Run the program on the terminal, then end the process.

    Without a path the user picks a trace. A bad file raises KernbenchError before the
    screen is taken; in a browser, where nobody would see that, the program says so
    where a trace is picked. With ``follow`` a run writes the file. At the end no thread
    that still computes is waited for.
    """
    in_browser = bool(named_driver(os.environ))
    run = None
    if path is not None and follow:
        run = file_of_run(path)
        path = run.now
    if path is not None and not in_browser:
        expect_trace(path)
    from tui import lifecycle
    from tui.opening import OpeningApp
    from tui.state import recent

    paths = dict.fromkeys(recent(), "opened before")
    for bundled in sorted(_bundled_folder().glob("*.msgpack")):
        paths[bundled] = "comes with kernbench"

    def read(path: Path, on_frame: OnFrame) -> ReplaySession:
        return open_session(path, op, on_frame)

    stay = op is not None
    if run is not None:
        from tui.follow import FollowingApp

        app: OpeningApp = FollowingApp(run, read, ascii_only, stay, theme)
    else:
        app = OpeningApp(
            path,
            paths,
            read,
            ascii_only,
            stay,
            offer_others=in_browser,
            theme=theme,
        )
    code = lifecycle.run(app)
    with suppress(OSError):  # the terminal may be gone; the exit code says so
        if app.failure:
            say(f"error: {app.failure}", err=True)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def print_screen(session: ReplaySession, name: str, ascii_only: bool) -> None:
    """Print the trace's summary, the cursor's op, and the screen there as text.

    The screen is as large as the environment or the terminal says, else 80 x 24.
    """
    from tui.app import KernbenchApp

    commands = ["info"]
    if session.cursor >= 0:
        commands.append("op")
    app = KernbenchApp(session, name, ascii_only)
    answer(session, commands)
    say(f"\n{asyncio.run(_drawn(app))}")


async def _drawn(app: KernbenchApp) -> str:
    """Return the first screen of an App, once its jobs are done, or after 10 s."""
    from tui.ansi import screen_lines

    async with app.run_test(size=shutil.get_terminal_size()) as pilot:
        await pilot.pause()
        for _ in range(_MAX_LOOKS):
            await pilot.pause(_LOOK_S)
            if not app.debugger.runner.busy and not app.debugger.waiting:
                break
        return "\n".join(screen_lines(app.screen))


def _bundled_folder() -> Path:
    """Return the folder of the bundled traces.

    A wheel has them in its package, a checkout beside it.
    """
    package = Path(kernbench.__file__).parent
    in_package = package / "traces"
    return in_package if in_package.is_dir() else package.parent / "traces"


def demo_path() -> Path:
    """Return the path of the bundled trace of a matmul; KernbenchError without one."""
    path = _bundled_folder() / _DEMO
    if not path.is_file():
        raise RefusedError(
            f"no bundled {_DEMO}; record one: kernbench run matmul --trace FILE"
        )
    return path


def open_session(
    path: Path, op: int | None, on_frame: OnFrame | None = None
) -> ReplaySession:
    """Open a trace, its cursor at ``op`` or else where there is most to be seen.

    ``on_frame`` is called with every frame before it is read; what it raises ends the
    reading. KernbenchError says why there is no session.
    """
    from kernbench.replay import ReplaySession
    from kernbench.trace import Trace
    from kernbench.trace.frames import ignore_frame

    if path.is_dir():
        raise RefusedError(f"{path}: is a directory; give a trace file")
    try:
        trace = Trace.open(path, on_frame or ignore_frame)
        session = ReplaySession(trace)
    except OSError as error:
        raise RefusedError(f"{path}: {error.strerror or error}") from None
    if op is None:
        op = _opening_op(session)
    session.begin_at(op)
    return session


def _opening_op(session: ReplaySession) -> int:
    """The op next to the error that ended the run, else the first of a launch.

    Where outputs are wrong the error says no more than that, and no op is next to it.
    """
    from tui.panes.windows import kernel_window

    ops = session.index.ops
    if ops.error and all(session.trace.recorded_verdicts.values()):
        return ops.error_op
    begin, _ = kernel_window(session.index)
    return min(ops.started_before(begin), ops.last)


def run_script(session: ReplaySession, script: str) -> None:
    """Run the lines of a file ('-' is stdin) and print each answer.

    KernbenchError says why the file cannot be read, or which line failed.
    """
    try:
        text = _script_text(script)
    except OSError as error:
        raise RefusedError(f"{script}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RefusedError(f"{script}: cannot be read as a script: {error}") from None
    # What writes a file is to clean up after Ctrl-C; until here it ended at once.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    answer(session, text.splitlines())


def _script_text(script: str) -> str:
    """Return the text of a file, or of stdin for '-'."""
    if script == "-":
        return sys.stdin.read()
    return Path(script).read_text(encoding="utf-8")


def answer(session: ReplaySession, lines: Iterable[str]) -> None:
    """Run command lines and print what they answer; ``# `` begins a comment.

    An error, as of a failed ``assert``, ends with the number of its line.
    """
    from kernbench.replay.text import as_text

    for number, line in enumerate(lines, 1):
        command = _COMMENT.sub("", line).strip().removeprefix(":")
        if not command:
            continue
        try:
            say(as_text(session.run_line(command)))
        except KernbenchError as error:
            where = f"{error}; line {number}: {command}"
            raise type(error)(where) from None


if __name__ == "__main__":
    guardian.main()
