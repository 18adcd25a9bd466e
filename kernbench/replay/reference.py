"""The table of commands as the documents show it."""

from __future__ import annotations

from collections.abc import Iterator

from kernbench.replay.commands import help_of

_COLUMNS = 84
_INDENT = "    "


def commands_as_markdown() -> Iterator[str]:
    """Each command with what it takes and what it answers, as a block of text."""
    for line in help_of().lines(_COLUMNS):
        yield f"{_INDENT}{line}".rstrip()
