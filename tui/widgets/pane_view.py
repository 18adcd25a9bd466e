"""The one widget of all panes: it turns the lines of a picture into strips.

Owns where a pane stands, its title line, and which lines of the terminal are written
anew: those whose strip is another object than the one that stands there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple, cast

from textual import events, on
from textual.geometry import Region, Size
from textual.strip import Strip

from tui.ansi import DiffApp, StripWidget
from tui.draw import Glyphs, Line, Run, cut, rule, strip
from tui.messages import PaneClicked, PaneScrolled
from tui.newest import Newest
from tui.panes.base import Picture

_LINES_KEPT = 4096
_PICTURES_KEPT = 128
_SHAPES_KEPT = 4
"""Shapes of which strips are kept: a pane alone, and beside the others, active or
not.
"""
_WHEEL_ROWS = 3


class _Shape(NamedTuple):
    """What the strips of a picture depend on: the place of a pane without its corner,
    and what is around the picture.
    """

    width: int
    height: int
    titled: bool
    bordered: bool
    active: bool


def room_in(region: Region, titled: bool, bordered: bool) -> Size:
    """Columns and lines that a picture has in a region: without its title, unless that
    stands elsewhere, and without its borders.
    """
    width = region.width
    height = region.height
    if titled:
        height -= 1
    if bordered:
        width -= 2
        height -= 1
    return Size(max(width, 0), max(height, 0))


class _Strips:
    """The strips that were made for one shape: of lines as they are written, of lines
    of pictures, which are fitted into it first, and of whole pictures.
    """

    def __init__(self) -> None:
        self.by_line = Newest[tuple[Run, ...], Strip](_LINES_KEPT)
        self.by_content = Newest[tuple[Run, ...], Strip](_LINES_KEPT)
        self.by_picture = Newest[Picture, list[Strip]](_PICTURES_KEPT)


class PaneView(StripWidget):
    """Shows pictures at a place of the screen's body, or nothing."""

    DEFAULT_CSS = "PaneView { position: absolute; }"

    def __init__(self, key: str, glyphs: Glyphs) -> None:
        super().__init__(id=f"pane-{key}")
        self.key = key
        self._glyphs = glyphs
        self._titled = True
        self._bordered = False
        self._place: Region | None = None
        self._picture = Picture(())
        self._shown_in = Size(-1, -1)
        self._heading = ""
        self._active = False
        self._strips: list[Strip] | None = None
        """Of what is shown; None where nobody has asked for them since it was placed
        elsewhere.
        """
        self._made = _Strips()
        self._made_for: OrderedDict[_Shape, _Strips] = OrderedDict()

    # -- where it stands ----------------------------------------------------------

    def place_at(
        self, region: Region | None, titled: bool, bordered: bool = False
    ) -> None:
        """Stand at a region of the body, or nowhere.

        ``titled``: its first line is the title, else that stands elsewhere.
        ``bordered``: there are lines around it.
        """
        self.display = region is not None
        here = (self._place, self._titled, self._bordered)
        if region is None or here == (region, titled, bordered):
            self._place = region
            return
        self._place = region
        self._titled = titled
        self._bordered = bordered
        self._take_strips()
        self.styles.offset = (region.x, region.y)
        self.styles.width = region.width
        self.styles.height = region.height
        self._strips = None

    @property
    def room(self) -> Size:
        """Columns and lines that a picture has; (0, 0) while it stands nowhere."""
        if self._place is None:
            return Size(0, 0)
        return room_in(self._place, self._titled, self._bordered)

    def _take_strips(self) -> None:
        """Take up the strips that were made for what is around the picture now."""
        if self._place is None:
            return
        shape = _Shape(
            self._place.width,
            self._place.height,
            self._titled,
            self._bordered,
            self._active,
        )
        self._made = self._made_for.pop(shape, _Strips())
        self._made_for[shape] = self._made
        if len(self._made_for) > _SHAPES_KEPT:
            self._made_for.popitem(last=False)

    @property
    def _title_lines(self) -> int:
        return 1 if self._titled else 0

    # -- what it shows ------------------------------------------------------------

    def prepare(self, picture: Picture) -> None:
        """Make the strips of a picture that may be shown next, and their cells."""
        cast(DiffApp, self.app).cells.prepare(self._composed(picture))

    def put(self, picture: Picture, heading: str, active: bool) -> None:
        """Show a picture under a heading, marked if the pane is the active one."""
        if (
            picture is self._picture
            and heading == self._heading
            and active == self._active
        ):
            return
        self._picture = picture
        self._shown_in = self.room
        self._heading = heading
        if active != self._active:
            self._active = active
            self._take_strips()
        old = self._strips
        strips = self._strips = self._composed(self._picture)
        if old is None or len(old) != len(strips):
            self.show_anew()
            return
        width = self._place.width if self._place is not None else 0
        pairs = enumerate(zip(strips, old, strict=True))
        changed = [Region(0, y, width, 1) for y, (new, was) in pairs if new is not was]
        if changed:
            self.show_anew(*changed)

    @property
    def picture(self) -> Picture:
        """What is shown."""
        return self._picture

    @property
    def fits(self) -> bool:
        """Whether what is shown was drawn for the size that it has."""
        return self._shown_in == self.room

    @property
    def text(self) -> str:
        """What is shown, as lines."""
        return "\n".join(strip.text.rstrip() for strip in self.strips()).rstrip("\n")

    def strips(self) -> list[Strip]:
        """The title, the lines of the picture, and the border below."""
        if self._strips is None:
            self._strips = self._composed(self._picture)
        return self._strips

    def _composed(self, picture: Picture) -> list[Strip]:
        """The title, and the lines of a picture."""
        if self._place is None:
            return []
        strips = self._strips_of(picture)
        if self._bordered and self._place.height > 1:
            strips = [*strips, self._strip_of(self._bottom())]
        if not self._titled:
            return strips
        return [self._strip_of(self._title(picture.subtitle)), *strips]

    @property
    def _rule_style(self) -> str:
        """The style of its borders: those of the active pane are bright."""
        return "frame" if self._active else "rule"

    def _title(self, subtitle: str) -> Line:
        name = f"[{self._heading}]" if self._active else f" {self._heading} "
        style = "active" if self._active else "title"
        left = self._glyphs.rule
        right = ""
        if self._bordered:
            left = self._glyphs.corners[0] + self._glyphs.rule
            right = self._glyphs.rule + self._glyphs.corners[1]
        line = rule(
            [(left, self._rule_style), (name, style)],
            subtitle,
            self._columns - len(right),
            self._glyphs,
            self._rule_style,
        )
        return [*line, (right, self._rule_style)]

    def _bottom(self) -> Line:
        left = self._glyphs.corners[2]
        right = self._glyphs.corners[3]
        flat = self._glyphs.rule * (self._columns - 2)
        return [(f"{left}{flat}{right}", self._rule_style)]

    @property
    def _columns(self) -> int:
        return 0 if self._place is None else self._place.width

    def _strips_of(self, picture: Picture) -> list[Strip]:
        """A strip for each line that there is room for."""

        def made() -> list[Strip]:
            height = self.room.height
            lines: list[Sequence[Run]] = [*picture.lines[:height]]
            lines += [[]] * (height - len(lines))
            return [self._strip_within(line) for line in lines]

        return self._made.by_picture.get(picture, made)

    def _strip_within(self, line: Sequence[Run]) -> Strip:
        """The strip of a line of the picture: most lines of a picture were in the one
        before.
        """
        return self._made.by_content.get(
            tuple(line), lambda: self._strip_of(self._within(line))
        )

    def _within(self, line: Sequence[Run]) -> Sequence[Run]:
        """A line of the picture, between the borders if there are any; it shows where
        it is cut.
        """
        fitted = cut(line, self.room.width, self._glyphs)
        if not self._bordered:
            return fitted
        bar = (self._glyphs.bar, self._rule_style)
        return [bar, *fitted, bar]

    def _strip_of(self, line: Sequence[Run]) -> Strip:
        """One object for equal lines, so that what did not change is not
        written again.
        """
        return self._made.by_line.get(
            tuple(line), lambda: self.filtered(strip(line, self._columns))
        )

    # -- the mouse ----------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """A click activates the pane, and may mean a row or a cell of it."""
        self.post_message(
            PaneClicked(
                self.key,
                event.x - (1 if self._bordered else 0),
                event.y - (1 if self._titled else 0),
            )
        )

    @on(events.MouseScrollDown)
    def _wheel_down(self, event: events.MouseScrollDown) -> None:
        self.post_message(PaneScrolled(self.key, _WHEEL_ROWS))

    @on(events.MouseScrollUp)
    def _wheel_up(self, event: events.MouseScrollUp) -> None:
        self.post_message(PaneScrolled(self.key, -_WHEEL_ROWS))
