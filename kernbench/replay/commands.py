"""The commands of the user: the table behind the ``:`` line, scripts, ``kernbench trace``, help."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, is_dataclass
from difflib import get_close_matches
from inspect import signature
from math import inf
from typing import Any, TypeAlias

import numpy as np

from kernbench.common.progress import Progress, no_progress
from kernbench.errors import KernbenchError, UsageError
from kernbench.replay.answers import Moved as Moved
from kernbench.replay.answers import OpList, Stopped
from kernbench.replay.check import check_file
from kernbench.replay.compare import Comparison, compare, parse_percent
from kernbench.replay.data.memory import Memory, TensorView
from kernbench.replay.expr import FIELDS, parse_count
from kernbench.replay.expr import parse_time as parse_time
from kernbench.replay.loads import window
from kernbench.replay.session import ReplaySession
from kernbench.replay.text import as_text, wrapped
from kernbench.replay.tiles import Tiles, TileWindow
from kernbench.replay.timeline import Timeline
from kernbench.trace import Trace
from kernbench.trace.cut import Cut, cut
from kernbench.trace.export import EXPORTERS, export


@dataclass(frozen=True, slots=True)
class Listing:
    """Some things and what is to be said of each; ``none`` stands for no thing."""

    rows: tuple[tuple[str, str], ...]
    none: str = ""

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        pad, lines = (
            min(max((len(name) for name, _ in self.rows), default=0), 26),
            list[str](),
        )
        for name, text in self.rows:
            lines += [name] if len(name) > pad else []
            lines += wrapped(
                f"{name if len(name) <= pad else '':<{pad}} {text}", width, pad + 1
            )
        return lines or [self.none]


Answer: TypeAlias = Any  # a frozen dataclass with ``lines`` of text


@dataclass(frozen=True, slots=True)
class Command:
    """One command; ``run(session, *values, **options)`` answers, given ``progress`` if it asks.

    ``args`` is its usage: NAME a value, [NAME] one that may be left out, [word NAME] an option,
    lower-case words a choice. EXPR and LINE are the rest of the line, PLACE is as c[3,17]. In front
    of an option there may be --, and ``--name value`` gives any NAME too.
    """

    name: str
    args: str
    help: str
    run: Callable[..., Answer]
    example: str = ""
    pages: Callable[..., Iterator[OpList]] | None = None  # all of it, for a pipe


_PAGE = 1000  # ops
_NUMBERS = {
    "OP": "op",
    "N": "count",
    "COUNT": "count",
    "ADDR": "address",
    "BYTES": "byte count",
}
_NUMBERS |= {"STOP": "stop", "CMD": "call"}

_QUOTED = r"""'[^']*'|"[^"]*\""""
_WORD = re.compile(rf"(?:{_QUOTED}|[^\s'\"])+(?!\S)")
_PATTERNS = {
    "EXPR": re.compile(
        rf"(?:{_QUOTED})(?!\s+[^-\s])|\S.*?(?=\s+(?:--[a-z]+|limit)\s|\s*$)"
    ),
    "PLACE": re.compile(
        rf"{_QUOTED}|[^\s[]+\[[^]]*\]|\S+\s+(?!(?:rw?|w|\d+)(?!\S)|--)\S+|\S+"
    ),
    "LINE": re.compile(r"\S.*"),
}


def _value(text: str, usage: str) -> Any:
    """The value of ``text``, which ``usage`` says the kind of."""
    kind, *others = usage.split("|")
    if kind in ("TIME", "FROM", "TO"):
        return parse_time(text)
    if kind == "FAIL-OVER":
        return parse_percent(text)
    if kind.islower() and text not in (kind, *others):
        raise UsageError(f"{text!r}: must be {' or '.join((kind, *others))}")
    named = text in others or ("MARK" in others and text.isidentifier())
    if kind not in _NUMBERS or named:
        return text
    try:
        number = parse_count(text)
    except UsageError as why:
        raise UsageError(f"{_NUMBERS[kind]} {why}") from None
    if number < 0 and kind in ("COUNT", "BYTES"):
        raise UsageError(f"{_NUMBERS[kind]} {number}: must not be negative")
    return number


def _arguments(rest: str, usage: str) -> tuple[list[Any], dict[str, Any]] | None:
    """The values and options in the rest of a line; None where they do not fit the usage."""
    takes = re.findall(r"\[[a-z]+ [A-Z]+\]|\S+", usage.replace(" | ", "|"))
    options = dict(word[1:-1].split() for word in takes if " " in word)
    waiting = [word for word in takes if " " not in word]
    values, given = list[Any](), dict[str, Any]()
    while rest:
        word = rest.split()[0]
        option = word.removeprefix("--")
        if (kind := options.pop(option, "")) or not waiting:
            rest = rest[len(word) :].lstrip()
        else:
            option, kind = "", waiting.pop(0).strip("[]")
            rest = rest.removeprefix(f"--{kind.lower()} ").lstrip()
        if not kind or not rest:
            return None
        match = _PATTERNS.get(kind, _WORD).match(rest)
        if match is None:
            raise UsageError(f"{rest!r}: No closing quotation")
        whole = kind in _PATTERNS and not re.fullmatch(_QUOTED, match[0])
        text = (
            match[0] if whole else re.sub(r"'([^']*)'|\"([^\"]*)\"", r"\1\2", match[0])
        )
        if option:
            given[option] = _value(text, kind)
        else:
            values.append(_value(text, kind))
        rest = rest[match.end() :].lstrip()
    return None if any(word[0] != "[" for word in waiting) else (values, given)


def _moving(move: Callable[..., int]) -> Callable[..., Moved]:
    def run(session: ReplaySession, *where: Any) -> Moved:
        op = move(session, *where)
        return Moved(op, len(session), tuple(session.rows(op, 1)))

    return run


def _goto(session: ReplaySession, op: int | str) -> int:
    return session.goto_mark(op) if isinstance(op, str) else session.goto(op)


def _ops(
    session: ReplaySession, count: int = 20, where: str = "", limit: int | None = None
) -> OpList:
    ops: Any = session.matching(where) if where else range(len(session))
    first = 0
    if limit is None:
        first = max(
            min(bisect_left(ops, session.cursor) - count // 2, len(ops) - count), 0
        )
    rows = session.rows_of(ops[first : first + (count if limit is None else limit)])
    note = f"{len(ops):,} fit {where!r}" if where else ""
    return OpList(session.cursor, len(session), tuple(rows), note)


def _pages(
    session: ReplaySession, where: str = "", limit: int | None = None
) -> Iterator[OpList]:
    """All ops, or those that fit; found as they are asked for."""
    ops: Any = session.matching(where) if where else range(len(session))
    ops = ops[:limit]
    for at in range(0, max(len(ops), 1), _PAGE):
        rows = tuple(session.rows_of(ops[at : at + _PAGE]))
        yield OpList(-1, len(session), rows, f"{len(ops):,} fit")


def _marks(session: ReplaySession) -> Listing:
    rows = ((name, f"op {op:,}") for name, op in session.marks.items())
    return Listing(tuple(rows), "no mark is set")


def _breaks(session: ReplaySession, delete: int | None = None) -> Listing:
    if delete is not None:
        session.stops.delete(delete)
    told = (stop.lines(0)[0].partition(": ") for stop in session.stops.all)
    return Listing(tuple((name, what) for name, _, what in told), "no stop is set")


def _continue(session: ReplaySession, back: str = "") -> Stopped:
    return session.run(not back)


def _assert(session: ReplaySession, text: str) -> Listing:
    """Raises KernbenchError that says what is so instead."""
    how, _, rest = text.partition(" ")
    said = re.fullmatch(rf"({_QUOTED}) in (\S.*)", text)
    if how in ("none", "some") or how.isdecimal():
        ops = session.matching(rest)
        so = (
            len(ops) == int(how)
            if how.isdecimal()
            else (how == "some") == (len(ops) > 0)
        )
        why = f"{len(ops):,} ops do" + (
            f", the first is op {ops[0]:,}" if len(ops) else ""
        )
    elif how == "ok":
        answer = run_command(session, rest)
        if not hasattr(answer, "ok"):
            raise UsageError(
                f"{rest!r} gives no verdict; verify, outputs or compare do"
            )
        so, why = bool(answer.ok), " / ".join(as_text(answer).splitlines()[:3])
    elif said is not None:
        answer = as_text(run_command(session, said[2]), 1000)
        so, why = said[1][1:-1] in answer, f"it says {answer.splitlines()[0]!r}"
    else:
        so = session.at() in session.matching(text)
        why = session.details().lines(0)[0]
    if not so:
        raise KernbenchError(f"assert {text}: {why}")
    return Listing((("ok", text),))


def _memory(
    session: ReplaySession, name: str | None = None, progress: Progress = no_progress
) -> Memory | TensorView:
    return session.memory() if name is None else session.tensor(name, progress=progress)


def _tiles(
    session: ReplaySession, t0: float | None = None, t1: float | None = None
) -> Tiles | TileWindow:
    if t0 is None:
        return session.tiles()
    return session.tiles_between(*window(session.launch_window(), t0, t1))


def _timeline(
    session: ReplaySession, t0: float | None = None, t1: float | None = None
) -> Timeline:
    between = window(session.launch_window(), t0, t1)
    return session.timeline(session.timelines.components.tolist(), *between, 60)


def _compare(
    session: ReplaySession,
    file: str,
    percent: float | None = None,
    progress: Progress = no_progress,
) -> Comparison:
    return compare(session.trace, Trace.open(file), percent, progress=progress)


def _cut(session: ReplaySession, out: str, **part: Any) -> Cut:
    times = part.get("from", -inf), part.get("to", inf)
    return cut(session.trace.path, out, *times, part.get("components", "*"))


def help_of(name: str | None = None) -> Listing:
    """All commands, or one with an example and the fields of its expression."""
    shown = COMMANDS if name is None else (_named(name),)
    rows = [(f"{c.name} {c.args}".strip(), c.help) for c in shown]
    if name is not None:
        rows += [("for example", text) for text in shown[0].example.splitlines()]
        rows += [("fields of EXPR", " ".join(FIELDS))] * ("EXPR" in shown[0].args)
    return Listing(tuple(rows))


_FIND = 'find comp ~ "*.pe_gemm" and dur >= 3.2us'
_BREAK = "break name = dma_write and (bytes > 4KiB or line = matmul.py:35)"

COMMANDS: tuple[Command, ...] = (
    Command("info", "", "what the trace holds", ReplaySession.info),
    Command(
        "goto", "OP | MARK | start | end", "move the cursor to an op", _moving(_goto)
    ),
    Command(
        "t",
        "TIME",
        "move to the last op started by a time, as in 3.2us",
        _moving(ReplaySession.goto_time),
    ),
    Command(
        "step", "[N]", "move by N ops (negative: back)", _moving(ReplaySession.step)
    ),
    Command(
        "next",
        "[N]",
        "move by N ops within the focus",
        _moving(ReplaySession.step_component),
    ),
    Command(
        "line",
        "[N]",
        "move by N kernel lines of this PE",
        _moving(ReplaySession.step_line),
    ),
    Command(
        "to-line",
        "N",
        "to this PE's next op of line N",
        _moving(ReplaySession.step_to_line),
    ),
    Command(
        "lane", "[N]", "move by N ops in this lane", _moving(ReplaySession.step_lane)
    ),
    Command(
        "stage",
        "[N]",
        "move by N stages of this tile",
        _moving(ReplaySession.step_stage),
    ),
    Command(
        "tile",
        "[N]",
        "move by N tiles of the composite",
        _moving(ReplaySession.step_tile),
    ),
    Command(
        "first", "", "to the first stage of this tile", _moving(ReplaySession.to_first)
    ),
    Command(
        "last",
        "",
        "to the tile's last stage, or the op's end",
        _moving(ReplaySession.to_last),
    ),
    Command(
        "cause",
        "",
        "to what it waited for, or stage before",
        _moving(ReplaySession.to_cause),
    ),
    Command(
        "effect",
        "",
        "to its first waiter, or next stage",
        _moving(ReplaySession.to_effect),
    ),
    Command(
        "mark", "NAME", "give this op a name to go to", _moving(ReplaySession.mark)
    ),
    Command("marks", "", "all marks", _marks),
    Command(
        "back", "[N]", "undo N jumps (negative: redo)", _moving(ReplaySession.back)
    ),
    Command(
        "find", "EXPR", "to the next op that fits", _moving(ReplaySession.find), _FIND
    ),
    Command(
        "rfind",
        "EXPR",
        "to the previous one",
        _moving(ReplaySession.rfind),
        f"r{_FIND}",
    ),
    Command("break", "EXPR", "stop at ops that fit", ReplaySession.break_on, _BREAK),
    Command(
        "watch",
        "PLACE [r|w|rw]",
        "stop at what touches bytes",
        ReplaySession.watch_place,
        "watch c[3,17] w\nwatch hbm 0x4000:64",
    ),
    Command(
        "catch",
        "hazards|checks",
        "stop at hazards, or at wrong results",
        ReplaySession.catch,
    ),
    Command("breaks", "", "all stops", _breaks),
    Command("delete", "STOP", "forget a stop", _breaks),
    Command("continue", "[back]", "run to the next or previous stop", _continue),
    Command(
        "assert",
        "LINE",
        "fail unless this op fits EXPR; none, some or N ops do; a command is ok, or says TEXT",
        _assert,
        "assert kind=gemm and dur<2us\nassert none dur > 1ms\nassert 16 kind=memory\n"
        "assert ok verify\nassert 'mm.py:12' in source",
    ),
    Command(
        "ops",
        "[COUNT] [where EXPR] [limit COUNT]",
        "the op log around the cursor; with a limit from the first",
        _ops,
        "ops 40 where kind=gemm and dur > 1us",
        _pages,
    ),
    Command("op", "", "everything recorded about this op", ReplaySession.details),
    Command("source", "", "the kernel line of this op", ReplaySession.source),
    Command(
        "memory",
        "[TENSOR]",
        "allocations at this op, or the numbers of one tensor",
        _memory,
    ),
    Command(
        "history",
        "PLACE",
        "every read and write of some bytes",
        ReplaySession.history_of,
        "history c[0:2, :]\nhistory hbm 0x4000:64",
    ),
    Command(
        "blame",
        "PLACE [N]",
        "the ops behind an element, back to the inputs or N ops deep",
        ReplaySession.blame,
        "blame c[3,17]\nblame hbm 0x4000:2 8",
    ),
    Command(
        "who-wrote", "PLACE", "who wrote these bytes last", ReplaySession.who_wrote
    ),
    Command(
        "who-reads", "PLACE", "who reads these bytes next", ReplaySession.who_reads
    ),
    Command("route", "", "the routed path of this op, hop by hop", ReplaySession.route),
    Command(
        "tiles", "[FROM [TO]]", "the tiles of this op's composite, or of a time", _tiles
    ),
    Command("diff", "", "expected, actual and error of this op", ReplaySession.check),
    Command(
        "divergence",
        "",
        "first op off by more than rounding",
        ReplaySession.first_divergence,
    ),
    Command(
        "outputs",
        "",
        "expected tensors against memory at this op",
        ReplaySession.outputs,
    ),
    Command(
        "verify",
        "",
        "execute all ops, judge the expected tensors",
        ReplaySession.verify,
    ),
    Command(
        "hazards",
        "",
        "bytes used twice, never written, not allocated",
        ReplaySession.hazards,
    ),
    Command("timeline", "[FROM [TO]]", "busy cells by component", _timeline),
    Command(
        "stalls",
        "[PE|all] [FROM] [TO]",
        "compute, load, store, waits of a PE",
        ReplaySession.stalls,
    ),
    Command("lines", "[PE]", "time and stalls by kernel line", ReplaySession.lines),
    Command(
        "pes", "[CMD]", "this op's call (or another) on all its PEs", ReplaySession.pes
    ),
    Command(
        "critical", "[COUNT]", "what sets the end, and why", ReplaySession.critical_path
    ),
    Command("links", "[FROM] [TO]", "load of every link", ReplaySession.link_load),
    Command(
        "busiest", "[COUNT]", "components and links, the busiest", ReplaySession.busiest
    ),
    Command(
        "roofline", "", "FLOPs and bytes against the peaks", ReplaySession.roofline
    ),
    Command("bound", "", "ideal time and slack of this op", ReplaySession.bound),
    Command(
        "compare",
        "FILE [FAIL-OVER]",
        "another trace beside this one; its limit",
        _compare,
    ),
    Command(
        "check",
        "",
        "the frames of the file, and what is damaged or missing",
        lambda session: check_file(session.trace.path),
    ),
    Command(
        "cut",
        "OUT [from TIME] [to TIME] [components GLOB]",
        "write what ran within a time on some components to a trace of its own",
        _cut,
        "cut part.msgpack from 3us to 4.5us components *.pe0.*",
    ),
    Command(
        "export",
        "FORMAT OUT",
        f"write all of it in another format: {', '.join(EXPORTERS)}",
        lambda session, name, out, progress=no_progress: export(
            session.trace, name, out, progress
        ),
        "export perfetto out.json",
    ),
    Command(
        "help",
        "[NAME]",
        "this list, or one command with an example",
        lambda session, *name: help_of(*name),
        "help break",
    ),
)
_BY_NAME = {command.name: command for command in COMMANDS}
_SHORT = {
    "b": "break",
    "c": "continue",
    "s": "step",
    "n": "next",
    "w": "watch",
}  # as the keys


def full_name(name: str, more: tuple[str, ...] = ()) -> str:
    """The command, or one of ``more``, that a name or its certain beginning is; UsageError."""
    names = dict.fromkeys([*_BY_NAME, *more])
    found = [known for known in names if known.startswith(name)] if name else []
    whole = _SHORT.get(name, name)
    if whole in names or len(found) == 1:
        return whole if whole in names else found[0]
    near = found or get_close_matches(name, names, 3)
    hint = f"; did you mean {' or '.join(near)}?" * bool(near)
    what = f"unknown command {name!r}" if name else "an empty command"
    raise UsageError(f"{what}{hint or ';'} help lists all")


def _named(name: str) -> Command:
    return _BY_NAME[full_name(name)]


def _called(line: str) -> tuple[Command, list[Any], dict[str, Any]]:
    """The command of a line with its values and options."""
    name, _, rest = line.strip().partition(" ")
    command, rest = _named(name), rest.strip()
    found = _arguments(rest, command.args)
    if found is None:
        raise UsageError(
            f"{name}: takes {command.args or 'no arguments'}, got {rest or 'none'}"
        )
    return command, *found


def run_command(
    session: ReplaySession, line: str, progress: Progress = no_progress
) -> Answer:
    """Run one command line; UsageError lists the commands, or says how to call this one."""
    command, values, options = _called(line)
    if "progress" in signature(command.run).parameters:
        options["progress"] = progress
    return command.run(session, *values, **options)


def run_pages(session: ReplaySession, line: str) -> Iterator[OpList] | None:
    """All that a command has to say, in pages; None if it has none, or asks for a part of it."""
    command, values, options = _called(line)
    return (
        None if command.pages is None or values else command.pages(session, **options)
    )


def as_data(answer: Any) -> Any:
    """An answer as lists, maps, numbers and text, ready for JSON; NaN and infinities are text."""
    if is_dataclass(answer) and not isinstance(answer, type):
        return as_data(asdict(answer))
    if isinstance(answer, dict):
        return {str(key): as_data(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [as_data(value) for value in answer]
    if isinstance(answer, np.ndarray | np.generic):
        return as_data(
            (answer if answer.dtype.kind in "biuf" else answer.astype("f8")).tolist()
        )
    if isinstance(answer, float) and not np.isfinite(answer):
        return str(answer)
    return answer
