"""The ``:`` line: a command is typed into it, with completion and a history.

Completion is made from the usage of each command, as "PLACE [rw]": a word in capitals
stands for words of the trace, or of a table, which are looked up when they are asked
for. The line knows no other widget, and runs nothing itself.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from glob import escape, glob
from typing import ClassVar

from textual.binding import Binding, BindingType

from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.commands import COMMANDS, full_name
from kernbench.replay.expr import FIELDS
from kernbench.trace.export import EXPORTERS
from tui.actions import SCREEN_COMMANDS
from tui.ansi import PromptInput
from tui.messages import Hint, RunCommand

_MAX_HINTS = 30  # words
_EXAMPLE = "goto 40 | t 3.2us | memory c | help   (Tab completes, Esc leaves)"

# What each command takes, as in "PLACE [rw]", by its name.
_USAGES = {command.name: command.args for command in COMMANDS}
_USAGES.update({name: args for name, args, _ in SCREEN_COMMANDS})

# What ends before the word that is completed, and a field with its operator there.
_BEFORE_WORD = re.compile(r"[\s\"'=<>~()!,]")
_COMPARED_FIELD = re.compile(r"(\w+)\s*(?:!=|==?|!?~)\s*[\"']?$")


def _pe_names(session: ReplaySession) -> list[str]:
    """Return the PE of every engine: the engine's id without its last part."""
    nodes = session.trace.nodes
    rows = zip(session.trace.node_ids, nodes.engine, nodes.pe.tolist(), strict=False)
    return [node.removesuffix(f".{engine}") for node, engine, pe in rows if pe >= 0]


def _schema_names(session: ReplaySession) -> list[str]:
    """Return the names of the kinds of op in the trace."""
    return [schema.name for schema in session.trace.schemas if schema]


def _schema_kinds(session: ReplaySession) -> list[str]:
    """Return what kinds these are: memory, gemm …"""
    return [schema.kind for schema in session.trace.schemas if schema]


# Words that may stand for a part of a usage, as PLACE, or be the value of a field.
_WORDS: dict[str, Callable[[ReplaySession], Iterable[str]]] = {
    "TENSOR": lambda session: session.memories.names,
    "PLACE": lambda session: [*session.memories.names, *session.versions.allocs.spaces],
    "SPACE": lambda session: session.versions.allocs.spaces,
    "MARK": lambda session: session.marks,
    "STOP": lambda session: [str(stop.number) for stop in session.stops.all],
    "PE": _pe_names,
    "GLOB": lambda session: session.trace.node_ids,
    "FORMAT": lambda session: EXPORTERS,
    "NAME": lambda session: [command.name for command in COMMANDS],
    "LINE": lambda session: [*FIELDS, "none", "some", "ok"],
    "EXPR": lambda session: [*FIELDS, "and", "or", "not"],
    "comp": lambda session: session.trace.node_ids,
    "name": _schema_names,
    "kind": _schema_kinds,
    "space": lambda session: session.versions.allocs.spaces,
}


def candidates(session: ReplaySession, head: str, word: str) -> list[str]:
    """Return what begins with ``word`` and may stand behind ``head``, sorted.

    ``head`` is the command line in front of the word. Where that is empty these are
    names of commands, behind a field and its operator, as in ``comp =``, values of the
    field, else words that the command takes there.
    """
    name, _, rest = head.lstrip().partition(" ")
    with suppress(UsageError):
        name = full_name(name, tuple(_USAGES))
    known: set[str] = set()
    compared = _COMPARED_FIELD.search(rest)
    if not name:
        known.update(_USAGES)
    elif compared is not None:
        known.update(_words(session, compared[1], word))
    else:
        for part in _parts_next(_USAGES.get(name, ""), len(rest.split())):
            if part.islower():  # a word to be typed as it is
                known.add(part)
            known.update(_words(session, part, word))
    return sorted(text for text in known if text.startswith(word))


def _parts_next(usage: str, typed: int) -> list[str]:
    """Return the parts of a usage that may follow so many typed words.

    These are all up to the first that must not be left out; of a part that may be
    repeated, the last of the usage, there is always one more.
    """
    parts = usage.replace(" | ", "|").split()
    parts = parts[typed:] or parts[-1:]
    following: list[str] = []
    for part in parts:
        following += re.findall(r"[\w-]+", part)
        optional = "[" in part or "]" in part
        if not optional:
            break
    return following


def _words(session: ReplaySession, part: str, word: str) -> Iterable[str]:
    """Return the words that a part of a usage, or a field, stands for in this trace."""
    if part in ("FILE", "OUT"):
        return glob(f"{escape(word)}*")
    if part in _WORDS:
        return _WORDS[part](session)
    return ()


class CommandLine(PromptInput):
    """The line that a command is typed into; hidden until ``open``.

    It posts RunCommand with the line that is to be run, and Hint with candidates of a
    completion. It owns the lines that were run before.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("tab", "complete", show=False),
        Binding("up", "recall(-1)", show=False),
        Binding("down", "recall(1)", show=False),
    ]

    def __init__(self, session: ReplaySession) -> None:
        super().__init__(
            id="command", placeholder=_EXAMPLE, compact=True, select_on_focus=False
        )
        self.cursor_blink = False  # nothing is written while nothing is done
        self._session = session
        self._past_lines: list[str] = []
        self._recalled = 0  # index of the past line that is shown; their number: none

    def open(self, text: str = "") -> None:
        """Show the line, focused, with ``text`` to go on from."""
        self._recalled = len(self._past_lines)
        self._set_line(text)
        self.display = True
        # Not focus(): that focuses later, when the line may be hidden again.
        self.screen.set_focus(self)

    def _set_line(self, text: str) -> None:
        """Put a text into the line, and the cursor behind it."""
        self.value = text
        self.cursor_position = len(text)

    def _hide(self) -> None:
        """Hide the line; keys are the screen's again."""
        self.display = False
        self.screen.set_focus(None)

    def action_leave(self) -> None:
        """Hide the line and run nothing: Esc."""
        self._hide()
        self.post_message(Hint(""))

    def action_recall(self, by: int) -> None:
        """Show an older line, by -1, or a newer one; behind the newest an empty one."""
        lines = [*self._past_lines, ""]
        self._recalled = min(max(self._recalled + by, 0), len(lines) - 1)
        self._set_line(lines[self._recalled])

    def action_complete(self) -> None:
        """Complete the last word as far as it is certain, and hint at what is open."""
        word = _BEFORE_WORD.split(self.value)[-1]
        head = self.value.removesuffix(word)
        found = candidates(self._session, head, word)
        if not found:
            self.post_message(Hint(f"nothing known begins with {word!r}"))
            return
        common = os.path.commonprefix(found)  # noqa: RUF071  of words, not of paths
        if len(found) == 1:
            self._set_line(f"{head}{common} ")
            return
        self._set_line(f"{head}{common}")
        hint = "  ".join(found[:_MAX_HINTS])
        if len(found) > _MAX_HINTS:
            hint = f"{len(found):,} words, as {hint}"
        self.post_message(Hint(hint))

    async def action_submit(self) -> None:
        """Run the line, and remember it: Enter."""
        line = self.value.strip().removeprefix(":").strip()
        self._hide()
        if line:
            self._past_lines.append(line)
            self.screen.post_message(RunCommand(line))
        else:
            self.screen.post_message(Hint(""))
