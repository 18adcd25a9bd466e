"""What the debugger is compared with is not the debugger."""

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ASKS = {"check.py"}
"""Opens the trace for the debugger as well; all others are given what it answers."""


def imported(path):
    """The modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.parametrize(
    "path",
    [p for p in sorted(HERE.glob("*.py")) if not p.name.startswith("test_")],
    ids=lambda path: path.name,
)
def test_no_oracle_imports_the_debugger(path):
    rooms = ("kernbench.replay", "tui")
    if path.name in ASKS:
        rooms = ("kernbench.replay.", "tui")
    shared = [name for name in imported(path) if name.startswith(rooms)]
    assert not shared


@pytest.mark.parametrize("path", sorted(HERE.glob("plain_*.py")), ids=lambda p: p.name)
def test_what_reads_and_computes_imports_nothing_of_kernbench(path):
    assert not [name for name in imported(path) if name.startswith("kernbench")]
