"""What Memory and Diff share: a cell of a grid, numbers, heat, rows, answers one at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from kernbench.errors import KernbenchError
from kernbench.replay import ReplaySession
from kernbench.replay.progress import Progress as Tell
from tui.widgets.draw import Array, Glyphs, Line, Run
from tui.widgets.pane import Pane

T = TypeVar("T")
Pair = tuple[int, int]
Cells = Callable[[int, int, slice], list[str]]  # of a plane, a row, columns
_FEW = 20_000  # ops of a trace whose indexes are made at once
_SMALL = 1 << 18  # cells that are looked at while a key waits


class _Waiting(Exception):
    """An answer is still computed; ``args`` is the line to show."""


class GridPane(Pane):
    """Has one picked cell of a grid: (``row``, ``column``), shown from (``upper``, ``left``) on.

    In the views of ``lists`` rows are picked instead; there Enter does what they say, else blame.
    """

    lists: Mapping[str, str] = MappingProxyType({})
    header = 1

    def __init__(self, session: ReplaySession, glyphs: Glyphs) -> None:
        super().__init__(session, glyphs)
        self.row = self.upper = self.left = 0
        self.marked = np.zeros((1, 1), np.bool_)  # what J and K go through
        self.shape: tuple[int, ...] = ()  # of the tensor that is shown
        self.origin = 0, 0  # of it, as the rows and columns are numbered
        self.known: dict[str, tuple[Hashable, Any]] = {}  # the last answer of each kind
        self._asked: dict[str, tuple[Hashable, Callable[[Tell], Any]]] = {}

    @property
    def enter_word(self) -> str:  # type: ignore[override]  # a view's own
        """What Enter does in this view."""
        return self.lists.get(self.mode, "blame")

    def fill(self, lines: list[Line], width: int, height: int) -> None:
        """``draw``, into ``lines``."""
        raise NotImplementedError

    def draw(self, width: int, height: int) -> list[Line]:
        """As far as the answers are there."""
        self.picks, self.total, lines = self.mode in self.lists, 0, list[Line]()
        self.columns_a_step = int(not self.picks)
        try:
            index, few = self.session.memories.index, len(self.session) <= _FEW
            self.ask("what memory holds", 0, index, few)
            self.fill(lines, width, height)
        except _Waiting as line:
            lines.append([*line.args])
        return lines[:height]

    def ask(
        self, kind: str, of: Hashable, compute: Callable[[Tell], T], quick: bool = False
    ) -> T:
        """The answer, of lane "memory"; the next of a kind is asked for when the last has come."""
        while self.known.get(kind, (None, None))[0] != of:
            asked, run = self._asked.get(kind, (of, compute))
            try:
                found: Any = self.answer(("memory", (kind, asked)), kind, run, quick)
            except KernbenchError:
                self._asked = {k: x for k, x in self._asked.items() if k != kind}
                if asked == of:
                    raise
                continue
            if isinstance(found, list):
                self._asked = self._asked | {kind: (asked, run)}
                raise _Waiting(*found)
            self._asked = {k: x for k, x in self._asked.items() if k != kind}
            self.known = self.known | {kind: (asked, found)}
        answer: T = self.last(kind)
        return answer

    def last(self, kind: str) -> Any:
        """The last answer of a kind; None before the first."""
        return self.known.get(kind, (None, None))[1]

    def change_view(self, by: int) -> bool:
        """Rows of another view are other rows."""
        self.pick = None
        return super().change_view(by)

    def scroll_rows(self, by: int) -> None:
        """Pick a row of a list, or a cell in another."""
        self.row += 0 if self.picks else by
        super().scroll_rows(by)

    def go(self, row: int, column: int) -> None:
        """Pick a cell, and show it first."""
        self.row, self.column, self.upper, self.left = row, column, row, column

    def clamp(self) -> None:
        """Keep the cell within the tensor."""
        at = zip((self.row, self.column), self.marked.shape, strict=True)
        self.row, self.column = (min(max(i, 0), n - 1) for i, n in at)

    def next_mark(self, by: int) -> bool:
        """To the next or previous cell in row order that is marked; False for none."""
        wide = self.marked.shape[1]
        found, here = np.flatnonzero(self.marked), self.row * wide + self.column
        at = int(np.searchsorted(found, here, "right" if by > 0 else "left")) - (by < 0)
        if not 0 <= at < len(found):
            return False
        self.go(*divmod(int(found[at]), wide))
        self.repaint()
        return True

    def listed(
        self, total: int, room: int, at: int, text: Callable[[int], str]
    ) -> list[Line]:
        """Rows to pick, as ``text`` says them; the cursor's is row ``at``."""
        first = self.first_row(total, room, at if total else None)
        rows = range(first, min(first + self.room, total))
        return [[(text(i), "pick" if i == self.pick else "")] for i in rows]

    def numbers(
        self,
        planes: tuple[str, ...],
        cells: Cells,
        mark: Run,
        room: Pair,
        wide: int = 9,
    ) -> list[Line]:
        """Planes of a tensor side by side, in ``room`` (width, height).

        ``cells`` are their texts, ``wide`` at most; ``mark`` is for those that are marked.
        """
        self.clamp()
        (total, extent), (r0, c0) = self.marked.shape, self.origin
        label = max(len(name_of(total - 1, self.shape)), 5)
        columns = min(
            max((room[0] - label - 1) // (wide + 1) // len(planes), 1), extent
        )
        rows = max(room[1] - 1 - (len(planes) > 1), 1)
        self.room = self.room if self.picks else rows
        self.upper = max(
            min(self.upper, self.row, total - rows), self.row - rows + 1, 0
        )
        self.left = max(
            min(self.left, self.column, extent - columns), self.column - columns + 1
        )
        part = slice(self.left, self.left + columns)
        head = "".join(f"{c0 + self.left + c:>{wide}} " for c in range(columns)) * len(
            planes
        )
        names = "".join(
            f"{name:>{wide}}".ljust(columns * (wide + 1)) for name in planes
        )
        heads = (names, head)[len(planes) == 1 :]
        lines: list[Line] = [[(" " * (label + 1) + text, "title")] for text in heads]
        for r in range(self.upper, min(self.upper + rows, total)):
            name = str(r0 + r) if r0 else name_of(r, self.shape)
            lines.append([(f"{name:>{label}} ", "title")])
            marks = self.marked[r, part].tolist()
            for plane in range(len(planes)):
                pairs = zip(cells(plane, r, part), marks, strict=True)
                for c, (text, marked) in enumerate(pairs, self.left):
                    glyph, style = mark if marked else (" ", "")
                    if (r, c) == (self.row, self.column) and not self.picks:
                        text, style = f">{text}", "here"
                    lines[-1].append((f"{text:>{wide}}"[-wide:] + glyph, style))
        return lines

    def heat(
        self,
        values: Callable[[], Array],
        of: Hashable,
        top: float,
        says: str,
        room: Pair,
    ) -> list[Line]:
        """The largest of each block of cells of 0 to ``top``, '!' above, blank where it is NaN.

        ``values`` makes them, and ``of`` what.
        """
        most, total, ramp = (
            (room[1] - 1, room[0] - 8),
            self.marked.shape,
            self.glyphs.ramp,
        )
        tall, wide = (-(-n // max(m, 1)) for n, m in zip(total, most, strict=True))

        def largest(tell: Tell) -> Array:
            rows = np.fmax.reduceat(values(), np.arange(0, total[0], tall), 0)
            return np.asarray(np.fmax.reduceat(rows, np.arange(0, total[1], wide), 1))

        blocks = self.ask("heat", (of, tall, wide), largest, self.marked.size <= _SMALL)
        self.clamp()
        self.room = tall * max(room[1] - 2, 1) + 1
        says = f" {ramp[0]} 0 to {ramp[-1]} {says} of {tall}x{wide} cells; ! beyond"
        lines: list[Line] = [[(says, "dim")]]
        runs = [
            *((glyph, f"heat{i}") for i, glyph in enumerate(ramp)),
            ("!", "bad"),
            (" ", ""),
        ]
        levels = np.rint(
            np.nan_to_num(np.clip(blocks / (top or 1.0), 0, 1)) * (len(ramp) - 1)
        )
        levels = np.where(
            blocks <= top, levels, np.where(np.isnan(blocks), -1, len(ramp))
        )
        for i, row in enumerate(levels.astype(int).tolist()):
            star = "*" if self.marked[i * tall : (i + 1) * tall].any() else " "
            line = [
                (f"{name_of(i * tall, self.shape):>5}", "title"),
                (f"{star} ", "mark"),
            ]
            lines.append(line + [runs[level] for level in row])
        here = lines[1 + self.row // tall]
        here[2 + self.column // wide] = here[2 + self.column // wide][0], "here"
        return lines


def flat2(values: Array) -> Array:
    """A tensor as rows of columns: its last axis."""
    return values.reshape(-1, values.shape[-1] if values.ndim else 1)


def name_of(row: int, shape: tuple[int, ...]) -> str:
    """A row of ``flat2``: its index without the last axis."""
    return ",".join(map(str, np.unravel_index(row, shape[:-1])))


def within(row: int, column: int, shape: tuple[int, ...]) -> str:
    """A cell of ``flat2`` as in [3,17]."""
    return (
        f"[{','.join(filter(None, (name_of(row, shape), str(column))))}]"
        if shape
        else ""
    )
