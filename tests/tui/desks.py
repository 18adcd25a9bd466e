"""A bench for the desk: panes, session and runner together, without an App."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from textual.geometry import Size

from kernbench.errors import KernbenchError
from kernbench.replay import ReplaySession
from kernbench.replay.commands import BY_NAME, Call, Command, moved
from kernbench.replay.index import Index
from kernbench.replay.progress import Cancelled, Progress
from kernbench.replay.query import Query, Session
from tui.__main__ import open_session
from tui.desk import Desk, Drawn
from tui.draw import UNICODE, Glyphs
from tui.panes import PANES
from tui.panes.base import Event, Moved, Picture
from tui.runner import Runner, Urgency
from tui.screens.layout import columns_alone, plan
from tui.widgets.pane_view import room_in

TRACES = Path(__file__).parents[2] / "traces"
SMALL = (80, 24)
MIDDLE = (120, 40)
LARGE = (200, 50)
SIZES = (SMALL, MIDDLE, LARGE)
_TURNS = 100
_LIMIT_S = 60.0


class NotedRunner(Runner):
    """A runner that notes the questions that it is asked, and how long a key waits for
    some of them, s.
    """

    def __init__(self, index: Index) -> None:
        super().__init__(index)
        self.asked: list[Query] = []
        self.waits: list[float] = []

    def gather(self, queries: Iterable[Query], within_s: float) -> dict[Query, Any]:
        """The answers, as a runner has them."""
        self.waits.append(within_s)
        return super().gather(queries, within_s)

    def ask(self, query: Query, urgency: Urgency = Urgency.VISIBLE) -> Any:
        """The answer, as a runner has it."""
        self.asked.append(query)
        return super().ask(query, urgency)

    @property
    def commands_asked(self) -> set[str]:
        """The names of what was asked."""
        return {query.command for query in self.asked}


class PromptRunner(NotedRunner):
    """A runner of which a key gets all the answers that it gathers, however long they
    take. It says in ``waits`` how often that was.
    """

    def gather(self, queries: Iterable[Query], within_s: float) -> dict[Query, Any]:
        """All answers."""
        self.waits.append(within_s)
        wanted = tuple(queries)
        for query in wanted:
            with suppress(KernbenchError):
                self.wait(query)
        return {query: self.known(query) for query in wanted}


class Held:
    """A question whose answers are held back until ``release`` is called.

    ``begun`` is set once one is computed, ``ended`` once one was cancelled meanwhile;
    ``given_up`` are the arguments of those.
    """

    def __init__(self, command: Command) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()
        self.given_up: list[Any] = []
        self._compute = command.answer
        self._open = threading.Event()

    def release(self) -> None:
        """Let all of them be answered."""
        self._open.set()

    def answer(self, index: Index, at: Any, args: Any, progress: Progress) -> Any:
        """What the command answers, once it may."""
        assert self._compute is not None
        self.begun.set()
        end = monotonic() + _LIMIT_S
        try:
            while not self._open.is_set():
                assert monotonic() < end, "nobody released it"
                progress(0.34)
                self._open.wait(0.005)
        except Cancelled:
            self.given_up.append(args)
            self.ended.set()
            raise
        return self._compute(index, at, args, progress)


@contextmanager
def held(command: Command) -> Iterator[Held]:
    """Hold the answers of a command back, at most until the end of this context."""
    found = Held(command)
    with pytest.MonkeyPatch.context() as patch:
        slow = replace(command, answer=found.answer)
        patch.setitem(BY_NAME, command.name, slow)
        yield found
        found.release()


class DeskBench:
    """A desk as large as on a screen of ``size`` columns and lines.

    ``trace`` is the name of a recorded trace, whose cursor is at ``op`` or at the first
    op of the launch; or a session, as it is. The desk is told of an answer when the
    bench draws the next time, so that nothing depends on how fast the threads of the
    runner are.
    """

    def __init__(
        self,
        trace: str | ReplaySession = "matmul",
        op: int | None = None,
        size: tuple[int, int] = MIDDLE,
        glyphs: Glyphs = UNICODE,
        runner: type[NotedRunner] = NotedRunner,
    ) -> None:
        if isinstance(trace, str):
            trace = session_of(trace, op)
        self.replay = trace
        self.index = self.replay.index
        self.index.prepare()
        self.runner = runner(self.index)
        self.desk = Desk(self.replay, self.runner, glyphs)
        self._missed: set[Query] = set()
        self.lay_out(size)
        self.desk.follow()

    # -- what a user does -----------------------------------------------------------

    def lay_out(
        self,
        size: tuple[int, int],
        active: str = "timeline",
        tab: str = "ops",
        maximised: bool = False,
    ) -> None:
        """Give every pane the size that it has on a screen."""
        made = plan(Size(*size), active, tab, maximised, self.desk.shown)
        self.desk.columns_alone = columns_alone(size[0])
        self.desk.sizes = {row.key: (0, 0) for row in PANES}
        for key, region in made.regions.items():
            titled = key not in made.tabbed
            room = room_in(region, titled, made.bordered)
            self.desk.sizes[key] = (room.width, room.height)

    def show(self, key: str, size: tuple[int, int] = SMALL) -> None:
        """Show one pane only, as large as the screen."""
        self.lay_out(size, key, maximised=True)

    def led_to(self, call: Call) -> Session:
        """Where a call leads to."""
        return moved(self.index, self.desk.session, call)

    def move(self, call: Call) -> None:
        """Carry out a move."""
        self.desk.move(self.led_to(call))

    def send(self, key: str, event: Event) -> bool:
        """Hand an event to a pane; whether it had a use for it."""
        return self.desk.send(key, event) is not None

    # -- what comes of it -----------------------------------------------------------

    def draw(self, urgency: Urgency = Urgency.VISIBLE) -> dict[str, Drawn]:
        """Draw with the answers that have come so far."""
        self._take_answers()
        return self._noted(self.desk.draw(urgency))

    def draw_ahead(self, session: Session) -> dict[str, Drawn]:
        """Draw what the panes in view show for a session, as far as it is known."""
        self._take_answers()
        rows = self.desk.in_view
        scene = self.desk.ahead(session)
        for row in self.desk.rows_ahead:
            scene.update(row, Moved())
        scene.settle(rows)
        scene.ask(rows)
        return self._noted({r.key: self.desk.draw_ahead(scene, r) for r in rows})

    def prefetch(self, call: Call) -> dict[str, Drawn]:
        """Draw where a move leads to, until every pane there has its answers."""
        session = self.led_to(call)
        for _ in range(_TURNS):
            found = self.draw_ahead(session)
            if not waiting(found):
                return found
            self.wait()
        raise AssertionError("what is ahead is never answered")

    def settle(self) -> dict[str, Drawn]:
        """Draw until every pane in view has its answers."""
        for _ in range(_TURNS):
            found = self.draw()
            if not self.runner.busy and not self._known_now():
                assert not waiting(found)
                return found
            self.wait()
        raise AssertionError("there is no end of questions")

    def settle_without(self, key: str) -> dict[str, Drawn]:
        """Draw until every pane in view has its answers but one."""
        end = monotonic() + _LIMIT_S
        found = self.draw()
        while waiting(found) != [key]:
            assert monotonic() < end, waiting(found)
            found = self.draw()
        return found

    def rest(self) -> None:
        """Press nothing until no pane wishes for more."""
        for _ in range(_TURNS):
            self.settle()
            self.desk.rest()
            if not self.runner.busy:
                return
            self.wait()
        raise AssertionError("there is no end of wishes")

    def wait(self) -> None:
        """Wait until no job is left."""
        end = monotonic() + _LIMIT_S
        while self.runner.busy:
            assert monotonic() < end, self.runner.running()
            sleep(0)

    def text(self, key: str) -> str:
        """What a pane shows, once it has its answers."""
        return text_of(self.settle()[key].picture)

    def _noted(self, found: dict[str, Drawn]) -> dict[str, Drawn]:
        """Pictures, whose missing answers the desk is to be told of when they come."""
        for drawn in found.values():
            self._missed |= drawn.missed
        return found

    def _known_now(self) -> list[Query]:
        return [q for q in self._missed if self.runner.known(q) is not None]

    def _take_answers(self) -> None:
        for query in self._known_now():
            self._missed.discard(query)
            self.desk.answered(query)


def waiting(found: dict[str, Drawn]) -> list[str]:
    """The panes that wait for an answer."""
    return [key for key, drawn in found.items() if drawn.waiting is not None]


def session_of(trace: str, op: int | None = None) -> ReplaySession:
    """A session of its own on a recorded trace."""
    return open_session(TRACES / f"{trace}.msgpack", op)


def text_of(picture: Picture) -> str:
    """The lines of a picture as text."""
    lines = ["".join(text for text, _ in line).rstrip() for line in picture.lines]
    return "\n".join(lines)
