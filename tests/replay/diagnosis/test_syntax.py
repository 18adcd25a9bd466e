"""Sources come from strangers, as all of a trace does."""

import ast

import pytest

from kernbench.replay.diagnosis.syntax import trees_of
from kernbench.trace import Trace, TraceWriter


@pytest.mark.parametrize(
    "text",
    [
        "def kernel(:\n",
        "x = 1\0",
        "-" * 60_000 + "1",
        "(" * 10_000 + ")" * 10_000,
        "".join(" " * depth + "if 1:\n" for depth in range(150)),
        "é" * 10 + "\N{ZERO WIDTH SPACE}",
    ],
    ids=["cut off", "a zero", "signs", "brackets", "blocks", "invisible"],
)
def test_what_is_no_python_is_left_out(text, tmp_path):
    writer = TraceWriter(tmp_path / "t")
    writer.begin({}, None)
    writer.source("wrong.py", "kernel", text)
    writer.source("right.py", "kernel", "def kernel():\n    pass\n")
    writer.end(1.0)
    ((file, tree),) = trees_of(Trace.open(tmp_path / "t"))
    assert file == "right.py"
    assert isinstance(tree.body[0], ast.FunctionDef)
