"""The op under the cursor: where and when it ran, who called it, what it waited for.

It stands beside the strip's pane where the screen has room, and has no number: nothing
is picked in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent, wrap

from kernbench.replay.answers import NOT_RECORDED, OpDetails, Source
from kernbench.replay.command import Call
from kernbench.replay.commands import OP, SOURCE
from kernbench.replay.index import Index
from kernbench.replay.query import Query
from kernbench.replay.text import param_text, time_text
from tui.draw import Line, clip
from tui.panes.base import (
    Answers,
    BasePane,
    Change,
    Event,
    Frame,
    Picture,
    Scroll,
    before_first_op,
)

_LABEL = 9
"""Columns of the word in front of a value, at least."""
_LEAST_VALUE = 12
_LABEL_SHARE = 0.4
"""Of the pane at most so much is for the words in front of values."""
_LEAST_CODE = 3
"""Lines of the kernel that are there however much there is to be said of the op."""


@dataclass(frozen=True, slots=True)
class DetailsState:
    """How many lines are scrolled away."""

    top: int = 0


class DetailsPane(BasePane[DetailsState]):
    """What is recorded of the cursor's op, what matters most first; the rest of the
    pane is the kernel around its line.
    """

    def __init__(self, index: Index) -> None:
        self._ops = len(index.ops)

    def start(self) -> DetailsState:
        """From the first line on."""
        return DetailsState()

    def update(
        self, state: DetailsState, event: Event, frame: Frame, answers: Answers
    ) -> Change[DetailsState] | None:
        """Nothing but the wheel moves it."""
        if isinstance(event, Scroll):
            return Change(DetailsState(max(state.top + event.by, 0)))
        return Change(state)

    def question(
        self, state: DetailsState, frame: Frame, answers: Answers
    ) -> Call | None:
        """All that is recorded of the op."""
        return OP() if frame.cursor >= 0 else None

    def queries(
        self, state: DetailsState, frame: Frame, answers: Answers
    ) -> tuple[Query, ...]:
        """The op and its source."""
        if frame.cursor < 0:
            return ()
        return (OP.ask(frame.cursor), SOURCE.ask(frame.cursor))

    def render(self, state: DetailsState, frame: Frame, answers: Answers) -> Picture:
        """Words and values, then code."""
        if frame.cursor < 0:
            return Picture((before_first_op(self._ops),))
        details: OpDetails = answers.of(OP.ask(frame.cursor))
        source: Source = answers.of(SOURCE.ask(frame.cursor))
        recorded = _lines_of(_recorded(details), frame)
        parameters = _lines_of(_parameters(details), frame)
        room = frame.height - len(recorded) - len(parameters)
        code = _code(source, max(room, _LEAST_CODE), frame)
        lines = [*recorded, *code, *parameters]
        top = max(min(state.top, len(lines) - frame.height), 0)
        name = details.row.name.removeprefix("TileToken/")
        return Picture(
            tuple(lines[top : top + frame.height]), f"{frame.cursor:,} {name}"
        )


def _recorded(details: OpDetails) -> list[tuple[str, str]]:
    """Words and values: where, when, by which call, after which waits and ops."""
    row = details.row
    took = f"{time_text(row.t_start)} + {time_text(row.t_end - row.t_start)}"
    call = f"tl.{details.call}" if details.launch >= 0 else details.call
    made = f"{call} {row.site.rpartition('/')[2]}"
    if details.call == NOT_RECORDED:
        made = "was not recorded"
    facts = [
        ("on", f"{row.component}, lane {details.slot}"),
        ("time", took),
        ("call", f"#{details.cmd} {made}"),
    ]
    for node, reason, t0, t1, holder in details.waits:
        by = f" behind op {holder:,}" if holder >= 0 else ""
        facts.append(("waited", f"{time_text(t1 - t0)} for {reason} at {node}{by}"))
    if details.dependencies:
        after = ", ".join(f"{op:,}" for op in details.dependencies)
        facts.append(("after", f"op {after}"))
    return facts + [("said", text.said) for text in details.texts]


def _parameters(details: OpDetails) -> list[tuple[str, str]]:
    """What the op was given, by the names of its record."""
    return [(key, param_text(value, key)) for key, value in details.params.items()]


def _lines_of(facts: list[tuple[str, str]], frame: Frame) -> list[Line]:
    """A line a fact; a value that is too long goes on below itself."""
    longest = max((len(word) for word, _ in facts), default=0)
    label = max(min(longest + 2, int(frame.width * _LABEL_SHARE)), _LABEL)
    return [line for word, value in facts for line in _fact(word, value, label, frame)]


def _fact(word: str, value: str, columns: int, frame: Frame) -> list[Line]:
    """A word in so many columns, and behind it a value in as many lines as it takes."""
    style = "mark" if word == "waited" else ""
    room = max(frame.width - columns, _LEAST_VALUE)
    first, *rest = _wrapped(value, room) or [""]
    indent = " " * columns
    label = f" {clip(word, columns - 2, frame.glyphs)} "
    lines: list[Line] = [[(label, "dim"), (first, style)]]
    return [*lines, *([(indent, ""), (part, style)] for part in rest)]


def _wrapped(value: str, room: int) -> list[str]:
    """A value in lines of so many columns; a component is broken behind a dot."""
    head, _, _ = value.partition(" ")
    if len(head) > room and "." in head[:room]:
        whole = head[:room].rindex(".") + 1
        return [value[:whole], *wrap(value[whole:], room)]
    if len(value) <= room and value.isprintable() and value == value.strip():
        return [value]  # as nearly all are: wrapping takes long to say so
    return wrap(value, room)


def _code(source: Source, room: int, frame: Frame) -> list[Line]:
    """The kernel around the op's line, in so many lines, as far to the left as they go:
    of a line that is far in nothing else would be seen.
    """
    if not source.text or not source.line:
        return []
    first = max(min(source.line - room // 2, len(source.text) - room + 1), 1)
    shown = [text.expandtabs() for text in source.text[first - 1 : first - 1 + room]]
    shown = dedent("\n".join(shown)).split("\n")
    lines: list[Line] = []
    for number, text in enumerate(shown, first):
        here = number == source.line
        mark = ">" if here else " "
        code = clip(text, max(frame.width - 7, 1), frame.glyphs)
        lines.append(
            [(f"{mark}{number:>4}  ", "dim"), (code, "bold" if here else "dim")]
        )
    return lines
