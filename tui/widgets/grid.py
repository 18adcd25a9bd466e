"""What Memory and Diff share: a cell of a grid, numbers, heat, rows, answers one at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from math import gcd
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from kernbench.errors import KernbenchError
from kernbench.replay import ReplaySession
from kernbench.replay.job import Tell
from tui.widgets.draw import Array, Glyphs, Line, Run
from tui.widgets.pane import Pane

T = TypeVar("T")
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
        self.page = 1  # rows
        self.marked = np.zeros((1, 1), np.bool_)  # what J and K go through
        self.known: dict[str, tuple[Hashable, Any]] = {}  # the last answer of each kind
        self._asked: dict[str, tuple[Hashable, Callable[[Tell], Any]]] = {}

    @property
    def mode(self) -> str:
        """The name of the view."""
        return self.views[self.view]

    def fill(self, lines: list[Line], width: int, height: int) -> None:
        """``draw``, into ``lines``."""
        raise NotImplementedError

    def draw(self, width: int, height: int) -> list[Line]:
        """As far as the answers are there."""
        self.picks, self.enter_word = self.mode in self.lists, self.lists.get(self.mode, "blame")
        lines, self.total = list[Line](), 0
        try:
            index, few = self.session.memories.index, len(self.session) <= _FEW
            self.ask("what memory holds", 0, index, few)
            self.fill(lines, width, height)
        except _Waiting as line:
            lines.append([*line.args])
        return lines[:height]

    def ask(self, kind: str, of: Hashable, compute: Callable[[Tell], T], quick: bool = False) -> T:
        """The answer, of lane "memory"; the next of a kind is asked for when the last has come."""
        while self.known.get(kind, (None, None))[0] != of:
            asked, run = self._asked.setdefault(kind, (of, compute))
            try:
                found: Any = self.answer(("memory", (kind, asked)), kind, run, quick)
            except KernbenchError:
                del self._asked[kind]
                if asked == of:
                    raise
                continue
            if isinstance(found, list):
                raise _Waiting(*found)
            del self._asked[kind]
            self.known[kind] = asked, found
        answer: T = self.known[kind][1]
        return answer

    def change_view(self, by: int) -> bool:
        """Rows of another view are other rows."""
        self.pick = None
        return super().change_view(by)

    def scroll_rows(self, by: int) -> None:
        """Pick a row of a list, or a cell in another; where columns go by steps, all moves."""
        self.row += 0 if self.picks else by
        self.upper += by if self.columns_a_step and not self.picks else 0
        super().scroll_rows(by)

    def scroll_page(self, by: int) -> None:
        """Rows of numbers, where there are any."""
        if self.mode in self.lists and self.mode != "overview":
            super().scroll_page(by)
        else:
            self.row, self.upper = self.row + by * self.page, self.upper + by * self.page
            self.repaint()

    def pan(self, by: int) -> bool:
        """A cell in another column; where columns go by steps, all that is shown moves."""
        self.column += by * (self.columns_a_step or 1)
        self.left += by * self.columns_a_step
        self.repaint()
        return True

    def go(self, row: int, column: int) -> None:
        """Pick a cell, and show it first."""
        self.row, self.column, self.upper, self.left = row, column, row, column

    def clamp(self) -> None:
        """Keep the cell within the tensor."""
        rows, columns = self.marked.shape
        self.row, self.column = (
            min(max(self.row, 0), rows - 1),
            min(max(self.column, 0), columns - 1),
        )

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

    def listed(self, total: int, room: int, at: int, text: Callable[[int], str]) -> list[Line]:
        """Rows to pick, as ``text`` says them; the cursor's is row ``at``."""
        first = self.first_row(total, room, at if total else None)
        rows = range(first, min(first + self.room, total))
        return [[(text(i), "pick" if i == self.pick else "")] for i in rows]

    def numbers(
        self,
        planes: tuple[str, ...],
        cells: Callable[[int, int, slice], list[str]],
        mark: Run,
        room: tuple[int, int],
        shape: tuple[int, ...],
        wide: int = 9,
        origin: tuple[int, int] = (0, 0),
    ) -> list[Line]:
        """Planes of a tensor of ``shape`` side by side, in ``room`` (width, height).

        ``cells(plane, row, columns)`` are its texts; ``mark`` is for those that are marked.
        """
        (total, extent), (r0, c0) = self.marked.shape, origin
        label = max(len(name_of(total - 1, shape)), 5)
        columns = min(max((room[0] - label - 1) // (wide + 1) // len(planes), 1), extent)
        rows = max(room[1] - 1 - (len(planes) > 1), 1)
        self.row, self.upper = _fit(self.row, self.upper, total, rows)
        self.column, self.left = _fit(self.column, self.left, extent, columns)
        self.page, part = max(rows - 1, 1), slice(self.left, self.left + columns)
        head = "".join(f"{c0 + self.left + c:>{wide}} " for c in range(columns)) * len(planes)
        names = "".join(f"{name:>{wide}}".ljust(columns * (wide + 1)) for name in planes)
        heads = (names, head)[len(planes) == 1 :]
        lines: list[Line] = [[(" " * (label + 1) + text, "title")] for text in heads]
        for r in range(self.upper, min(self.upper + rows, total)):
            name = str(r0 + r) if r0 else name_of(r, shape)
            lines.append([(f"{name:>{label}} ", "title")])
            for plane in range(len(planes)):
                for c, text in enumerate(cells(plane, r, part), self.left):
                    glyph, style = mark if self.marked[r, c] else (" ", "")
                    if (r, c) == (self.row, self.column) and self.mode != "overview":
                        text, style = f">{text}", "here"
                    lines[-1].append((f"{text:>{wide}}"[-wide:] + glyph, style))
        return lines

    def heat(
        self,
        values: Callable[[], Array],
        of: Hashable,
        top: float,
        says: str,
        room: tuple[int, int],
        shape: tuple[int, ...],
    ) -> list[Line]:
        """The largest of each block of cells of 0 to ``top``, '!' above, blank where it is NaN.

        ``values`` makes them, and ``of`` what.
        """
        most, total, ramp = (room[1] - 1, room[0] - 8), self.marked.shape, self.glyphs.ramp
        tall, wide = (-(-n // max(m, 1)) for n, m in zip(total, most, strict=True))

        def largest(tell: Tell) -> Array:
            rows = np.fmax.reduceat(values(), np.arange(0, total[0], tall), 0)
            return np.asarray(np.fmax.reduceat(rows, np.arange(0, total[1], wide), 1))

        blocks = self.ask("heat", (of, tall, wide), largest, self.marked.size <= _SMALL)
        self.clamp()
        self.page = tall * max(room[1] - 2, 1)
        says = f" {ramp[0]} 0 to {ramp[-1]} {says} of {tall}x{wide} cells; ! beyond"
        lines: list[Line] = [[(says, "dim")]]
        levels = np.nan_to_num(np.clip(blocks / (top or 1.0), 0, 1)) * (len(ramp) - 1)
        for i, row in enumerate(np.rint(levels).astype(int).tolist()):
            star = "*" if self.marked[i * tall : (i + 1) * tall].any() else " "
            lines.append([(f"{name_of(i * tall, shape):>5}", "title"), (f"{star} ", "mark")])
            for j, level in enumerate(row):
                run = (ramp[level], f"heat{level}") if blocks[i, j] <= top else ("!", "bad")
                run = (" ", "") if np.isnan(blocks[i, j]) else run
                here = (i, j) == (self.row // tall, self.column // wide)
                lines[-1].append((run[0], "here" if here else run[1]))
        return lines


def _fit(at: int, first: int, extent: int, room: int) -> tuple[int, int]:
    """``at`` within ``extent``, and the first of ``room`` of it that are shown."""
    at, first = min(max(at, 0), extent - 1), max(min(first, extent - room), 0)
    return at, min(max(first, at - room + 1), at)


def _wide(shape: tuple[int, ...]) -> int:
    """Columns of a tensor: its last axis, but vectors are folded by sixteens where that fits."""
    fold = gcd(shape[0], 16) if len(shape) == 1 else 0
    return fold if fold > 4 else shape[-1] if shape else 1


def flat2(values: Array) -> Array:
    """A tensor as rows of columns."""
    return values.reshape(-1, _wide(values.shape))


def index_of(row: int, column: int, shape: tuple[int, ...]) -> list[int]:
    """The index in a tensor of a cell of ``flat2``."""
    return [int(i) for i in np.unravel_index(row * _wide(shape) + column, shape)]


def name_of(row: int, shape: tuple[int, ...]) -> str:
    """A row of ``flat2``: its index without the last axis; of a vector its first element."""
    index = index_of(row, 0, shape)
    return ",".join(map(str, index[:-1] or index))


def within(row: int, column: int, shape: tuple[int, ...]) -> str:
    """A cell of ``flat2`` as in [3,17]."""
    return f"[{','.join(map(str, index_of(row, column, shape)))}]" if shape else ""
