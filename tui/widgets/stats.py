"""Pane 8: where the time goes: stalls, critical path, roofline, what is busiest, PEs."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernbench.replay.text import time_text
from kernbench.replay.time.critical import CriticalPath
from kernbench.replay.time.loads import Busiest
from kernbench.replay.time.roofline import Roofline
from tui.widgets.draw import Line, clip
from tui.widgets.pane import BEFORE, LIGHT, QUICK, Pane

Row = tuple[Line, str | None]  # and the command line of Enter

_STEPS = 500  # of the critical path, the longest
_BUSIEST = 20


class StatsPane(Pane):
    """An answer a view; stalls are of the focus, PEs of the op's call."""

    number, title = 8, "Stats"
    views = ("stalls", "critical path", "roofline", "busiest", "PEs")

    def enter(self) -> str | None:
        """To the op of the picked row; of a call that never ended to the last op of its PE."""
        line = None if self.at is None or not self._rows else self._rows[self.at][1]
        if line is None or line.startswith("goto"):
            return line
        pe, ids = line.split(": ")[1].rpartition(".")[0], self.session.trace.node_ids
        served, here = self.session.op_index, self.session.cursor
        mine = [x for x in served.components.tolist() if ids[x].startswith(f"{pe}.")]
        return f"goto {max((int(served.ops_of(x)[-1]) for x in mine), default=here)}"

    def draw(self, width: int, height: int) -> list[Line]:
        """The rows that there is room for; the picked one has a mark."""
        session, view, self._rows = self.session, self.mode, list[Row]()
        if view == "PEs" and session.cursor < 0:
            return [BEFORE]
        name, row = session.focus()[1], session.trace.order[session.cursor :][:1]
        cmd = int(session.trace.op_columns.cmd[row].sum())
        key, compute = {  # what the answer depends on, and the question
            "stalls": (name, lambda tell: session.stalls(name, progress=tell)),
            "critical path": (None, lambda tell: session.critical_path(_STEPS, tell)),
            "roofline": (None, session.roofline),
            "busiest": (None, lambda tell: session.busiest(_BUSIEST, tell)),
            "PEs": (cmd, lambda tell: session.pes(cmd)),
        }[view]
        quick, light = len(session) < QUICK, len(session) < LIGHT and view == "stalls"
        found = self.answer(("columns", (view, key)), view, compute, quick, light)
        if isinstance(found, list):
            return [found]
        self._rows = self._told(found, width - 1)
        first = self.first_row(len(self._rows), height, 0)
        engines, ids, lines = (
            session.trace.nodes.engine,
            session.trace.node_ids,
            list[Line](),
        )
        served = np.unique(session.components[session.in_flight()]).tolist()
        flying = {
            x for n in served for x in (ids[n], ids[n].removesuffix(f".{engines[n]}"))
        }
        for i, (line, _) in enumerate(self._rows[first : first + height], first):
            there = view != "roofline" and not flying.isdisjoint(line[0][0].split()[:1])
            lines.append(
                [(">" if i == self.pick else "*" if there else " ", "mark"), *line]
            )
        return lines

    def _told(self, found: Any, width: int) -> list[Row]:
        if isinstance(found, CriticalPath):
            return self._critical(found, width)
        if isinstance(found, Busiest):
            busy = [(node, share, "") for share, node in found.components]
            links = [
                (f"{x.src} {self.glyphs.arrow} {x.dst}", x.busy, f"{x.nbytes:,.0f} B")
                for x in found.links
            ]
            head = f" of {time_text(found.t0)} to {time_text(found.t1)}"
            return [
                *self._bars(f"components, busy share{head}", busy, width),
                *self._bars("links, busy share, bytes", links, width),
            ]
        told = found.lines(width)
        if isinstance(found, Roofline):
            told = [*told[:1], *told[-11:]]  # without the table of PEs
        rows: list[Row] = []
        for text in told:
            head, mark, bar = text.replace("…", self.glyphs.more).partition("#")
            hung = text if text.startswith("never ended: ") else None
            rows.append(([(head, ""), (mark + bar, "flight")], hung))
        if isinstance(found, Roofline):
            roofs = [
                (
                    x.pe,
                    x.share,
                    f"{x.gflops:,.1f} GFLOP/s {x.intensity:,.1f} FLOP/B {x.bound}",
                )
                for x in (found.total, *found.pes)
            ]
            rows += self._bars(
                "PEs (* above, T their mean), share of the roof", roofs, width
            )
        return rows

    def _bars(
        self, title: str, rows: list[tuple[str, float, str]], width: int
    ) -> list[Row]:
        """A name with its share as a bar, and a text after that."""
        name = max(min(width // 2, max((len(row[0]) for row in rows), default=0)), 8)
        after = max((len(row[2]) for row in rows), default=0)
        room = max(width - name - after - 10, 4)
        found: list[Row] = [([(title, "title")], None)]
        for label, share, text in rows:
            tail = label if len(label) <= name else self.glyphs.more + label[1 - name :]
            bar = self.glyphs.thick * round(min(share, 1.0) * room)
            line = [
                (f"{tail:<{name}} {share:>6.1%} {text:>{after}} ", ""),
                (bar, "flight"),
            ]
            found.append((line, None))
        return found

    def _critical(self, path: CriticalPath, width: int) -> list[Row]:
        whole = max(path.t1 - path.t0, 1e-12)
        parts = (
            ("what the critical path is of", path.totals),
            ("by line", path.by_line),
        )
        rows: list[Row] = []
        for title, times in parts:
            shares = [(name, ns / whole, time_text(ns)) for name, ns in times.items()]
            rows += self._bars(title, shares, width)
        rows.append(
            ([(f"its longest steps in order, of {time_text(whole)}", "title")], None)
        )
        for step in path.steps:
            times_ = f"x{step.times:,}" if step.times > 1 else ""
            text = f"{time_text(step.t0):>9} {time_text(step.ns):>9} {times_:<6} {step.what:<12} "
            where = (
                f"op {step.op:,} {step.node} {step.site}" if step.op >= 0 else step.node
            )
            goto = f"goto {step.op}" if step.op >= 0 else None
            rows.append(
                (
                    [(text, ""), (clip(where, width - len(text), self.glyphs), "dim")],
                    goto,
                )
            )
        return rows
