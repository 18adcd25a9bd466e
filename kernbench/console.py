"""What the two programs share on a command line: how they print, and what they say of a
wrong call, or of a stdout that takes nothing more.

Imports nothing heavy: ``kernbench-tui`` reads it before its first frame.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from kernbench.visible import visible, visible_text

_ALIKE = 0.6
"""The ratio of what two words have in common from which on they may be meant for each
other, as in difflib."""


class Program(click.Command):
    """A command of which a wrong call shows what was typed as all else is shown, and
    for which what cannot be printed is an error of one line as well.
    """

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """As click has it, but for a stdout that fails."""
        try:
            return super().main(*args, **kwargs)
        except (OSError, ValueError):
            _end_if_stdout_fails()
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; raises UsageError."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if isinstance(error, click.NoSuchOption):
                said = visible(_no_such_option(error, ctx))
            else:
                said = visible(error.format_message())
            raise _WrongCall(said, error.ctx or ctx) from None


class _WrongCall(click.UsageError):
    """A wrong call, which is said in one line as every other error is."""

    def show(self, file: Any = None) -> None:
        """Print it to stderr, where click would print how to call the command."""
        say_wrong_call(self)


def say_wrong_call(error: click.UsageError, ctx: click.Context | None = None) -> None:
    """Print in a line what is wrong with a call, and where its help is: of the command
    of the error, or else of ``ctx``.
    """
    said = error.format_message().rstrip(".")
    where = error.ctx or ctx
    if where is not None:
        join = " See" if said.endswith("?") else "; see"
        said += f"{join} {where.command_path} --help"
    say(f"error: {said}", err=True)


def _no_such_option(error: click.NoSuchOption, ctx: click.Context) -> str:
    """What is said of an option that is none: the program of its name, or else the
    options that it is like without the dashes, which all of them begin with.
    """
    from difflib import SequenceMatcher  # of calls that are right nobody needs it

    word = error.option_name.lstrip("-")
    root = ctx.find_root()
    if isinstance(root.command, click.Group) and word in root.command.commands:
        return f"no option {error.option_name}, but there is {root.command_path} {word}"
    alike = [
        name
        for name in error.possibilities or ()
        if SequenceMatcher(None, word, name.lstrip("-")).ratio() >= _ALIKE
    ]
    return click.NoSuchOption(error.option_name, possibilities=alike).format_message()


def say(text: str, err: bool = False) -> None:
    """Print lines; all that is printed goes through here, but for pages of ours."""
    click.echo(visible_text(text), err=err)


@contextmanager
def shown_share(what: str) -> Iterator[Callable[[float], None] | None]:
    """What is given the share that is done of some work, 0 to 1, and shows it.

    It is a line of stderr, written once a second and wiped at the end; nothing is shown
    of work that takes less. None where stderr is no terminal: nobody sees it there.
    """
    if not sys.stderr.isatty():
        yield None
        return
    shown = time.monotonic()
    is_written = False

    def show(done: float) -> None:
        nonlocal shown, is_written
        now = time.monotonic()
        if now - shown >= 1:
            shown = now
            is_written = True
            with suppress(OSError):  # a terminal that is gone ends no work
                click.echo(f"\r{what} {done:.0%}\033[K\r", err=True, nl=False)

    try:
        yield show
    finally:
        if is_written:
            with suppress(OSError):
                click.echo("\r\033[K", err=True, nl=False)


def drop_stdout() -> None:
    """Let what stdout still holds go nowhere, as it is flushed at the exit."""
    with suppress(ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end_if_stdout_fails() -> None:
    """Say in a line why stdout fails, and exit 2; does nothing if it does not fail."""
    reason = _why_stdout_fails()
    if reason is None:
        return
    print(f"error: cannot write the standard output: {reason}", file=sys.stderr)
    drop_stdout()
    sys.exit(2)


def _why_stdout_fails() -> str | None:
    """Why nothing more can be written to stdout; None if a line's end could be."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except (OSError, ValueError) as error:  # a ValueError if somebody has closed it
        return getattr(error, "strerror", None) or str(error)
    return None
