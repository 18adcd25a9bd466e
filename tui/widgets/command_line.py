"""The ``:`` line: completion from what commands take, a history, Enter and Esc."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterable
from glob import escape, glob
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input

from kernbench.replay import ReplaySession
from kernbench.replay.commands import COMMANDS
from kernbench.replay.expr import FIELDS
from kernbench.trace.export import EXPORTERS
from tui.actions import SCREEN_COMMANDS
from tui.messages import Hint, RunCommand

_MOST = 30  # words that are hinted at
_USAGES = {c.name: c.args for c in COMMANDS} | {name: args for name, args, _ in SCREEN_COMMANDS}


def _pes(session: ReplaySession) -> list[str]:
    nodes = session.trace.nodes
    found = zip(session.trace.node_ids, nodes.engine, nodes.pe.tolist(), strict=False)
    return [id.removesuffix(f".{engine}") for id, engine, pe in found if pe >= 0]


def _schemas(part: str) -> Callable[[ReplaySession], list[str]]:
    return lambda session: [getattr(schema, part) for schema in session.trace.schemas if schema]


# words by what a usage calls them, and by the field of an expression
_WORDS: dict[str, Callable[[ReplaySession], Iterable[str]]] = {
    "TENSOR": lambda session: session.memories.names,
    "PLACE": lambda session: [*session.memories.names, *_WORDS["SPACE"](session)],
    "SPACE": lambda session: session.versions.allocs.spaces,
    "MARK": lambda session: session.marks,
    "STOP": lambda session: [str(stop.number) for stop in session.stops.all],
    "PE": _pes,
    "GLOB": lambda session: session.trace.node_ids,
    "FORMAT": lambda session: EXPORTERS,
    "NAME": lambda session: [command.name for command in COMMANDS],
    "LINE": lambda session: [*FIELDS, "none", "some", "ok"],
    "comp": lambda session: session.trace.node_ids,
    "name": _schemas("name"),
    "kind": _schemas("kind"),
    "space": lambda session: _WORDS["SPACE"](session),
}


def _words(session: ReplaySession, name: str) -> Iterable[str]:
    return _WORDS[name](session) if name in _WORDS else ()


def candidates(session: ReplaySession, head: str, word: str) -> list[str]:
    """What begins with ``word`` and may stand after ``head`` in a command line, sorted."""
    name, _, rest = head.lstrip().partition(" ")
    takes = re.findall(r"\[[a-z]+ [A-Z]+\]|\S+", _USAGES.get(name, "").replace(" | ", "|"))
    values = [take.strip("[]") for take in takes if " " not in take]
    options = dict(take[1:-1].split() for take in takes if " " in take)
    before = rest.split()
    last = options.get(before[-1], "") if before else ""
    kinds = last or next(iter(values[len(before) : len(before) + 1]), "")
    if "EXPR" in "".join(values[:1]) or (before and "where" in before[:2] and "where" in options):
        kinds = "EXPR"
    known: set[str] = set() if last or kinds == "EXPR" else {o for o in options if o not in before}
    if not name:
        known |= {*_USAGES}
    elif kinds == "EXPR":
        field = re.search(r"(\w+)\s*(?:!=|==?|!?~)\s*[\"']?$", head)
        if field is not None:
            known |= {*_words(session, field[1])}
        else:
            known |= {*FIELDS, "not", *(("and", "or") if before else ())}
    for kind in kinds.split("|"):
        if kind in ("FILE", "OUT"):
            known |= {*glob(f"{escape(word)}*")}
        else:
            known |= {kind} if kind.islower() else {*_words(session, kind)}
    return sorted(text for text in known if text.startswith(word))


class CommandLine(Input):
    """Hidden until asked for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("tab", "complete", show=False, priority=True),
        Binding("up", "recall(-1)", show=False),
        Binding("down", "recall(1)", show=False),
    ]

    def __init__(self, session: ReplaySession) -> None:
        example = "goto 40 | t 3.2us | memory c | help   (Tab completes, Esc leaves)"
        super().__init__(id="command", placeholder=example, compact=True, select_on_focus=False)
        self._session = session
        self._past: list[str] = []
        self._at = 0

    def open(self, text: str = "") -> None:
        """Show it, with ``text`` to go on from, and focused."""
        self.value, self._at, self.display = text, len(self._past), True
        self.cursor_position = len(text)
        self.focus()

    def action_leave(self) -> None:
        """Esc: nothing is run."""
        self.display = False
        self.post_message(Hint(""))

    def action_recall(self, by: int) -> None:
        """An older or newer line."""
        self._at = min(max(self._at + by, 0), len(self._past))
        self.value = self._past[self._at] if self._at < len(self._past) else ""
        self.cursor_position = len(self.value)

    def action_complete(self) -> None:
        """Complete the last word as far as it is certain; hint at what is open."""
        word = re.split(r"[\s\"'=<>~()!,]", self.value)[-1]
        head = self.value.removesuffix(word)
        found = candidates(self._session, head, word)
        if found:
            common = os.path.commonprefix(found)  # noqa: RUF071  of words, not of paths
            self.value = f"{head}{common}" + (" " if len(found) == 1 else "")
            self.cursor_position = len(self.value)
        if len(found) != 1:
            count = f"{len(found):,} words, as " if len(found) > _MOST else ""
            text = count + "  ".join(found[:_MOST])
            self.post_message(Hint(text or f"nothing known begins with {word!r}"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter: run it, remember it."""
        event.stop()
        line = event.value.strip().removeprefix(":").strip()
        self.display = False
        self._past += [line] if line else []
        self.post_message(RunCommand(line) if line else Hint(""))
