"""The ``:`` line: completion from what commands take, a history, Enter and Esc."""

from __future__ import annotations

import asyncio
import os.path
import re
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.widgets import Input

from kernbench.replay import ReplaySession
from kernbench.replay.commands import COMMANDS
from kernbench.replay.completion import candidates
from tui.actions import SCREEN_COMMANDS
from tui.messages import Hint, RunCommand

_MOST = 30  # words that are hinted at
_TABLE = (*COMMANDS, *SCREEN_COMMANDS)


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
        found = candidates(self._session.index, self._session.state, head, word, _TABLE)
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
