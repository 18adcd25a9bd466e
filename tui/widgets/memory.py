"""Pane 4: what memory holds at this op; a tensor as numbers, heat or hex; the history of a cell."""

from __future__ import annotations

from bisect import bisect_right
from types import MappingProxyType
from typing import Any

import numpy as np

from kernbench.replay import ReplaySession
from kernbench.replay.data.memory import MemoryEntry, TensorView
from kernbench.replay.text import number_text, time_text
from tui.messages import Activate
from tui.widgets.draw import Array, Glyphs, Line, clip, length
from tui.widgets.grid import GridPane, flat2, within
from tui.widgets.pane import BEFORE

_MANY = 2000  # touches of a range


class MemoryPane(GridPane):
    """Shows the tensor that the op writes, else reads, or the one that the user keeps."""

    number, title = 4, "Memory"
    views = ("overview", "numbers", "heatmap", "hex", "history")
    lists = MappingProxyType({"overview": "keep", "history": "go"})

    def __init__(self, session: ReplaySession, glyphs: Glyphs) -> None:
        super().__init__(session, glyphs)
        self.kept: str | None = None
        self.shown: tuple[str, int] | None = None  # tensor, op
        self.range: str | None = None  # what the history is of, if not of the cell
        self._entries: tuple[MemoryEntry, ...] = ()

    def place(self) -> str | None:
        """The picked allocation's bytes, or the cell as in c[3,17]."""
        if self.mode != "overview":
            self.clamp()
            return self.shown and self.shown[0] + within(
                self.row, self.column, self.shape
            )
        at = self.at or 0
        if self.pick is None or at >= len(
            self._entries
        ):  # nothing is picked, or written yet
            return None
        shard = self._entries[at].shard
        return f"{shard.space} {shard.addr:#x}:{shard.nbytes}"

    def enter(self) -> str | None:
        """Keep showing the picked tensor, again on it lets go; go to an op; blame a cell."""
        if self.mode == "history":
            found = self.last(self.mode)
            touches = () if found is None else found.rows[self.at or 0 :]
            return f"goto {touches[0].op.op}" if touches else None
        if self.mode != "overview":
            return f"blame {self.place()}" if self.shown else None
        if self._entries:
            name = self._entries[self.at or 0].tensor
            self.kept = None if name == self.kept else name
            self.repaint()
        return None

    def change_view(self, by: int) -> bool:
        """What was picked in the overview is kept; V lists the accesses to all of it."""
        place, self.range = self.place(), None
        if self.mode == "overview" and place is not None:
            self.kept = self._entries[self.at or 0].tensor
            self.range = place if by < 0 else None
        return super().change_view(by)

    def back(self) -> bool:
        """Let go of the tensor."""
        was, self.kept = self.kept, None
        self.repaint()
        return was is not None

    def accesses_to(self, place: str) -> None:
        """Show the history of a place."""
        self.range, self.view, self.pick = place, self.views.index("history"), None
        self.repaint()
        self.post_message(Activate(self.number))

    def fill(self, lines: list[Line], width: int, height: int) -> None:
        """A list, a tensor, or in the overview both."""
        session, op = self.session, self.session.cursor
        name, self.subtitle = self.kept or session.memories.shown(op), ""
        if self.mode == "overview":
            memory = session.memory()
            held = (
                f"{n:,} in {space} ({size:,} B)" for space, n, size in memory.spaces
            )
            self.subtitle, self._entries = ", ".join(held), memory.entries
            if self._entries:
                self._overview(
                    lines, width, max(height // 3, 1) if name else height - 1
                )
        if (
            self.mode == "history"
            and name is not None
            and not (self.range or self.shown)
        ):
            self._tensor(
                name, [], width, height
            )  # as it was left, so no cell was shown yet
        if self.mode == "history" and (place := self.range or self.place()) is not None:
            self._history(place, lines, height)
        elif name is not None and self.mode != "history":
            self._tensor(name, lines, width, height)
        elif not lines:
            lines.append(
                BEFORE if op < 0 else [(" nothing is written yet: s steps on", "dim")]
            )

    def _overview(self, lines: list[Line], width: int, room: int) -> None:
        entries, room = self._entries, min(room, len(self._entries))
        wide = min(max(len(_name(e)) for e in entries[:room]), max(width - 60, 12))
        head = (
            f"  {'allocation':<{wide}} space {'addr':>14} type  {'shape':<11} written"
        )

        def text(i: int) -> str:
            entry, shard = entries[i], entries[i].shard
            place = f"{shard.space:<5} {shard.addr:>#14x} {shard.dtype:<5}"
            shape, mark = "x".join(map(str, shard.shape)), ">" if entry.touched else " "
            name = clip(_name(entry), wide, self.glyphs)
            return f"{mark} {name} {place} {shape:<11} {self._age(entry.writer)}"

        lines += [[(head, "dim")], *self.listed(len(entries), room, 0, text)]

    def _age(self, writer: int | None) -> str:
        return (
            "never"
            if writer is None
            else f"op {writer} ({self.session.cursor - writer} ago)"
        )

    def _tensor(self, name: str, lines: list[Line], width: int, height: int) -> None:
        session, op = self.session, self.session.cursor
        quick = session.memories.quick(op, name)
        view = self.ask(
            "tensor", (name, op), lambda tell: session.tensor(name, op, tell), quick
        )
        self.shape, self.marked = view.values.shape, flat2(view.changed)
        if self.shown != (name, op):
            new = self.shown is None or self.shown[0] != name
            if new or (self.kept is None and self.marked.any()):
                self.go(*divmod(int(self.marked.argmax()), self.marked.shape[1]))
            self.shown = name, op
        lines += self._head(view, width)
        values, written = flat2(view.values), flat2(view.written)
        if self.mode != "overview":
            self.clamp()
            at = self.row, self.column
            lines.append(self._cell(values[at], bool(written[at])))
        room = width, height - len(lines)
        if self.mode == "heatmap":
            top = float(np.nanmax([abs(view.minimum), abs(view.maximum), 0.0]))
            of, says = (
                (name, session.versions.executed(op)),
                f"{number_text(top)}, the largest |x|",
            )
            lines += self.heat(lambda: _sizes(values, written), of, top, says, room)
            return

        def texts(plane: int, row: int, part: slice) -> list[str]:
            cells = map(_bits if self.mode == "hex" else number_text, values[row, part])
            return [
                x if k else "-" for x, k in zip(cells, written[row, part], strict=True)
            ]

        wide = 2 * values.dtype.itemsize + 2 if self.mode == "hex" else 9
        lines += self.numbers(("",), texts, ("*", "mark"), room, wide)

    def _head(self, view: TensorView, width: int) -> list[Line]:
        low, high, mean = map(number_text, (view.minimum, view.maximum, view.mean))
        changed = np.count_nonzero(view.changed)
        missing = view.values.size - np.count_nonzero(view.written)
        line: Line = [
            (f" {view.name}{' (kept: Esc lets go)' if self.kept else ''}", "bold")
        ]
        line.append((f" {view.dtype} {'x'.join(map(str, view.values.shape))}", "title"))
        line.append((f"  {changed:,} changed*" * bool(changed), "mark"))
        line.append((f"  {missing:,} never written" * bool(missing), "dim"))
        stats = (f"  min {low} max {high} mean {mean} NaN {view.nans}", "title")
        return [line, [stats]] if length([*line, stats]) > width else [[*line, stats]]

    def _cell(self, value: Any, known: bool) -> Line:
        """The cell: its index, value, address, and who wrote it."""
        place = self.place() or ""
        space, addr, _ = self.session.places.place(place).ranges[0]
        found = self.session.who_wrote(place).rows if self.session.cursor >= 0 else ()
        text = f" = {float(value):.7g}" * known
        bits = f"  0x{_bits(value)}" * known + f"  {space} {addr:#x}"
        by = self._age(found[0].op.op if found else None)
        return [(f" {place}{text}", "bold"), (bits, "title"), (f"  written {by}", "")]

    def _history(self, place: str, lines: list[Line], height: int) -> None:
        session = self.session
        whole, *more = session.places.place(place).ranges
        few = not more and len(session.versions.accesses.overlapping(*whole)) <= _MANY
        touches = self.ask(
            "history", place, lambda tell: session.history_of(place), few
        ).rows
        here = bisect_right(touches, session.cursor, key=lambda touch: touch.op.op) - 1

        def text(i: int) -> str:
            t, mark = touches[i], ">" if i == here else " "
            when = f"{t.kind:<5} op {t.op.op:>6,} {time_text(t.op.t_start):>9} {t.nbytes:>6,} B"
            return (
                f"{mark} {when} {t.op.name.removeprefix('TileToken/')} {t.op.component}"
            )

        bytes_of = (
            f", {whole[0]} {whole[1]:#x}:{whole[2]}"
            + f" and {len(more)} more" * bool(more)
        )
        lines.append([(f" accesses to {place}: {len(touches):,}{bytes_of}", "dim")])
        lines += self.listed(len(touches), height - 1, max(here, 0), text)


def _sizes(values: Array, written: Array) -> Array:
    size = np.abs(values.astype(np.float64))
    return np.where(written, np.where(np.isfinite(size), size, np.inf), np.nan)


def _bits(value: Any) -> str:
    return str(value.tobytes()[::-1].hex())


def _name(entry: MemoryEntry) -> str:
    return (
        entry.tensor if "@" in entry.tensor else f"{entry.tensor}.{entry.shard.index}"
    )
