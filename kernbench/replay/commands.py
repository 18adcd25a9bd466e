"""The commands of the user: one table that makes the ``:`` line, scripts, ``kernbench trace`` and
help.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, TypeAlias

import numpy as np

from kernbench.errors import UsageError
from kernbench.replay.memory import Memory, TensorView
from kernbench.replay.session import OpRow, ReplaySession, Touches
from kernbench.replay.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Moved:
    """The cursor is at ``op`` (ns ``t``); ``row`` is None before the first op."""

    op: int
    total: int
    t: float
    row: OpRow | None


@dataclass(frozen=True, slots=True)
class OpList:
    """A run of lines of the op log."""

    op: int
    total: int
    rows: tuple[OpRow, ...]


@dataclass(frozen=True, slots=True)
class CommandHelp:
    """(usage, help) of every command."""

    rows: tuple[tuple[str, str], ...]


Answer: TypeAlias = Any  # a frozen dataclass that text.as_text knows


@dataclass(frozen=True, slots=True)
class Command:
    """One command: ``args`` is its usage, ``run(session, *args)`` answers."""

    name: str
    args: str
    help: str
    run: Callable[..., Answer]


_UNITS = {"": 1.0, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def parse_time(text: str) -> float:
    """``3.2us`` or ``3200`` to ns; UsageError names the units."""
    match = re.fullmatch(r"([0-9.]+(?:e[+-]?[0-9]+)?)(ns|us|ms|s|)", text)
    try:
        if match is not None:
            return float(match[1]) * _UNITS[match[2]]
    except ValueError:
        pass
    raise UsageError(f"time {text!r}: give a number with ns, us, ms or s, as in 3.2us")


def _integer(text: str, what: str) -> int:
    try:
        return int(text.replace(",", ""), 16 if text.startswith("0x") else 10)
    except ValueError:
        raise UsageError(f"{what} {text!r}: must be a whole number") from None


def _moving(move: Callable[[ReplaySession, str], int]) -> Callable[..., Moved]:
    def run(session: ReplaySession, where: str = "1") -> Moved:
        op = move(session, where)
        return Moved(op, len(session), session.time, session.row(op) if op >= 0 else None)

    return run


@_moving
def _goto(session: ReplaySession, op: str) -> int:
    ends = {"start": -1, "end": len(session) - 1}
    return session.goto(ends[op] if op in ends else _integer(op, "op"))


_time = _moving(lambda session, t: session.goto_time(parse_time(t)))
_step = _moving(lambda session, n: session.step(_integer(n, "count")))
_next = _moving(lambda session, n: session.step_component(_integer(n, "count")))


def _ops(session: ReplaySession, count: str = "20") -> OpList:
    wanted = _integer(count, "count")
    first = max(min(session.cursor - wanted // 2, len(session) - wanted), 0)
    return OpList(session.cursor, len(session), tuple(session.rows(first, wanted)))


def _memory(session: ReplaySession, name: str | None = None) -> Memory | TensorView:
    return session.memory() if name is None else session.tensor(name)


def _history(session: ReplaySession, space: str, addr: str, nbytes: str = "1") -> Touches:
    return session.history(space, _integer(addr, "address"), _integer(nbytes, "byte count"))


def _timeline(session: ReplaySession, t0: str | None = None, t1: str | None = None) -> Timeline:
    low, high = session.launch_window()
    low = low if t0 is None else parse_time(t0)
    high = high if t1 is None else parse_time(t1)
    if high <= low:
        raise UsageError(f"timeline from {low:g} to {high:g} ns: the end must lie after the start")
    return session.timeline([int(c) for c in session.timelines.components], low, high, 60)


def _help(session: ReplaySession) -> CommandHelp:
    return CommandHelp(tuple((f"{c.name} {c.args}".strip(), c.help) for c in COMMANDS))


COMMANDS: tuple[Command, ...] = (
    Command("info", "", "what the trace holds", ReplaySession.info),
    Command("goto", "OP | start | end", "move the cursor to an op", _goto),
    Command("t", "TIME", "move to the last op started by a time, as in 3.2us", _time),
    Command("step", "[N]", "move by N ops (negative: back)", _step),
    Command("next", "[N]", "move by N ops within the focus", _next),
    Command("ops", "[COUNT]", "the op log around the cursor", _ops),
    Command("op", "", "everything recorded about this op", ReplaySession.details),
    Command("source", "", "the kernel line of this op", ReplaySession.source),
    Command("memory", "[TENSOR]", "allocations at this op, or the numbers of one tensor", _memory),
    Command("history", "SPACE ADDR [BYTES]", "every read and write of a range", _history),
    Command("route", "", "the routed path of this op, hop by hop", ReplaySession.route),
    Command("tiles", "", "the tiles of this op's composite", ReplaySession.tiles),
    Command("diff", "", "expected, actual and error of this op", ReplaySession.check),
    Command(
        "divergence", "", "the first op off by more than rounding", ReplaySession.first_divergence
    ),
    Command("outputs", "", "expected tensors against memory at this op", ReplaySession.outputs),
    Command("verify", "", "execute all ops, judge the expected tensors", ReplaySession.verify),
    Command(
        "hazards", "", "bytes in use twice, never written, not allocated", ReplaySession.hazards
    ),
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
    return command.run(session, *args)


def as_data(answer: Any) -> Any:
    """An answer as plain lists, maps, numbers and text, ready for JSON; NaN and infinities become
    text.
    """
    if is_dataclass(answer) and not isinstance(answer, type):
        return as_data(asdict(answer))
    if isinstance(answer, dict):
        return {str(key): as_data(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [as_data(value) for value in answer]
    if isinstance(answer, np.ndarray):
        wide = answer if answer.dtype.kind in "biuf" else answer.astype(np.float64)
        return as_data(wide.tolist())
    if isinstance(answer, np.generic):
        return as_data(answer.item())
    if isinstance(answer, float) and not np.isfinite(answer):
        return str(answer)
    return answer
