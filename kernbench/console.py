"""What the two programs share on a command line: how they print, and what they say of a
wrong call, or of a stdout that takes nothing more.

Imports nothing heavy: ``kernbench-tui`` reads it before its first frame.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

import click

from kernbench.visible import visible, visible_text


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
            said = visible(error.format_message())
            raise click.UsageError(said, error.ctx or ctx) from None


def say(text: str, err: bool = False) -> None:
    """Print lines; all that is printed goes through here, but for pages of ours."""
    click.echo(visible_text(text), err=err)


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
