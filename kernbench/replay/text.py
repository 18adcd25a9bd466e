"""Answers as plain text: what scripts, pipes and ``kernbench trace`` print."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from kernbench.replay.commands import CommandHelp, Moved, OpList
from kernbench.replay.diff import OpDiff, Outputs
from kernbench.replay.memory import Memory, TensorView
from kernbench.replay.routes import Route
from kernbench.replay.session import Info, OpDetails, Source, Touches
from kernbench.replay.tiles import STAGE_LETTERS, Tiles
from kernbench.replay.timeline import Timeline
from kernbench.sim_engine.verify import VerifyReport


def as_text(answer: Any, width: int = 100) -> str:
    """An answer as lines of at most ``width`` columns."""
    return "\n".join(line[:width].rstrip() for line in _lines(answer, width))


def time_text(ns: float) -> str:
    """A time in the unit that reads best."""
    for unit, size in (("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.3f}{unit}"
    return f"{ns:.2f}ns"


def number_text(value: Any) -> str:
    """A number in at most eight characters."""
    number = float(value)
    if number == int(number) if np.isfinite(number) else False:
        return f"{int(number)}" if abs(number) < 1e7 else f"{number:.1e}"
    return f"{number:.4g}" if 1e-3 <= abs(number) < 1e5 else f"{number:.2e}"


def table(rows: Iterable[Any], names: str) -> list[str]:
    """A line a row, a column a name: fields of the rows, or of the dataclasses in them."""
    columns = names.split()
    cells = [columns, *([found[name] for name in columns] for found in map(_cells, rows))]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = [">" if cell[:1] in "0123456789" else "<" for cell in cells[-1]]
    return [
        " ".join(f"{c:{side}{w}}" for c, side, w in zip(line, sides, widths, strict=True))
        for line in cells
    ]


def _cells(row: Any) -> dict[str, str]:
    found, mine = dict[str, str](), {f.name: getattr(row, f.name) for f in fields(row)}
    for name, value in mine.items():
        if is_dataclass(value):
            found = _cells(value) | found
        else:
            found[name] = _cell(value)
    return found


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:#x}" if value > 1 << 20 else f"{value:,}"
    if isinstance(value, dict):
        return " ".join(f"{key}={item}" for key, item in value.items())
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def grid_text(
    values: npt.NDArray[Any],
    rows: int,
    columns: int,
    mask: npt.NDArray[np.bool_] | None = None,
    mark: npt.NDArray[np.bool_] | None = None,
) -> list[str]:
    """The first corner of a tensor (its last two axes); '-' where not in ``mask``, '*' behind a
    marked one.
    """
    shape = (-1, values.shape[-1]) if values.ndim else (1, 1)
    flat = values.reshape(shape)
    known = np.ones(flat.shape, np.bool_) if mask is None else mask.reshape(shape)
    marked = np.zeros(flat.shape, np.bool_) if mark is None else mark.reshape(shape)
    rows, columns = min(rows, flat.shape[0]), min(columns, flat.shape[1])
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


_OPS = "op t_start t_end nbytes name component"


@singledispatch
def _lines(answer: Any, width: int) -> list[str]:
    raise TypeError(f"no text for {type(answer).__name__}")


@_lines.register
def _(a: Info, width: int) -> list[str]:
    facts = {f.name: getattr(a, f.name) for f in fields(a) if f.name != "by_name"}
    facts["end_ns"] = time_text(a.end_ns)
    lines = [f"{name:<10} {_cell(value)}" for name, value in facts.items()]
    return lines + [f"  {count:>9,}  {name}" for name, count in sorted(a.by_name.items())]


@_lines.register
def _(a: Moved, width: int) -> list[str]:
    if a.row is None:
        return [f"before the first of {a.total:,} ops"]
    return [f"op {a.op:,} of {a.total:,}", *table([a.row], _OPS)]


@_lines.register
def _(a: OpList, width: int) -> list[str]:
    marks = (" ", *(">" if row.op == a.op else " " for row in a.rows))
    return [mark + line for mark, line in zip(marks, table(a.rows, _OPS), strict=True)]


@_lines.register
def _(a: OpDetails, width: int) -> list[str]:
    row = a.row
    lines = [
        f"op {row.op:,}  {row.name} ({row.kind}) on {row.component}, lane {a.slot}",
        f"time    {row.t_start:.3f} to {row.t_end:.3f} ns = {row.t_end - row.t_start:.3f} ns",
        f"call    #{a.cmd} {'tl.' * (a.launch >= 0)}{a.call} at {row.site}",
        *(f"  {key:<20} {_param(value)}" for key, value in a.params.items()),
    ]
    lines += [f"after   op {', '.join(f'{d:,}' for d in a.dependencies)}"] if a.dependencies else []
    for node, reason, t0, t1, holder in a.waits:
        by = f", until op {holder:,} ended" if holder >= 0 else ""
        lines.append(f"waited  {t1 - t0:.3f} ns for {reason} at {node}{by}")
    return lines


def _param(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_param, value)) + "]"
    return f"{value:#x}" if isinstance(value, int) and value > 1 << 20 else str(value)


@_lines.register
def _(a: Source, width: int) -> list[str]:
    head = f"{a.file}:{a.line} in {a.function}"
    low, high = max(a.line - 6, 0), min(a.line + 5, len(a.text))
    return [head] + [
        f"{'>' if n + 1 == a.line else ' '}{n + 1:>5}  {a.text[n]}" for n in range(low, high)
    ]


@_lines.register
def _(a: Memory, width: int) -> list[str]:
    if not a.entries:
        return ["nothing is written yet"]
    head = f"{a.total:,} allocations hold data at op {a.op:,}; it touches those marked *"
    lines = table(a.entries, "space addr dtype shape writer index tensor")
    marks = (" ", *("*" if entry.touched else " " for entry in a.entries))
    return [head, *(mark + line for mark, line in zip(marks, lines, strict=True))]


@_lines.register
def _(a: TensorView, width: int) -> list[str]:
    held = int(a.written.sum())
    lines = [
        f"{a.name}  {a.dtype}{list(a.values.shape)} in {a.space} at op {a.op:,}: "
        f"{held:,} of {a.values.size:,} written",
        f"min {number_text(a.minimum)}  max {number_text(a.maximum)}  "
        f"mean {number_text(a.mean)}  NaN {a.nans}",
    ]
    return lines + grid_text(a.values, 12, max((width - 6) // 10, 1), a.written, a.changed)


@_lines.register
def _(a: Route, width: int) -> list[str]:
    lines = [f"op {a.op:,}  {a.name} on {a.component}", *([a.note] if a.note else [])]
    for leg in a.legs:
        lines.append(
            f"{leg.nbytes:,} bytes in {leg.bursts} burst(s) from t={leg.t0:.2f} ns: "
            f"{leg.transit_ns:.2f} transit + {leg.wait_ns:.2f} waiting = "
            f"{leg.transit_ns + leg.wait_ns:.2f} ns to the last node"
        )
        lines += [
            f"  {line}" for line in table(leg.hops, "arrive wait leave distance_mm node edge_kind")
        ]
    return lines


@_lines.register
def _(a: Tiles, width: int) -> list[str]:
    if not a.rows:
        return [a.note]
    whole = "a composite that never ended"
    if a.composite is not None:
        whole = f"composite #{a.composite:,} on {a.component}"
    cells = max(width - 14, 10)
    scale = max(a.t1 - a.t0, 1e-9) / cells
    lines = [f"{whole}: {len(a.rows)} tiles, {time_text(a.t1 - a.t0)}"]
    for i, tile in enumerate(a.rows):
        strip = [" "] * cells
        bars = [(".", wait.t0, wait.t1) for wait in tile.waits]
        bars += [(STAGE_LETTERS[span.stage], span.t0, span.t1) for span in tile.spans]
        for letter, t0, t1 in bars:
            low, high = (int((t - a.t0) / scale) for t in (t0, t1))
            for cell in range(max(low, 0), min(max(high, low + 1), cells)):
                strip[cell] = letter
        mark = ">" if i == a.current else " "
        lines.append(f"{mark}{','.join(map(str, tile.index)):<11} |" + "".join(strip))
    return lines


@_lines.register
def _(a: OpDiff, width: int) -> list[str]:
    if a.op < 0:
        return [a.note]
    lines = [f"op {a.op:,}  {a.name}" + (f": {a.note}" if a.note else "")]
    lines += [] if a.check is None else [a.check.as_text()]
    if a.row is None or a.expected is None or a.actual is None or a.error is None:
        return lines
    r = a.row
    lines.append(
        f"{'ok' if r.ok else 'DIFFERS'}: {r.mismatches:,} of {r.elements:,} beyond "
        f"rtol {r.tolerance.rtol:g} atol {r.tolerance.atol:g}; "
        f"max abs {r.max_abs:.2e} rel {r.max_rel:.2e} ulp {r.max_ulp}"
        + (f"; first at {list(r.first_bad)}" if r.first_bad else "")
    )
    for title, grid in (("expected", a.expected), ("actual", a.actual), ("error", a.error)):
        lines += [title, *grid_text(grid, 4, max((width - 6) // 10, 1))]
    return lines


@_lines.register
def _(a: Outputs, width: int) -> list[str]:
    if not a.rows:
        return ["the bench expects nothing"]
    lines = VerifyReport(tuple(out.row for out in a.rows)).as_text().splitlines()
    return lines + [f"{r.row.tensor} is due at op {r.after - 1:,}" for r in a.rows if not r.due]


@_lines.register
def _(a: Touches, width: int) -> list[str]:
    lines = [a.note] if a.note else []
    for touch in a.rows:
        lines.append(f"{touch.kind}: {touch.nbytes:,} bytes of {touch.space} at {touch.addr:#x}")
        for r in (touch.op, touch.other) if touch.other is not None else (touch.op,):
            issued = f", issued {r.t_issue:.2f}" if r.t_issue < r.t_start else ""
            lines.append(f"  op {r.op:,} {r.name} on {r.component}")
            lines.append(f"    {r.site}, {r.t_start:.2f} to {r.t_end:.2f} ns{issued}")
    return lines or ["none found"]


@_lines.register
def _(a: Timeline, width: int) -> list[str]:
    lines = [
        f"{time_text(a.t0)} to {time_text(a.t1)}, {time_text((a.t1 - a.t0) / a.columns)} a cell"
    ]
    for row in a.rows:
        strip = "".join(
            c if f >= 0.5 else c.lower() for c, f in zip(row.classes, row.busy, strict=True)
        )
        lines.append(f"{row.node:<28} |{strip}|")
    return lines


@_lines.register
def _(a: CommandHelp, width: int) -> list[str]:
    return [f"{usage:<26} {text}" for usage, text in a.rows]
