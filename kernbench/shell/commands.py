"""What the commands of ``kernbench`` share: how errors end them, how their help begins,
options that take several values, and completion.

Imports nothing heavy: what a completion needs is imported when one is asked for.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, TypeAlias

import click
from click.shell_completion import CompletionItem

from kernbench import IS_PROGRAM
from kernbench.common.interrupts import raised_signal
from kernbench.common.user_code import end_beside_threads, text_of
from kernbench.console import Program, drop_stdout, say, say_wrong_call
from kernbench.errors import KernbenchError

Words: TypeAlias = Callable[[click.Context], Iterable[str]]

_SPREAD = ("--set", "--spec")
"""Options of which several values may follow one."""

_WORDS = "kernbench.words"
"""Under this name a context keeps the words that its command was given."""


class ShellCommand(Program):
    """A command whose help begins with examples.

    ``--set a=1 b=2`` is ``--set a=1 --set b=2``; ``--spec`` likewise.
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; raises UsageError."""
        ctx.meta[_WORDS] = list(args)
        return super().parse_args(ctx, _spread(args))

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples, then how it is called, what it does, and its options."""
        write_examples(formatter, self.examples)
        super().format_help(ctx, formatter)

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        """What may stand for ``incomplete``: also a further value of an option."""
        option = _open_option(ctx.meta.get(_WORDS, []))
        for param in self.params:
            if option and option in param.opts:
                return param.shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)


class ShellGroup(Program, click.Group):
    """Turns our errors into one line on stderr; ``--traceback`` shows the rest."""

    command_class = ShellCommand

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """As of any program; no thread of users' code keeps it from ending."""
        try:
            return super().main(*args, **kwargs)
        except SystemExit as ended:
            if IS_PROGRAM and isinstance(ended.code, int):
                end_beside_threads(ended.code)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; whatever ends it is said in one line."""
        try:
            return super().invoke(ctx)
        except (KernbenchError, KeyboardInterrupt) as error:
            if ctx.params.get("traceback"):
                raise
            _say_error(error)
            sys.exit(_exit_code(error))
        except click.UsageError as error:
            say_wrong_call(error, ctx)
            sys.exit(2)
        except BrokenPipeError:
            # The reader has enough; the flush at exit shall find no pipe.
            drop_stdout()
            sys.exit(0)


def _exit_code(error: BaseException) -> int:
    """1: it ran, and the answer is bad. 2: nothing ran, or nothing could be read.

    130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
    """
    number = raised_signal()
    if number not in (None, signal.SIGINT):
        return 128 + int(number)
    if number is not None or isinstance(error, KeyboardInterrupt):
        return 130
    return getattr(error, "exit_code", 1)


def _say_error(error: BaseException) -> None:
    """One line on stderr that says what ended a command, with its notes."""
    what = f"error: {text_of(error)}"
    number = raised_signal()
    if number not in (None, signal.SIGINT):
        what = f"ended by {signal.Signals(number).name}"
    elif number is not None or isinstance(error, KeyboardInterrupt):
        what = "interrupted"
    line = "; ".join([what, *getattr(error, "__notes__", [])])
    try:
        say(" ".join(line.splitlines()), err=True)
    except OSError:  # the terminal is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """Begin a help with examples: command lines that run."""
    if not examples:
        return
    formatter.write("For example:\n")
    for example in examples:
        formatter.write(f"  {example}\n")
    formatter.write("\n")


def _spread(args: Sequence[str]) -> list[str]:
    """The words with ``--set`` or ``--spec`` before each of their values."""
    spread: list[str] = []
    option = ""
    for before, arg in pairwise(["", *args]):
        if arg.startswith("-"):
            option = arg if arg in _SPREAD else ""
        elif option and before != option and "=" in arg:
            spread.append(option)
        spread.append(arg)
    return spread


def _open_option(words: Sequence[str]) -> str:
    """The option that a further word would belong to; "" for none."""
    for word in reversed(words):
        if word in _SPREAD:
            return word
        if "=" not in word:
            return ""
    return ""


# -- completion ------------------------------------------------------------------------


def completes(
    words: Words, files: str = "", suffix: str = ""
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """What completes an argument: words, and with ``files`` what the shell knows.

    ``files`` is "file" or "dir". Words that end in ``suffix`` want more behind them.
    """

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        found = [
            CompletionItem(word + suffix)
            for word in words(ctx)
            if word.startswith(incomplete)
        ]
        if files and not found:
            found.append(CompletionItem(incomplete, type=files))
        return found

    return complete


def bench_names(ctx: click.Context) -> list[str]:
    """The benches that ship."""
    from kernbench.benches import FAULTS, SHIPPED, SLOW, TUTORIALS

    return [*SHIPPED, *TUTORIALS, *SLOW, *FAULTS]


def bench_params(ctx: click.Context) -> list[str]:
    """The parameters of the bench that was given; none if it is no bench."""
    from kernbench.runtime_api.registry import find_bench

    for word in ctx.meta.get(_WORDS, []):
        with suppress(KernbenchError):
            return list(find_bench(word).params)
    return []


def spec_fields(ctx: click.Context) -> list[str]:
    """The fields of a topology."""
    from kernbench.topology import TopologySpec
    from kernbench.topology.section import leaf_types

    return [path for path, _ in leaf_types(TopologySpec)]


def completion_script(program: click.Command, name: str, shell: str) -> str:
    """What a shell reads to complete the commands of a program."""
    from click.shell_completion import get_completion_class

    variable = f"_{name.upper()}_COMPLETE"
    made_by = get_completion_class(shell)
    assert made_by is not None
    made = made_by(program, {}, name, variable)
    # Not made.source(): that of bash runs bash to see how old it is.
    return made.source_template % made.source_vars()
