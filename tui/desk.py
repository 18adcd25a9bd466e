"""The desk: the session, the state of every pane, and the pictures that follow from
these.

Knows no widget and no terminal. Pictures are kept by (pane, state, frame), so that what
was drawn ahead of a key need only be shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from kernbench.replay import ReplaySession
from kernbench.replay.command import Call
from kernbench.replay.commands import BY_NAME, HAZARDS, LINES
from kernbench.replay.inner_commands import EXECUTES_SOON
from kernbench.replay.query import Query, Session
from kernbench.replay.races.findings import Findings
from tui.claims import Claim
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
"""That a key waits for answers, in all.

With 16 ms, what came between was drawn by itself: a second frame, later than this one.
"""

_TIMELINE = "timeline"
_OPS = "ops"
_DETAILS = "details"
_ROUTE = "route"

Size = tuple[int, int]
_NOT_THERE = object()
"""Marks an answer that was looked for and is not there."""


class Given:
    """The answers of a runner at one moment, asked for with one urgency.

    An answer that comes later is not seen through it: what settles and draws a pane by
    the same answers fits together. ``missed`` are those that were looked for and are
    not there.
    """

    def __init__(
        self, runner: Runner, urgency: Urgency, seen: dict[Query, Any] | None = None
    ) -> None:
        self.missed: set[Query] = set()
        self._runner = runner
        self._urgency = urgency
        self._seen: dict[Query, Any] = {} if seen is None else seen

    def for_another(self) -> Given:
        """The same answers, with what is missed counted by itself."""
        return Given(self._runner, self._urgency, self._seen)

    def of(self, query: Query) -> Any:
        """The answer; raises Waiting, or what computing it raised."""
        result = self._seen.get(query)
        if result is None or result is _NOT_THERE:
            asked = self._runner.ask(query, self._urgency)
            command = BY_NAME[query.command]
            has_come = not isinstance(asked, Pending) and command.kind != "instant"
            if result is _NOT_THERE and has_come:
                self.missed.add(query)
                raise Waiting(query, command.title or command.name, 1.0)
            result = self._seen[query] = asked
        if isinstance(result, Pending):
            self.missed.add(query)
            raise Waiting(query, result.title, result.done)
        return answered(result)

    def known(self, query: Query) -> Any | None:
        """The answer, if it is there."""
        result = self._seen.get(query)
        if result is None:
            result = self._runner.known(query)
            self._seen[query] = _NOT_THERE if result is None else result
        if result is None or result is _NOT_THERE or isinstance(result, Pending):
            self.missed.add(query)
            return None
        return None if isinstance(result, Exception) else result


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture; what it cannot do without and waits for; the answers that it looked
    for and did not find.
    """

    picture: Picture
    waiting: Waiting | None
    missed: frozenset[Query]


PictureKey = tuple[str, Any, Frame]
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
        self.missing = {row.key: row.missing(replay.index) for row in PANES}
        """Why there is nothing for a pane in this trace; empty where there is."""
        self.sizes: dict[str, Size] = {row.key: (0, 0) for row in PANES}
        self.columns_alone = 0
        """Those that a pane has that is alone on the screen."""
        self.claim: Claim | None = None
        """What was shown last of all that a re-run can prove."""
        self._pictures: dict[PictureKey, Drawn] = {}
        self._spoilt_by: dict[Query, set[PictureKey]] = {}
        """The kept pictures that an answer is missing in."""
        self._led_to: dict[PictureKey, Any] = {}
        """The state that a move leads to, by the pane, its state now and its frame
        then.
        """

    @property
    def session(self) -> Session:
        """Where the user stands."""
        return self.replay.state

    # -- what panes are given -----------------------------------------------------

    @property
    def window(self) -> tuple[float, float]:
        """The times, ns, that the timeline shows."""
        window: tuple[float, float] = self.states[_TIMELINE].window
        return window

    def frame(
        self, row: PaneRow, session: Session, window: tuple[float, float]
    ) -> Frame:
        """What a pane is drawn for; only what it depends on."""
        width, height = self.sizes[row.key]
        details_beside = False
        if row.key == _OPS:
            _, details_beside = [size > 0 for size in self.sizes[_DETAILS]]
        return Frame(
            session.cursor,
            session.level if row.follows_focus else 0,
            window if row.follows_window else (0.0, 0.0),
            width,
            height,
            self.glyphs,
            details_beside,
            self.columns_alone if row.key == _ROUTE else 0,
        )

    @property
    def shown(self) -> tuple[str, ...]:
        """The panes that have something to show of this trace."""
        return tuple(key for key, why in self.missing.items() if not why)

    @property
    def in_view(self) -> list[PaneRow]:
        """The panes that are in view."""
        return [row for row in PANES if self.sizes[row.key][1] > 0]

    # -- events -------------------------------------------------------------------

    def send(self, key: str, event: Event) -> tuple[Effect, ...] | None:
        """Let a pane take an event; what it asks the screen to do, None: it has
        no use.
        """
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
        """Let every pane follow the cursor; those that were drawn ahead for it, to
        there.
        """
        led_to = self._led_to
        self._led_to = {}
        for row in PANES:
            frame = self.frame(row, self.session, self.window)
            state = led_to.get((row.key, self.states[row.key], frame))
            if state is not None and (row.key, state, frame) in self._pictures:
                self.states[row.key] = state
            else:
                self.send(row.key, Moved())

    def prepare(self) -> None:
        """Compute what some ten ms make quick, for keys that nothing is drawn ahead
        for.
        """
        answers = Given(self.runner, Urgency.WISH)
        window = self.window
        for row in self.in_view:
            pane = self.panes[row.key]
            frame = self.frame(row, self.session, window)
            for query in pane.preparations(self.states[row.key], frame, answers):
                self.runner.ask(query, Urgency.WISH)

    def rest(self) -> None:
        """Nothing was pressed for a while: compute what panes would like to know; the
        times of lines of all PEs, as those of one keep a key waiting that opens Source
        or leads to another PE; and the hazards, which the status line names, unless
        that takes long.
        """
        answers = Given(self.runner, Urgency.WISH)
        window = self.window
        for row in self.in_view:
            frame = self.frame(row, self.session, window)
            wishes = self.panes[row.key].wishes(self.states[row.key], frame, answers)
            for query in wishes:
                self.runner.ask(query, Urgency.WISH)
        self.runner.ask(LINES.ask(), Urgency.WISH)
        if self.runner.ask(EXECUTES_SOON.ask(), Urgency.WISH) is True:
            self.runner.ask(HAZARDS.ask(), Urgency.WISH)

    @property
    def hazards(self) -> int:
        """How many hazards are known; 0 as long as nobody has looked for them."""
        found = self.runner.known(HAZARDS.ask())
        return len(found.rows) if isinstance(found, Findings) else 0

    def place(self, key: str) -> str | None:
        """The bytes that are picked in a pane, as one would type them; None: none."""
        frame = self.frame(ROW_OF[key], self.session, self.window)
        answers = Given(self.runner, Urgency.VISIBLE)
        return self.panes[key].place(self.states[key], frame, answers)

    def claimed(self, key: str) -> str | None:
        """What the picked row of a pane claims, as one would type it to prove it."""
        frame = self.frame(ROW_OF[key], self.session, self.window)
        answers = Given(self.runner, Urgency.VISIBLE)
        return self.panes[key].claimed(self.states[key], frame, answers)

    def question(self, key: str) -> Call | None:
        """The command that answers in a shell what a pane shows; None: none does."""
        frame = self.frame(ROW_OF[key], self.session, self.window)
        answers = Given(self.runner, Urgency.VISIBLE)
        return self.panes[key].question(self.states[key], frame, answers)

    def enter_word(self, key: str) -> str:
        """What Enter does in a pane, in a word; empty: nothing."""
        frame = self.frame(ROW_OF[key], self.session, self.window)
        answers = Given(self.runner, Urgency.VISIBLE)
        word: str = self.panes[key].enter_word(self.states[key], frame, answers)
        return word

    def heading(self, key: str) -> str:
        """The number and title of a pane, with the view that is shown unless it is the
        first.
        """
        row = ROW_OF[key]
        pane = self.panes[key]
        view = pane.view(self.states[key])
        return f"{row.name}: {pane.views[view]}" if view else row.name

    def next_view(self, key: str) -> str:
        """The name of the view that comes after the one that is shown; empty:
        one only.
        """
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
        rows = self.in_view
        scene = Scene(self, self.session, self.states, urgency)
        scene.settle(rows)
        if self.runner.running():
            self._give_up_others(scene, keep)
        scene.ask(rows)
        found = {row.key: scene.draw(row) for row in rows}
        if self.runner.running():
            self._give_up_others(scene, keep)
        return found

    def _give_up_others(self, scene: Scene, keep: Iterable[Query]) -> None:
        """Give up what is computed for panes in view and that they ask for no more: its
        lane is free then.
        """
        self.runner.retain([*scene.wanted(self.in_view), *keep])

    def ahead(self, session: Session) -> Scene:
        """The panes in view for another session, before a move has led there: each of
        ``rows_ahead`` still has to be told of it, in that order.
        """
        return Scene(self, session, dict(self.states), Urgency.AHEAD)

    @property
    def rows_ahead(self) -> list[PaneRow]:
        """The panes that a move changes: the timeline, as others follow its window,
        and those in view.
        """
        others = [row for row in self.in_view if row.key != _TIMELINE]
        return [ROW_OF[_TIMELINE], *others]

    def draw_ahead(self, scene: Scene, row: PaneRow) -> Drawn:
        """The picture of a pane in a scene ``ahead``, kept for when that comes."""
        drawn = scene.draw(row)
        if drawn.waiting is None:
            before = scene.before[row.key]
            self._led_to[row.key, before, scene.frame(row)] = scene.states[row.key]
            if len(self._led_to) > _KEPT:
                del self._led_to[next(iter(self._led_to))]
        return drawn

    def kept_picture(self, key: PictureKey) -> Drawn | None:
        """A picture that was drawn before, and needs no answer that was not there."""
        kept = self._pictures.pop(key, None)
        if kept is not None:
            self._pictures[key] = kept  # as the last one looked at
        return kept

    def keep_picture(self, key: PictureKey, drawn: Drawn) -> None:
        """Keep a picture; the one that was looked at longest ago goes for it."""
        self._drop_picture(key)
        self._pictures[key] = drawn
        for query in drawn.missed:
            self._spoilt_by.setdefault(query, set()).add(key)
        if len(self._pictures) > _KEPT:
            self._drop_picture(next(iter(self._pictures)))

    def _drop_picture(self, key: PictureKey) -> None:
        kept = self._pictures.pop(key, None)
        for query in () if kept is None else kept.missed:
            spoilt = self._spoilt_by.get(query, set())
            spoilt.discard(key)
            if not spoilt:
                self._spoilt_by.pop(query, None)

    def forget(self) -> None:
        """Draw all anew; what was cancelled, or failed, is asked for again."""
        self.runner.forget()
        self._pictures.clear()
        self._spoilt_by.clear()

    def answered(self, query: Query) -> None:
        """An answer has come: pictures that were drawn without it are no good
        any more.
        """
        for key in list(self._spoilt_by.get(query, ())):
            self._drop_picture(key)


_AskedFor = tuple[Any, Frame, Given]
"""The state and frame of a pane that asks, and the answers that it has."""


@dataclass(slots=True)
class _Settled:
    """A pane that settling leaves as it is until one of the answers comes that it
    ``missed``: looked for, or, once it ``has_asked``, asks for.
    """

    state: Any
    frame: Frame
    missed: set[Query]
    has_asked: bool = False


class Scene:
    """Some panes as they are for a session: their states, settled and drawn.

    ``states`` are changed in place. Whoever draws for another session than the desk's
    gives a copy. ``before`` are the states that it began with.
    """

    def __init__(
        self, desk: Desk, session: Session, states: dict[str, Any], urgency: Urgency
    ) -> None:
        self.states = states
        self.before = dict(states)
        self._desk = desk
        self._session = session
        self._urgency = urgency
        self._first_answers = Given(desk.runner, urgency)
        self._answers: dict[str, Given] = {}
        """What each pane was settled by."""
        self._asked: set[Query] = set()
        self._frames: dict[tuple[str, tuple[float, float]], Frame] = {}
        self._settled: dict[str, _Settled] = {}
        self._queries: dict[str, tuple[_AskedFor, tuple[Query, ...]]] = {}
        """What each pane asks for."""

    def frame(self, row: PaneRow) -> Frame:
        """What a pane is drawn for."""
        window = self.states[_TIMELINE].window
        frame = self._frames.get((row.key, window))
        if frame is None:
            frame = self._desk.frame(row, self._session, window)
            self._frames[row.key, window] = frame
        return frame

    def update(self, row: PaneRow, event: Event) -> None:
        """Let a pane take an event; what it asks for beside that is left undone."""
        pane = self._desk.panes[row.key]
        answers = self._answers_of(row)
        state = self.states[row.key]
        frame = self.frame(row)
        change = pane.update(state, event, frame, answers)
        if change is not None:
            self.states[row.key] = change.state
        if self.states[row.key] == state:
            self._settled[row.key] = _Settled(state, frame, answers.missed)

    def _answers_of(self, row: PaneRow) -> Given:
        """The answers that a pane was settled by last."""
        return self._settled_by(row).for_another()

    def _settled_by(self, row: PaneRow) -> Given:
        return self._answers.get(row.key, self._first_answers)

    def wanted(self, rows: Iterable[PaneRow]) -> list[Query]:
        """The questions of panes, each once."""
        wanted: dict[Query, None] = {}
        for row in rows:
            wanted.update(dict.fromkeys(self._questions(row)))
        return list(wanted)

    def _questions(self, row: PaneRow) -> tuple[Query, ...]:
        """What a pane asks for; notes what of it is not known."""
        state = self.states[row.key]
        frame = self.frame(row)
        asked_for = state, frame, self._settled_by(row)
        made = self._queries.get(row.key)
        if made is not None and made[0] == asked_for:
            return made[1]
        answers = self._answers_of(row)
        queries = self._desk.panes[row.key].queries(state, frame, answers)
        self._queries[row.key] = asked_for, queries
        for query in queries:
            answers.known(query)
        settled = self._settled_as_it_is(row)
        if settled is not None:
            settled.missed |= answers.missed
            settled.has_asked = True
        return queries

    def _settled_as_it_is(self, row: PaneRow) -> _Settled | None:
        """How a pane was settled, if that was for its state and frame of now."""
        settled = self._settled.get(row.key)
        if settled is None or settled.state != self.states[row.key]:
            return None
        return settled if settled.frame == self.frame(row) else None

    def _is_told(self, row: PaneRow) -> bool:
        """Whether no answer that may come changes what a pane shows."""
        settled = self._settled_as_it_is(row)
        return settled is not None and settled.has_asked and not settled.missed

    def _has_no_news(self, row: PaneRow) -> bool:
        """Whether no answer has come that a pane looked for when it was settled."""
        settled = self._settled_as_it_is(row)
        if settled is None:
            return False
        known = self._desk.runner.known
        return all(known(query) is None for query in settled.missed)

    def ask(self, rows: Iterable[PaneRow]) -> set[Query]:
        """Ask what settled panes want to know, and what they want to know then; settle
        them for the answers. What of it is not known yet.

        Panes whose picture is kept want to know nothing, unless it was drawn without an
        answer: what was asked ahead may have been given up. A key waits for all that
        together, ``KEY_S``.
        """
        left = [row for row in rows if self._lacks_answers(row)]
        runner = self._desk.runner
        deadline = monotonic() + KEY_S
        pending: set[Query] = set()
        for _ in range(_ROUNDS):
            left = [row for row in left if not self._is_told(row)]
            new = [query for query in self.wanted(left) if query not in self._asked]
            if not new:
                break
            self._asked.update(new)
            if self._urgency is Urgency.KEY:
                results = runner.gather(new, deadline - monotonic())
            else:
                results = {query: runner.ask(query, self._urgency) for query in new}
            pending.update(
                q for q, found in results.items() if isinstance(found, Pending)
            )
            self.settle(left)
        self._asked -= pending
        return pending

    def draw(self, row: PaneRow) -> Drawn:
        """The picture of a pane: the kept one, or one of the answers that are there."""
        return self._kept(row) or self._drawn(row)

    def settle(self, rows: Iterable[PaneRow]) -> None:
        """Settle panes for the answers that are there now, unless a picture is kept."""
        answers = Given(self._desk.runner, self._urgency)
        for row in rows:
            if self._has_no_news(row):
                continue
            self._answers[row.key] = answers
            if self._kept(row) is None:
                self.update(row, Settle())

    def _lacks_answers(self, row: PaneRow) -> bool:
        """Whether no picture is kept, or one without an answer that the pane asks for;
        it may be without others that it would only like to know.
        """
        kept = self._kept(row)
        if kept is None:
            return True
        return bool(kept.missed) and not kept.missed.isdisjoint(self._questions(row))

    def _kept(self, row: PaneRow) -> Drawn | None:
        key = row.key, self.states[row.key], self.frame(row)
        return self._desk.kept_picture(key)

    def _drawn(self, row: PaneRow) -> Drawn:
        frame = self.frame(row)
        state = self.states[row.key]
        answers = self._answers_of(row)
        picture, waiting = drawn(self._desk.panes[row.key], state, frame, answers)
        found = Drawn(picture, waiting, frozenset(answers.missed))
        if waiting is None:
            self._desk.keep_picture((row.key, state, frame), found)
        return found


ROW_OF = {row.key: row for row in PANES}
