"""Answers as plain text: what scripts, pipes and ``kernbench trace`` print. Knows no
answer.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from math import prod
from textwrap import wrap
from types import MappingProxyType
from typing import Any

import numpy as np

from kernbench.common.arrays import Array
from kernbench.visible import visible


def as_text(answer: Any, width: int = 100) -> str:
    """An answer as lines of at most ``width`` columns, of visible characters; what is
    cut off a line is an ellipsis at its end.
    """
    lines = [visible(line).rstrip() for line in answer.lines(width)]
    return "\n".join(
        line if len(line) <= width else f"{line[: width - 1]}…" for line in lines
    )


def time_text(ns: float) -> str:
    """A time in the unit that reads best."""
    for unit, size in (("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.3f}{unit}"
    return f"{ns:.2f}ns"


def number_text(value: Any) -> str:
    """A number in at most eight characters."""
    number = float(value)
    size = abs(number)
    if number.is_integer():
        return f"{int(number)}" if size < 1e7 else f"{number:.1e}"
    return f"{number:.4g}" if 1e-3 <= size < 1e5 else f"{number:.2e}"


def texts_apart(one: Any, other: Any) -> tuple[str, str]:
    """Two numbers as ``number_text``; where that is the same, in as many digits as tell
    them apart.
    """
    texts = (number_text(one), number_text(other))
    for digits in range(5, 18):
        if texts[0] != texts[1]:
            break
        texts = (f"{float(one):.{digits}g}", f"{float(other):.{digits}g}")
    if texts[0] == texts[1] and float(one) == float(other):
        return (str(one), str(other))  # integers that no f64 holds
    return texts


def unwritten_text(writer: int | None) -> str:
    """That bytes are not written, of which ``writer`` is the first op to write any; it
    is None if no op does.
    """
    if writer is None:
        return "never written"
    return f"not written yet, first by op {writer:,}"


def count_text(n: int, what: str) -> str:
    """``1 call``, ``2 calls``."""
    plural = "" if n == 1 else "s"
    return f"{n:,} {what}{plural}"


def short_name(name: str) -> str:
    """``sip0.cube3.hbm_ctrl.pe1`` as ``s0c3.hbm_ctrl.pe1``."""
    first, _, rest = name.partition(".")
    if not first.startswith("sip"):
        return name
    short = f"s{first.removeprefix('sip')}"
    second, _, more = rest.partition(".")
    if second.startswith("cube"):
        short += f"c{second.removeprefix('cube')}"
        rest = more
    return f"{short}.{rest}" if rest else short


def wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """A text in lines of ``width`` columns, all but the first behind so many blanks."""
    room = max(width, indent + 20)
    return wrap(text, room, subsequent_indent=" " * indent) or [""]


def command_lines(command: str, width: int) -> list[str]:
    """A shell command in lines of ``width`` columns, each but the last continued by a
    backslash, so that all of it can be copied.

    A word that is wider stands on a line of its own.
    """
    lines = ["$"]
    for word in shlex.split(command):
        quoted = shlex.quote(word)
        if len(f"{lines[-1]} {quoted} \\") > width and lines[-1].strip("$ "):
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {quoted}"
    return lines


def table(
    rows: Iterable[Any],
    names: str,
    marks: str = "",
    width: int = 0,
    titles: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """A table of dataclasses: a heading, then a line a row.

    ``names`` are the columns: fields of a row, or of a dataclass in it. With ``marks``,
    one a row, a line begins with its mark. Where the table is wider than ``width`` (0:
    as wide as it likes) the cells of the last column are cut on their left, at a / if
    there is one. A column is headed by its title, or else by its name.
    """
    columns = names.split()
    cells = [[titles.get(name, name) for name in columns]]
    for row in rows:
        texts = _cells(row)
        cells.append([texts[name] for name in columns])
    heads = f" {marks}" if marks else [""] * len(cells)
    if width:
        _cut_last_column(cells, width - (1 if marks else 0))
    pattern = " ".join(_cell_format(column) for column in zip(*cells, strict=True))
    return [
        head + pattern.format(*line) for head, line in zip(heads, cells, strict=True)
    ]


def _cut_last_column(cells: list[list[str]], width: int) -> None:
    """Shorten the cells of the last column until a line has ``width`` columns."""
    taken = sum(
        max(map(len, column)) + 1 for column in list(zip(*cells, strict=True))[:-1]
    )
    room = width - taken
    if room <= 2:
        return
    for line in cells:
        if len(line[-1]) > room:
            line[-1] = _end_of(line[-1], room)


def _end_of(text: str, room: int) -> str:
    """The end of a text in so many columns: of a path its last parts, whole."""
    end = text[1 - room :]
    _, slash, parts = end.partition("/")
    return "…" + (f"/{parts}" if slash else end)


def _cell_format(column: Sequence[str]) -> str:
    """How a cell of a column is filled up: numbers on their left, texts on
    their right.
    """
    is_numeric = any(text[:1].isdigit() for text in column[1:])
    side = ">" if is_numeric else "<"
    return f"{{:{side}{max(map(len, column))}}}"


def _cells(row: Any) -> dict[str, str]:
    """The texts of a row's fields by name; a field of its own wins over an
    inner one.
    """
    own: dict[str, str] = {}
    inner: dict[str, str] = {}
    for name, value in field_values(row).items():
        if is_dataclass(value):
            inner = _cells(value) | inner
        else:
            own[name] = cell_text(value, name)
    return inner | own


def field_values(row: Any) -> dict[str, Any]:
    """The fields of a dataclass by name."""
    return {field.name: getattr(row, field.name) for field in fields(row)}


def cell_text(value: Any, name: str = "") -> str:
    """A field in a table: times with two digits, addresses in hex, nothing for None.
    The shape of a scalar is (), as in numpy.
    """
    if isinstance(value, float):
        return f"{value:,.0f}" if name == "nbytes" else f"{value:.2f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:#x}" if "addr" in name else f"{value:,}"
    if value is None:
        return ""
    if isinstance(value, dict):
        return " ".join(f"{key}={item}" for key, item in value.items())
    if name == "shape" and value == ():
        return "()"
    if isinstance(value, tuple):
        return " ".join(str(item) for item in value)
    return str(value)


def param_text(value: Any, name: str) -> str:
    """A param of an op: addresses in hex, of an array its dtype and shape."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list):
        return "[" + ", ".join(param_text(item, name) for item in value) + "]"
    if isinstance(value, int) and "addr" in name:
        return f"{value:#x}"
    return str(value)


_LABEL = 6
_CELL = 10
"""Columns of a row's number, and of each of its cells."""


def grid_text(
    values: Array,
    rows: int,
    width: int,
    mask: Array | bool = True,
    mark: Array | bool = False,
) -> list[str]:
    """The first ``rows`` rows of a tensor (its last two axes), in ``width`` columns.

    Elements where ``mask`` does not hold are '-'; where ``mark`` does, a '*' follows.
    """
    shape = (1, 1)
    if values.ndim:  # of an empty tensor numpy cannot tell the number of rows
        shape = (prod(values.shape[:-1]), values.shape[-1])
    flat = values.reshape(shape)
    known = np.broadcast_to(mask, values.shape).reshape(shape)
    marked = np.broadcast_to(mark, values.shape).reshape(shape)
    rows = min(rows, flat.shape[0])
    columns = min(max((width - _LABEL) // _CELL, 1), flat.shape[1])
    blank = " " * _LABEL
    lines = [blank + "".join(f"{c:>{_CELL}}" for c in range(columns))]
    for r in range(rows):
        cells = []
        for c in range(columns):
            text = number_text(flat[r, c]) if known[r, c] else "-"
            star = "*" if marked[r, c] else " "
            cells.append(f"{text:>{_CELL - 1}}{star}")
        lines.append(f"{r:>{_LABEL - 1}} " + "".join(cells))
    more = []
    for hidden, what in (
        (flat.shape[0] - rows, "rows"),
        (flat.shape[1] - columns, "columns"),
    ):
        if hidden:
            more.append(f"{hidden} more {what}")
    if more:
        lines.append(f"{blank}({', '.join(more)})")
    return lines
