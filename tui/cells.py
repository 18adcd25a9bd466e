"""What stands on the terminal, cell by cell, so that only what differs is written.

Textual writes whole lines of what was refreshed; over SSH the bytes of a step are what is felt.
"""

from __future__ import annotations

from typing import cast

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.control import Control
from rich.segment import Segment
from rich.style import Style
from textual._compositor import CompositorUpdate
from textual.strip import Strip

_UNKNOWN = "?\0"  # as no character is; the right half of a wide one is ""
_ANY, _PLAIN = "\0", "\x1b[0m"


class Cells(CompositorUpdate):
    """The rows of the screen: characters and styles. A cell that is not known is written.

    Put in place of ``update`` it writes what that changes.
    """

    update: CompositorUpdate

    def __init__(self) -> None:
        self._rows: dict[int, tuple[list[str], list[Style | None]]] = {}
        self._pen: Style | None = None  # the style in which the terminal writes; None: plain
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
        self._pen = None
        lines = [self._written(y, places, console) for y, places in changed.items() if places]
        return f"{_PLAIN}{''.join(lines)}{_PLAIN}" if lines else ""

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

    def _written(self, y: int, places: list[int], console: Console) -> str:
        """The cells there, as few bytes as can be: the pen is changed where it must be."""
        chars, styles = self._rows[y]
        out, at = "", -1
        for x in places:
            x -= not chars[x]  # a wide character is written from its left half
            if x < at:
                continue
            between = range(at, x)
            if at < 0:
                out += Control.move_to(x, y).segment.text
            elif len(between) < 4 and all(styles[i] is self._pen for i in between):
                out += "".join(chars[at:x])
            elif between:
                out += f"\x1b[{len(between)}C"
            if styles[x] is not self._pen:
                self._pen = styles[x]
                codes = Strip([Segment(_ANY, self._pen)]).render(console).partition(_ANY)[0]
                out += f"\x1b[0;{codes[2:]}" if codes else _PLAIN
            out += chars[x]
            at = max(x + cell_len(chars[x]), at)
        return out


def _halves(text: str) -> list[str]:
    return [half for char in text for half in (char, "")[: max(cell_len(char), 1)]]
