"""The desk: the session, the state of every pane, and the pictures that follow from these.

Knows no widget and no terminal. Pictures are kept by (pane, state, frame), so that what was
drawn ahead of a key need only be shown.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from kernbench.replay import ReplaySession
from kernbench.replay.commands import BY_NAME
from kernbench.replay.query import Query, Session
from tui.draw import Glyphs
from tui.panes import PANES, PaneRow
from tui.panes.base import (
    Effect,
    Event,
    Frame,
    Moved,
    Picture,
    Settle,
    Waiting,
    drawn,
)
from tui.runner import Pending, Runner, Urgency, answered

_ROUNDS = 3
"""Of questions whose answers lead to further questions."""
_KEPT = 512
"""Pictures, and states that moves lead to."""
KEY_S = 0.03
"""That a key waits for answers, in all."""

Size = tuple[int, int]


@dataclass(slots=True)
class Given:
    """The answers of a runner, asked for with one urgency; ``missed`` are those that were
    looked for and are not there.

    An answer that was missed once stays so, though it comes meanwhile: a state that was
    settled without it is not to be drawn with it.
    """

    runner: Runner
    urgency: Urgency
    missed: set[Query] = field(default_factory=set)

    def of(self, query: Query) -> Any:
        """The answer; raises Waiting, or what computing it raised."""
        result = self.runner.ask(query, self.urgency)
        if isinstance(result, Pending):
            self.missed.add(query)
            raise Waiting(query, result.title, result.done)
        if query in self.missed:
            command = BY_NAME[query.command]
            raise Waiting(query, command.title or command.name, 1.0)
        return answered(result)

    def known(self, query: Query) -> Any | None:
        """The answer, if it is there."""
        if query in self.missed:
            return None
        result = self.runner.known(query)
        if result is None:
            self.missed.add(query)
        return None if isinstance(result, Exception) else result


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture; what it cannot do without and waits for; the answers that it looked for
    and did not find.
    """

    picture: Picture
    waiting: Waiting | None
    missed: frozenset[Query]


_PictureKey = tuple[str, Any, Frame]
"""A pane, its state, and what it is drawn for."""


class Desk:
    """The model of the debugger. Used by one thread, the screen's.

    Where it stands is the state of the ``replay`` session that it was given.
    """

    def __init__(self, replay: ReplaySession, runner: Runner, glyphs: Glyphs) -> None:
        self.replay = replay
        self.index = replay.index
        self.runner = runner
        self.glyphs = glyphs
        self.panes = {row.key: row.make(replay.index) for row in PANES}
        self.states: dict[str, Any] = {
            key: pane.start() for key, pane in self.panes.items()
        }
        self.sizes: dict[str, Size] = {row.key: (0, 0) for row in PANES}
        self._pictures: OrderedDict[_PictureKey, Drawn] = OrderedDict()
        self._led_to: dict[_PictureKey, Any] = {}
        """The state that a move leads to, by the pane, its state now and its frame then."""

    @property
    def session(self) -> Session:
        """Where the user stands."""
        return self.replay.state

    # -- what panes are given -----------------------------------------------------

    @property
    def window(self) -> tuple[float, float]:
        """The times, ns, that the timeline shows."""
        window: tuple[float, float] = self.states["timeline"].window
        return window

    def frame(
        self, row: PaneRow, session: Session, window: tuple[float, float]
    ) -> Frame:
        """What a pane is drawn for; only what it depends on."""
        width, height = self.sizes[row.key]
        return Frame(
            session.cursor,
            session.level if row.follows_focus else 0,
            window if row.follows_window else (0.0, 0.0),
            width,
            height,
            self.glyphs,
        )

    @property
    def in_view(self) -> list[PaneRow]:
        """The panes that are in view."""
        return [row for row in PANES if self.sizes[row.key][1] > 0]

    # -- events -------------------------------------------------------------------

    def send(self, key: str, event: Event) -> tuple[Effect, ...] | None:
        """Let a pane take an event; what it asks the screen to do, None: it has no use."""
        row = ROW_OF[key]
        frame = self.frame(row, self.session, self.window)
        answers = Given(self.runner, Urgency.VISIBLE)
        change = self.panes[key].update(self.states[key], event, frame, answers)
        if change is None:
            return None
        self.states[key] = change.state
        return change.effects

    def move(self, session: Session) -> None:
        """Stand elsewhere: every pane follows the cursor."""
        moved = session.cursor != self.session.cursor
        self.replay.state = session
        if moved:
            self.follow()

    def follow(self) -> None:
        """Let every pane follow the cursor; those that were drawn ahead for it, to there."""
        led_to = self._led_to
        self._led_to = {}
        for row in PANES:
            frame = self.frame(row, self.session, self.window)
            state = led_to.get((row.key, self.states[row.key], frame))
            if state is not None and (row.key, state, frame) in self._pictures:
                self.states[row.key] = state
            else:
                self.send(row.key, Moved())

    def rest(self) -> None:
        """Nothing was pressed for a while: compute what panes would like to know."""
        answers = Given(self.runner, Urgency.AHEAD)
        window = self.window
        for row in self.in_view:
            frame = self.frame(row, self.session, window)
            wishes = self.panes[row.key].wishes(self.states[row.key], frame, answers)
            for query in wishes:
                self.runner.ask(query, Urgency.AHEAD)

    def place(self, key: str) -> str | None:
        """The bytes that are picked in a pane, as one would type them; None: none."""
        frame = self.frame(ROW_OF[key], self.session, self.window)
        answers = Given(self.runner, Urgency.VISIBLE)
        return self.panes[key].place(self.states[key], frame, answers)

    def heading(self, key: str) -> str:
        """The number and title of a pane, with the view that is shown unless it is the
        first.
        """
        row = ROW_OF[key]
        pane = self.panes[key]
        view = pane.view(self.states[key])
        heading = f"{row.number} {row.title}"
        return f"{heading}: {pane.views[view]}" if view else heading

    def next_view(self, key: str) -> str:
        """The name of the view that comes after the one that is shown; empty: one only."""
        pane = self.panes[key]
        if len(pane.views) < 2:
            return ""
        return pane.views[(pane.view(self.states[key]) + 1) % len(pane.views)]

    # -- pictures -----------------------------------------------------------------

    def draw(
        self, urgency: Urgency = Urgency.VISIBLE, keep: Iterable[Query] = ()
    ) -> dict[str, Drawn]:
        """The pictures of all panes in view. With urgency KEY answers are waited for.

        What neither these panes nor ``keep`` ask for any more is given up.
        """
        states = self.states
        rows = self.in_view
        found = self._draw(rows, self.session, states, urgency)
        if self.runner.busy:
            self.runner.retain([*self._wanted(rows, states), *keep])
        return found

    def draw_ahead(self, session: Session, row: PaneRow) -> Drawn:
        """The picture of a pane as it is for another session, kept for when that comes."""
        before = self.states[row.key]
        states = dict(self.states)
        answers = Given(self.runner, Urgency.AHEAD)
        if row.follows_window:
            timeline = ROW_OF["timeline"]
            states["timeline"] = self._updated(
                timeline, states, session, Moved(), answers
            )
        states[row.key] = self._updated(row, states, session, Moved(), answers)
        drawn = self._draw([row], session, states, Urgency.AHEAD)[row.key]
        if drawn.waiting is None:
            frame = self.frame(row, session, states["timeline"].window)
            self._led_to[row.key, before, frame] = states[row.key]
            if len(self._led_to) > _KEPT:
                del self._led_to[next(iter(self._led_to))]
        return drawn

    def answered(self, query: Query) -> None:
        """An answer has come: pictures that were drawn without it are no good any more."""
        for key, kept in list(self._pictures.items()):
            if query in kept.missed:
                del self._pictures[key]

    def forget(self) -> None:
        """Draw all anew; what was cancelled, or failed, is asked for again."""
        self.runner.forget()
        self._pictures.clear()

    def _draw(
        self,
        rows: Iterable[PaneRow],
        session: Session,
        states: dict[str, Any],
        urgency: Urgency,
    ) -> dict[str, Drawn]:
        """The pictures of panes, by key; ``states`` are settled for the answers there are."""
        found: dict[str, Drawn] = {}
        left: dict[str, Given] = {}
        window = states["timeline"].window
        for row in rows:
            kept = self._kept(row, states, session, window)
            if kept is None:
                left[row.key] = self._settle(row, states, session, urgency)
                kept = self._kept(row, states, session, window)
            if kept is not None:
                left.pop(row.key, None)
                found[row.key] = kept
        self._ask(left, session, states, urgency)
        for key, answers in left.items():
            found[key] = self._drawn(ROW_OF[key], states, session, answers)
        return found

    def _ask(
        self,
        given: dict[str, Given],
        session: Session,
        states: dict[str, Any],
        urgency: Urgency,
    ) -> None:
        """Ask what panes want to know, and what they want to know then.

        ``given`` are the answers that each of these panes was settled with last.
        """
        rows = [ROW_OF[key] for key in given]
        deadline = monotonic() + KEY_S
        asked: set[Query] = set()
        for _ in range(_ROUNDS):
            wanted = self._wanted(rows, states, session, urgency)
            new = [query for query in wanted if query not in asked]
            if not new:
                return
            asked.update(new)
            if urgency is Urgency.KEY:
                self.runner.gather(new, deadline - monotonic())
            else:
                for query in new:
                    self.runner.ask(query, urgency)
            for row in rows:
                given[row.key] = self._settle(row, states, session, urgency)

    def _settle(
        self,
        row: PaneRow,
        states: dict[str, Any],
        session: Session,
        urgency: Urgency,
    ) -> Given:
        """Settle the state of a pane for the answers that are there, and these answers:
        it has to be drawn with the same.
        """
        answers = Given(self.runner, urgency)
        states[row.key] = self._updated(row, states, session, Settle(), answers)
        return answers

    def _wanted(
        self,
        rows: Iterable[PaneRow],
        states: Mapping[str, Any],
        session: Session | None = None,
        urgency: Urgency = Urgency.VISIBLE,
    ) -> dict[Query, None]:
        answers = Given(self.runner, urgency)
        wanted: dict[Query, None] = {}
        for row in rows:
            frame = self.frame(row, session or self.session, states["timeline"].window)
            pane = self.panes[row.key]
            wanted.update(dict.fromkeys(pane.queries(states[row.key], frame, answers)))
        return wanted

    def _updated(
        self,
        row: PaneRow,
        states: Mapping[str, Any],
        session: Session,
        event: Event,
        answers: Given,
    ) -> Any:
        frame = self.frame(row, session, states["timeline"].window)
        state = states[row.key]
        change = self.panes[row.key].update(state, event, frame, answers)
        return state if change is None else change.state

    def _kept(
        self,
        row: PaneRow,
        states: Mapping[str, Any],
        session: Session,
        window: tuple[float, float],
    ) -> Drawn | None:
        key = row.key, states[row.key], self.frame(row, session, window)
        kept = self._pictures.get(key)
        if kept is not None:
            self._pictures.move_to_end(key)
        return kept

    def _drawn(
        self,
        row: PaneRow,
        states: Mapping[str, Any],
        session: Session,
        answers: Given,
    ) -> Drawn:
        frame = self.frame(row, session, states["timeline"].window)
        state = states[row.key]
        picture, waiting = drawn(self.panes[row.key], state, frame, answers)
        found = Drawn(picture, waiting, frozenset(answers.missed))
        if waiting is None:
            self._pictures[row.key, state, frame] = found
            if len(self._pictures) > _KEPT:
                self._pictures.popitem(last=False)
        return found


ROW_OF = {row.key: row for row in PANES}
