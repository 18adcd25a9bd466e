"""The commands of the user: one table, from which the ``:`` line, keys, scripts,
``kernbench trace``, completion, palette, help and the docs are made.

To add a command: one function in ``questions.py`` or ``moves.py``, one row here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal

import numpy as np

from kernbench.common.progress import Progress, no_progress
from kernbench.errors import KernbenchError, UsageError
from kernbench.replay import (
    moves,
    questions,
    views,
    views_diff,
    views_grids,
    views_memory,
    views_route,
    views_stats,
    views_tiles,
    views_timeline,
)
from kernbench.replay.answers import Listing, Moved, OpList, Stopped
from kernbench.replay.expr import FIELDS
from kernbench.replay.index import Index
from kernbench.replay.parsing import (
    NoArguments,
    Reader,
    parse_arguments,
    usage_of,
    words_of,
)
from kernbench.replay.query import At, Query, Session
from kernbench.replay.text import as_text

Kind = Literal["move", "instant", "job", "effect", "screen"]
"""A move makes another session. An instant question reads mapped columns and is
answered where it is asked; a job is answered in its lane. An effect writes files: it is
never kept, nor asked before somebody wants it. What a screen does itself is no command
of this table, but is parsed like one.
"""

Answer = Any
"""A frozen dataclass that knows its own text: ``lines(width)``."""


@dataclass(frozen=True, slots=True, eq=False)
class Command:
    """One command.

    ``answer(index, at, args, progress)`` answers a question or has an effect, in the
    lane ``lane``; ``about`` names the parts of a session that it depends on, fields of
    ``At``. ``move(index, session, args, known)`` makes the next session, ``needs`` is
    the question whose answer it has to know, and ``report(index, before, after, args)``
    is printed (by default the line of the op that it led to). Only those that
    ``moves_cursor`` take another's place that waits for an answer. ``stayed`` is said
    on a screen where a move led nowhere, ``title`` what is computed (the name, if there
    is none). Those not ``listed`` are asked by panes only.
    """

    name: str
    kind: Kind
    help: str
    args: type = NoArguments
    answer: Callable[..., Answer] | None = None
    lane: str = ""
    about: frozenset[str] = frozenset()
    move: Callable[..., Session] | None = None
    needs: Callable[[Index, Session, Any], Query | None] | None = None
    report: Callable[[Index, Session, Session, Any], Answer] | None = None
    stayed: str = ""
    moves_cursor: bool = True
    title: str = ""
    example: str = ""
    pages: Callable[[Index, Any], Iterator[OpList] | None] | None = None
    listed: bool = True

    def __repr__(self) -> str:
        return f"<command {self.name}>"

    @property
    def usage(self) -> str:
        """What it takes, as in ``[COUNT] [where EXPR]``."""
        return usage_of(self.args)

    def __call__(self, **values: Any) -> Call:
        """This command with arguments, as a key is bound to it."""
        return Call(self, self.args(**values))

    def ask(self, op: int | None = None, **values: Any) -> Query:
        """The question with these arguments; about an op, if it depends on one."""
        at = At(op=op) if "op" in self.about else At()
        return Query(self.name, self.args(**values), at)

    def query(self, session: Session, args: Any) -> Query:
        """The question that it asks of a session at this moment."""
        return Query(self.name, args, moment(session, self.about))


@dataclass(frozen=True, slots=True)
class Call:
    """A command with its arguments."""

    command: Command
    args: Any

    @property
    def text(self) -> str:
        """As one would type it, for people to read."""
        values = [getattr(self.args, field.name) for field in fields(self.args)]
        words = [str(value) for value in values if value not in (None, "")]
        return " ".join([self.command.name, *words])


def moment(session: Session, about: Iterable[str]) -> At:
    """Those parts of a session that a question is about."""
    parts: dict[str, Any] = {
        "op": session.cursor,
        "marks": session.marks,
        "stops": session.stops,
    }
    return At(**{name: parts[name] for name in about})


# -- what moves print ---------------------------------------------------------


def _moved(index: Index, before: Session, after: Session, args: Any) -> Moved:
    op = after.cursor
    return Moved(op, len(index.ops), tuple(index.ops.rows(op, 1)))


def _stopped(index: Index, before: Session, after: Session, args: Any) -> Stopped:
    op = after.cursor
    hit = () if op == before.cursor else after.stops_at(op)
    whys = tuple(f"stop {stop.number}: {stop.kind} {stop.what}" for stop in hit)
    return Stopped(op, len(index.ops), tuple(index.ops.rows(op, 1)), "", whys)


def _new_stop(index: Index, before: Session, after: Session, args: Any) -> Answer:
    return after.stops[-1]


def _all_stops(index: Index, before: Session, after: Session, args: Any) -> Listing:
    return questions.breaks(index, At(stops=after.stops), NoArguments(), no_progress)


# -- what moves have to know --------------------------------------------------


def _fitting_ops(index: Index, session: Session, args: moves.Expression) -> Query:
    return FITTING.ask(expr=args.expr)


def _touching_ops(index: Index, session: Session, args: moves.Watched) -> Query:
    return TOUCHING.ask(place=args.place, mode=args.mode)


def _found_ops(index: Index, session: Session, args: moves.Caught) -> Query:
    return FINDINGS.ask(what=args.what)


# -- assert -------------------------------------------------------------------

_SAYS = re.compile(r"('[^']*'|\"[^\"]*\") in (\S.*)")


@dataclass(frozen=True, slots=True)
class Assertion:
    """``none``, ``some`` or a number and an expression; ``ok`` and a command; ``'TEXT'
    in`` and a command; or an expression that the op here fits.
    """

    text: Annotated[str, Reader("LINE", extent="line")]

    @property
    def parts(self) -> tuple[str, str]:
        """How it is judged, and the expression or command line that it is about."""
        says = _SAYS.fullmatch(self.text)
        if says is not None:
            return "says", says[2]
        how, _, rest = self.text.partition(" ")
        if how in ("none", "some", "ok") or how.isdecimal():
            return how, rest
        return "here", self.text


def _asserted(index: Index, session: Session, args: Assertion) -> Query:
    how, rest = args.parts
    if how not in ("ok", "says"):
        return FITTING.ask(expr=rest)
    call = parse(rest)
    if call.command.kind == "move":
        raise UsageError(f"assert {args.text}: {call.command.name} answers no question")
    return call.command.query(session, call.args)


def _check_assertion(
    index: Index, session: Session, args: Assertion, known: Any
) -> Session:
    """The session as it is. Raises KernbenchError that says what is so instead."""
    how, rest = args.parts
    if how == "ok":
        if not hasattr(known, "ok"):
            raise UsageError(
                f"{rest!r} gives no verdict; verify, outputs or compare do"
            )
        holds = bool(known.ok)
        why = " / ".join(as_text(known).splitlines()[:3])
    elif how == "says":
        text = as_text(known, 1000)
        wanted = args.text[1 : args.text.index(args.text[0], 1)]
        holds = wanted in text
        why = f"it says {text.splitlines()[0]!r}"
    elif how == "here":
        holds = index.ops.checked(session.cursor) in known
        why = index.ops.details(session.cursor).lines(0)[0]
    else:
        count = len(known)
        holds = (
            count > 0 if how == "some" else count == (0 if how == "none" else int(how))
        )
        why = f"{count:,} ops do"
        if count:
            why += f", the first is op {known[0]:,}"
    if not holds:
        raise KernbenchError(f"assert {args.text}: {why}")
    return session


def _ok(index: Index, before: Session, after: Session, args: Assertion) -> Listing:
    return Listing((("ok", args.text),))


# -- help ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommandName:
    """A command; without one all of them."""

    name: Annotated[str | None, Reader("NAME")] = None


def _help(index: Index, at: At, args: CommandName, progress: Progress) -> Listing:
    return help_of(args.name)


def help_of(name: str | None = None) -> Listing:
    """All commands, or one with an example and the fields of its expression."""
    shown = listed() if name is None else (named(name),)
    rows = [(f"{c.name} {c.usage}".strip(), c.help) for c in shown]
    if name is not None:
        command = shown[0]
        rows += [("for example", text) for text in command.example.splitlines()]
        if "EXPR" in command.usage:
            rows.append(("fields of EXPR", " ".join(FIELDS)))
    return Listing(tuple(rows))


def listed() -> tuple[Command, ...]:
    """The commands that users are offered."""
    return tuple(command for command in COMMANDS if command.listed)


# -- the table ----------------------------------------------------------------

_OP = frozenset({"op"})
_BACK_OR_ON = "no further op that way"
_FIND = 'find comp ~ "*.pe_gemm" and dur >= 3.2us'


def _move(
    name: str,
    args: type,
    help: str,
    move: Callable[..., Session],
    *,
    needs: Callable[[Index, Session, Any], Query | None] | None = None,
    report: Callable[[Index, Session, Session, Any], Answer] | None = None,
    stayed: str = "",
    moves_cursor: bool = True,
    example: str = "",
) -> Command:
    return Command(
        name,
        "move",
        help,
        args,
        move=move,
        needs=needs,
        report=report,
        stayed=stayed,
        moves_cursor=moves_cursor,
        example=example,
    )


def _instant(
    name: str,
    args: type,
    help: str,
    answer: Callable[..., Answer],
    about: frozenset[str] = frozenset(),
    *,
    example: str = "",
    listed: bool = True,
) -> Command:
    return Command(
        name,
        "instant",
        help,
        args,
        answer,
        about=about,
        example=example,
        listed=listed,
    )


def _job(
    name: str,
    args: type,
    help: str,
    answer: Callable[..., Answer],
    lane: str,
    about: frozenset[str] = frozenset(),
    *,
    title: str = "",
    example: str = "",
    pages: Callable[[Index, Any], Iterator[OpList] | None] | None = None,
    listed: bool = True,
) -> Command:
    return Command(
        name,
        "job",
        help,
        args,
        answer,
        lane,
        about,
        title=title,
        example=example,
        pages=pages,
        listed=listed,
    )


def _effect(
    name: str, args: type, help: str, answer: Callable[..., Answer], example: str
) -> Command:
    return Command(name, "effect", help, args, answer, "files", example=example)


INFO = _instant("info", NoArguments, "what the trace holds", questions.info)
GOTO = _move("goto", moves.Where, "move the cursor to an op", moves.goto)
TIME = _move(
    "t",
    moves.When,
    "move to the last op started by a time, as in 3.2us",
    moves.goto_time,
)
STEP = _move(
    "step",
    moves.Steps,
    "move by N ops (negative: back)",
    moves.step,
    stayed=_BACK_OR_ON,
)
NEXT = _move(
    "next",
    moves.Steps,
    "move by N ops within the focus",
    moves.step_in_focus,
    stayed="no further op that way in the focus: u widens it",
)
LINE = _move(
    "line",
    moves.Steps,
    "move by N kernel lines of this PE",
    moves.step_line,
    stayed=_BACK_OR_ON,
)
TO_LINE = _move(
    "to-line", moves.LineNumber, "to this PE's next op of line N", moves.to_line
)
LANE = _move(
    "lane",
    moves.Steps,
    "move by N ops in this lane",
    moves.step_lane,
    stayed=_BACK_OR_ON,
)
STAGE = _move(
    "stage",
    moves.Steps,
    "move by N stages of this tile",
    moves.step_stage,
    stayed=_BACK_OR_ON,
)
TILE = _move(
    "tile",
    moves.Steps,
    "move by N tiles of the composite",
    moves.step_tile,
    stayed=_BACK_OR_ON,
)
FIRST = _move("first", NoArguments, "to the first stage of this tile", moves.to_first)
LAST = _move(
    "last", NoArguments, "to the tile's last stage, or the op's end", moves.to_last
)
CAUSE = _move(
    "cause",
    NoArguments,
    "to what it waited for, or stage before",
    moves.to_cause,
    stayed="this op waited for no other",
)
EFFECT = _move(
    "effect",
    NoArguments,
    "to its first waiter, or next stage",
    moves.to_effect,
    stayed="no op waited for this one",
)
MARK = _move(
    "mark",
    moves.MarkName,
    "give this op a name to go to",
    moves.mark,
    stayed="marked; ' and the letter come back to it",
    moves_cursor=False,
)
MARKS = _instant(
    "marks", NoArguments, "all marks", questions.marks, frozenset({"marks"})
)
BACK = _move(
    "back",
    moves.Steps,
    "undo N jumps (negative: redo)",
    moves.back,
    stayed="no further jump that way",
)
FIND = _move(
    "find",
    moves.Expression,
    "to the next op that fits",
    moves.find,
    needs=_fitting_ops,
    example=_FIND,
)
FIND_BACK = _move(
    "rfind",
    moves.Expression,
    "to the previous one",
    moves.find_back,
    needs=_fitting_ops,
    example=f"r{_FIND}",
)
BREAK = _move(
    "break",
    moves.Expression,
    "stop at ops that fit",
    moves.break_on,
    needs=_fitting_ops,
    report=_new_stop,
    moves_cursor=False,
    example="break name = dma_write and (bytes > 4KiB or line = matmul.py:35)",
)
WATCH = _move(
    "watch",
    moves.Watched,
    "stop at what touches bytes",
    moves.watch,
    needs=_touching_ops,
    report=_new_stop,
    moves_cursor=False,
    example="watch c[3,17] w\nwatch hbm 0x4000:64",
)
CATCH = _move(
    "catch",
    moves.Caught,
    "stop at hazards, or at wrong results",
    moves.catch,
    needs=_found_ops,
    report=_new_stop,
    moves_cursor=False,
)
BREAKS = _instant(
    "breaks", NoArguments, "all stops", questions.breaks, frozenset({"stops"})
)
DELETE = _move(
    "delete",
    moves.StopNumber,
    "forget a stop",
    moves.delete,
    report=_all_stops,
    moves_cursor=False,
)
CONTINUE = _move(
    "continue",
    moves.Direction,
    "run to the next or previous stop",
    moves.continue_,
    report=_stopped,
)
ASSERT = _move(
    "assert",
    Assertion,
    "fail unless this op fits EXPR; none, some or N ops do; a command is ok, or says TEXT",
    _check_assertion,
    needs=_asserted,
    report=_ok,
    moves_cursor=False,
    example="assert kind=gemm and dur<2us\nassert none dur > 1ms\n"
    "assert 16 kind=memory\nassert ok verify\nassert 'mm.py:12' in source",
)
OPS = _job(
    "ops",
    questions.Listed,
    "the op log around the cursor; with a limit from the first",
    questions.ops,
    "memory",
    _OP,
    example="ops 40 where kind=gemm and dur > 1us",
    pages=questions.pages_of_ops,
)
OP = _instant("op", NoArguments, "everything recorded about this op", questions.op, _OP)
SOURCE = _instant(
    "source", NoArguments, "the kernel line of this op", questions.source, _OP
)
MEMORY = _job(
    "memory",
    questions.Tensor,
    "allocations at this op, or the numbers of one tensor",
    questions.memory,
    "memory",
    _OP,
)
HISTORY = _job(
    "history",
    questions.Place,
    "every read and write of some bytes",
    questions.history,
    "memory",
    example="history c[0:2, :]\nhistory hbm 0x4000:64",
)
BLAME = _job(
    "blame",
    questions.BlamePlace,
    "the ops behind an element, back to the inputs or N ops deep",
    questions.blame,
    "memory",
    _OP,
    example="blame c[3,17]\nblame hbm 0x4000:2 8",
)
WHO_WROTE = _job(
    "who-wrote",
    questions.Place,
    "who wrote these bytes last",
    questions.who_wrote,
    "memory",
    _OP,
)
WHO_READS = _job(
    "who-reads",
    questions.Place,
    "who reads these bytes next",
    questions.who_reads,
    "memory",
    _OP,
)
ROUTE = _job(
    "route",
    NoArguments,
    "the routed path of this op, hop by hop",
    questions.route,
    "tiles",
    _OP,
    title="routes",
)
TILES = _job(
    "tiles",
    questions.Window,
    "the tiles of this op's composite, or of a time",
    questions.tiles,
    "tiles",
    _OP,
)
DIFF = _job(
    "diff",
    NoArguments,
    "expected, actual and error of this op",
    questions.diff,
    "memory",
    _OP,
)
DIVERGENCE = _job(
    "divergence",
    NoArguments,
    "first op off by more than rounding",
    questions.divergence,
    "memory",
)
OUTPUTS = _job(
    "outputs",
    NoArguments,
    "expected tensors against memory at this op",
    questions.outputs,
    "memory",
    _OP,
)
VERIFY = _job(
    "verify",
    NoArguments,
    "execute all ops, judge the expected tensors",
    questions.verify,
    "memory",
)
HAZARDS = _job(
    "hazards",
    NoArguments,
    "bytes used twice, never written, not allocated",
    questions.hazards,
    "memory",
)
TIMELINE = _job(
    "timeline",
    questions.Window,
    "busy cells by component",
    questions.timeline,
    "timeline",
    _OP,
)
STALLS = _job(
    "stalls",
    questions.PeWindow,
    "compute, load, store, waits of a PE",
    questions.stalls,
    "columns",
)
LINES = _job(
    "lines",
    questions.Pe,
    "time and stalls by kernel line",
    questions.lines,
    "columns",
    title="line times",
)
PES = _job(
    "pes",
    questions.CallNumber,
    "this op's call (or another) on all its PEs",
    questions.pes,
    "columns",
    _OP,
    title="PEs",
)
CRITICAL = _job(
    "critical",
    questions.StepCount,
    "what sets the end, and why",
    questions.critical,
    "columns",
)
LINKS = _job(
    "links", questions.LoadWindow, "load of every link", questions.links, "columns"
)
BUSIEST = _job(
    "busiest",
    questions.BusiestCount,
    "components and links, the busiest",
    questions.busiest,
    "columns",
)
ROOFLINE = _job(
    "roofline",
    NoArguments,
    "FLOPs and bytes against the peaks",
    questions.roofline,
    "columns",
)
BOUND = _job(
    "bound",
    NoArguments,
    "ideal time and slack of this op",
    questions.bound,
    "columns",
    _OP,
)
COMPARE = _job(
    "compare",
    questions.OtherTrace,
    "another trace beside this one; its limit",
    questions.compare,
    "columns",
)
CHECK = _job(
    "check",
    NoArguments,
    "the frames of the file, and what is damaged or missing",
    questions.check,
    "files",
)
CUT = _effect(
    "cut",
    questions.CutPart,
    "write what ran within a time on some components to a trace of its own",
    questions.cut,
    "cut part.msgpack from 3us to 4.5us components *.pe0.*",
)
EXPORT = _effect(
    "export",
    questions.ExportTo,
    f"write all of it in another format: {', '.join(questions.EXPORT_FORMATS)}",
    questions.export,
    "export perfetto out.json",
)
HELP = _instant(
    "help",
    CommandName,
    "this list, or one command with an example",
    _help,
    example="help break",
)

# asked by moves and panes, not offered to users
FITTING = _job(
    "fitting-ops",
    questions.Fitting,
    "ops that fit an expression",
    questions.fitting,
    "memory",
    listed=False,
)
TOUCHING = _job(
    "touching-ops",
    questions.Touching,
    "ops that touch some bytes",
    questions.touching,
    "memory",
    listed=False,
)
FINDINGS = _job(
    "found-ops",
    questions.Findings,
    "ops with hazards or wrong results",
    questions.findings,
    "memory",
    listed=False,
)
OP_ROWS = _instant("op-rows", views.Positions, "some ops", views.op_rows, listed=False)
IN_SERVICE = _instant(
    "in-service",
    NoArguments,
    "ops in service at the time of an op",
    views.in_service,
    _OP,
    listed=False,
)
HELD_ALLOCATIONS = _job(
    "held-allocations",
    views_memory.AllocationCount,
    "allocations that hold something at an op",
    views_memory.held_allocations,
    "memory",
    _OP,
    title="what memory holds",
    listed=False,
)
TENSOR_SUMMARY = _job(
    "tensor-summary",
    views_memory.TensorName,
    "a tensor at an op, without its numbers",
    views_memory.tensor_summary,
    "memory",
    _OP,
    title="tensor",
    listed=False,
)
TENSOR_CELL = _job(
    "tensor-cell",
    views_memory.CellIndex,
    "an element, where it is, and who wrote it last",
    views_memory.tensor_cell,
    "memory",
    _OP,
    title="cell",
    listed=False,
)
ACCESSES_TO = _job(
    "accesses-to",
    questions.Place,
    "which accesses touch some bytes",
    views_memory.accesses_to,
    "memory",
    title="history",
    listed=False,
)
TOUCH_ROWS = _job(
    "touch-rows",
    views_memory.TouchNumbers,
    "some accesses with their ops",
    views_memory.touch_rows,
    "memory",
    title="history",
    listed=False,
)
GRID_PART = _job(
    "grid-part",
    views_grids.GridWindow,
    "the elements in a window of a grid",
    views_grids.grid_part,
    "memory",
    _OP,
    title="numbers",
    listed=False,
)
GRID_HEAT = _job(
    "grid-heat",
    views_grids.GridBlocks,
    "the blocks of a heatmap",
    views_grids.grid_heat,
    "memory",
    _OP,
    title="heat",
    listed=False,
)
COMPARISON = _job(
    "comparison",
    views_diff.OutputName,
    "an op or output compared, without the numbers",
    views_diff.comparison,
    "memory",
    _OP,
    title="diff",
    listed=False,
)
JUDGEMENT = _job(
    "judgement",
    views_diff.JudgedAfter,
    "what rounding explains of an op's error",
    views_diff.judgement,
    "memory",
    _OP,
    listed=False,
)
FIRST_DIVERGENCE = _job(
    "first-divergence",
    NoArguments,
    "the first op off by more than rounding",
    views_diff.first_divergence,
    "memory",
    title="first divergence",
    listed=False,
)
DIVERGENCE_TEXT = _job(
    "divergence-text",
    views_diff.TextWidth,
    "the same as text",
    views_diff.divergence_text,
    "memory",
    title="first divergence",
    listed=False,
)
EXECUTES_SOON = _job(
    "executes-soon",
    NoArguments,
    "whether all ops can be executed unasked",
    views_diff.executes_soon,
    "memory",
    title="what memory holds",
    listed=False,
)
CRITICAL_STEPS = _job(
    "critical-steps",
    questions.StepCount,
    "the critical path without its pieces",
    views_stats.critical_steps,
    "columns",
    title="critical path",
    listed=False,
)
CELLS = _job(
    "cells",
    views_timeline.WindowRows,
    "cells of rows of the timeline",
    views_timeline.cells,
    "timeline",
    title="timeline",
    listed=False,
)
LANES = _job(
    "lanes",
    NoArguments,
    "the lanes of every component",
    views_timeline.lanes,
    "timeline",
    listed=False,
)
CRITICAL_CELLS = _job(
    "critical-cells",
    views_timeline.WindowRows,
    "cells of rows of the timeline that are on the critical path",
    views_timeline.critical_cells,
    "columns",
    title="critical path",
    listed=False,
)
HAZARD_CELLS = _job(
    "hazard-cells",
    views_timeline.WindowRows,
    "cells of rows of the timeline that have hazards",
    views_timeline.hazard_cells,
    "memory",
    title="hazards",
    listed=False,
)
SUMMARY = _job(
    "window-summary",
    views_timeline.WindowCells,
    "all ops of a window of the timeline, looked at once",
    views_timeline.summary,
    "timeline",
    title="timeline",
    listed=False,
)
INDEXED_ROWS = _job(
    "indexed-rows",
    views_timeline.SomeRows,
    "rows of the timeline, indexed for any window",
    views_timeline.indexed,
    "timeline",
    title="timeline",
    listed=False,
)
TILE_OUTLINE = _job(
    "tile-outline",
    NoArguments,
    "where an op's composite is in the list",
    views_tiles.tile_outline,
    "tiles",
    _OP,
    title="composites",
    listed=False,
)
RUNNING_COMPOSITES = _job(
    "running-composites",
    views_tiles.TileTimes,
    "the composites in service in a window",
    views_tiles.running_composites,
    "tiles",
    title="tiles",
    listed=False,
)
TILE_LINES = _job(
    "tile-lines",
    views_tiles.TilePlaces,
    "rows of the list of composites",
    views_tiles.tile_lines,
    "tiles",
    title="tiles",
    listed=False,
)
MACHINE_MAP = _job(
    "machine-map",
    views_route.MapPlace,
    "the map of a part of the machine",
    views_route.machine_map,
    "tiles",
    title="routes",
    listed=False,
)
MAP_LOAD = _job(
    "map-load",
    views_route.MapWindow,
    "how loaded the lines of a map are",
    views_route.map_load,
    "columns",
    title="link load",
    listed=False,
)
WIDEN = Command(
    "widen", "move", "widen the focus", moves.Steps, move=moves.widen, listed=False
)

COMMANDS: tuple[Command, ...] = (
    INFO,
    GOTO,
    TIME,
    STEP,
    NEXT,
    LINE,
    TO_LINE,
    LANE,
    STAGE,
    TILE,
    FIRST,
    LAST,
    CAUSE,
    EFFECT,
    MARK,
    MARKS,
    BACK,
    FIND,
    FIND_BACK,
    BREAK,
    WATCH,
    CATCH,
    BREAKS,
    DELETE,
    CONTINUE,
    ASSERT,
    OPS,
    OP,
    SOURCE,
    MEMORY,
    HISTORY,
    BLAME,
    WHO_WROTE,
    WHO_READS,
    ROUTE,
    TILES,
    DIFF,
    DIVERGENCE,
    OUTPUTS,
    VERIFY,
    HAZARDS,
    TIMELINE,
    STALLS,
    LINES,
    PES,
    CRITICAL,
    LINKS,
    BUSIEST,
    ROOFLINE,
    BOUND,
    COMPARE,
    CHECK,
    CUT,
    EXPORT,
    HELP,
    FITTING,
    TOUCHING,
    FINDINGS,
    OP_ROWS,
    IN_SERVICE,
    HELD_ALLOCATIONS,
    TENSOR_SUMMARY,
    TENSOR_CELL,
    ACCESSES_TO,
    TOUCH_ROWS,
    GRID_PART,
    GRID_HEAT,
    COMPARISON,
    JUDGEMENT,
    FIRST_DIVERGENCE,
    DIVERGENCE_TEXT,
    EXECUTES_SOON,
    CRITICAL_STEPS,
    CELLS,
    LANES,
    CRITICAL_CELLS,
    HAZARD_CELLS,
    SUMMARY,
    INDEXED_ROWS,
    TILE_OUTLINE,
    RUNNING_COMPOSITES,
    TILE_LINES,
    MACHINE_MAP,
    MAP_LOAD,
    WIDEN,
)
BY_NAME = {command.name: command for command in COMMANDS}
SHORT = {
    "b": BREAK.name,
    "c": CONTINUE.name,
    "s": STEP.name,
    "n": NEXT.name,
    "w": WATCH.name,
}
"""Letters that mean what the keys do."""


# -- parsing and answering ----------------------------------------------------


def named(name: str, table: Sequence[Command] = COMMANDS) -> Command:
    """The listed command that a name, or its certain beginning, is.

    Raises UsageError that names those near it.
    """
    known = {command.name: command for command in table if command.listed}
    whole = SHORT.get(name, name)
    if whole in known:
        return known[whole]
    begun = [other for other in known if other.startswith(name)] if name else []
    if len(begun) == 1:
        return known[begun[0]]
    near = begun or get_close_matches(name, known, 3)
    what = f"unknown command {name!r}" if name else "an empty command"
    hint = f"; did you mean {' or '.join(near)}?" if near else ";"
    raise UsageError(f"{what}{hint} help lists all")


def parse(source: Sequence[str] | str, table: Sequence[Command] = COMMANDS) -> Call:
    """The call that a typed line, or the words of a shell, ask for.

    Raises UsageError that lists the commands, or says how to call this one.
    """
    if isinstance(source, str):
        name, _, rest = source.strip().partition(" ")
        words: Sequence[str] | str = rest.strip()
        given = words
    else:
        name, *words = source
        given = " ".join(words)
    command = named(name, table)
    args = parse_arguments(command.args, words_of(words))
    if args is None:
        takes = command.usage or "no arguments"
        raise UsageError(f"{name}: takes {takes}, got {given or 'none'}")
    return Call(command, args)


def answer(index: Index, query: Query, progress: Progress = no_progress) -> Answer:
    """The answer of a question. It depends on the trace and on the question only."""
    compute = BY_NAME[query.command].answer
    if compute is None:
        raise UsageError(f"{query.command} answers no question")
    return compute(index, query.at, query.args, progress)


def needed_by(index: Index, session: Session, call: Call) -> Query | None:
    """What has to be known before a call can be carried out; None: nothing.

    Of a move what it names, of a question the question itself.
    """
    command = call.command
    if command.kind != "move":
        return command.query(session, call.args)
    if command.needs is None:
        return None
    return command.needs(index, session, call.args)


def moved(index: Index, session: Session, call: Call, known: Any = None) -> Session:
    """The session after a move; ``known`` is the answer of what it needed."""
    if call.command.move is None:
        raise UsageError(f"{call.command.name} moves nothing")
    return call.command.move(index, session, call.args, known)


def run(
    index: Index, session: Session, call: Call, progress: Progress = no_progress
) -> tuple[Session, Answer]:
    """Carry out a call at once: the session after it, and what is to be printed."""
    needed = needed_by(index, session, call)
    known = None if needed is None else answer(index, needed, progress)
    if call.command.kind != "move":
        return session, known
    after = moved(index, session, call, known)
    report = call.command.report or _moved
    return after, report(index, session, after, call.args)


def as_data(answer: Any) -> Any:
    """An answer as lists, maps, numbers and text, ready for JSON; NaN and infinities
    are text.
    """
    if is_dataclass(answer) and not isinstance(answer, type):
        shown = [f.name for f in fields(answer) if f.metadata.get("shown", True)]
        return {name: as_data(getattr(answer, name)) for name in shown}
    if isinstance(answer, dict):
        return {str(key): as_data(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [as_data(value) for value in answer]
    if isinstance(answer, np.ndarray | np.generic):
        numeric = answer.dtype.kind in "biuf"
        return as_data((answer if numeric else answer.astype("f8")).tolist())
    if isinstance(answer, float) and not np.isfinite(answer):
        return str(answer)
    return answer
