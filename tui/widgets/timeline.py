"""Pane 1: one row a component over a window of time that can be zoomed and panned."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import numpy as np
from textual import events

from kernbench.replay import ReplaySession
from kernbench.replay.progress import Progress as Tell
from kernbench.replay.text import time_text
from kernbench.replay.time.op_classes import CLASSES
from kernbench.replay.time.timeline import RowKey
from tui.messages import RunCommand
from tui.widgets.draw import Array, Glyphs, Line, clip
from tui.widgets.pane import Pane
from tui.widgets.tree import Branch, Tree

_UNITS = (("ms", 1e6), ("us", 1e3), ("ns", 1.0))
_QUICK, _LIGHT = 50_000, 500_000  # ops that are indexed in no time, in some ten ms
_LEAST_NS = 0.125  # shown
_RUN = re.compile(r"(.)\1*")
_INKS = {" ": "", ".": "dim", "!": "bad", "#": "bad"}  # of cells that show no class


class TimelinePane(Pane):
    """Keeps the window [t0, t1) ns; the view follows the cursor when that leaves it.

    ``pins`` are ids of rows kept on top; ``folds`` what the user closed (-ID) and opened (+ID).
    """

    number, title, header = 1, "Timeline", 2
    views = ("busy", "lanes", "critical path", "hazards")

    def __init__(self, session: ReplaySession, glyphs: Glyphs) -> None:
        super().__init__(session, glyphs)
        self.hierarchy, self.pins, self.folds = Tree(session), list[str](), set[str]()
        self.shown = list[Branch]()
        self._cells: dict[RowKey, str] = {}  # of the rows that were drawn of a window
        self._cells_of: tuple[Any, ...] = ()
        self._chart = 0, 1  # where cells begin, how many there are
        self._clicked: tuple[int, float] | None = (
            None  # the last op begun by a cell, its time
        )
        self.end = max(session.trace.end_ns, 1.0)
        self.fit()
        self.follow()

    def fit(self) -> None:
        """Show the launches."""
        self.fit_between(*self.session.launch_window())

    def fit_between(self, t0: float, t1: float) -> None:
        """Show t0 to t1 ns, with a little room around."""
        edge = max(t1 - t0, 1.0) / 50
        self._frame(t0 - edge, t1 - t0 + 2 * edge)
        self.repaint()

    def _frame(self, t0: float, span: float) -> None:
        """The window: so many ns from ``t0`` on, of the run and a little room around it."""
        span = min(max(span, _LEAST_NS), self.end * 50 / 48)
        self.t0 = max(min(t0, self.end - span * 49 / 50), -span / 50)
        self.t1 = self.t0 + span

    def zoom(self, factor: float) -> None:
        """Make the window ``factor`` times as long, around the cursor if that is in view."""
        time, span = self.session.time, self.t1 - self.t0
        middle = time if self.t0 <= time < self.t1 else self.t0 + span / 2
        factor = max(factor, _LEAST_NS / span)
        self._frame(middle + (self.t0 - middle) * factor, span * factor)
        self.repaint()

    def pan(self, by: int) -> bool:
        """Move the window by eighths of its length, as far as the run goes."""
        span = self.t1 - self.t0
        self._frame(self.t0 + span / 8 * by, span)
        self.repaint()
        return True

    def idle(self) -> None:
        """Index the rows that are shown: then another window of them is drawn at once."""
        timelines = self.session.timelines
        rows = [branch.row for branch in self.shown[self.top : self.top + self.room]]
        wanted = timelines.unindexed(rows).rows
        while len(wanted) > 1 and timelines.unindexed(wanted).ops > _LIGHT:
            wanted = wanted[:-1]
        if wanted:
            key = "timeline", ("idle", wanted)
            self.jobs.spare(key, partial(timelines.index_rows, wanted), beside=True)

    def rest(self) -> None:
        """Look at all ops of a long trace: moves of this window then need no more of them."""
        timelines, window = self.session.timelines, (self.t0, self.t1, self._chart[1])
        if len(self.session) > _QUICK and not timelines.has_summary(*window):
            self.jobs.spare(("timeline", window), partial(timelines.summarize, *window))
        else:
            self.idle()

    def follow(self) -> None:
        """Keep the cursor's time in view."""
        t, span = self.session.time, self.t1 - self.t0
        if self.session.cursor >= 0 and not self.t0 <= t < self.t1:
            self._frame(t - span / 4, span)
        super().follow()

    def picked(self) -> Branch | None:
        """The row picked, or the cursor's."""
        return self.shown[self.at] if self.at is not None and self.shown else None

    def enter(self) -> str | None:
        """Of a cell that was clicked the last op in service there; fold or unfold a group; of a
        component the op that started last by the cursor.
        """
        branch, session = self.picked(), self.session
        if branch is None:
            return None
        (upto, since), self._clicked = (
            self._clicked or (max(session.cursor, 0), math.inf),
            None,
        )
        (nodes, lane), slots = branch.row, session.trace.op_columns.slot
        near = np.array(session.op_index.in_flight(upto, since), np.int64)
        near = near[np.isin(session.components[near], nodes)]
        for mine in (
            near,
            *(session.op_index.ops_of(node) for node in nodes if not branch.group),
        ):
            mine = (
                mine if lane is None else mine[slots[session.trace.order[mine]] == lane]
            )
            if len(mine):
                before = (
                    int(np.searchsorted(mine, mine.dtype.type(upto), side="right")) - 1
                )
                return f"goto {mine[max(before, 0)]}"
        says = ("+", "-")[
            self.hierarchy.is_open(branch, self.folds, self._here())
        ] + branch.id
        self.folds = {says} | self.folds - {f"+{branch.id}", f"-{branch.id}"}
        self.pick = self.at
        self.repaint()
        return None

    def on_click(self, event: events.Click) -> None:
        """The minimap goes to its time; of a row the pane enters the cell."""
        cell, cells = event.x - self.gap - self._chart[0], self._chart[1]
        row, width = event.y - self.titled - self.header, (self.t1 - self.t0) / cells
        t, hit = (
            self.t0 + cell * width,
            0 <= row < min(self.room, self.total - self.top),
        )
        started = int(np.searchsorted(self.session.starts, t + width))
        self._clicked = (max(started - 1, 0), t) if hit and cell >= 0 else None
        if cell >= 0 and event.y == self.titled:
            self.post_message(RunCommand(f"t {cell / (cells - 1 or 1) * self.end}"))

    def pin(self) -> bool:
        """Keep the picked row on top, or let go of it."""
        branch = self.picked()
        if branch is not None:
            mine = [branch.id] if branch.id not in self.pins else []
            self.pins = [pin for pin in self.pins if pin != branch.id] + mine
            self.repaint()
        return branch is not None

    def _here(self) -> int:
        """The place of the cursor's component, or the first op's, among those of the tree."""
        session = self.session
        return self.hierarchy.components.index(
            int(session.components[max(session.cursor, 0)])
        )

    def draw(self, width: int, height: int) -> list[Line]:
        """Minimap, ruler, pinned rows, rows."""
        tree = self.hierarchy
        if not tree.rows:
            return [
                [
                    (" no ops in this trace; ", "dim"),
                    (":info", "bold"),
                    (" has more", "dim"),
                ]
            ]
        label = min(tree.width + 5, width // 3)
        columns, place, head = (
            width - label,
            self._here(),
            self._minimap(label, width - label),
        )
        self._chart = label, columns
        marks = self._marks()
        if isinstance(marks, list):  # it says when there will be marks
            head, marks = marks, None
        lanes = self.session.op_index.lanes_of if self.mode == "lanes" else None
        self.shown = tree.shown(self.folds, place, lanes)
        pinned = [tree.at[pin] for pin in self.pins if pin in tree.at][
            : max(height - 2, 0) // 2
        ]
        self.header = 2 + len(pinned)
        here = self._row_of_cursor(place)
        first = self.first_row(len(self.shown), max(height - self.header, 1), here)
        rows = [*pinned, *self.shown[first : first + self.room]]
        note = self._draw_cells(rows, columns, marks)
        span, (upto, served) = self.t1 - self.t0, self._flying()
        cell = (
            f"{span / columns:.2g}ns" if span < columns else time_text(span / columns)
        )
        self.subtitle = f"{time_text(span)} shown, {cell} a cell"
        lines = [head, self._ruler(label, columns)]
        for i, branch in enumerate(rows, first - len(pinned)):
            now = (
                here is not None
                and branch.id == self.shown[here].id
                and (i < first or i == here)
            )
            there = bool(upto[branch.high] > upto[branch.low])
            if branch.row[1] is not None:
                there = (branch.row[0][0], branch.row[1]) in served
            style = "here" if now else "flight" if there else "title"
            style = "pick" if i == self.pick and i >= first else style
            fold = (
                "+-"[tree.is_open(branch, self.folds, place)] if branch.group else " "
            )
            name = (
                f"{'>' if now else '*' if there else ' '}{'^' if i < first else fold}"
            )
            name = clip(name + branch.label, label - 1, self.glyphs)
            cells = self._cells.get(branch.row)
            strip, note = (note, []) if cells is None else (self._strip(cells), note)
            lines.append([(name, style), (" ", ""), *strip])
        return lines

    def _row_of_cursor(self, place: int) -> int | None:
        """The lowest row shown that the cursor's op is in."""
        trace, cursor = self.session.trace, self.session.cursor
        if cursor < 0:
            return None
        lanes, rows = (
            (None, int(trace.op_columns.slot[trace.order[cursor]])),
            self.shown,
        )
        return max(
            i
            for i, b in enumerate(rows)
            if b.low <= place < b.high and b.row[1] in lanes
        )

    def _flying(self) -> tuple[Array, set[tuple[int, int]]]:
        """How many ops are in service by the first so many components; and (node, lane) of all."""
        trace, columns = self.session.trace, self.session.trace.op_columns
        rows = trace.order[self.session.in_flight()]
        nodes, slots = columns.component[rows], columns.slot[rows]
        counts = np.bincount(nodes, minlength=len(trace.node_ids))[
            self.hierarchy.components
        ]
        lanes = zip(nodes.tolist(), slots.tolist(), strict=True)
        return np.append(0, np.cumsum(counts)), set(
            lanes
        ) if self.mode == "lanes" else set()

    def _marks(self) -> Array | Line | None:
        """The ops that the view marks, by row of the log."""
        session, what = self.session, self.mode

        def critical(tell: Tell) -> Array:
            path = session.critical_path(progress=tell)
            ops = path.ops[(path.ops >= 0) & (path.whats < len(CLASSES))]
            return session.trace.order[np.unique(ops)]

        def hazards(tell: Tell) -> Array:
            rows = [
                row
                for touch in session.hazards(tell).rows
                for row in (touch.op, touch.other)
            ]
            ops = [row.op for row in rows if row is not None]
            return session.trace.order[np.unique(np.array(ops, np.int64))]

        if what == "critical path":
            return self.answer(("columns", f"{what}, marked"), what, critical)
        return (
            self.answer(("memory", what), what, hazards) if what == "hazards" else None
        )

    def _hit(self, row: RowKey, marks: Array, edges: Array) -> Array:
        """The cells of a row in which any of ``marks``, that are by start, was in service."""
        columns = self.session.trace.op_columns
        wanted = np.zeros(len(self.session.trace.node_ids), bool)
        wanted[list(row[0])] = True
        mine = wanted[columns.component[marks]]
        mine &= row[1] is None or columns.slot[marks] == row[1]
        starts, ends = columns.t_start[marks[mine]], columns.t_end[marks[mine]]
        latest = np.maximum.accumulate(
            np.append(-np.inf, np.maximum(ends, starts + 1e-9))
        )
        return np.asarray(latest[np.searchsorted(starts, edges[1:])] > edges[:-1])

    def _draw_cells(
        self, rows: list[Branch], columns: int, marks: Array | None
    ) -> Line:
        """Draw what is not drawn yet; the line to show in rows that are still to come."""
        window, timelines = (self.t0, self.t1, columns), self.session.timelines
        if self._cells_of != (window, self.view, marks is None):
            self._cells, self._cells_of = {}, (window, self.view, marks is None)
        wanted = {
            branch.row: branch.pes for branch in rows if branch.row not in self._cells
        }
        missing, ops = timelines.unindexed([*wanted], window)
        asked, prime = ("timeline", missing), partial(timelines.index_rows, missing)
        quick, light = ops <= _QUICK, ops <= _LIGHT
        note: Any = missing and self.answer(asked, "timeline", prime, quick, light)
        if note:
            wanted = {row: pes for row, pes in wanted.items() if row not in missing}
        else:  # rows may be forgotten and be asked for again
            self.jobs.drop(asked)
        edges = np.linspace(self.t0, self.t1, columns + 1)
        drawn = timelines.draw_rows([*wanted], *window)
        for (key, pes), row in zip(wanted.items(), drawn, strict=True):
            letters = np.frombuffer(row.classes.encode(), np.uint8)
            cells = np.where(row.busy >= pes / 2, letters, letters | 0x20)  # in small
            if marks is not None:
                marked, idle = self._hit(key, marks, edges), letters == ord(" ")
                if self.mode == "hazards":
                    cells[marked] = ord("!")
                else:  # letters on the path, else dots
                    path = np.where(idle, ord("#"), letters)
                    cells = np.where(marked, path, np.where(idle, letters, ord(".")))
            self._cells[key] = cells.astype(np.uint8).tobytes().decode()
        return note or []

    def _strip(self, cells: str) -> Line:
        """A row as runs of one style, with the cursor."""
        time, at = self.session.time, len(cells)
        if self.session.cursor >= 0 and self.t0 <= time < self.t1:
            at = min(int((time - self.t0) / (self.t1 - self.t0) * at), at - 1)
        before, after = (
            [(run[0], _INKS.get(run[1], run[1])) for run in _RUN.finditer(part)]
            for part in (cells[:at], cells[at + 1 :])
        )
        here = cells[at : at + 1]
        bar = self.glyphs.bar * len(here), "mark"
        return [
            *before,
            (here, f"{here.upper()}|") if here.upper() in CLASSES else bar,
            *after,
        ]

    def _minimap(self, label: int, columns: int) -> Line:
        low, high = (
            int(min(max(t / self.end, 0), 1) * (columns - 1))
            for t in (self.t0, self.t1)
        )
        line = [(self.glyphs.rule, "rule")] * columns
        line[low : high + 1] = [(self.glyphs.thick, "flight")] * (high + 1 - low)
        if self.session.cursor >= 0:
            line[int(min(self.session.time / self.end, 1) * (columns - 1))] = (
                "V",
                "mark",
            )
        return [(clip(f" all {time_text(self.end)}", label, self.glyphs), "dim"), *line]

    def _ruler(self, label: int, columns: int) -> Line:
        span = self.t1 - self.t0
        least = span / columns * 12  # cells between two ticks
        step = 10.0 ** math.floor(math.log10(least))
        step *= next(m for m in (1, 2, 5, 10) if step * m >= least * (1 - 1e-9))
        largest = max(abs(self.t0), abs(self.t1))
        unit, size = next((u for u in _UNITS if largest >= u[1]), _UNITS[-1])
        digits = max(0, -math.floor(math.log10(step / size) + 1e-9))
        text, time = (
            [" "] * columns,
            self.session.time if self.session.cursor >= 0 else self.t0,
        )
        beyond = time >= self.t1
        for tick in range(math.ceil(self.t0 / step), math.ceil(self.t1 / step)):
            at = int((tick * step - self.t0) / span * columns)
            mark = f"{self.glyphs.bar}{tick * step / size:.{digits}f}{unit}"
            mark = (
                mark if at + len(mark) <= columns - beyond else mark[0]
            )  # no cut numbers
            text[at : at + len(mark)] = mark
        to, back = (
            self.glyphs.heads[1],
            self.glyphs.heads[3],
        )  # the cursor is not in view
        head = f"{back * (time < self.t0):>{label}}", "mark"
        return [head, ("".join(text[: columns - beyond]), "dim"), (to * beyond, "mark")]
