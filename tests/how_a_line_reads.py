"""How the lines of the code read, counted: ``python tests/how_a_line_reads.py [PATH …]``.

Each row of the table is defined by a function below. The numbers say where to look; they
are no judgement of a line.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TREES = ("kernbench", "tui", "tests")
COLUMNS = 88

_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.Try,
    ast.Match,
    ast.IfExp,
    ast.BoolOp,
    ast.comprehension,
)


@dataclass
class Reading:
    """What was counted in some files."""

    lines: int = 0
    tuple_assignments: int = 0
    conditional_expressions: int = 0
    long_lines: int = 0
    docstring_lines: int = 0
    function_lines: int = 0
    branches: int = 0

    def add(self, text: str) -> None:
        """Count a file."""
        tree = ast.parse(text)
        nodes = list(ast.walk(tree))
        self.lines += text.count("\n")
        self.tuple_assignments += sum(map(is_tuple_assignment, nodes))
        self.conditional_expressions += sum(isinstance(n, ast.IfExp) for n in nodes)
        self.long_lines += sum(len(line) > COLUMNS for line in text.splitlines())
        self.docstring_lines += sum(map(docstring_lines, nodes))
        self.function_lines += sum(map(function_lines, nodes))
        self.branches += sum(isinstance(node, _BRANCHES) for node in nodes)

    def rows(self) -> list[tuple[str, float]]:
        """The table: what is counted, and how much there is of it."""
        thousands = max(self.lines, 1) / 1000
        return [
            ("tuple assignments a thousand lines", self.tuple_assignments / thousands),
            (
                "conditional expressions a thousand lines",
                self.conditional_expressions / thousands,
            ),
            (f"lines over {COLUMNS} columns", float(self.long_lines)),
            ("docstring lines a hundred", self.docstring_lines / thousands / 10),
            (
                "branches in ten lines of function",
                10 * self.branches / max(self.function_lines, 1),
            ),
        ]


def is_tuple_assignment(node: ast.AST) -> bool:
    """``a, b = x, y``: a tuple is assigned to a tuple."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
    )


def docstring_lines(node: ast.AST) -> int:
    """The lines of a node's docstring."""
    if not isinstance(node, _WITH_DOCSTRING) or not node.body:
        return 0
    first = node.body[0]
    if not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
        return 0
    if not isinstance(first.value.value, str) or first.end_lineno is None:
        return 0
    return first.end_lineno - first.lineno + 1


def function_lines(node: ast.AST) -> int:
    """The lines of a function, its docstring among them."""
    if not isinstance(node, _FUNCTIONS) or node.end_lineno is None:
        return 0
    return node.end_lineno - node.lineno + 1


def sources(paths: Iterable[Path]) -> Iterator[Path]:
    """The Python files at or below some paths."""
    for path in paths:
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def reading_of(paths: Iterable[Path]) -> Reading:
    """What is counted in all files at or below some paths."""
    reading = Reading()
    for path in sources(paths):
        reading.add(path.read_text(encoding="utf-8"))
    return reading


def main() -> None:
    """Print the table of the paths that are given, or of each tree of the project."""
    given = [Path(name) for name in sys.argv[1:]]
    for paths in [[path] for path in given] or [[ROOT / tree] for tree in TREES]:
        reading = reading_of(paths)
        print(f"{paths[0].name}: {reading.lines:,} lines")
        for name, value in reading.rows():
            print(f"  {value:8.1f}  {name}")


if __name__ == "__main__":
    main()
