"""The documents of kernbench: a page is a Markdown file beside this one.

A page begins with its title and a paragraph that says what it is about.
Tables that follow from the code are made from it when a page is printed: in place of a
line

    <!-- made by kernbench.trace.columns:tables_as_markdown -->

stand the pieces of Markdown that this function gives. It may be one of ``tui``, which
is imported only where that page is printed. So to add a page is to add its file, and no
table has to be kept true by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

from kernbench.common.near import did_you_mean
from kernbench.errors import UsageError

FOLDER = Path(__file__).parent

_MADE_BY = re.compile(r"<!-- made by ([\w.]+):(\w+) -->")
"""Names the module and the function that give a table."""


def pages() -> dict[str, str]:
    """What each page is about, in one line, by the name of the page."""
    return {name: _summary(_stored(name)) for name in _names()}


def page(name: str) -> str:
    """A page with its tables, as Markdown. UsageError lists the pages there are."""
    if name not in _names():
        asked = did_you_mean(name, _names())
        hint = f"; {asked}" if asked else ""
        raise UsageError(f"no page {name!r}; valid: {', '.join(_names())}{hint}")
    lines = []
    for line in _stored(name).splitlines():
        marker = _MADE_BY.fullmatch(line)
        if marker is None:
            lines.append(line)
        else:
            make = _maker(*marker.groups())
            lines.append("\n".join(make()).rstrip("\n"))
    return "\n".join(lines) + "\n"


def _names() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.md"))


def _stored(name: str) -> str:
    """The file of a page, in which markers stand for tables."""
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def _summary(text: str) -> str:
    """The paragraph below the title, as one line."""
    _title, paragraph, *_ = text.split("\n\n", 2)
    return " ".join(paragraph.split())


def _maker(module: str, function: str) -> Callable[[], Iterable[str]]:
    made_by: Callable[[], Iterable[str]] = getattr(import_module(module), function)
    return made_by
