"""Answers as plain text: what scripts, pipes and ``kernbench trace`` print. Knows no
answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from textwrap import wrap
from typing import Any

import numpy as np

from kernbench.common.arrays import Array


def as_text(answer: Any, width: int = 100) -> str:
    """An answer as lines of at most ``width`` columns."""
    return "\n".join(line[:width].rstrip() for line in answer.lines(width))


def time_text(ns: float) -> str:
    """A time in the unit that reads best."""
    for unit, size in (("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.3f}{unit}"
    return f"{ns:.2f}ns"


def number_text(value: Any) -> str:
    """A number in at most eight characters."""
    number = float(value)
    if number.is_integer():
        return f"{int(number)}" if abs(number) < 1e7 else f"{number:.1e}"
    return f"{number:.4g}" if 1e-3 <= abs(number) < 1e5 else f"{number:.2e}"


def count_text(n: int, what: str) -> str:
    """``1 call``, ``2 calls``."""
    return f"{n:,} {what}{'s' * (n != 1)}"


def wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """A text in lines of ``width`` columns, all but the first behind so many blanks."""
    return wrap(text, max(width, indent + 20), subsequent_indent=" " * indent) or [""]


def table(
    rows: Iterable[Any], names: str, marks: str = "", width: int = 0
) -> list[str]:
    """A line a row behind its mark, a column a name: a field of it, or of a dataclass
    in it.

    Where that is wider than ``width`` (0: any) the last column keeps the ends of its
    cells.
    """
    columns = names.split()
    cells = [
        columns,
        *([found[name] for name in columns] for found in map(_cells, rows)),
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    room = width - sum(widths[:-1]) - len(columns) + (not marks)
    if width and room > 2:
        widths[-1] = min(widths[-1], room)
        for line in cells:
            line[-1] = ".." + line[-1][2 - room :] if len(line[-1]) > room else line[-1]
    sides = [
        "<>"[any(x[:1].isdigit() for x in column[1:])]
        for column in zip(*cells, strict=True)
    ]
    pattern = " ".join(
        f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True)
    )
    heads = f" {marks}" if marks else [""] * len(cells)
    return [
        head + pattern.format(*line) for head, line in zip(heads, cells, strict=True)
    ]


def _cells(row: Any) -> dict[str, str]:
    found = dict[str, str]()
    for name, value in field_values(row).items():
        more = _cells(value) if is_dataclass(value) else {name: cell_text(value, name)}
        found = more | found if is_dataclass(value) else found | more
    return found


def field_values(row: Any) -> dict[str, Any]:
    """The fields of a dataclass by name."""
    return {f.name: getattr(row, f.name) for f in fields(row)}


def cell_text(value: Any, name: str = "") -> str:
    """A field in a table: times with two digits, addresses in hex, nothing for None."""
    if isinstance(value, float):
        return f"{value:,.0f}" if name == "nbytes" else f"{value:.2f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:#x}" if "addr" in name else f"{value:,}"
    if value is None:
        return ""
    if isinstance(value, dict):
        return " ".join(f"{key}={item}" for key, item in value.items())
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def param_text(value: Any, name: str) -> str:
    """A param of an op: addresses in hex, of an array its dtype and shape."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list):
        return "[" + ", ".join(param_text(item, name) for item in value) + "]"
    return f"{value:#x}" if isinstance(value, int) and "addr" in name else str(value)


def grid_text(
    values: Array,
    rows: int,
    width: int,
    mask: Array | bool = True,
    mark: Array | bool = False,
) -> list[str]:
    """The first corner of a tensor (its last two axes): '-' where not ``mask``, '*' at
    ``mark``.
    """
    shape = (-1, values.shape[-1]) if values.ndim else (1, 1)
    flat, known, marked = (
        np.broadcast_to(x, values.shape).reshape(shape) for x in (values, mask, mark)
    )
    rows, columns = (
        min(rows, flat.shape[0]),
        min(max((width - 6) // 10, 1), flat.shape[1]),
    )
    lines = ["      " + "".join(f"{c:>10}" for c in range(columns))]
    for r in range(rows):
        cells = [
            f"{number_text(flat[r, c]) if known[r, c] else '-':>9}{'*' if marked[r, c] else ' '}"
            for c in range(columns)
        ]
        lines.append(f"{r:>5} " + "".join(cells))
    hidden = ((flat.shape[0] - rows, "rows"), (flat.shape[1] - columns, "columns"))
    more = [f"{n} more {what}" for n, what in hidden if n]
    return [*lines, f"      ({', '.join(more)})"] if more else lines
