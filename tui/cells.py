"""What stands on the terminal, cell by cell, so that only what differs is written.

Textual writes whole lines of what was refreshed; over SSH the bytes of a step are what is felt.
"""

from __future__ import annotations

import re
from functools import lru_cache
from operator import is_not, ne, or_
from typing import Any, NamedTuple, TypeAlias, cast

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.control import Control
from rich.style import Style
from textual._compositor import CompositorUpdate

_UNKNOWN = "?\0"  # as no character is; the right half of a wide one is ""
_CHANGED = re.compile(
    b"\1+(?:\0{1,3}\1+)*"
)  # a short gap is written again: a move takes 4 bytes
# SGR: what sets an attribute, and what ends it; bold and dim end together
_ATTRIBUTES = {"bold": (1, 22), "dim": (2, 22), "italic": (3, 23), "underline": (4, 24)}
_ATTRIBUTES |= {
    "blink": (5, 25),
    "reverse": (7, 27),
    "conceal": (8, 28),
    "strike": (9, 29),
}
Run: TypeAlias = tuple[int, int, int, str]  # row, column, column after it, text


class Ink(NamedTuple):
    """A style as SGR parameters: of its attributes (set, end), foreground, background."""

    attributes: frozenset[tuple[int, int]]
    fore: str
    back: str


PLAIN = Ink(frozenset(), "39", "49")


class Cells(CompositorUpdate):
    """The rows of the screen: characters and styles. A cell that is not known is written.

    Put in place of ``update`` it writes what that changes.
    """

    update: CompositorUpdate

    def __init__(self) -> None:
        self._rows: dict[int, tuple[list[str], list[Style | None]]] = {}
        self._styles: dict[
            Style | None, Style | None
        ] = {}  # one of equals: quick to compare

    def forget(self) -> None:
        """What stands there is not known any more."""
        self._rows.clear()

    def render_segments(self, console: Console) -> str:
        """Put the update there; the bytes that do it, each style at a time."""
        spots: dict[Style | None, list[Run]] = {}
        x = y = 0
        parts: Any = self.update
        for part in parts.__rich_console__(console, console.options):
            text, style, control = part.segment if isinstance(part, Control) else part
            if control:
                _, x, y = cast("tuple[int, int, int]", control[0])
            elif text != "\n":
                plain = text.isascii() or cell_len(text) == len(text)
                fresh = list(text) if plain else _halves(text)
                same = self._styles.setdefault(style, style)
                if runs := self._put(x, y, fresh, same):
                    spots.setdefault(same, []).extend(runs)
                x += len(fresh)
        out, ink, system = list[str](), PLAIN, console._color_system
        for style, runs in spots.items():
            then = ink_of(style or Style.null(), system)
            out += change(ink, then), _text(runs, console.width)
            ink = then
        return "".join([*out, change(ink, PLAIN)])

    def _put(self, x: int, y: int, fresh: list[str], style: Style | None) -> list[Run]:
        """Put cells into a row; the runs of those that differ from what was there."""
        chars, styles = self._rows.setdefault(y, ([], []))
        end = x + len(fresh)
        if len(chars) < end:
            styles += [None] * (end - len(chars))
            chars += [_UNKNOWN] * (end - len(chars))
        old, was, now = chars[x:end], styles[x:end], [style] * len(fresh)
        chars[x:end], styles[x:end] = fresh, now
        if fresh == old and was == now:
            return []
        mask = map(or_, map(ne, fresh, old), map(is_not, was, now))
        found = []
        for match in _CHANGED.finditer(bytes(mask)):
            low, high = match.span()
            low -= (
                low > 0 and not fresh[low]
            )  # a wide character is written from its left half
            high += high < len(fresh) and not fresh[high]
            found.append((y, x + low, x + high, "".join(fresh[low:high])))
        return found


def _halves(text: str) -> list[str]:
    return [half for char in text for half in (char, "")[: max(cell_len(char), 1)]]


@lru_cache(maxsize=1024)
def ink_of(style: Style, system: ColorSystem | None) -> Ink:
    """A style on a terminal of these colours; None: of none."""
    if system is None:
        return PLAIN
    attributes = frozenset(
        code for name, code in _ATTRIBUTES.items() if getattr(style, name)
    )
    grounds = [
        None
        if color is None
        else ";".join(color.downgrade(system).get_ansi_codes(front))
        for color, front in ((style.color, True), (style.bgcolor, False))
    ]
    return Ink(attributes, grounds[0] or PLAIN.fore, grounds[1] or PLAIN.back)


@lru_cache(maxsize=4096)
def change(ink: Ink, then: Ink) -> str:
    """The shortest SGR sequence from one ink to another."""
    if ink == then:
        return ""
    ended = {end for _, end in ink.attributes - then.attributes}
    kept = {code for code in ink.attributes if code[1] not in ended}
    grounds = zip(
        (ink.fore, ink.back),
        (then.fore, then.back),
        (PLAIN.fore, PLAIN.back),
        strict=True,
    )
    delta, anew = [*map(str, sorted(ended))], [""]
    for begin in sorted(begin for begin, _ in then.attributes - kept):
        delta.append(str(begin))
    anew += [str(begin) for begin, _ in sorted(then.attributes)]
    for here, there, plain in grounds:
        delta += [there] * (here != there)
        anew += [there] * (there != plain)
    return "\x1b[" + min(";".join(delta), ";".join(anew), key=len) + "m"


def _text(runs: list[Run], width: int) -> str:
    """All runs of one style, with the moves between them: a style costs more bytes than a move."""
    out, row, at = list[str](), -1, 0
    for y, x, end, text in runs:
        move = f"\x1b[{y + 1};{x + 1}H"
        if 0 <= row <= y and at < width:  # behind the last column nothing is relative
            down = "" if y == row else f"\x1b[{y - row if y > row + 1 else ''}B"
            step = (
                f"\x1b[{x - at if x > at + 1 else ''}C" if x > at else "\b" * (at - x)
            )
            move = min(down + step, move, key=len)
        out += move, text
        row, at = y, end
    return "".join(out)
