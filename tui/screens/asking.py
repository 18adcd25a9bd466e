"""What the debugger's screen asks of its session: command lines, search, stops, marks, playing.

Moves are made at once; what may take long is a job whose answer is shown when it is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from textwrap import wrap
from time import monotonic
from typing import Any, TypeAlias

from textual import on
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Static

from kernbench.errors import KernbenchError, UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.answers import Moved, Stopped
from kernbench.replay.commands import full_name, run_command
from kernbench.replay.job import Job
from kernbench.replay.progress import Progress as Tell
from kernbench.replay.progress import no_progress as untold
from kernbench.replay.stops import Stop
from kernbench.replay.text import as_text
from kernbench.trace import Trace
from tui.actions import SCREEN_COMMANDS
from tui.clipboard import copy
from tui.jobs import Jobs, Key
from tui.messages import Hint, RunCommand
from tui.screens.help import StopsPane, TextPane, TextScreen
from tui.widgets.command_line import CommandLine
from tui.widgets.draw import Glyphs, Line
from tui.widgets.memory import MemoryPane
from tui.widgets.ops import OpsPane
from tui.widgets.pane import Pane
from tui.widgets.status import Crumbs, Status

# key of the job, command line, what computes the answer, what is done with it
Asked: TypeAlias = tuple[Key, str, Callable[[Tell], Any], Callable[[Any], None]]
_WAIT_S = 0.03  # for an answer, before it is left to come
_PLAY_S = 0.125  # an op
REST_S = 1.0  # after a key or a move, before what nobody has asked for is computed
_AT_ONCE = (
    "step next line lane stage tile first last cause effect back goto t mark continue"
)
_COLUMNS = (
    "stalls lines pes critical links busiest roofline bound compare"  # execute nothing
)
_STAYED = {
    "next": "no further op that way in the focus: u widens it",
    "cause": "this op waited for no other",
    "effect": "no op waited for this one",
    "back": "no further jump that way",
    "mark": "marked; ' and the letter come back to it",
    **dict.fromkeys(
        ("step", "line", "lane", "stage", "tile"), "no further op that way"
    ),
}


class AskingScreen(Screen[None], inherit_bindings=False):
    """Owns the jobs, the lines on top, the command line and the notice; panes are a subclass's."""

    panes: dict[int, Pane]
    ops: OpsPane
    memory: MemoryPane
    active = 1
    note = ""  # in the status line

    def __init__(self, session: ReplaySession, name: str, glyphs: Glyphs) -> None:
        super().__init__()
        self.session, self.glyphs, self.jobs = session, glyphs, Jobs()
        self.status, self.crumbs = Status(session, name), Crumbs(session)
        self.line, self.notice = CommandLine(session), Static(id="notice", markup=False)
        self.sought = ""  # what F3 goes on with
        self.made = "step 1"  # the last move
        self.playing: Timer | None = None
        self._letter = ""  # the command that the next key is the letter of
        self._asked: Asked | None = None
        self._drawn, self._worked = session.cursor, False
        self.stirred = 0.0  # when a key last came, or a move, s

    @property
    def pane(self) -> Pane:
        """The active pane."""
        return self.panes[self.active]

    def look(self) -> None:
        """Draw what waits for a job: how far it is, or its answer."""
        self._poll()
        for pane in self.panes.values():
            if pane.waiting:
                pane.repaint()
            elif pane.display and monotonic() - self.stirred > REST_S:
                pane.rest()
        if self._worked or self.jobs.busy:
            self.tell()

    def tell(self) -> None:
        """Status and breadcrumb say how things stand."""
        note = self.note or "playing" * (self.playing is not None)
        self._worked = (
            self.jobs.busy
        )  # the line may name a job: the next look tells of its end
        self.status.tell(self.size.width, note, self.between(), self.jobs)
        self.crumbs.tell()

    def moved(self) -> None:
        """The cursor moved: every pane follows; those in view draw."""
        self._drawn = self.session.cursor
        self.stirred = monotonic()
        self.jobs.give_way()
        for pane in self.panes.values():
            pane.arrive()
        self.tell()

    def say(self, text: str) -> None:
        """A message above the footer until the next key; empty: none."""
        if text or self.notice.display:
            self.notice.update(text)
            self.notice.display = bool(text)

    def show_text(self, title: str, lines: list[Line]) -> None:
        """Lines over the whole screen until Esc."""
        self.app.push_screen(
            TextScreen(TextPane(self.session, self.glyphs, title, lines))
        )

    @on(RunCommand)
    def _run_asked(self, message: RunCommand) -> None:
        self.app.past.append(f":{message.line}")  # type: ignore[attr-defined]
        self.run(message.line)

    @on(Hint)
    def _hinted(self, message: Hint) -> None:
        self.say(message.text)

    # -- command lines --

    def run(self, line: str) -> None:
        """Run a command line: a move moves all panes, another answer opens over them."""
        word, _, rest = (part.strip() for part in line.partition(" "))
        own = tuple(name for name, *_ in SCREEN_COMMANDS)
        self._try(lambda: full_name(word, own), lambda name: self._run(name, rest))

    def _run(self, word: str, rest: str) -> None:
        line = f"{word} {rest}".strip()
        compute: Callable[[Tell], Any] = partial(run_command, self.session, line)
        then: Callable[[Any], None] = partial(self._told, line)
        if word == "search":
            self.sought = expression(rest)
            self._do_find(1)
            return
        if word == "filter":
            where = expression(rest)
            then = partial(self.ops.keep, where)
            compute = lambda tell: self.session.matching(where) if where else None  # noqa: E731
        elif word == "reload":
            compute, then = partial(self._opened, rest), self.app.reopen  # type: ignore[attr-defined]
        elif word == "history":
            then = lambda _: self.memory.accesses_to(rest.strip("'\""))  # noqa: E731
        if word in _AT_ONCE.split():
            self._try(lambda: compute(untold), then)
        elif self._asked is not None:
            self.say(f"still computing {self._asked[1]}; Esc cancels it")
        else:
            self.say("")
            lane = "columns" if word in _COLUMNS.split() else "memory"
            self._asked = (lane, ("asked", object())), line, compute, then
            self._poll()

    def _poll(self) -> None:
        """Show the answer that was asked for, if it is there by now."""
        if (asked := self._asked) is not None:
            self._asked = None
            if not self._try(
                lambda: self.jobs.ask(*asked[:3], wait_s=_WAIT_S), asked[3]
            ):
                self._asked = asked

    def _try(self, ask: Callable[[], Any], then: Callable[[Any], None]) -> bool:
        """Show an answer or an error; False if it is not there yet."""
        try:
            answer = ask()
        except KernbenchError as error:
            self.say(f"error: {error}")
            return True
        if isinstance(answer, Job):
            return False
        then(answer)
        return True

    def _told(self, line: str, answer: Any) -> None:
        self.say("")
        stayed = self.session.cursor == self._drawn
        (self.tell if stayed else self.moved)()
        if isinstance(answer, Stopped):
            end = "start" if answer.op < 0 else "end"
            self.say(
                "; ".join(answer.stops)
                or f"no further stop that way: the {end} of the log"
            )
        elif isinstance(answer, Moved):
            self.made = line
            self.say(_STAYED.get(line.split()[0], "") * stayed)
        elif isinstance(answer, Stop):
            self.say(as_text(answer) + "; c runs to it")
        else:
            wide = self.size.width
            rows = [
                wrap(row, wide, subsequent_indent="    ") for row in answer.lines(wide)
            ]
            self.show_text(line, [[(part, "")] for row in rows for part in row or [""]])

    def _opened(self, rest: str, tell: Tell) -> ReplaySession:
        """The file as it is now; a run that has ended has renamed it."""
        if rest:
            raise UsageError(f"reload: takes no arguments, got {rest}")
        path = self.session.trace.path
        done = path.with_name(path.name.removesuffix(".partial"))
        try:
            session = ReplaySession(Trace.open(path if path.exists() else done))
            if self.ops.where:  # a search that the next screen need not wait for
                session.matching(self.ops.where)
            return session
        except OSError as error:
            raise KernbenchError(f"{path}: {error.strerror or error}") from None

    # -- keys --

    def _do_prompt(self, kind: int) -> None:
        self.line.open(("search ", "", f"filter {self.ops.where}")[kind])

    def _do_find(self, way: int) -> None:
        if self.sought:
            self.run(f"{'r' * (way < 0)}find {self.sought}")
        else:
            self.say(
                "nothing is searched for yet: / and an expression or text of a name"
            )

    def _do_break(self) -> None:
        if self.session.cursor >= 0:
            row = self.session.row(self.session.cursor)
            self.line.open(f"break comp = {row.component} and name = {row.name}")
        else:
            self.line.open("break name = ")

    def _do_watch(self) -> None:
        own = self.session.memories.touches(self.session.cursor)
        place = self.pane.place() or own
        if place is None:
            self.say(
                "this op touches no bytes; pick some in 4 Memory, or :watch c[3,17]"
            )
        else:
            self.line.open(f"watch {place} rw")

    def _do_stops(self) -> None:
        if self.session.stops.all:
            self.app.push_screen(TextScreen(StopsPane(self.session, self.glyphs)))
        else:
            self.say("no stop is set: b or w makes one, :catch hazards too")

    def _do_letter(self, kind: int) -> None:
        self._letter = ("mark", "goto")[kind]
        known = ", ".join(self.session.marks) or "none is set"
        self.say(("mark with which letter?", f"which mark? ({known})")[kind])

    def lettered(self, character: str | None) -> bool:
        """Whether a key, its character if it has one, was to be the letter of a mark."""
        command, self._letter = self._letter, ""
        if command:
            self.say(
                ""
                if not character or not character.isprintable()
                else "marks are letters"
            )
        if command and character and character.isalpha():
            if command == "mark":  # the marks are in the order of their setting
                self.session.marks.pop(character, None)
            self.run(f"{command} {character}")
        return bool(command)

    def between(self) -> tuple[str, float, float] | None:
        """The last two marks, or the only one and the cursor: names, and times in order."""
        marks = [*self.session.marks.items()][-2:]
        if not marks:
            return None
        if len(marks) == 1:
            marks.append(("cursor", self.session.cursor))
        times = [float(self.session.starts[op]) if op >= 0 else 0.0 for _, op in marks]
        return "-".join(name for name, _ in marks), min(times), max(times)

    def _do_play(self) -> None:
        self.playing = self.set_interval(_PLAY_S, self.play)
        self.tell()

    def play(self) -> None:
        """One op on; a stop there, or the end, ends it."""
        here = self.session.cursor
        self.run("step 1")
        at, hit = self.session.stops.next(self.session.cursor - 1, True)
        if self.session.cursor in (here, at):
            self.pause()
            stopped = self.session.cursor == at
            self.say(
                "; ".join(map(as_text, hit)) if stopped else "played to the last op"
            )

    def pause(self) -> bool:
        """Play no more; whether it did."""
        was, self.playing = self.playing, None
        if was is not None:
            was.stop()
            self.tell()
        return was is not None

    def _do_yank(self) -> None:
        text = self.pane.text
        how = copy(text, self.app.copy_to_clipboard)
        self.say(f"{text.count(chr(10)) + 1} lines copied {how}")

    def _do_reload(self) -> None:
        self.run("reload")


def expression(text: str) -> str:
    """An expression as it is; other text means that a name or a component has it in it."""
    if re.search("[=<>~()]", text) or not text:
        return text
    glob = f'"*{text.strip(chr(34))}*"'
    return f"name ~ {glob} or comp ~ {glob}"
