"""The ``:`` line: completion from what commands take, a history, Enter and Esc."""

from __future__ import annotations

import asyncio
import os.path
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from glob import escape, glob
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.widgets import Input

from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.commands import COMMANDS, full_name
from kernbench.replay.expr import FIELDS
from kernbench.trace.export import EXPORTERS
from tui.actions import SCREEN_COMMANDS
from tui.messages import Hint, RunCommand

_MOST = 30  # words that are hinted at
_USAGES = {c.name: c.args for c in COMMANDS} | {
    name: args for name, args, _ in SCREEN_COMMANDS
}


def _pes(session: ReplaySession) -> list[str]:
    nodes = session.trace.nodes
    found = zip(session.trace.node_ids, nodes.engine, nodes.pe.tolist(), strict=False)
    return [id.removesuffix(f".{engine}") for id, engine, pe in found if pe >= 0]


# words by what a usage calls them, and by the field of an expression
_WORDS: dict[str, Callable[[ReplaySession], Iterable[str]]] = {
    "TENSOR": lambda session: session.places.names,
    "PLACE": lambda session: [*session.places.names, *session.versions.allocs.spaces],
    "SPACE": lambda session: session.versions.allocs.spaces,
    "MARK": lambda session: session.marks,
    "STOP": lambda session: [str(stop.number) for stop in session.stops.all],
    "PE": _pes,
    "GLOB": lambda session: session.trace.node_ids,
    "FORMAT": lambda session: EXPORTERS,
    "NAME": lambda session: [command.name for command in COMMANDS],
    "LINE": lambda session: [*FIELDS, "none", "some", "ok"],
    "EXPR": lambda session: [*FIELDS, "and", "or", "not"],
    "comp": lambda session: session.trace.node_ids,
    "name": lambda session: [schema.name for schema in session.trace.schemas if schema],
    "kind": lambda session: [schema.kind for schema in session.trace.schemas if schema],
    "space": lambda session: session.versions.allocs.spaces,
}


def candidates(session: ReplaySession, head: str, word: str) -> list[str]:
    """What begins with ``word`` and may stand after ``head`` in a command line, sorted."""
    name, _, rest = head.lstrip().partition(" ")
    with suppress(UsageError):
        name = full_name(name, tuple(_USAGES))
    field = re.search(r"(\w+)\s*(?:!=|==?|!?~)\s*[\"']?$", rest)
    takes = _USAGES.get(name, "").replace(" | ", "|").split()
    takes = takes[len(rest.split()) :] or takes[-1:]
    ends = [
        i for i, take in enumerate(takes, 1) if not {*"[]"} & {*take}
    ]  # what must be there
    kinds = (
        [field[1]]
        if field
        else re.findall(r"[\w-]+", " ".join(takes[: min(ends, default=99)]))
    )
    known = (
        {*_USAGES}
        if not name
        else {kind for kind in kinds if kind.islower() and not field}
    )
    for kind in kinds:
        known |= {*glob(f"{escape(word)}*")} if kind in ("FILE", "OUT") else set()
        known |= {*_WORDS[kind](session)} if kind in _WORDS else set()
    return sorted(text for text in known if text.startswith(word))


class CommandLine(Input):
    """Hidden until asked for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("tab", "complete", show=False),
        Binding("up", "recall(-1)", show=False),
        Binding("down", "recall(1)", show=False),
    ]

    def __init__(self, session: ReplaySession) -> None:
        example = "goto 40 | t 3.2us | memory c | help   (Tab completes, Esc leaves)"
        super().__init__(
            id="command", placeholder=example, compact=True, select_on_focus=False
        )
        self.cursor_blink = False  # nothing is written while nothing is done
        self._session = session
        self._past: list[str] = []
        self._at = 0
        self.taken = asyncio.Event()  # a key was acted on

    async def _on_key(self, event: events.Key) -> None:
        """Every key is acted on here and now: the one behind it may be for somebody else."""
        await super()._on_key(event)
        event.prevent_default()  # that was it
        for binding in self._bindings.key_to_bindings.get(event.key, ())[:1]:
            event.stop()
            await self.run_action(binding.action)
        self.taken.set()

    def open(self, text: str = "") -> None:
        """Show it, with ``text`` to go on from, and focused."""
        self.value, self._at, self.display = text, len(self._past), True
        self.cursor_position = len(text)
        self.screen.set_focus(
            self
        )  # now: focus() is later, when it may be hidden again

    def _hide(self) -> None:
        self.display = False
        self.screen.set_focus(None)

    def action_leave(self) -> None:
        """Esc: nothing is run."""
        self._hide()
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

    async def action_submit(self) -> None:
        """Enter: run it, remember it."""
        line = self.value.strip().removeprefix(":").strip()
        self._hide()
        self._past += [line] if line else []
        self.screen.post_message(RunCommand(line) if line else Hint(""))
