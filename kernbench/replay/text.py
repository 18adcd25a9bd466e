"""Answers as plain text, one function a kind: what scripts, pipes and ``kernbench trace`` print."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from kernbench.replay.commands import CommandHelp, Moved, OpList
from kernbench.replay.diff import OpDiff, Outputs
from kernbench.replay.memory import Memory, TensorView
from kernbench.replay.routes import Route
from kernbench.replay.session import Info, OpDetails, OpRow, Source
from kernbench.replay.tiles import STAGE_LETTERS, Tiles
from kernbench.replay.timeline import Timeline


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


def grid_text(
    values: npt.NDArray[Any],
    rows: int = 8,
    columns: int = 8,
    at: tuple[int, int] = (0, 0),
    mask: npt.NDArray[np.bool_] | None = None,
    mark: npt.NDArray[np.bool_] | None = None,
) -> list[str]:
    """A window of a tensor (its last two axes) from ``at``; '-' where not in ``mask``, '*' behind
    a marked one.
    """
    flat = values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)
    known = None if mask is None else mask.reshape(flat.shape)
    marked = None if mark is None else mark.reshape(flat.shape)
    r0, c0 = at
    r1, c1 = min(r0 + rows, flat.shape[0]), min(c0 + columns, flat.shape[1])
    lines = ["      " + "".join(f"{c:>10}" for c in range(c0, c1))]
    for r in range(r0, r1):
        cells = []
        for c in range(c0, c1):
            text = "-" if known is not None and not known[r, c] else number_text(flat[r, c])
            cells.append(f"{text:>9}" + ("*" if marked is not None and marked[r, c] else " "))
        lines.append(f"{r:>5} " + "".join(cells))
    more = [
        f"{n} more {what}"
        for n, what in ((flat.shape[0] - r1, "rows"), (flat.shape[1] - c1, "columns"))
        if n
    ]
    return [*lines, f"      ({', '.join(more)})"] if more else lines


@singledispatch
def _lines(answer: Any, width: int) -> list[str]:
    raise TypeError(f"no text for {type(answer).__name__}")


@_lines.register
def _(a: Info, width: int) -> list[str]:
    arguments = " ".join(f"{k}={v}" for k, v in a.arguments.items())
    verdict = {None: "not run", True: "ok", False: "FAILED"}[a.verified]
    state = "complete" if a.complete else "cut off"
    lines = [
        f"bench      {a.bench} {arguments}",
        f"simulated  {time_text(a.end_ns)} on {a.nodes:,} nodes, {a.launches} launches",
        f"ops        {a.ops:,}",
        *(f"  {count:>9,}  {name}" for name, count in sorted(a.by_name.items())),
        f"tensors    {' '.join(a.tensors)}",
        f"verify     {verdict}",
        f"file       {state}" + (f", {a.damaged} damaged frames" if a.damaged else ""),
    ]
    return [*lines, f"error      {a.error}"] if a.error else lines


@_lines.register
def _(a: Moved, width: int) -> list[str]:
    if a.row is None:
        return [f"before the first of {a.total:,} ops"]
    return [f"op {a.op:,} of {a.total:,}", _op_line(a.row, a.op)]


@_lines.register
def _(a: OpList, width: int) -> list[str]:
    head = f"{'op':>9}  {'start':>11} {'ns':>9}  {'name':<20} {'bytes':>9}  component"
    return [head, *(_op_line(row, a.op) for row in a.rows)]


def _op_line(row: OpRow, cursor: int) -> str:
    mark = ">" if row.op == cursor else " "
    return (
        f"{mark}{row.op:>8,}  {row.t_start:>11.2f} {row.t_end - row.t_start:>9.2f}  "
        f"{row.name:<20} {row.nbytes:>9,}  {row.component}"
    )


@_lines.register
def _(a: OpDetails, width: int) -> list[str]:
    row = a.row
    lines = [
        f"op {row.op:,}  {row.name} ({row.kind}) on {row.component}, lane {a.slot}",
        f"time    {row.t_start:.3f} to {row.t_end:.3f} ns = {row.t_end - row.t_start:.3f} ns",
        f"call    #{a.cmd} tl.{a.call} at {a.site}"
        if a.launch >= 0
        else f"call    #{a.cmd} {a.call} at {a.site}",
    ]
    lines += [f"  {key:<20} {_param(value)}" for key, value in a.params.items()]
    lines += [f"after   op {', '.join(f'{d:,}' for d in a.dependencies)}"] if a.dependencies else []
    for node, reason, t0, t1, holder in a.waits:
        by = f", until op {holder:,} ended" if holder >= 0 else ""
        lines.append(f"waited  {t1 - t0:.3f} ns for {reason} at {node}{by}")
    return lines


def _param(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, int) and not isinstance(value, bool) and value > 1 << 20:
        return f"{value:#x}"
    if isinstance(value, list):
        return "[" + ", ".join(_param(item) for item in value) + "]"
    return str(value)


@_lines.register
def _(a: Source, width: int) -> list[str]:
    head = f"{a.file}:{a.line} in {a.function}"
    low, high = max(a.line - 6, 0), min(a.line + 5, len(a.text))
    return [head] + [
        f"{'>' if n + 1 == a.line else ' '}{n + 1:>5}  {a.text[n]}" for n in range(low, high)
    ]


@_lines.register
def _(a: Memory, width: int) -> list[str]:
    lines = [
        f"{a.total:,} allocations hold data at op {a.op:,}"
        if a.op >= 0
        else "nothing is written yet"
    ]
    if a.entries:
        lines.append(
            f"  {'tensor':<12} {'shard':>5} {'space':<5} {'address':<16} {'type':<18} "
            f"{'writer':>8}  of"
        )
    for e in a.entries:
        kind = f"{e.dtype}{list(e.shape)}"
        writer = "-" if e.writer is None else f"{e.writer:,}"
        mark = "*" if e.touched else " "
        lines.append(
            f"{mark} {e.tensor.split('@')[0]:<12} {e.shard:>5} {e.space:<5} {e.addr:<#16x} "
            f"{kind:<18} {writer:>8}  {e.owner}"
        )
    return lines


@_lines.register
def _(a: TensorView, width: int) -> list[str]:
    held = int(a.written.sum())
    lines = [
        f"{a.name}  {a.dtype}{list(a.values.shape)} in {a.space} at op {a.op:,}: "
        f"{held:,} of {a.values.size:,} written",
        f"min {number_text(a.minimum)}  max {number_text(a.maximum)}  "
        f"mean {number_text(a.mean)}  NaN {a.nans}",
    ]
    return lines + grid_text(a.values, 12, max((width - 6) // 10, 1), (0, 0), a.written, a.changed)


@_lines.register
def _(a: Route, width: int) -> list[str]:
    lines = [f"op {a.op:,}  {a.name} on {a.component}", *([a.note] if a.note else [])]
    for leg in a.legs:
        lines.append(
            f"{leg.nbytes:,} bytes in {leg.bursts} burst(s) from t={leg.t0:.2f} ns: "
            f"{leg.transit_ns:.2f} transit + {leg.wait_ns:.2f} waiting = "
            f"{leg.transit_ns + leg.wait_ns:.2f} ns to the last node"
        )
        lines.append(f"  {'arrive':>11} {'wait':>8} {'leave':>11} {'mm':>6}  {'node':<26} link")
        for hop in leg.hops:
            lines.append(
                f"  {hop.arrive:>11.2f} {hop.wait:>8.2f} {hop.leave:>11.2f} "
                f"{hop.distance_mm:>6.2f}  {hop.node:<26} {hop.edge_kind}"
            )
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
        for wait in tile.waits:
            _paint(strip, ".", (wait.t0 - a.t0) / scale, (wait.t1 - a.t0) / scale)
        for span in tile.spans:
            _paint(
                strip, STAGE_LETTERS[span.stage], (span.t0 - a.t0) / scale, (span.t1 - a.t0) / scale
            )
        mark = ">" if i == a.current else " "
        lines.append(f"{mark}{','.join(map(str, tile.index)):<11} |" + "".join(strip))
    return lines


def _paint(strip: list[str], letter: str, low: float, high: float) -> None:
    for i in range(max(int(low), 0), min(max(int(high), int(low) + 1), len(strip))):
        strip[i] = letter


@_lines.register
def _(a: OpDiff, width: int) -> list[str]:
    lines = [f"op {a.op:,}  {a.name}" + (f": {a.note}" if a.note else "")]
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
    lines = [
        f"{'output':<14} {'state':<8} {'bad':>9} {'of':>9} {'max abs':>9} {'max ulp':>9}  first bad"
    ]
    for out in a.rows:
        r = out.row
        state = ("ok" if r.ok else "DIFFERS") if out.due else f"due {out.after:,}"
        first = "" if r.first_bad is None else str(list(r.first_bad))
        lines.append(
            f"{r.tensor:<14} {state:<8} {r.mismatches:>9,} {r.elements:>9,} "
            f"{r.max_abs:>9.2e} {r.max_ulp:>9}  {first}"
        )
    return lines


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
