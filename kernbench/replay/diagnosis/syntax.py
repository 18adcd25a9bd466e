"""The syntax trees of the sources that a trace holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernbench.trace import Trace

_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What ``ast.parse`` raises of what is no Python: a trace may come from anybody. Of
signs without end its parser says MemoryError."""


def trees_of(trace: Trace) -> Iterator[tuple[str, ast.Module]]:
    """Each source file that is Python, by its name."""
    for file, source in trace.sources.items():
        try:
            tree = ast.parse(source.text)
        except _UNREADABLE:
            continue
        yield file, tree
