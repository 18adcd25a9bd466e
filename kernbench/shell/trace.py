"""``kernbench trace``: a command of the debugger, asked of a file from a shell."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from kernbench.common.interrupts import interruptible
from kernbench.common.near import near
from kernbench.common.progress import no_progress
from kernbench.console import say, shown_share
from kernbench.errors import KernbenchError, UsageError
from kernbench.shell.commands import ShellCommand, write_examples
from kernbench.shell.options import (
    answered,
    json_option,
    json_text,
    plugins_option,
    shown_progress,
    spec_values,
)

if TYPE_CHECKING:
    from kernbench.replay.command import Command
    from kernbench.replay.whatif.proof import Rerun
    from kernbench.runtime_api.proofs import Proofs
    from kernbench.trace import Trace

_WIDTH = 100
_EXAMPLES = (
    "kernbench trace diagnose traces/matmul.msgpack",
    "kernbench trace blame traces/matmul.msgpack 'c[3,17]'",
    "kernbench trace ops traces/matmul.msgpack --where 'kind=gemm' --limit 5 --json",
)
_MOST_COMPLETED = 1 << 24
"""Of a larger trace nothing is read to complete a word."""


class _Trace(ShellCommand):
    """``trace --help`` lists the commands, ``trace NAME --help`` shows that one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; raises UsageError."""
        words = [arg for arg in args if not arg.startswith("-")]
        ctx.obj = next(iter(words), None)
        if words and Path(words[0]).is_file():
            asked = next(iter(words[1:]), "info")
            raise click.UsageError(
                f"{words[0]!r} is a file: what it is asked stands in front of it, as "
                f"in kernbench trace {asked} {words[0]}",
                ctx,
            )
        return super().parse_args(ctx, args)

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        """Options of the command that is asked as well as our own."""
        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            found += _completed_argument(ctx, incomplete)
        return found

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Of all commands, or of the one that was named."""
        from kernbench.replay.commands import named

        if ctx.obj is None:
            super().format_help(ctx, formatter)
        else:
            _write_help(formatter, self, ctx, named(ctx.obj))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands, by the question that they answer."""
        from kernbench.replay.commands import TOPICS, listed

        topics = {topic: f"{topic.capitalize()}?" for topic in TOPICS}
        for topic, title in (topics | {"": "Others, and moves"}).items():
            rows = [
                (f"{command.name} {command.usage}".strip(), command.help)
                for command in listed()
                if command.topic == topic
            ]
            with formatter.section(title):
                formatter.write_dl(rows, col_max=34)


def _write_help(
    formatter: click.HelpFormatter,
    shell: click.Command,
    ctx: click.Context,
    command: Command,
) -> None:
    """The help of one command: examples, its call, what it answers, its options."""
    from kernbench.replay.command_help import shell_examples, word_rows

    write_examples(formatter, shell_examples(command))
    usage = f"{command.name} FILE {command.usage}".rstrip()
    formatter.write_usage("kernbench trace", f"{usage} [OPTIONS]")
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(f"{command.help[:1].upper()}{command.help[1:]}.")
        formatter.write_paragraph()
        _write_details(formatter, command.details)
    words = word_rows(command)
    if words:
        with formatter.section("Where"):
            formatter.write_dl(words)
    rows = []
    for param in shell.get_params(ctx):
        row = param.get_help_record(ctx)
        is_option = isinstance(param, click.Option)
        if row is not None and is_option and _concerns(param.name or "", command):
            rows.append(row)
    with formatter.section("Options"):
        formatter.write_dl(rows)


def _write_details(formatter: click.HelpFormatter, details: str) -> None:
    """Lines of text; those that explain a name as a list of names."""
    lines = details.splitlines()
    named = [line.partition(": ") for line in lines if ": " in line]
    for line in lines:
        if ": " not in line:
            formatter.write_text(line)
    if named:
        formatter.write_dl([(name, what) for name, _, what in named])


def _concerns(option: str, command: Command) -> bool:
    """Whether an option of ``kernbench trace`` means something for a command."""
    if option in ("plugins", "any_source"):
        return command.proof is not None
    if option == "out":
        return command.kind == "effect"
    if option == "op":
        return command.kind == "move" or bool(command.about)
    return True


# -- completion ------------------------------------------------------------------------


def _complete_name(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The commands that answer something, then those that move."""
    from kernbench.replay.commands import listed

    return [
        CompletionItem(command.name, help=command.help)
        for command in listed()
        if command.name.startswith(incomplete)
    ]


def _complete_argument(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """What the command takes there, or else a file."""
    found = _completed_argument(ctx, incomplete)
    return found or [CompletionItem(incomplete, type="file")]


def _completed_argument(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """What the command takes there, with the names that the trace holds."""
    from kernbench.replay import ReplaySession
    from kernbench.replay.completion import candidates
    from kernbench.trace import Trace

    path = Path(str(ctx.params.get("file") or ""))
    head = " ".join([str(ctx.params.get("name")), *(ctx.params.get("args") or ())])
    dashes = "--" if incomplete.startswith("--") else ""
    found: list[str] = []
    try:
        if path.stat().st_size <= _MOST_COMPLETED:
            session = ReplaySession(Trace.open(path))
            word = incomplete.removeprefix(dashes)
            found = candidates(session.index, session.state, f"{head} ", word)
    except (OSError, KernbenchError):
        pass
    return [CompletionItem(f"{dashes}{word}") for word in found]


# -- the command -----------------------------------------------------------------------


@click.command(
    "trace",
    cls=_Trace,
    examples=_EXAMPLES,
    short_help="Ask a recorded trace, as the debugger does.",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("name", shell_complete=_complete_name)
@click.argument("file", type=click.Path())
@click.argument("args", nargs=-1, shell_complete=_complete_argument)
@click.option(
    "--op", type=int, help="Position in the op log to answer for (default: the last)."
)
@click.option(
    "-o",
    "--out",
    help="The last argument: what it writes; `export` takes - for the standard output.",
)
@json_option
@click.option(
    "--width",
    type=click.IntRange(min=1),
    default=_WIDTH,
    show_default=True,
    help="Columns of the text.",
)
@plugins_option
@click.option(
    "--any-source", is_flag=True,
    help="--prove: let the bench's source be another by now.",
)  # fmt: skip
def trace(
    name: str,
    file: str,
    args: tuple[str, ...],
    op: int | None,
    out: str | None,
    as_json: bool,
    width: int,
    plugins: tuple[str, ...],
    any_source: bool,
) -> None:
    """Answer a command of the debugger on a trace FILE; `kernbench trace NAME --help`
    shows that one.

    ``--name VALUE`` gives the argument NAME. `ops` without COUNT and --op prints all
    ops as it finds them, with --json an object a line. `whatif`, `bound` and `hazards`
    take --prove, which runs the trace again. Exit code 1: a verdict is bad (verify,
    outputs, check, compare, bound --prove) or hazards were found; 2: the question or
    the file cannot be read.
    """
    from kernbench.replay import ReplaySession
    from kernbench.replay.commands import EXPORT, parse
    from kernbench.replay.plain import as_data
    from kernbench.replay.text import as_text
    from kernbench.trace import Trace
    from kernbench.trace.export import export_to_stream

    _check_options([name, file, *args])
    words = [name, *args]
    if out is not None:
        words.append(out)
    call = parse(words)
    session = ReplaySession(Trace.open(file))
    session.goto(len(session) - 1 if op is None else op)
    if call.command is EXPORT and call.args.out == "-":
        with shown_share(name) as share, interruptible():
            stdout = sys.stdout.buffer
            progress = share or no_progress
            export_to_stream(session.trace, call.args.format, stdout, progress)
        return
    pages = None
    if op is None and call.command.pages is not None:
        pages = call.command.pages(session.index, call.args)
    if pages is not None:
        _print_pages(pages, as_json, width)
        return
    with interruptible(), ExitStack() as stack:  # it may write a file
        session.index.rerun = _rerun_of(
            session.trace, stack, plugins=plugins, any_source=any_source
        )
        share = stack.enter_context(shown_share(name))
        answer = session.call(call, share or no_progress)
    text = json_text(as_data(answer)) if as_json else as_text(answer, width)
    answered(text, getattr(answer, "ok", True))


def _check_options(words: list[str]) -> None:
    """UsageError for what looks like an option and is none of the command's."""
    from kernbench.replay.commands import named
    from kernbench.replay.parsing import option_names

    own = [name for option in trace.params for name in option.opts if name[0] == "-"]
    takes = [f"--{name}" for name in option_names(named(words[0]).args)]
    known = [*takes, *(name for name in own if name.startswith("--"))]
    for word in words[1:]:
        name, _, _ = word.partition("=")
        if name.startswith("--") and len(name) > 2 and name not in known:
            alike = near(name, known)
            hint = f"did you mean {' or '.join(alike)}?" if alike else ""
            hint = hint or f"valid: {', '.join(known)}"
            raise UsageError(f"{words[0]}: no option {name}; {hint}")


def _print_pages(pages: Iterator[Any], as_json: bool, width: int) -> None:
    """Print rows as they are found, with one heading."""
    from kernbench.replay.plain import as_data
    from kernbench.replay.text import as_text

    for number, page in enumerate(pages):
        if as_json:
            lines = [json_text(as_data(row)) for row in page.rows]
        else:
            whole = as_text(page, width).splitlines()
            heads = 2 if number else 1
            lines = whole[heads:] or whole
        if lines:
            say("\n".join(lines))


def _rerun_of(trace: Trace, stack: ExitStack, **options: Any) -> Rerun:
    """What runs a trace again to prove something; the new traces last as ``stack``.

    The simulator is imported when it is first called.
    """

    @cache
    def proofs() -> Proofs:
        from kernbench.runtime_api.proofs import Proofs

        folder = stack.enter_context(TemporaryDirectory())
        progress = stack.enter_context(shown_progress())
        return Proofs(trace, Path(folder), progress, **options)

    return lambda spec, delays: proofs().run(spec_values(tuple(spec)), delays)
