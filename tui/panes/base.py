"""What a pane is: a frozen state and three pure functions, and the values that go in
and out.

A pane knows the trace's index, which never changes, and no other pane, no widget and no
thread. Everything that changes is in its state or in the frame that it is drawn for;
what it asks of the trace are queries, and their answers are handed to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from kernbench.errors import KernbenchError
from kernbench.replay.command import Call
from kernbench.replay.query import Query
from tui.draw import Glyphs, Line

S = TypeVar("S")

QUICK_OPS = 2_000_000
"""In a trace of at most so many ops the times of a PE's lines, and rows of traffic, are
there while keys come. In a longer one they may take longer than a key may, and hold up
the next: panes ask for them at rest.
"""
_SHORTEST_LINE = 20
"""Columns in which the text of an error is wrapped, however narrow a pane is."""

BEFORE: Line = [
    (" before the first op: ", "dim"),
    ("s", "bold"),
    (" steps to it", "dim"),
]
NO_OPS: Line = [(" this trace has no ops", "dim")]


def before_first_op(ops: int) -> Line:
    """What is shown while the cursor is before the first of so many ops."""
    return BEFORE if ops else NO_OPS


# -- what a pane is given -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Frame:
    """What a pane is drawn for.

    ``cursor`` is the op's position, ``level`` that of the focus, ``window`` the times,
    ns, that the timeline shows. ``width`` and ``height`` are in cells, without the
    title; a pane that is not in view has a height of 0. A pane that does not depend on
    the focus or on the window always gets 0 and (0, 0), so that its frames are equal
    when only those change. ``details_beside``: what is recorded of the op stands in a
    pane of its own; so it is for the list of ops alone. ``columns_alone`` are those
    that the route would have if its pane were alone on the screen; others get 0.
    """

    cursor: int
    level: int
    window: tuple[float, float]
    width: int
    height: int
    glyphs: Glyphs
    details_beside: bool = False
    columns_alone: int = 0


class Waiting(Exception):
    """An answer is still being computed; ``title`` is of what, ``done`` 0 to 1."""

    def __init__(self, query: Query, title: str, done: float) -> None:
        super().__init__(title)
        self.query = query
        self.title = title
        self.done = done

    @property
    def line(self) -> Line:
        """What is shown in its place."""
        text = f" computing {self.title}: {self.done:.0%}"
        return [(text, "mark"), ("  Esc cancels", "dim")]


class Answers(Protocol):
    """The answers that are there."""

    def of(self, query: Query) -> Any:
        """The answer of a question.

        Raises Waiting while it is computed, and the KernbenchError that it ended with.
        """

    def known(self, query: Query) -> Any | None:
        """The answer if it is there; None if it is not, or ended with an error."""


# -- events -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moved:
    """The cursor moved: what was picked is let go, and the cursor's place comes into
    view.
    """


@dataclass(frozen=True, slots=True)
class Settle:
    """The size, the focus, the window or an answer is another than before: scrolling is
    settled for what is there now.
    """


@dataclass(frozen=True, slots=True)
class Scroll:
    """By so many rows; ``pages``: by so many times what the pane shows."""

    by: int
    pages: bool = False


@dataclass(frozen=True, slots=True)
class Pan:
    """Sideways, by so many steps."""

    by: int


@dataclass(frozen=True, slots=True)
class ChangeView:
    """To the next (1) or previous (-1) view of the pane."""

    by: int


@dataclass(frozen=True, slots=True)
class NextMark:
    """To the next (1) or previous (-1) cell that is marked."""

    by: int


@dataclass(frozen=True, slots=True)
class Pin:
    """Keep the picked row on top, or let go of it."""


@dataclass(frozen=True, slots=True)
class Enter:
    """Drill in: to the picked row's op, or to what it holds."""


@dataclass(frozen=True, slots=True)
class Back:
    """Let go of what the user keeps here."""


@dataclass(frozen=True, slots=True)
class Click:
    """A click on a cell, from the pane's left edge and the first line below its title;
    the title itself is line -1.
    """

    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Show:
    """Show some bytes: c[3,17], or SPACE ADDR:BYTES."""

    place: str


Event: TypeAlias = object
"""Any of the events above, or one that a pane defines for itself: each is a frozen
dataclass."""


# -- what an update asks of the screen ----------------------------------------


@dataclass(frozen=True, slots=True)
class Do:
    """Carry out a command."""

    call: Call


@dataclass(frozen=True, slots=True)
class Say:
    """Show a message until the next key."""

    text: str


@dataclass(frozen=True, slots=True)
class Send:
    """Hand an event to another pane, by its key, and make it the active one."""

    pane: str
    event: Event


Effect: TypeAlias = Do | Say | Send


@dataclass(frozen=True, slots=True)
class Change(Generic[S]):
    """What became of an event: the next state, and what the screen is asked to do."""

    state: S
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """Lines of a pane, below its title; ``subtitle`` stands in the title on the right.

    ``waiting``, if any, is what the last line waits for: the lines above it can do
    without. Two pictures are the same only if they are one object.
    """

    lines: tuple[Line, ...]
    subtitle: str = ""
    waiting: Waiting | None = None


# -- a pane -------------------------------------------------------------------


class Pane(Protocol[S]):
    """The functions of a pane; each depends on its arguments only."""

    views: tuple[str, ...]
    """The names of what ``v`` and ``V`` go through; empty: one view only."""

    def start(self) -> S:
        """The state of a pane that nobody has used yet."""

    def update(
        self, state: S, event: Event, frame: Frame, answers: Answers
    ) -> Change[S] | None:
        """What an event does; None: nothing, this pane has no use for it."""

    def queries(self, state: S, frame: Frame, answers: Answers) -> tuple[Query, ...]:
        """The questions whose answers ``render`` and ``update`` need.

        May depend on answers that are there: it is called again when more are.
        """

    def wishes(self, state: S, frame: Frame, answers: Answers) -> tuple[Query, ...]:
        """Questions that may be answered while nothing is pressed for a while:
        ``render`` can do without, and looks for them by ``Answers.known``.
        """

    def preparations(
        self, state: S, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """Questions of some ten ms whose answers make that of another key quick. They
        are asked once what the next key is likely to show has been drawn.
        """

    def render(self, state: S, frame: Frame, answers: Answers) -> Picture:
        """The picture of a state. Raises what ``Answers.of`` raises, where no part of
        the picture can do without that answer.
        """

    def view(self, state: S) -> int:
        """The number of the view that is shown."""

    def with_view(self, state: S, view: int) -> S:
        """The state with another view."""

    def enter_word(self, state: S, frame: Frame, answers: Answers) -> str:
        """What Enter does here, in a word; empty: it is known that it does nothing."""

    def place(self, state: S, frame: Frame, answers: Answers) -> str | None:
        """The bytes that are picked, as ``watch`` and ``blame`` name them;
        None: none.
        """

    def question(self, state: S, frame: Frame, answers: Answers) -> Call | None:
        """The command that answers in a shell what the pane shows; None: none does."""

    def claimed(self, state: S, frame: Frame, answers: Answers) -> str | None:
        """What the picked row claims, as ``prove`` takes it; None: nothing. Empty: no
        re-run can prove it.
        """


def drawn(
    pane: Pane[S], state: S, frame: Frame, answers: Answers
) -> tuple[Picture, Waiting | None]:
    """The picture of a pane, and what it waits for, if it cannot be drawn without that,
    or not all of it.
    """
    try:
        picture = pane.render(state, frame, answers)
    except Waiting as waiting:
        return Picture((waiting.line,), waiting=waiting), waiting
    except KernbenchError as error:
        room = max(frame.width - 1, _SHORTEST_LINE)
        lines = [[(f" {part}", "mark")] for part in wrap(str(error), room)]
        return Picture(tuple(lines)), None
    return picture, picture.waiting


def picture_so_far(
    draw: Callable[[list[Line]], None], height: int, subtitle: str = ""
) -> Picture:
    """The picture of the lines that ``draw`` appends to a list; where it raises
    Waiting, of those that were there before, and a line that says what is waited for.
    """
    lines: list[Line] = []
    waiting = None
    try:
        draw(lines)
    except Waiting as missing:
        waiting = missing
        lines.append(missing.line)
    return Picture(tuple(lines[:height]), subtitle, waiting)


def first_of(total: int) -> int | None:
    """The row that a list of so many rows shows first where it follows no cursor."""
    return 0 if total else None


# -- rows that scroll ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """A list in view: ``room`` of ``total`` rows from ``top`` on.

    ``pick`` is the row that the user picked, None while the list follows the cursor;
    ``at`` is that row, or the cursor's, None where there is neither.
    """

    top: int = 0
    total: int = 0
    room: int = 1
    pick: int | None = None
    at: int | None = None

    def settled(self, total: int, room: int, here: int | None = None) -> Rows:
        """The same list, of ``total`` rows in ``room``, so that the picked row is in
        view, or the cursor's, ``here``.

        A list that follows the cursor jumps so that it is in the middle, instead of
        going on by a row at each step.
        """
        room = max(room, 1)
        at = here
        if self.pick is not None:
            at = min(self.pick, max(total - 1, 0))
        top = self.top
        if at is not None:
            margin = min(2, (room - 1) // 2)
            top = min(max(top, at + margin - room + 1), at - margin)
            if top != self.top and self.pick is None:
                top = at - room // 2
        top = max(min(top, total - room), 0)
        return Rows(top, total, room, self.pick, at)

    def moved(self, event: Scroll) -> Rows:
        """Another row picked."""
        by = event.by * max(self.room - 1, 1) if event.pages else event.by
        row = min(max((self.at or 0) + by, 0), max(self.total - 1, 0))
        return replace(self, pick=row)

    def scrolled(self, event: Scroll) -> Rows:
        """A text moved, in which no row is picked."""
        by = event.by * max(self.room - 1, 1) if event.pages else event.by
        return replace(self, top=self.top + max(min(by, self.total), -self.total))

    def released(self) -> Rows:
        """The list follows the cursor again."""
        return replace(self, pick=None)

    def picked_at(self, line: int) -> Rows | None:
        """The row on a line of the list, picked; None where there is no row."""
        if 0 <= line < min(self.room, self.total - self.top):
            return replace(self, pick=self.top + line, at=self.top + line)
        return None

    @property
    def visible(self) -> range:
        """The rows in view."""
        return range(self.top, min(self.top + self.room, self.total))


class BasePane(Generic[S]):
    """What most panes have in common: one view, nothing to enter, no bytes picked."""

    views: tuple[str, ...] = ()

    def view(self, state: S) -> int:
        """The number of the view that is shown."""
        return 0

    def with_view(self, state: S, view: int) -> S:
        """The state with another view."""
        return state

    def enter_word(self, state: S, frame: Frame, answers: Answers) -> str:
        """What Enter does here."""
        return "go"

    def place(self, state: S, frame: Frame, answers: Answers) -> str | None:
        """The bytes that are picked."""
        return None

    def question(self, state: S, frame: Frame, answers: Answers) -> Call | None:
        """No command shows the same."""
        return None

    def claimed(self, state: S, frame: Frame, answers: Answers) -> str | None:
        """No row claims anything."""
        return None

    def queries(self, state: S, frame: Frame, answers: Answers) -> tuple[Query, ...]:
        """The questions whose answers are needed."""
        return ()

    def wishes(self, state: S, frame: Frame, answers: Answers) -> tuple[Query, ...]:
        """Nothing is worth computing unasked."""
        return ()

    def preparations(
        self, state: S, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """Every answer is quick enough."""
        return ()

    def next_view(self, state: S, by: int) -> S | None:
        """The state with the next or previous view; None if there is one only."""
        if len(self.views) < 2:
            return None
        return self.with_view(state, (self.view(state) + by) % len(self.views))
