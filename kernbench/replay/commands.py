"""The commands of the user: the table behind the ``:`` line, scripts, ``kernbench trace``, help."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, TypeAlias

import numpy as np

from kernbench.errors import UsageError
from kernbench.replay.answers import OpRow
from kernbench.replay.memory import Memory, TensorView
from kernbench.replay.session import ReplaySession
from kernbench.replay.text import table
from kernbench.replay.timeline import Timeline

_OPS = "op t_start t_end nbytes name component"


@dataclass(frozen=True, slots=True)
class OpList:
    """A run of lines of the op log; the cursor is at ``op``."""

    op: int
    total: int
    rows: tuple[OpRow, ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        marks = "".join(">" if row.op == self.op else " " for row in self.rows)
        place = f"op {self.op:,} of" if self.op >= 0 else "before the first of"
        return [f"{place} {self.total:,}", *(table(self.rows, _OPS, marks) if self.rows else [])]


class Moved(OpList):
    """The line that the cursor moved to; none before the first op."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class CommandHelp:
    """(usage, help) of every command."""

    rows: tuple[tuple[str, str], ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        return [f"{usage:<26} {text}" for usage, text in self.rows]


Answer: TypeAlias = Any  # a frozen dataclass with ``lines`` of text


@dataclass(frozen=True, slots=True)
class Command:
    """One command: ``args`` is its usage, ``run(session, *values)`` answers."""

    name: str
    args: str
    help: str
    run: Callable[..., Answer]


_UNITS = {"": 1.0, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def parse_time(text: str) -> float:
    """``3.2us`` or ``3200`` to ns; UsageError names the units."""
    match = re.fullmatch(r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(ns|us|ms|s|)", text, re.ASCII)
    if match is None:
        raise UsageError(f"time {text!r}: give a number with ns, us, ms or s, as in 3.2us")
    return float(match[1]) * _UNITS[match[2]]


_NUMBERS = {"OP": "op", "N": "count", "COUNT": "count", "ADDR": "address", "BYTES": "byte count"}


def _value(text: str, usage: str) -> Any:
    """The value of one word, which ``usage`` says the kind of."""
    kind, *others = usage.strip("[]").split("|")
    if kind in ("TIME", "FROM", "TO"):
        return parse_time(text)
    if kind not in _NUMBERS or text in others:
        return text
    try:
        return int(text.replace(",", ""), 16 if text.startswith("0x") else 10)
    except ValueError:
        raise UsageError(f"{_NUMBERS[kind]} {text!r}: must be a whole number") from None


def _moving(move: Callable[..., int]) -> Callable[..., Moved]:
    def run(session: ReplaySession, *where: int) -> Moved:
        op = move(session, *where)
        return Moved(op, len(session), tuple(session.rows(op, 1)) if op >= 0 else ())

    return run


def _goto(session: ReplaySession, op: int | str) -> int:
    ends = {"start": -1, "end": len(session) - 1}
    return session.goto(ends[op] if isinstance(op, str) else op)


def _ops(session: ReplaySession, count: int = 20) -> OpList:
    first = max(min(session.cursor - count // 2, len(session) - count), 0)
    return OpList(session.cursor, len(session), tuple(session.rows(first, count)))


def _memory(session: ReplaySession, name: str | None = None) -> Memory | TensorView:
    return session.memory() if name is None else session.tensor(name)


def _timeline(session: ReplaySession, *ends: float) -> Timeline:
    low, high = (*ends, *session.launch_window()[len(ends) :])
    if high <= low:
        raise UsageError(f"timeline from {low:g} to {high:g} ns: the end must lie after the start")
    return session.timeline(session.timelines.components.tolist(), low, high, 60)


def _help(session: ReplaySession) -> CommandHelp:
    return CommandHelp(tuple((f"{c.name} {c.args}".strip(), c.help) for c in COMMANDS))


COMMANDS: tuple[Command, ...] = (
    Command("info", "", "what the trace holds", ReplaySession.info),
    Command("goto", "OP | start | end", "move the cursor to an op", _moving(_goto)),
    Command(
        "t",
        "TIME",
        "move to the last op started by a time, as in 3.2us",
        _moving(ReplaySession.goto_time),
    ),
    Command("step", "[N]", "move by N ops (negative: back)", _moving(ReplaySession.step)),
    Command("next", "[N]", "move by N ops within the focus", _moving(ReplaySession.step_component)),
    Command("ops", "[COUNT]", "the op log around the cursor", _ops),
    Command("op", "", "everything recorded about this op", ReplaySession.details),
    Command("source", "", "the kernel line of this op", ReplaySession.source),
    Command("memory", "[TENSOR]", "allocations at this op, or the numbers of one tensor", _memory),
    Command(
        "history", "SPACE ADDR [BYTES]", "every read and write of a range", ReplaySession.history
    ),
    Command("route", "", "the routed path of this op, hop by hop", ReplaySession.route),
    Command("tiles", "", "the tiles of this op's composite", ReplaySession.tiles),
    Command("diff", "", "expected, actual and error of this op", ReplaySession.check),
    Command("divergence", "", "first op off by more than rounding", ReplaySession.first_divergence),
    Command("outputs", "", "expected tensors against memory at this op", ReplaySession.outputs),
    Command("verify", "", "execute all ops, judge the expected tensors", ReplaySession.verify),
    Command("hazards", "", "bytes used twice, never written, not allocated", ReplaySession.hazards),
    Command("timeline", "[FROM [TO]]", "busy cells by component", _timeline),
    Command("help", "", "this list", _help),
)
_BY_NAME = {command.name: command for command in COMMANDS}


def run_command(session: ReplaySession, line: str) -> Answer:
    """Run one command line; UsageError lists the commands, or says how to call this one."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{line!r}: {error}") from None
    name, *args = words or [""]
    command = _BY_NAME.get(name)
    if command is None:
        what = f"unknown command {name!r}" if words else "an empty command"
        raise UsageError(f"{what}; valid: {', '.join(_BY_NAME)}")
    takes = command.args.replace(" | ", "|").split()
    if not sum(not word.startswith("[") for word in takes) <= len(args) <= len(takes):
        usage, got = command.args or "no arguments", " ".join(args) or "none"
        raise UsageError(f"{name}: takes {usage}, got {got}")
    return command.run(session, *map(_value, args, takes))


def as_data(answer: Any) -> Any:
    """An answer as lists, maps, numbers and text, ready for JSON; NaN and infinities are text."""
    if is_dataclass(answer) and not isinstance(answer, type):
        return as_data(asdict(answer))
    if isinstance(answer, dict):
        return {str(key): as_data(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [as_data(value) for value in answer]
    if isinstance(answer, np.ndarray | np.generic):
        return as_data((answer if answer.dtype.kind in "biuf" else answer.astype("f8")).tolist())
    if isinstance(answer, float) and not np.isfinite(answer):
        return str(answer)
    return answer
