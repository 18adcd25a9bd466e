"""The ``:`` line: a command is typed into it, with completion and a history.

The line knows no other widget, and runs nothing itself.
"""

from __future__ import annotations

import os.path
import re
from typing import ClassVar

from textual.binding import Binding, BindingType

from kernbench.replay import ReplaySession
from kernbench.replay.commands import COMMANDS
from kernbench.replay.completion import candidates
from tui.actions import SCREEN_COMMANDS
from tui.ansi import PromptInput
from tui.messages import Hint, RunCommand

_MAX_HINTS = 30  # words
_COMMANDS = "goto 40 | t 3.2us | memory c | help   (Tab completes, Esc leaves)"
_EXAMPLES = {
    "/": "dma_write | kind=gemm and pe=3   (Enter finds the next, Esc leaves)",
    "&": "kind=gemm and pe=3 | bytes>4096   (Enter shows these alone, Esc leaves)",
}
"""What could be typed behind a prompt; behind others it is a command."""

_TABLE = (*COMMANDS, *SCREEN_COMMANDS)

# What ends before the word that is completed.
_BEFORE_WORD = re.compile(r"[\s\"'=<>~()!,]")


class CommandLine(PromptInput):
    """The line that a command is typed into; hidden until ``open``.

    It posts RunCommand with the line that is to be run, and Hint with candidates of a
    completion. It owns the lines that were run before, and knows the text that it was
    ``opened_with``.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("tab", "complete", show=False),
        Binding("up", "recall(-1)", show=False),
        Binding("down", "recall(1)", show=False),
    ]

    def __init__(self, session: ReplaySession) -> None:
        super().__init__(
            id="command", placeholder=_COMMANDS, compact=True, select_on_focus=False
        )
        self.cursor_blink = False  # nothing is written while nothing is done
        self._session = session
        self._past_lines: list[str] = []
        self.prompt = ":"
        self._before = ""
        self.opened_with = ""
        self._recalled = 0  # index of the past line that is shown; their number: none

    def open(self, text: str = "", prompt: str = ":", before: str = "") -> None:
        """Show the line, focused, behind a ``prompt``, with ``text`` to go on from.

        What is typed is run, and completed, as if it were behind ``before``.
        """
        self.prompt = prompt
        self.placeholder = _EXAMPLES.get(prompt, _COMMANDS)
        self._before = before
        self.opened_with = text
        self._recalled = len(self._past_lines)
        self._set_line(text)
        self.display = True
        # Not focus(): that focuses later, when the line may be hidden again.
        self.screen.set_focus(self)

    def go_on_from(self, old: CommandLine) -> None:
        """Remember the lines of another one, too."""
        self._past_lines = old._past_lines

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
        found = self._candidates(head, word)
        if not found:
            self.post_message(Hint(f"nothing known begins with {word!r}"))
            return
        common = os.path.commonprefix(found)  # noqa: RUF071  of words, not of paths
        if len(found) == 1:
            gap = "" if common.endswith("=") else " "  # a value follows at once
            self._set_line(f"{head}{common}{gap}")
            return
        self._set_line(f"{head}{common}")
        hint = "  ".join(found[:_MAX_HINTS])
        if len(found) > _MAX_HINTS:
            hint = f"{len(found):,} words, as {hint}"
        self.post_message(Hint(hint))

    def _candidates(self, head: str, word: str) -> list[str]:
        """What may follow ``head`` and begins with ``word``."""
        index = self._session.index
        head = f"{self._before}{head}"
        return candidates(index, self._session.state, head, word, _TABLE)

    def proposals(self, width: int) -> str:
        """What may be typed next, as many as fit into so many columns."""
        word = _BEFORE_WORD.split(self.value)[-1]
        text = ""
        for one in self._candidates(self.value.removesuffix(word), word):
            longer = f"{text}  {one}" if text else one
            if len(longer) > width:
                return f"{text} ..."[:width]
            text = longer
        return text

    async def action_submit(self) -> None:
        """Run the line, and remember it: Enter."""
        line = self.value.strip().removeprefix(":").strip()
        self._hide()
        if line or self._before:
            line = f"{self._before}{line}".strip()
            self._past_lines.append(line)
            self.screen.post_message(RunCommand(line))
        else:
            self.screen.post_message(Hint(""))
