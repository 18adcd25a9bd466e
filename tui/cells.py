"""What stands on the terminal, cell by cell, so that only what differs is written.

Textual writes whole lines of what was refreshed; over SSH the bytes of a step are what is felt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, cast

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.control import Control
from rich.segment import Segment
from rich.style import Style
from textual._compositor import CompositorUpdate
from textual.strip import Strip

_UNKNOWN = "?\0"  # as no character is; the right half of a wide one is ""
_BRIDGED, _OTHER = 4, Style(bold=True)
Run: TypeAlias = tuple[Style | None, int, int, str]  # style, row, column, text


class Cells(CompositorUpdate):
    """The rows of the screen: characters and styles. A cell that is not known is written.

    Put in place of ``update`` it writes what that changes.
    """

    update: CompositorUpdate

    def __init__(self) -> None:
        self._rows: dict[int, tuple[list[str], list[Style | None]]] = {}
        self._styles: dict[Style | None, Style | None] = {}  # one of equals: quick to compare

    def forget(self) -> None:
        """What stands there is not known any more."""
        self._rows.clear()

    def render_segments(self, console: Console) -> str:
        """Put the update there; the bytes that do it."""
        changed: dict[int, list[int]] = {}
        x = y = 0
        for segment in console.render(cast("RenderableType", self.update)):
            text, style, control = segment
            if control:
                _, x, y = cast("tuple[int, int, int]", control[0])
            elif text != "\n":
                plain = text.isascii() or cell_len(text) == len(text)
                cells = list(text) if plain else _halves(text)
                same = self._styles.setdefault(style, style)
                changed.setdefault(y, []).extend(self._put(x, y, cells, same))
                x += len(cells)
        spots: dict[Style | None, list[Run]] = {}
        for y, places in changed.items():
            for run in self._runs(y, places):
                spots.setdefault(run[0], []).append(run)
        written = [Segment(_text(runs), style) for style, runs in spots.items()]
        return Strip(written).render(console)

    def _put(self, x: int, y: int, fresh: list[str], style: Style | None) -> list[int]:
        """Put cells into a row; where they differ from what was there."""
        chars, styles = self._rows.setdefault(y, ([], []))
        end = x + len(fresh)
        chars += [_UNKNOWN] * (end - len(chars))
        styles += [None] * (end - len(styles))
        old, was, now = chars[x:end], styles[x:end], [style] * len(fresh)
        chars[x:end], styles[x:end] = fresh, now
        if was == now:
            pairs = zip(fresh, old, strict=True)
            return [] if fresh == old else [x + i for i, (a, b) in enumerate(pairs) if a != b]
        both = zip(zip(fresh, now, strict=True), zip(old, was, strict=True), strict=True)
        return [x + i for i, (a, b) in enumerate(both) if a != b]

    def _runs(self, y: int, places: list[int]) -> Iterator[Run]:
        """The cells there as runs of one style; a short gap of that style is written again."""
        chars, styles = self._rows[y]
        first = end = -1
        for x in places:
            x -= not chars[x]  # a wide character is written from its left half
            between = styles[end:x] if x - end < _BRIDGED else [_OTHER]
            if first < 0 or any(style is not styles[first] for style in [*between, styles[x]]):
                if first >= 0:
                    yield styles[first], y, first, "".join(chars[first:end])
                first = x
            end = max(x + cell_len(chars[x]), end)
        if first >= 0:
            yield styles[first], y, first, "".join(chars[first:end])


def _halves(text: str) -> list[str]:
    return [half for char in text for half in (char, "")[: max(cell_len(char), 1)]]


def _text(runs: list[Run]) -> str:
    """All runs of one style, with the moves between them: a style costs more bytes than a move."""
    out, row, end = "", -1, 0
    for _, y, x, text in runs:
        near = y == row and x >= end
        out += f"\x1b[{x - end}C" * (x > end) if near else Control.move_to(x, y).segment.text
        out, row, end = out + text, y, x + cell_len(text)
    return out
