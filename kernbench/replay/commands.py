"""The commands of the user: one table, from which the ``:`` line, keys, scripts,
``kernbench trace``, completion, palette, help and the docs are made.

To add a command: one function in ``questions.py`` or ``moves.py``, one row here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from kernbench.common.near import near
from kernbench.common.progress import Progress, forwards, no_progress
from kernbench.errors import KernbenchError, UsageError
from kernbench.replay import (
    moves,
    questions,
)
from kernbench.replay.answers import Listing, Moved, Stopped
from kernbench.replay.command import (
    ABOUT_OP,
    Answer,
    Asked,
    Call,
    Command,
    effect,
    instant,
    job,
    move,
    proof,
)
from kernbench.replay.command_help import examples_of, word_rows
from kernbench.replay.diagnosis.diagnose import diagnose
from kernbench.replay.index import Index
from kernbench.replay.inner_commands import (
    FINDINGS,
    FITTING,
    INNER_COMMANDS,
    TOUCHING,
)
from kernbench.replay.parsing import (
    NoArguments,
    Reader,
    parse_arguments,
    words_of,
)
from kernbench.replay.query import At, Query, Session
from kernbench.replay.text import as_text
from kernbench.replay.time.pieces import KINDS_TEXT

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

    text: Annotated[str, Reader("CONDITION", extent="line")]

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
    """All commands, or one with examples and what its words mean."""
    shown = listed() if name is None else (named(name),)
    rows = [(f"{c.name} {c.usage}".strip(), c.help) for c in shown]
    if name is not None:
        command = shown[0]
        rows += [("for example", text) for text in examples_of(command)]
        rows += [("", line) for line in command.details.splitlines()]
        rows += word_rows(command)
    return Listing(tuple(rows))


def listed() -> tuple[Command, ...]:
    """The commands that users are offered."""
    return tuple(command for command in COMMANDS if command.listed)


def table_of_topics() -> str:
    """The README's table in Markdown: questions, and the commands that answer them."""
    lines = ["| question | command |", "|---|---|"]
    for topic in TOPICS:
        names = [f"`{c.name}`" for c in COMMANDS if c.topic == topic]
        lines.append(f"| {topic} | {' '.join(names)} |")
    return "\n".join(lines)


# -- the table ----------------------------------------------------------------

_HAPPENED = "what happened"
_DATA = "with which data, and who made it"
_RIGHT = "is it right"
_SLOW = "why is it slow"
_FILE = "is the file whole, in parts, for others"
TOPICS = (_HAPPENED, _DATA, _RIGHT, _SLOW, _FILE)
"""The questions under which the README lists commands."""
_AT_A_TILE = Asked(op=40)
_IN_A_LOOP = Asked("flash_attention", op=60)
_AFTER_A_STOP = Asked(after="break kind = gemm")
_BACK_OR_ON = "no further op that way"
_FIND = 'find comp ~ "*.pe_gemm" and dur > 100ns'


INFO = instant(
    "info", NoArguments, "what the trace holds", questions.info, topic=_HAPPENED
)
GOTO = move(
    "goto",
    moves.Where,
    "move the cursor to an op",
    moves.goto,
    example="goto 40\ngoto end",
)
TIME = move(
    "t",
    moves.When,
    "move to the last op started by a time, as in 3.2us",
    moves.goto_time,
    example="t 3.2us",
)
STEP = move(
    "step",
    moves.Steps,
    "move by N ops (negative: back)",
    moves.step,
    stayed=_BACK_OR_ON,
    asked=_IN_A_LOOP,
)
NEXT = move(
    "next",
    moves.Steps,
    "move by N ops within the focus",
    moves.step_in_focus,
    stayed="no further op that way in the focus: u widens it",
    asked=_IN_A_LOOP,
)
LINE = move(
    "line",
    moves.Steps,
    "move by N kernel lines of this PE",
    moves.step_line,
    stayed=_BACK_OR_ON,
    asked=_IN_A_LOOP,
)
TO_LINE = move(
    "to-line",
    moves.LineNumber,
    "to this PE's next op of line N",
    moves.to_line,
    example="to-line 22",
    asked=Asked(op=16),
)
LANE = move(
    "lane",
    moves.Steps,
    "move by N ops in this lane",
    moves.step_lane,
    stayed=_BACK_OR_ON,
    asked=_IN_A_LOOP,
)
STAGE = move(
    "stage",
    moves.Steps,
    "move by N stages of this tile",
    moves.step_stage,
    stayed=_BACK_OR_ON,
    asked=_AT_A_TILE,
)
TILE = move(
    "tile",
    moves.Steps,
    "move by N tiles of the composite",
    moves.step_tile,
    stayed=_BACK_OR_ON,
    asked=_AT_A_TILE,
)
FIRST = move(
    "first",
    NoArguments,
    "to the first stage of this tile",
    moves.to_first,
    stayed="this is a tile's first stage, or no stage of one",
    asked=Asked(op=60),
)
LAST = move(
    "last",
    NoArguments,
    "to the tile's last stage, or the op's end",
    moves.to_last,
    stayed="no later stage of a tile, and nothing began here by the end of this op",
    asked=_AT_A_TILE,
)
CAUSE = move(
    "cause",
    NoArguments,
    "to what it waited for, or stage before",
    moves.to_cause,
    stayed="this op waited for no other",
    asked=_AT_A_TILE,
)
EFFECT = move(
    "effect",
    NoArguments,
    "to its first waiter, or next stage",
    moves.to_effect,
    stayed="no op waited for this one",
    asked=_AT_A_TILE,
)
MARK = move(
    "mark",
    moves.MarkName,
    "give this op a name to go to",
    moves.mark,
    stayed="marked; ' and its letter, or goto and its name, come back to it",
    moves_cursor=False,
    example="mark a",
)
MARKS = instant(
    "marks",
    NoArguments,
    "all marks",
    questions.marks,
    frozenset({"marks"}),
    asked=Asked(after="mark a"),
)
BACK = move(
    "back",
    moves.Steps,
    "undo N jumps (negative: redo)",
    moves.back,
    stayed="no further jump that way",
    asked=Asked(after="goto 40"),
)
FIND = move(
    "find",
    moves.Expression,
    "to the next op that fits",
    moves.find,
    needs=_fitting_ops,
    example=_FIND,
    asked=Asked(op=0),
)
FIND_BACK = move(
    "rfind",
    moves.Expression,
    "to the previous one",
    moves.find_back,
    needs=_fitting_ops,
    example=f"r{_FIND}",
)
BREAK = move(
    "break",
    moves.Expression,
    "stop at ops that fit",
    moves.break_on,
    needs=_fitting_ops,
    report=_new_stop,
    moves_cursor=False,
    example="break kind = gemm and (bytes > 4KiB or line = matmul.py:22)",
)
WATCH = move(
    "watch",
    moves.Watched,
    "stop at what touches bytes",
    moves.watch,
    needs=_touching_ops,
    report=_new_stop,
    moves_cursor=False,
    example="watch c[3,17] w\nwatch hbm 0x4000:64",
)
CATCH = move(
    "catch",
    moves.Caught,
    "stop at hazards, or at wrong results",
    moves.catch,
    needs=_found_ops,
    report=_new_stop,
    moves_cursor=False,
    example="catch hazards",
    asked=Asked("fault_missing_wait"),
)
BREAKS = instant(
    "breaks",
    NoArguments,
    "all stops",
    questions.breaks,
    frozenset({"stops"}),
    asked=_AFTER_A_STOP,
)
DELETE = move(
    "delete",
    moves.StopNumber,
    "forget a stop",
    moves.delete,
    report=_all_stops,
    moves_cursor=False,
    example="delete 1",
    asked=_AFTER_A_STOP,
)
CONTINUE = move(
    "continue",
    moves.Direction,
    "run to the next or previous stop",
    moves.continue_,
    report=_stopped,
    asked=_AFTER_A_STOP,
)
ASSERT = move(
    "assert",
    Assertion,
    "fail unless this op fits EXPR; none, some or N ops do; "
    "a command is ok, or says TEXT",
    _check_assertion,
    needs=_asserted,
    report=_ok,
    moves_cursor=False,
    example="assert kind=gemm and dur<2us\nassert none dur > 1ms\n"
    "assert 16 kind=memory\nassert ok verify\n"
    'assert "matmul.py:22" in source',
    asked=Asked(op=16),
)
OPS = job(
    "ops",
    questions.Listed,
    "the op log around the cursor; with a limit from the first",
    questions.ops,
    "memory",
    ABOUT_OP,
    example="ops 40 where kind=gemm and dur > 100ns",
    pages=questions.pages_of_ops,
    topic=_HAPPENED,
)
OP = instant(
    "op",
    NoArguments,
    "everything recorded about this op",
    questions.op,
    ABOUT_OP,
    topic=_HAPPENED,
)
SOURCE = instant(
    "source",
    NoArguments,
    "the kernel line of this op",
    questions.source,
    ABOUT_OP,
    topic=_HAPPENED,
)
TEXTS = job(
    "texts",
    questions.TextsOf,
    "what kernels printed and asserted, and warnings, with time, PE and line",
    questions.texts,
    "columns",
    topic=_HAPPENED,
    example="texts sip0.cube0.pe0 --limit 20",
    asked=Asked("fault_ring_by_name"),
)
MEMORY = job(
    "memory",
    questions.Tensor,
    "allocations at this op, or the numbers of one tensor",
    questions.memory,
    "memory",
    ABOUT_OP,
    topic=_DATA,
    example="memory\nmemory c",
)
HISTORY = job(
    "history",
    questions.Place,
    "every read and write of some bytes",
    questions.history,
    "memory",
    example="history c[0:2, :]\nhistory hbm 0x4000:64",
    topic=_DATA,
)
BLAME = job(
    "blame",
    questions.BlamePlace,
    "the ops behind an element, back to the inputs or N ops deep; "
    "of a right and a wrong one where they part",
    questions.blame,
    "memory",
    ABOUT_OP,
    example="blame c[3,17]\nblame hbm 0x4000:2 8\nblame c[0,0] c[3,17]",
    topic=_DATA,
)
WHO_WROTE = job(
    "who-wrote",
    questions.Place,
    "who wrote these bytes last",
    questions.who_wrote,
    "memory",
    ABOUT_OP,
    topic=_DATA,
    example="who-wrote c[3,17]",
)
WHO_READS = job(
    "who-reads",
    questions.Place,
    "who reads these bytes next",
    questions.who_reads,
    "memory",
    ABOUT_OP,
    topic=_DATA,
    example="who-reads a[0,0]",
    asked=Asked(op=0),
)
ROUTE = job(
    "route",
    questions.RouteOf,
    "the routed path of this op, of a launch or of a credit, hop by hop",
    questions.route,
    "tiles",
    ABOUT_OP,
    example="route\nroute launch 0",
    title="routes",
    topic=_HAPPENED,
)
TILES = job(
    "tiles",
    questions.Window,
    "the tiles of this op's composite, or of a time",
    questions.tiles,
    "tiles",
    ABOUT_OP,
    topic=_HAPPENED,
    example="tiles\ntiles 8.1us 8.3us",
)
DIFF = job(
    "diff",
    NoArguments,
    "expected, actual and error of this op",
    questions.diff,
    "memory",
    ABOUT_OP,
    topic=_RIGHT,
)
DIVERGENCE = job(
    "divergence",
    NoArguments,
    "first op off by more than rounding",
    questions.divergence,
    "memory",
    topic=_RIGHT,
    asked=Asked("fault_overflow"),
)
OUTPUTS = job(
    "outputs",
    NoArguments,
    "expected tensors against memory at this op",
    questions.outputs,
    "memory",
    ABOUT_OP,
)
VERIFY = job(
    "verify",
    NoArguments,
    "execute all ops, judge the expected tensors",
    questions.verify,
    "memory",
    topic=_RIGHT,
)
PROVE_HAZARDS = proof(
    "hazards",
    questions.RacesToProve,
    "the first races, tried out by holding the earlier op back",
    questions.prove_hazards,
    "memory",
)
HAZARDS = job(
    "hazards",
    questions.RacesToProve,
    "races, whatever the timing; bytes never written, not allocated; prove: races "
    "tried out by re-runs, the first N",
    questions.hazards,
    "memory",
    topic=_RIGHT,
    proof=PROVE_HAZARDS,
    asked=Asked("fault_missing_wait"),
)
DIAGNOSE = job(
    "diagnose",
    NoArguments,
    "what is wrong, odd or slow, the most urgent first, and how to check each",
    diagnose,
    "memory",
    topic=_RIGHT,
)
TIMELINE = job(
    "timeline",
    questions.Window,
    "busy cells by component",
    questions.timeline,
    "timeline",
    ABOUT_OP,
    topic=_HAPPENED,
    example="timeline 8.1us 8.3us",
)
STALLS = job(
    "stalls",
    questions.PeWindow,
    "compute, load, store, waits of a PE",
    questions.stalls,
    "columns",
    topic=_SLOW,
    example="stalls sip0.cube0.pe3\nstalls all 8us 8.2us",
    details=KINDS_TEXT,
)
LINES = job(
    "lines",
    questions.Pe,
    "time and stalls by kernel line",
    questions.lines,
    "columns",
    title="line times",
    topic=_SLOW,
    example="lines\nlines sip0.cube0.pe3",
    details=KINDS_TEXT,
)
PES = job(
    "pes",
    questions.CallNumber,
    "this op's call (or another) on all its PEs",
    questions.pes,
    "columns",
    ABOUT_OP,
    title="PEs",
    topic=_SLOW,
    example="pes\npes 5",
)
CRITICAL = job(
    "critical",
    questions.StepCount,
    "what sets the end, and why",
    questions.critical,
    "columns",
    topic=_SLOW,
    example="critical 10",
    details="The longest chain of ops and waits that leads to the end, added up by "
    "what it did or waited for; then its longest steps. Waits are those of `stalls`.",
)
LINKS = job(
    "links",
    questions.LoadWindow,
    "load of every link",
    questions.links,
    "columns",
    topic=_SLOW,
    example="links\nlinks 8us 8.2us",
)
BUSIEST = job(
    "busiest",
    questions.BusiestCount,
    "components and links, the busiest",
    questions.busiest,
    "columns",
    topic=_SLOW,
    example="busiest 5",
)
ACTIVITY = job(
    "activity",
    questions.ActivityWindow,
    "busy share of every component: engines, memories, CPUs, routers, links",
    questions.activity,
    "traffic",
    topic=_SLOW,
    example="activity 8us 9us components *.hbm_ctrl.*",
)
ROOFLINE = job(
    "roofline",
    NoArguments,
    "FLOPs and bytes against the peaks",
    questions.roofline,
    "columns",
    topic=_SLOW,
)
ENERGY = job(
    "energy",
    NoArguments,
    "J, W and pJ an op by component class, line and tensor",
    questions.energy,
    "columns",
    topic=_SLOW,
)
FETCHES = job(
    "fetches",
    NoArguments,
    "how often each operand was fetched, and the tile that would fetch it once",
    questions.fetches,
    "columns",
    topic=_SLOW,
)
PROVE_BOUND = proof(
    "bound",
    questions.OpBound,
    "the slack of this op, tried out by holding it back",
    questions.prove_bound,
    "columns",
    ABOUT_OP,
)
BOUND = job(
    "bound",
    questions.OpBound,
    "ideal time and slack of this op; prove: held back in a re-run",
    questions.bound,
    "columns",
    ABOUT_OP,
    topic=_SLOW,
    proof=PROVE_BOUND,
    details="Slack is by how much the op may end later and the run ends when it did.",
)
PROVE_WHATIF = proof(
    "whatif",
    questions.WhatIf,
    "what is predicted of a changed machine, beside a re-run on it",
    questions.prove_whatif,
    "columns",
)
WHATIF = job(
    "whatif",
    questions.WhatIf,
    "the end on a changed machine, by launch; of no change what to make faster; "
    "prove: a re-run beside it, of the first N rows",
    questions.whatif,
    "columns",
    topic=_SLOW,
    title="what if",
    example="whatif pe.clock_ghz=2 channel_bw_gbs=64\nwhatif prove first 3",
    proof=PROVE_WHATIF,
)
COMPARE = job(
    "compare",
    questions.OtherTrace,
    "another trace beside this one; its limit",
    questions.compare,
    "columns",
    example="compare other.msgpack\ncompare other.msgpack 5%",
)
CHECK = job(
    "check",
    NoArguments,
    "the frames of the file, and what is damaged or missing",
    questions.check,
    "files",
    topic=_FILE,
)
CUT = effect(
    "cut",
    questions.CutPart,
    "write what ran within a time on some components to a trace of its own",
    questions.cut,
    example="cut part.msgpack from 8.1us to 8.3us components *.pe0.*",
    topic=_FILE,
)
EXPORT = effect(
    "export",
    questions.ExportTo,
    f"write all of it in another format: {', '.join(questions.EXPORT_FORMATS)}",
    questions.export,
    example="export perfetto out.json",
    topic=_FILE,
)
HELP = instant(
    "help",
    CommandName,
    "this list, or one command with an example",
    _help,
    example="help break",
)

WIDEN = Command(
    "widen",
    "move",
    "widen the focus",
    moves.Steps,
    move=moves.widen,
    stayed="the focus is the whole machine, or as narrow as it can be",
    listed=False,
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
    TEXTS,
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
    DIAGNOSE,
    TIMELINE,
    STALLS,
    LINES,
    PES,
    CRITICAL,
    LINKS,
    BUSIEST,
    ACTIVITY,
    ROOFLINE,
    ENERGY,
    FETCHES,
    BOUND,
    PROVE_HAZARDS,
    PROVE_BOUND,
    WHATIF,
    PROVE_WHATIF,
    COMPARE,
    CHECK,
    CUT,
    EXPORT,
    HELP,
    WIDEN,
    *INNER_COMMANDS,
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
    alike = begun or near(name, known)
    what = f"unknown command {name!r}" if name else "an empty command"
    hint = f"; did you mean {' or '.join(alike)}?" if alike else ";"
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
    if command.proof is not None and args.prove:
        command = command.proof
    return Call(command, args)


def answer(index: Index, query: Query, progress: Progress = no_progress) -> Answer:
    """The answer of a question. It depends on the trace and on the question only."""
    compute = BY_NAME[query.command].answer
    if compute is None:
        raise UsageError(f"{query.command} answers no question")
    return compute(index, query.at, query.args, forwards(progress))


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
    if call.command.kind != "move":
        query = call.command.query(session, call.args)
        return session, answer(index, query, progress)
    after = carried_out(index, session, call, progress)
    report = call.command.report or _moved
    return after, report(index, session, after, call.args)


def carried_out(
    index: Index, session: Session, call: Call, progress: Progress = no_progress
) -> Session:
    """The session after a move, once what it needs has been found out."""
    needed = needed_by(index, session, call)
    known = None if needed is None else answer(index, needed, progress)
    return moved(index, session, call, known)
