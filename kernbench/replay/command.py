"""What a command is: a row of the table in ``commands.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from kernbench.replay.answers import OpList
from kernbench.replay.index import Index
from kernbench.replay.parsing import NoArguments, arguments_of, usage_of
from kernbench.replay.query import ANY_TIME, At, Query, Session

Kind = Literal["move", "instant", "job", "effect", "screen"]
"""A move makes another session. An instant question reads mapped columns and is
answered where it is asked; a job is answered in its lane. An effect writes files: it is
never kept, nor asked before somebody wants it. What a screen does itself is no command
of this table, but is parsed like one.
"""

Answer = Any
"""A frozen dataclass that knows its own text: ``lines(width)``."""


class Asked(NamedTuple):
    """Of what a shell asks the examples of a command, so that they find something.

    It is the bundled trace ``of``, at ``op`` (None: the last). What answers about what
    was typed before in a session is asked in a script, ``after`` another line.
    """

    of: str = "matmul"
    op: int | None = None
    after: str = ""


MATMUL = Asked()


@dataclass(frozen=True, slots=True, eq=False)
class Command:
    """One command.

    ``answer(index, at, args, progress)`` answers a question or has an effect, in the
    lane ``lane``; ``about`` names the parts of a session that it depends on, fields of
    ``At``. ``move(index, session, args, known)`` makes the next session, ``needs`` is
    the question whose answer it has to know, and ``report(index, before, after, args)``
    is printed (by default the line of the op that it led to). Only those that
    ``moves_cursor`` take another's place that waits for an answer. ``stayed`` is said
    on a screen where a move led nowhere, ``example`` has a call a line, ``asked`` says
    of what, ``title`` what is computed (the name, if there is none). ``topic`` is the
    question under which the README lists it, if it does.
    Those not ``listed`` are asked by panes only. ``proof`` is the effect that is called
    instead where the arguments say ``prove``: it runs the trace again. ``details`` are
    what one has to know to read the answer, a line for each thing.
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
    topic: str = ""
    example: str = ""
    asked: Asked = MATMUL
    pages: Callable[[Index, Any], Iterator[OpList] | None] | None = None
    listed: bool = True
    proof: Command | None = None
    details: str = ""

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
        at = At(op=op) if "op" in self.about else ANY_TIME
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
        words = self.command.name.split()[:1]  # of a proof the arguments say the rest
        type_: type = type(self.args)
        options = {a.name: a.reader.option for a in arguments_of(type_)}
        for field in fields(self.args):
            value = getattr(self.args, field.name)
            option = options.get(field.name, "")
            if value in (None, "") or (option and value == field.default):
                continue
            if option:
                words.append(option)
            if isinstance(value, tuple):
                words += map(str, value)
            elif value is not True:
                words.append(str(value))
        return " ".join(words)


def moment(session: Session, about: Iterable[str]) -> At:
    """Those parts of a session that a question is about."""
    parts: dict[str, Any] = {
        "op": session.cursor,
        "marks": session.marks,
        "stops": session.stops,
    }
    return At(**{name: parts[name] for name in about})


# -- rows of each kind --------------------------------------------------------

ABOUT_OP = frozenset({"op"})
"""Of questions whose answer depends on the cursor's op."""


def move(
    name: str,
    args: type,
    help: str,
    make: Callable[..., Session],
    *,
    needs: Callable[[Index, Session, Any], Query | None] | None = None,
    report: Callable[[Index, Session, Session, Any], Answer] | None = None,
    stayed: str = "",
    moves_cursor: bool = True,
    example: str = "",
    asked: Asked = MATMUL,
) -> Command:
    """A row that makes another session, by ``make(index, session, args, known)``."""
    return Command(
        name,
        "move",
        help,
        args,
        move=make,
        needs=needs,
        report=report,
        stayed=stayed,
        moves_cursor=moves_cursor,
        example=example,
        asked=asked,
    )


def instant(
    name: str,
    args: type,
    help: str,
    answer: Callable[..., Answer],
    about: frozenset[str] = frozenset(),
    *,
    topic: str = "",
    example: str = "",
    asked: Asked = MATMUL,
    listed: bool = True,
) -> Command:
    """A row that is answered at once, where it is asked."""
    return Command(
        name,
        "instant",
        help,
        args,
        answer,
        about=about,
        topic=topic,
        example=example,
        asked=asked,
        listed=listed,
    )


def job(
    name: str,
    args: type,
    help: str,
    answer: Callable[..., Answer],
    lane: str,
    about: frozenset[str] = frozenset(),
    *,
    topic: str = "",
    title: str = "",
    example: str = "",
    asked: Asked = MATMUL,
    pages: Callable[[Index, Any], Iterator[OpList] | None] | None = None,
    listed: bool = True,
    proof: Command | None = None,
    details: str = "",
) -> Command:
    """A row that is answered in its lane."""
    return Command(
        name,
        "job",
        help,
        args,
        answer,
        lane,
        about,
        title=title,
        topic=topic,
        example=example,
        asked=asked,
        pages=pages,
        listed=listed,
        proof=proof,
        details=details,
    )


def effect(
    name: str,
    args: type,
    help: str,
    answer: Callable[..., Answer],
    *,
    topic: str = "",
    example: str = "",
) -> Command:
    """A row that writes files, in the lane of these."""
    return Command(
        name, "effect", help, args, answer, "files", topic=topic, example=example
    )


def proof(
    name: str,
    args: type,
    help: str,
    answer: Callable[..., Answer],
    lane: str,
    about: frozenset[str] = frozenset(),
) -> Command:
    """A row that runs the trace again, instead of the question that it proves.

    It is an effect, in the lane of that question, whose answer it computes first.
    """
    return Command(
        f"{name} --prove",
        "effect",
        help,
        args,
        answer,
        lane,
        about,
        listed=False,
    )
