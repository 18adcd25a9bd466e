"""What commands of ``kernbench`` share: options, answers and lines of progress."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, NoReturn, TypeAlias

import click

from kernbench.console import say
from kernbench.errors import UsageError
from kernbench.shell.commands import completes, spec_fields
from kernbench.visible import visible

Texts: TypeAlias = tuple[str, ...]

_REPORT_S = 0.1
"""Between two lines of JSON that say how far a run is."""

topology_option = click.option(
    "--topology", type=click.Path(), help="A topology.yaml (default: ours)."
)
plugins_option = click.option(
    "--plugin",
    "plugins",
    multiple=True,
    type=click.Path(),
    metavar="FILE.py",
    help="A file whose classes and modules YAML files may name (repeatable).",
)
spec_option = click.option(
    "--spec",
    multiple=True,
    metavar="FIELD=VALUE …",
    help="Fields of the topology.",
    shell_complete=completes(spec_fields, suffix="="),
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def json_text(data: Any) -> str:
    """Data as JSON of visible characters: json itself lets DEL pass as it is."""
    return json.dumps(data).replace("\x7f", "\\u007f")


def answered(text: str, ok: bool) -> NoReturn:
    """Print an answer; exit 1 where data differ or a goal is not met."""
    say(text)
    sys.exit(0 if ok else 1)


def key_values(option: str, texts: Texts) -> dict[str, str]:
    """What an option of KEY=VALUE sets, by key; UsageError for another text."""
    for text in texts:
        if text.find("=") < 1:
            raise UsageError(f"{option} {text!r}: must be KEY=VALUE")
    return dict(text.split("=", 1) for text in texts)


def spec_values(texts: Texts) -> dict[str, Any]:
    """What ``--spec`` sets, by field."""
    return {
        key: _scalar(key, text) for key, text in key_values("--spec", texts).items()
    }


def _scalar(key: str, text: str) -> Any:
    """The value of a field as a YAML file has it."""
    import yaml

    value: Any = []
    with suppress(yaml.YAMLError, ValueError, RecursionError):
        value = yaml.safe_load(text)
    if isinstance(value, list | dict):
        raise UsageError(
            f"--spec {key}={text}: must be one YAML value, as 2, 1.5 or ring_1d"
        )
    return value


def delay_of(op: str, time_text: str) -> tuple[int, float]:
    """The position and the ns of ``--delay 'op 5' 100ns``."""
    from kernbench.replay.expr import parse_count, parse_time

    try:
        return parse_count(op.removeprefix("op").strip()), parse_time(time_text)
    except UsageError as error:
        raise UsageError(f"--delay {op!r} {time_text}: {error}") from None


@contextmanager
def shown_progress() -> Iterator[Callable[[str, int, str], None] | None]:
    """How far a run is, on a line of stderr that is wiped when it has ended."""
    progress = terminal_progress()
    try:
        yield progress
    finally:
        if progress is not None:
            with suppress(OSError):
                click.echo("\r\033[K", err=True, nl=False)


@contextmanager
def reported_progress() -> Iterator[Callable[[str, int, str], None]]:
    """How far a run is, ten lines of JSON a second on stderr, for who has started it.

    When that has closed stdin, or is no more, this process gets a SIGTERM.
    """
    Thread(target=_end_with_stdin, daemon=True).start()
    last = -math.inf

    def report(text: str, count: int, unit: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _REPORT_S:
            last = now
            line = {"progress": text, "count": count, "unit": unit}
            with suppress(OSError):  # nobody listens any more
                click.echo(json_text(line), err=True)

    yield report


def _end_with_stdin() -> None:
    """Wait until stdin is closed; then end as on SIGTERM. Runs in a thread."""
    with suppress(OSError):  # it was closed from the beginning
        while os.read(0, 1 << 12):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


def terminal_progress() -> Callable[[str, int, str], None] | None:
    """Rewrites one line on stderr once a second; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        return None
    shown = last = time.monotonic()
    since: dict[str, float] = {}

    def show(text: str, count: int, unit: str) -> None:
        nonlocal shown, last
        before, last = last, time.monotonic()
        passed = last - since.setdefault(unit, before)
        if last - shown >= 1:
            shown = last
            rate = count / max(passed, 1e-9)
            line = visible(f"{text}, {rate:,.0f} {unit}/s")
            with suppress(OSError):  # a terminal that is gone ends no run
                click.echo(f"\r{line}\033[K\r", err=True, nl=False)

    return show
