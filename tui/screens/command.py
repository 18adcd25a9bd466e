"""Carrying out commands: typed lines, keys, search, stops, marks, playing.

A question is made when it is asked, and its answer shown when it is there. A move that
has to know something first waits for that, until somebody moves otherwise.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Any

from textual import events, on
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Static

from kernbench.errors import KernbenchError, UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.answers import Stopped
from kernbench.replay.arrays import Ints
from kernbench.replay.command import Call
from kernbench.replay.commands import (
    BOUND,
    BREAK,
    COMMANDS,
    COMPARE,
    FIND,
    FIND_BACK,
    GOTO,
    HAZARDS,
    HISTORY,
    MARK,
    PROVE_BOUND,
    PROVE_HAZARDS,
    PROVE_WHATIF,
    STEP,
    WATCH,
    WHATIF,
    moved,
    needed_by,
    parse,
)
from kernbench.replay.data.blame import Blame
from kernbench.replay.diagnosis.findings import Diagnosis, claimed_by
from kernbench.replay.expr import parse_count, parse_time
from kernbench.replay.inner_commands import FITTING
from kernbench.replay.ops_beside import op_beside
from kernbench.replay.progress import Cancelled, begun_beside
from kernbench.replay.query import Query, Session, Stop
from kernbench.replay.races.findings import Findings
from kernbench.replay.text import as_text, count_text
from kernbench.replay.time.roofline import Bound
from kernbench.replay.whatif.answers import CausalProfile
from kernbench.trace import Trace
from kernbench.visible import visible_text
from tui.actions import (
    FILTER,
    LOG,
    OPEN,
    PROVE,
    RELOAD,
    SCREEN_COMMANDS,
    SEARCH,
    Claimed,
)
from tui.claims import (
    Claim,
    FirstGains,
    FirstRaces,
    claim_of,
    delay_of,
    proved_ends,
    race_of,
    slack_of,
    title_of,
)
from tui.clipboard import copy
from tui.desk import KEY_S, Desk
from tui.draw import Glyphs, Line
from tui.keymap import Keymap
from tui.messages import Hint, RunCommand
from tui.panes.base import Do, Effect, Event, Say, Send, Show
from tui.panes.diff import ProvedRaces
from tui.panes.ops import Filter
from tui.panes.stats import ProvedGain
from tui.prover import Proof, Prover
from tui.runner import Pending, Runner, answered
from tui.screens.text import StopsScreen, TextScreen, Way
from tui.widgets.command_line import CommandLine

_MATCHED_OPS = 20_000
"""Ops of two traces that are matched as one is opened beside the other: that takes
about a second.
"""
_PLAY_S = 0.125
"""An op."""

_PROVED_BY = {PROVE_BOUND: BOUND, PROVE_HAZARDS: HAZARDS, PROVE_WHATIF: WHATIF}
"""The question that each effect proves."""
_HOW_TO_BREAK = (
    "Enter sets this stop, c then runs to it; or type what else it is to stop at: "
    "kind=gemm and pe=3, bytes>4096"
)
_HOW_TO_WATCH = (
    "Enter sets this stop, c then runs to what touches these bytes; or type others: "
    "c[3,17] w (r reads, w writes, rw both)"
)
"""What is said when a key has begun one of these commands."""


@dataclass(eq=False, slots=True)
class Noted:
    """A line of the script that does again what was done."""

    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command waits for: as it was typed, the question, what is done with the
    answer.

    ``moves``: it moves the cursor, so that another move takes its place. ``failed`` is
    given what is to be said where there is no answer; by default it is said. ``noted``
    is its line among what was done, which only stays there if it can be done.
    """

    text: str
    query: Query
    then: Callable[[Any], object]
    moves: bool = False
    failed: Callable[[str], object] | None = None
    noted: Noted | None = None


def _opened(path: Path) -> ReplaySession:
    """A session on a trace, ready for keys; KernbenchError if it cannot be read."""
    try:
        replay = ReplaySession(Trace.open(path))
    except OSError as error:
        raise KernbenchError(f"{path}: {error.strerror or error}") from None
    replay.index.prepare()
    return replay


def _opened_at(trace: Trace, op: int, path: Path) -> ReplaySession:
    """The same, at the op which is that of another trace at ``op``, as ``compare``
    matches them; where that takes long, or there is none, before the first.
    """
    replay = _opened(path)
    if max(len(trace.order), len(replay)) <= _MATCHED_OPS:
        there = op_beside(trace, replay.trace, op)
        if there is not None:
            replay.begin_at(there)
    return replay


class CommandScreen(Screen[None], inherit_bindings=False):
    """Owns the desk, the runner, the command line and the notice above the footer.

    A subclass draws (``show``), and lays the panes out.
    """

    def __init__(
        self, replay: ReplaySession, runner: Runner, glyphs: Glyphs, keymap: Keymap
    ) -> None:
        super().__init__()
        self.keymap = keymap
        self.runner = runner
        self.desk = Desk(replay, runner, glyphs)
        self.line = CommandLine(replay)
        self.notice = Static(id="notice", markup=False)
        self.active = "timeline"
        self.sought = ""
        self.last_move: Call = STEP(n=1)
        self.asked: Asked | None = None
        self.prover = Prover(replay.trace)
        self.proof: Proof | None = None
        """What came of a re-run, and was not shown yet."""
        self.pending_stops: list[Call] = []
        """Of an earlier time; made one by one, as what they have to know comes."""
        self.playing: Timer | None = None
        self.said = ""
        """The message that is shown."""
        self._noted: list[Noted] = []
        self.shell = ""
        """The shell command of what was done last."""
        self.has_asked = False
        """Whether what was done last was a question."""
        self._shells = 0
        """How often the key of shell commands was pressed since another one."""
        self._next_letter: Callable[[str], Call] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._kept_keys: list[events.Key] = []
        """Keys that wait for the trace that is read."""

    # -- what a subclass does -------------------------------------------------

    def show(self) -> None:
        """Draw what has changed."""
        raise NotImplementedError

    def do_activate(self, key: str) -> None:
        """Make a pane the active one."""
        raise NotImplementedError

    @property
    def is_idle(self) -> bool:
        """Whether nothing was begun here that another screen could not go on with."""
        return (
            self.is_current
            and not self.line.display
            and self.asked is None
            and self.playing is None
            and self.proof is None
            and self.prover.pending is None
            and self._next_letter is None
            and not self.reads
        )

    # -- messages -------------------------------------------------------------

    @property
    def session(self) -> Session:
        """Where the user stands."""
        return self.desk.session

    def say(self, text: str) -> None:
        """A message above the footer until the next key; empty: none."""
        self.said = visible_text(text)
        if text or self.notice.display:
            self.notice.update(self.said)
            self.notice.display = bool(text)

    def another_key(self) -> None:
        """Another key than that of shell commands: what was asked is no longer what was
        done last.
        """
        self.has_asked = False
        self._shells = 0

    def show_text(self, title: str, lines: list[Line], way: Way | None = None) -> None:
        """Lines over the whole screen until Esc, or until one takes the ``way``."""
        self.pause()
        page = TextScreen(self.keymap, self.desk.glyphs, title, lines, way)
        self.app.push_screen(page, self._chosen)

    @on(RunCommand)
    def _run_asked(self, message: RunCommand) -> None:
        self.app.past.append(f":{message.line}")  # type: ignore[attr-defined]
        self.poll()  # what was asked before waited for the line
        self.run_line(message.line)
        self.show()

    @on(Hint)
    def _hinted(self, message: Hint) -> None:
        self.say(message.text)

    # -- carrying out ---------------------------------------------------------

    def run_line(self, line: str) -> None:
        """Carry out a typed line; what is wrong with it is said."""
        self.attempt(
            lambda: self.carry_out(parse(line, (*COMMANDS, *SCREEN_COMMANDS)), line)
        )

    def attempt(self, action: Callable[[], object]) -> None:
        """Do something, or say why it cannot be done."""
        try:
            action()
        except KernbenchError as error:
            self.say(f"error: {error}")

    def carry_out(self, call: Call, text: str = "") -> None:
        """Carry out a call: a move at once, if nothing has to be known for it.

        Raises UsageError where it cannot be.
        """
        noted = self._note(call)
        try:
            self._carry_out(call, text or call.text, noted)
        except KernbenchError:
            self._strike(noted)
            raise

    def _carry_out(self, call: Call, text: str, noted: Noted | None) -> None:
        command = call.command
        if command is SEARCH:
            self.sought = expression(call.args.text)
            self.do_find(1)
        elif command is FILTER:
            self._filter(expression(call.args.text), text)
        elif command is RELOAD:
            self.do_reload()
        elif command is PROVE:
            self._prove(call.args, text)
        elif command is OPEN:
            self._open(call.args.file)
        elif command is LOG:
            self._show_log(call.args.file)
        elif command in _PROVED_BY:
            self._prove_answer(call, text)
        elif command.kind == "move":
            needed = needed_by(self.desk.index, self.session, call)
            if needed is None:
                self._move(call, noted, None)
            else:
                then = partial(self._move, call, noted)
                moves = command.moves_cursor
                self._ask(Asked(text, needed, then, moves=moves, noted=noted))
        elif command is HISTORY:
            query = command.query(self.session, call.args)
            show = Send("memory", Show(call.args.place))
            self._ask(Asked(text, query, lambda _: self._do_effect(show), noted=noted))
        else:
            query = command.query(self.session, call.args)
            show_answer = partial(self._show_answer, text)
            self._ask(Asked(text, query, show_answer, noted=noted))

    # -- what was done ----------------------------------------------------------

    @property
    def done(self) -> list[str]:
        """What was done, as lines of a script that begins where the user did."""
        return [noted.text for noted in self._noted]

    def _note(self, call: Call) -> Noted | None:
        """Note a call as a line of a script, and as a command of the shell; None for
        what only a screen can do.
        """
        if call.command in SCREEN_COMMANDS:
            return None
        file = self.desk.index.trace.path
        self.shell = shell_line(call, file, self.session.cursor)
        self.has_asked = call.command.kind != "move"
        self._shells = 0
        if not self._noted:
            self._noted.append(Noted(self._begin()))
        noted = Noted(call.text)
        self._noted.append(noted)
        return noted

    def _strike(self, noted: Noted | None) -> None:
        """Leave out what could not be done: a script would end there."""
        if noted in self._noted:
            self._noted.remove(noted)

    def _begin(self) -> str:
        """The line of a script that goes to where the user is."""
        cursor = self.session.cursor
        return GOTO(op="start" if cursor < 0 else cursor).text

    def go_on_from(self, old: CommandScreen) -> None:
        """Take over what was done on a screen of the same trace, and what was typed."""
        last = len(self.desk.index.ops) - 1
        jumps = [
            tuple(op for op in ops if op <= last)
            for ops in (old.session.left, old.session.returned)
        ]
        mine = self.session
        self.desk.replay.state = Session(
            cursor=mine.cursor,
            level=mine.level,
            marks=mine.marks,
            left=jumps[0],
            returned=jumps[1],
            stops=mine.stops,
            made=mine.made,
        )
        self._noted = old._noted
        self.line.go_on_from(old.line)

    def do_shell(self) -> None:
        """Copy the shell command of what was asked last, or else of what the active
        pane shows; pressed again, that of the other.
        """
        file = self.desk.index.trace.path
        shown = f"kernbench-tui {shlex.quote(str(file))} --op {self.session.cursor}"
        question = self.desk.question(self.active)
        if question is not None:
            shown = shell_line(question, file, self.session.cursor)
        lines = [shown, self.shell or shown]
        if self.has_asked:
            lines.reverse()
        line = lines[self._shells % len(lines)]
        self._shells += 1
        keys = self.keymap.shown("shell")
        how = copy(line, self.app.copy_to_clipboard)
        other = "what was done last"
        if line == self.shell:
            other = "what the pane shows"
        if lines[0] == lines[1]:
            self.say(f"$ {line}  (copied {how}; :log has all as a script)")
        else:
            self.say(f"$ {line}  (copied {how}; {keys} again: {other})")

    def _show_log(self, file: str | None) -> None:
        """All that was done, as a script; or write it to a file."""
        done = self.done or [self._begin()]
        script = "\n".join([*done, ""])
        if file is None:
            run = "kernbench-tui --script THIS.txt TRACE runs it again"
            rows = [f"# {run}; :log FILE writes it", *done]
            self.show_text(LOG.name, self._wrapped(rows))
            return
        try:
            Path(file).write_text(script, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror or error}") from None
        self.say(f"{count_text(len(done), 'command')} written to {file}")

    def _move(self, call: Call, noted: Noted | None, known: Any) -> None:
        """Make a move, and say what there is to be said of it. A search goes on from
        the other end.
        """
        if call.command in (FIND, FIND_BACK) and len(known):
            self._find(call, noted, known)
            return
        self._moved(call, known)

    def _find(self, call: Call, noted: Noted | None, known: Any) -> None:
        """To the next op of those that fit; behind the last to the first."""
        here = self.session.cursor
        wraps = known[-1] <= here if call.command is FIND else known[0] >= here
        if not wraps:
            self._moved(call, known)
            return
        forward = call.command is FIND
        end = known[0] if forward else known[-1]
        goto = GOTO(op=int(end))
        self._moved(goto, None)
        if noted is not None:
            noted.text = goto.text  # a script does not search on from the other end
        self.last_move = call
        where = "the first" if forward else "the last"
        self.say(f"search wrapped: {where} of {count_text(len(known), 'op')} that fit")

    def _moved(self, call: Call, known: Any) -> None:
        before = self.session
        after = moved(self.desk.index, before, call, known)
        if after.cursor != before.cursor and self.asked and self.asked.moves:
            self._strike(self.asked.noted)
            self.asked = None
        self.desk.move(after)
        self.say("")
        is_same_op = after.cursor == before.cursor
        stayed = is_same_op and after.level == before.level
        report = call.command.report
        if report is None:
            self.last_move = call
            if stayed:
                self.say(call.command.stayed)
            return
        answer = report(self.desk.index, before, after, call.args)
        if isinstance(answer, Stopped):
            end = "start" if answer.op < 0 else "end"
            none = f"no further stop that way: the {end} of the log"
            self.say("; ".join(answer.stops) or none)
        elif isinstance(answer, Stop):
            self.say(_set_text(answer))
        else:
            self._show_answer(call.text, answer)

    def _show_answer(self, title: str, answer: Any) -> None:
        """An answer as text over the whole screen. What it claims can be proved."""
        self.say("")
        way = None
        if isinstance(answer, Blame) and answer.suspect is not None:
            words = f"goes to op {answer.suspect:,}"
            way = Way("enter", words, GOTO(op=answer.suspect))
        if isinstance(answer, Diagnosis):
            way = _way_of(answer)
        claim = claim_of(answer)
        if claim is not None:
            self.desk.claim = claim
            way = Way("prove", "proves it", PROVE(claim=claim))
        rows = [*answer.lines(self.size.width)]
        if isinstance(answer, Blame) and answer.suspect is not None:
            rows = [rows[-1], *rows[:-1]]  # the suspect is what one looks for
        if self.shell:
            rows.append(f"$ {self.shell}")
        self.show_text(title, self._wrapped(rows), way)

    def _wrapped(self, rows: Iterable[str]) -> list[Line]:
        """Rows of text, those that are too long for the screen in several lines."""
        lines: list[Line] = []
        for row in rows:
            parts = wrap(row, self.size.width, subsequent_indent="    ") or [""]
            lines += [[(part, "")] for part in parts]
        return lines

    # -- questions ------------------------------------------------------------

    def _ask(self, asked: Asked) -> None:
        """Ask something; its answer is waited for a moment, and then shown when it
        comes. What was cancelled, or failed, is computed again.
        """
        if self.asked is not None:
            self.say(f"still computing {self.asked.text}; Esc cancels it")
            self._strike(asked.noted)
            return
        self.say("")
        if isinstance(self.runner.known(asked.query), Exception):
            self.runner.forget()
        found = self.runner.gather([asked.query], KEY_S)[asked.query]
        if isinstance(found, Pending):
            self.asked = asked
        else:
            self._finish(asked, found)

    def poll(self) -> None:
        """Do what the answer was asked for, if it is there by now, or show a proof that
        has come; unless the user is at something else, whose keys it would take.
        """
        if self.app.screen is not self or self.line.display:
            return
        asked = self.asked
        if asked is None:
            if self.proof is not None:
                self._take_proof(self.proof)
            return
        found = self.runner.ask(asked.query)
        if not isinstance(found, Pending):
            self.asked = None
            self._finish(asked, found)

    def _finish(self, asked: Asked, found: Any) -> None:
        """Do what the answer was asked for, or say why there is none."""
        if isinstance(found, Exception):
            self._strike(asked.noted)
            self._say_why(asked, found)
            return
        try:
            asked.then(found)
        except KernbenchError as error:
            self._strike(asked.noted)
            self.say(f"error: {error}")

    def _say_why(self, asked: Asked, error: Exception) -> None:
        failed = asked.failed or self.say
        if isinstance(error, Cancelled):
            _, cancelled, how_far = str(error).partition(" was cancelled")
            failed(f"error: {asked.text}{cancelled}{how_far}")
        elif isinstance(error, KernbenchError):
            failed(f"error: {error}")
        else:
            raise error

    @property
    def running(self) -> list[Pending]:
        """What somebody waits for; what the user has asked for is called as typed."""
        asked = self.asked
        jobs = self.runner.running()
        if asked is not None:
            for i, job in enumerate(jobs):
                if job.query == asked.query:
                    jobs[i] = replace(job, title=asked.text)
        rerun = self.prover.pending
        if rerun is not None:
            jobs.append(rerun)
        return jobs

    @property
    def awaited(self) -> list[Query]:
        """The questions that the screen itself waits for."""
        queries = [] if self.asked is None else [self.asked.query]
        if self.pending_stops:
            call = self.pending_stops[0]
            with suppress(KernbenchError):
                needed = needed_by(self.desk.index, self.session, call)
                if needed is not None and not self._was_cancelled(needed):
                    queries.append(needed)
        return queries

    def _was_cancelled(self, query: Query) -> bool:
        return isinstance(self.runner.known(query), Cancelled)

    def restore_stops(self) -> bool:
        """Make the stops of an earlier time, as far as what they have to know
        is there; whether there was any. Where that was cancelled they wait until it is
        asked for again.
        """
        before = len(self.pending_stops)
        while self.pending_stops:
            call = self.pending_stops[0]
            try:
                needed = needed_by(self.desk.index, self.session, call)
                found = None if needed is None else self.runner.ask(needed)
                if isinstance(found, Pending | Cancelled):
                    break
                session = moved(self.desk.index, self.session, call, answered(found))
                self.desk.replay.state = session
            except KernbenchError:
                pass  # this trace has no such bytes any more
            del self.pending_stops[0]
        return len(self.pending_stops) < before

    # -- panes ----------------------------------------------------------------

    def _send(self, key: str, event: Event) -> bool:
        """Hand an event to a pane and do what it asks for; whether it had a use
        for it.
        """
        effects = self.desk.send(key, event)
        for effect in effects or ():
            self._do_effect(effect)
        return effects is not None

    def _do_effect(self, effect: Effect) -> None:
        match effect:
            case Do(call):
                self.attempt(lambda: self.carry_out(call))
            case Say(text):
                self.say(text)
            case Send(key, event):
                self._send(key, event)
                self.do_activate(key)

    # -- search, filter -------------------------------------------------------

    def do_prompt(self, kind: str) -> None:
        """Open the command line, with a command begun."""
        where = self.desk.states["ops"].where
        if kind == "search":
            self.line.open(prompt="/", before=f"{SEARCH.name} ")
        elif kind == "filter":
            self.line.open(where, prompt="&", before=f"{FILTER.name} ")
        else:
            self.line.open()

    def do_find(self, way: int) -> None:
        """To the next (1) or previous (-1) op that fits the search."""
        if self.sought:
            command = FIND if way > 0 else FIND_BACK
            self.carry_out(command(expr=self.sought))
        else:
            self.say(
                "nothing is searched for yet: / and an expression or text of a name"
            )

    def _filter(self, where: str, text: str) -> None:
        """List the ops that fit alone, or again all, where one sees it."""
        if not where:
            self._do_effect(Send("ops", Filter("")))
            self.say("all ops are listed")
            return

        def then(found: Ints) -> None:
            self._do_effect(Send("ops", Filter(where)))
            fit = count_text(len(found), "op")
            total = len(self.desk.index.ops)
            self.say(f"{fit} of {total:,} listed; Esc lists all again")

        self._ask(Asked(text, FITTING.ask(expr=where), then))

    # -- stops ----------------------------------------------------------------

    def do_break(self) -> None:
        """Begin the command that stops at ops like this one."""
        expr = "name = "
        if self.session.cursor >= 0:
            row = self.desk.index.ops.row(self.session.cursor)
            expr = f"comp = {row.component} and name = {row.name}"
        self.line.open(f"{BREAK.name} {expr}")
        self.say(_HOW_TO_BREAK)

    def do_watch(self) -> None:
        """Begin the command that watches what is picked, or what this op writes."""
        place = self.desk.place(self.active)
        if place is None:
            place = self.desk.index.memory.touches(self.session.cursor)
        if place is None:
            self.say(
                "this op touches no bytes; pick some in 4 Memory, or :watch c[3,17]"
            )
        else:
            self.line.open(f"{WATCH.name} {place} rw")
            self.say(_HOW_TO_WATCH)

    def do_stops(self) -> None:
        """List the stops."""
        if self.session.stops:
            self.app.push_screen(StopsScreen(self.keymap, self.desk), self._chosen)
        else:
            self.say("no stop is set: b or w makes one, :catch hazards too")

    def _chosen(self, call: Call | None) -> None:
        if call is not None:
            self.attempt(lambda: self.carry_out(call))
        self.show()

    # -- marks ----------------------------------------------------------------

    def do_letter(self, kind: str) -> None:
        """The next key is the letter of a mark, to set or to jump to."""
        known = ", ".join(name for name, _ in self.session.marks) or "none is set"
        if kind == "mark":
            self._next_letter = lambda letter: MARK(name=letter)
            self.say("mark with which letter?")
        else:
            self._next_letter = self._to_mark
            self.say(f"which mark? ({known})")

    def _to_mark(self, letter: str) -> Call:
        """The jump to a mark; UsageError if it is not set."""
        names = [name for name, _ in self.session.marks]
        if letter not in names:
            known = "none is set"
            if names:
                known = f"set are: {', '.join(names)}"
            raise UsageError(f"no mark {letter}; {known}; m{letter} sets it here")
        return GOTO(op=letter)

    def lettered(self, character: str | None) -> bool:
        """Whether a key, its character if it has one, was to be the letter of a
        mark.
        """
        make = self._next_letter
        self._next_letter = None
        if make is None:
            return False
        self.say("")
        if character and character.isalpha():
            self.attempt(lambda: self.carry_out(make(character)))
        elif character and character.isprintable():
            self.say("marks are letters")
        return True

    # -- playing --------------------------------------------------------------

    def do_play(self) -> None:
        """Play eight ops a second."""
        self.playing = self.set_interval(_PLAY_S, self.play)

    def play(self) -> None:
        """One op on; a stop there, or the end, ends it."""
        here = self.session.cursor
        self.carry_out(STEP(n=1))
        hit = self.session.stops_at(self.session.cursor)
        if hit or self.session.cursor == here:
            self.pause()
            stopped = "; ".join(as_text(stop) for stop in hit)
            self.say(stopped if hit else "played to the last op")
        self.show()

    def pause(self) -> bool:
        """Play no more; whether it did."""
        playing = self.playing
        self.playing = None
        if playing is None:
            return False
        playing.stop()
        return True

    # -- proving --------------------------------------------------------------

    def do_prove(self) -> None:
        """Prove what is claimed here."""
        self.carry_out(PROVE())

    def _prove(self, args: Claimed, text: str) -> None:
        """Prove what a page shows; fields of the machine that are typed, a delay of
        this op, the slack of one, or a race; what the picked row claims; or what was
        shown last.
        """
        picked = None
        if args.claim is None and not args.what:
            picked = self.desk.claimed(self.active)
        if picked == "":
            raise UsageError(
                "no re-run can prove this row: it is about no field of the machine and "
                "no delay; j and k pick another"
            )
        what = args.what or picked or ""
        first, _, rest = what.partition(" ")
        if not what:
            self._begin_proof(args.claim or self.desk.claim)
        elif first == "delay":
            ns = parse_time(rest.strip())
            query = BOUND.query(self.session, BOUND.args())
            then = partial(self._begin_delay, ns)
            self._ask(Asked(text, query, then))
        elif first == "slack":
            op = self.session.cursor
            if rest.strip():
                op = parse_count(rest.strip())
            there = moved(self.desk.index, self.session, GOTO(op=op))
            query = BOUND.query(there, BOUND.args())
            self._ask(Asked(text, query, self._begin_slack))
        elif first == "race":
            number = parse_count(rest.strip())
            query = HAZARDS.query(self.session, HAZARDS.args())
            begin = partial(self._begin_race, number)
            self._ask(Asked(text, query, begin))
        else:
            self._prove_answer(parse(f"{WHATIF.name} {what}"), text)

    def _begin_race(self, number: int, findings: Findings) -> None:
        """Try out the race of that number."""
        self._begin_proof(race_of(findings, number))

    def _begin_slack(self, bound: Bound) -> None:
        """Run again with an op held back for as long as its slack says."""
        self._begin_proof(slack_of(bound))

    def _begin_delay(self, ns: float, bound: Bound) -> None:
        """Run again with an op held back, of which the slack is known."""
        self._begin_proof(delay_of(bound, ns))

    def _prove_answer(self, call: Call, text: str) -> None:
        """Prove what a question answers, instead of showing it."""
        command = _PROVED_BY.get(call.command, call.command)
        args = replace(call.args, prove=False)

        def then(answer: Any) -> None:
            claim = claim_of(answer)
            if isinstance(claim, FirstGains | FirstRaces):
                claim = replace(claim, count=args.first)
            self._begin_proof(claim)

        self._ask(Asked(text, command.query(self.session, args), then))

    def _begin_proof(self, claim: Claim | None) -> None:
        """Run again as a claim says; KernbenchError where one is being proved."""
        if claim is None:
            raise UsageError(
                "nothing is claimed here that a re-run can prove: rows of diagnosis "
                "and what if in 8 Stats are; :whatif FIELD=VALUE says what a change "
                "does, :bound how long an op can wait"
            )
        self.desk.claim = claim
        self.prover.prove(claim)
        self.say("")

    def proof_came(self, proof: Proof) -> None:
        """A re-run has ended."""
        self.proof = proof
        self.poll()
        self.show()

    def _take_proof(self, proof: Proof) -> None:
        """Say what came of a re-run, with both traces beside each other."""
        self.proof = None
        if proof.error is not None:
            if not isinstance(proof.error, KernbenchError):
                raise proof.error
            self.say(f"error: {title_of(proof.claim)}: {proof.error}")
            return
        assert proof.answer is not None
        for change, end_ns in proved_ends(proof.answer).items():
            self.desk.send("stats", ProvedGain(change, end_ns))
        if isinstance(proof.answer, Findings):
            self.desk.send("diff", ProvedRaces(proof.answer.rows))
        if isinstance(proof.answer, CausalProfile):
            rows = proof.answer.lines(self.size.width)
            self.show_text(PROVE.name, self._wrapped(rows))
        else:
            self._ask(
                Asked(
                    COMPARE.name,
                    COMPARE.ask(file=str(proof.path)),
                    lambda both: self._show_proof(proof, both.lines(self.size.width)),
                    failed=lambda why: self._show_proof(proof, [why]),
                )
            )

    def _show_proof(self, proof: Proof, beside: list[str]) -> None:
        """Predicted and real, and what else is other in the new trace."""
        assert proof.answer is not None
        rows = [*proof.answer.lines(self.size.width), "", *beside]
        way = Way("enter", "opens the new trace", OPEN(file=str(proof.path)))
        self.show_text(PROVE.name, self._wrapped(rows), way)

    # -- the file -------------------------------------------------------------

    def do_reload(self) -> None:
        """Read the file again; the next screen stands as this one. A run that has ended
        has renamed it.
        """
        path = self.desk.index.trace.path
        if not path.exists():
            path = path.with_name(path.name.removesuffix(".partial"))
        read = partial(_opened, path)
        self._read(read, self.app.reopen)  # type: ignore[attr-defined]

    def _open(self, file: str | None) -> None:
        """Show another trace in place of this one, or again the one before it."""
        path = self.app.came_from  # type: ignore[attr-defined]
        if file is not None:
            path = Path(file)
        if path is None:
            self.say("no trace was shown before this one: open FILE")
        else:
            trace = self.desk.index.trace
            read = partial(_opened_at, trace, self.session.cursor, path)
            self._read(read, self.app.go_to)  # type: ignore[attr-defined]

    def _read(
        self,
        read: Callable[[], ReplaySession],
        then: Callable[[ReplaySession], object],
    ) -> None:
        """Read a trace on a thread, one at a time; ``then`` shows it, and it gets the
        keys that are typed meanwhile.
        """
        if not self.reads:
            self._kept_keys = []
            self._reading = asyncio.create_task(self._shown(read, then))

    @property
    def reads(self) -> bool:
        """Whether a trace is read that is shown next."""
        return self._reading is not None and not self._reading.done()

    @property
    def types_kept_line(self) -> bool:
        """Whether the keys that are kept have begun a line that goes on."""
        return self.keymap.types_line(self._kept_keys)

    def keep_key(self, key: events.Key, id: str) -> None:
        """Keep a key for the trace that is read; that of ``back`` gives it up, unless
        it types a character of a line.
        """
        is_typed = key.is_printable and self.types_kept_line
        if id == "back" and self._reading is not None and not is_typed:
            self._reading.cancel()
            self.say("given up: this is the trace as it was read before")
            return
        self._kept_keys.append(key)
        back = self.keymap.shown("back").split()[0]
        count = count_text(len(self._kept_keys), "key")
        self.say(f"reading; {count} kept for then, {back} gives up")

    async def _shown(
        self,
        read: Callable[[], ReplaySession],
        then: Callable[[ReplaySession], object],
    ) -> None:
        try:
            # Not a thread that the end of the program waits for.
            replay = await asyncio.wrap_future(begun_beside(read))
        except KernbenchError as error:
            self.say(f"error: {error}")
            return
        then(replay)
        app: Any = self.app
        app.type_on(app.debugger, self._kept_keys)


def _set_text(stop: Stop) -> str:
    """What is said of a stop that was set, and what runs to it if anything does."""
    text = as_text(stop)
    if not stop.ops:
        return f"{text}: nothing runs to it; B lists it, d there deletes it"
    return f"{text}; c runs to it"


def _way_of(found: Diagnosis) -> Way | None:
    """To prove the first finding that a re-run can prove; None: there is none."""
    for number, finding in enumerate(found, 1):
        claimed = claimed_by(found, finding)
        if claimed:
            return Way("prove", f"proves {number}", PROVE(what=claimed))
    return None


def shell_line(call: Call, file: Path, op: int) -> str:
    """The command of the shell that answers as a call does at an op; of a move the one
    that opens the trace and makes it.
    """
    name, *rest = call.text.split()
    if call.command.kind == "move":
        typed = shlex.quote(f"goto {op}\n{call.text}")
        return f"printf {typed} | kernbench-tui --script - {shlex.quote(str(file))}"
    line = ["kernbench", "trace", name, str(file), *rest]
    if "op" in call.command.about:
        line += ["--op", str(op)]
    return shlex.join(line)


def expression(text: str) -> str:
    """An expression as it is; other text means that a name or a component has
    it in it.
    """
    if re.search("[=<>~()]", text) or not text:
        return text
    pattern = '"*' + text.strip('"') + '*"'
    return f"name ~ {pattern} or comp ~ {pattern}"
