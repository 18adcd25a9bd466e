"""Which lines of a kernel are in the loop that another line is in."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Bools
from kernbench.replay.diagnosis.syntax import trees_of
from kernbench.trace import Trace

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.While)


class _Span(NamedTuple):
    """The first and the last line of a function or a loop."""

    first: int
    last: int

    def has(self, number: int) -> bool:
        """Whether a line is one of these."""
        return self.first <= number <= self.last


class Loops:
    """The functions and the loops of the files whose source a trace has."""

    def __init__(self, trace: Trace) -> None:
        self._functions: dict[str, list[_Span]] = {}
        self._loops: dict[str, list[_Span]] = {}
        for file, tree in trees_of(trace):
            nodes = list(ast.walk(tree))
            self._functions[file] = list(_spans(nodes, _FUNCTIONS))
            self._loops[file] = list(_spans(nodes, _LOOPS))

    def around(self, line: str, lines: Sequence[str]) -> Bools:
        """Which of ``lines`` run between two passes of the innermost loop of a line.

        They are those of the same function outside of the loop. Lines are
        "file:number"; of one without a loop, or without its source, none are.
        """
        found = np.zeros(len(lines), np.bool_)
        file, number = _parts(line)
        function = _innermost(self._functions.get(file, ()), number)
        loop = _innermost(self._loops.get(file, ()), number)
        if function is None or loop is None:
            return found
        for i, other in enumerate(lines):
            its_file, its_number = _parts(other)
            if its_file != file or loop.has(its_number):
                continue
            its_function = _innermost(self._functions[file], its_number)
            found[i] = its_function == function
        return found


def _parts(line: str) -> tuple[str, int]:
    """The file and the number of a "file:number"; 0 where there is no number."""
    file, _, number = line.rpartition(":")
    return (file, int(number)) if number.isdigit() else (line, 0)


def _spans(
    nodes: Sequence[ast.AST], kinds: tuple[type[ast.stmt], ...]
) -> Iterator[_Span]:
    """The lines of all nodes of some kinds."""
    for node in nodes:
        if isinstance(node, kinds):
            yield _Span(node.lineno, node.end_lineno or node.lineno)


def _innermost(spans: Sequence[_Span], number: int) -> _Span | None:
    """The shortest of the spans that have a line; None if none has."""
    mine = [span for span in spans if span.has(number)]
    return min(mine, key=lambda span: span.last - span.first, default=None)
