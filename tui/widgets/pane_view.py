"""The one widget of all panes: it turns the lines of a picture into strips.

Owns where a pane stands, its title line, and which lines of the terminal are written
anew: those whose strip is another object than the one that stands there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from rich.segment import Segment
from textual import events, on
from textual.filter import ANSIToTruecolor
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from tui.draw import STYLES, Glyphs, Line, Run, rule, strip
from tui.messages import PaneClicked, PaneScrolled
from tui.panes.base import Picture

_LINES_KEPT = 4096
_PICTURES_KEPT = 128
_SHAPES_KEPT = 2
"""Widths and heights of which strips are kept: a pane alone, and beside the others."""
_WHEEL_ROWS = 3
_GAP = 2
"""Columns of the bar between a pane and the one to its left."""


class _Shape(NamedTuple):
    """What the strips of a picture depend on: the place of a pane without its corner.

    ``gap`` are the columns of the bar to its left.
    """

    width: int
    height: int
    gap: int
    titled: bool


class _Strips:
    """The strips that were made for one shape, of lines and of whole pictures."""

    def __init__(self) -> None:
        self.by_line: OrderedDict[tuple[Run, ...], Strip] = OrderedDict()
        self.by_picture: OrderedDict[Picture, list[Strip]] = OrderedDict()


class PaneView(Widget):
    """Shows pictures at a place of the screen's body, or nothing."""

    DEFAULT_CSS = "PaneView { position: absolute; }"
    ALLOW_SELECT = False

    def __init__(self, key: str, glyphs: Glyphs) -> None:
        super().__init__(id=f"pane-{key}")
        self.key = key
        self._glyphs = glyphs
        self._titled = True
        self._gap = 0
        self._place: Region | None = None
        self._picture = Picture(())
        self._shown_in = Size(-1, -1)
        self._heading = ""
        self._active = False
        self._strips: list[Strip] = []
        self._made = _Strips()
        self._made_for: OrderedDict[_Shape, _Strips] = OrderedDict()

    # -- where it stands ----------------------------------------------------------

    def place_at(self, region: Region | None, titled: bool) -> None:
        """Stand at a region of the body, or nowhere; away from the left edge a bar is
        drawn.

        ``titled``: its first line is the title, else that stands elsewhere.
        """
        self.display = region is not None
        if region is None or (region == self._place and titled == self._titled):
            self._place = region
            return
        self._place = region
        self._titled = titled
        self._gap = _GAP if region.x else 0
        shape = _Shape(region.width, region.height, self._gap, titled)
        self._made = self._made_for.pop(shape, _Strips())
        self._made_for[shape] = self._made
        if len(self._made_for) > _SHAPES_KEPT:
            self._made_for.popitem(last=False)
        self.styles.offset = (region.x, region.y)
        self.styles.width = region.width
        self.styles.height = region.height
        self._strips = self._composed()

    @property
    def room(self) -> Size:
        """Columns and lines that a picture has; (0, 0) while it stands nowhere."""
        if self._place is None:
            return Size(0, 0)
        width = self._place.width - self._gap
        height = self._place.height - self._title_lines
        return Size(max(width, 0), max(height, 0))

    @property
    def _title_lines(self) -> int:
        return 1 if self._titled else 0

    # -- what it shows ------------------------------------------------------------

    def prepare(self, picture: Picture) -> None:
        """Make the strips of a picture that may be shown next."""
        self._strips_of(picture)

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
        self._active = active
        old = self._strips
        self._strips = self._composed()
        if len(old) != len(self._strips):
            self.refresh()
            return
        width = self._place.width if self._place is not None else 0
        pairs = enumerate(zip(self._strips, old, strict=True))
        changed = [Region(0, y, width, 1) for y, (new, was) in pairs if new is not was]
        if changed:
            self.refresh(*changed)

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
        return "\n".join(strip.text.rstrip() for strip in self._strips).rstrip("\n")

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines as they were built; there is no border or padding to add."""
        lines = self._strips[crop.y : crop.bottom]
        missing = crop.height - len(lines)
        if missing:
            blank = self._filtered(Strip.blank(self.size.width, STYLES[""]))
            lines = lines + [blank] * missing
        span = crop.column_span
        if span == (0, self.size.width):
            return lines
        return [line.crop(*span) for line in lines]

    def _composed(self) -> list[Strip]:
        """The title, and the lines of the picture."""
        if self._place is None:
            return []
        strips = self._strips_of(self._picture)
        if not self._titled:
            return strips
        return [self._strip_of(self._title()), *strips]

    def _title(self) -> Line:
        name = f"[{self._heading}]" if self._active else f" {self._heading} "
        style = "active" if self._active else "title"
        left = [(self._glyphs.rule, "rule"), (name, style)]
        return rule(left, self._picture.subtitle, self.room.width, self._glyphs)

    def _strips_of(self, picture: Picture) -> list[Strip]:
        """A strip for each line that there is room for."""
        made = self._made.by_picture
        found = made.get(picture)
        if found is None:
            height = self.room.height
            lines: list[Sequence[Run]] = [*picture.lines[:height]]
            lines += [[]] * (height - len(lines))
            found = [self._strip_of(line) for line in lines]
            made[picture] = found
            if len(made) > _PICTURES_KEPT:
                made.popitem(last=False)
        return found

    def _strip_of(self, line: Sequence[Run]) -> Strip:
        """One object for equal lines, so that what did not change is not
        written again.
        """
        key = tuple(line)
        made = self._made.by_line
        found = made.get(key)
        if found is None:
            bar = [Segment(f"{self._glyphs.bar} ", STYLES["rule"])] if self._gap else []
            found = self._filtered(Strip([*bar, *strip(line, self.room.width)]))
            made[key] = found
            if len(made) > _LINES_KEPT:
                made.popitem(last=False)
        return found

    def _filtered(self, line: Strip) -> Strip:
        """A line without what NO_COLOR forbids. These styles have no colours of 16
        to be made true ones.
        """
        for colours in self.get_line_filters():
            if not isinstance(colours, ANSIToTruecolor):
                line = line.apply_filter(colours, self.background_colors[1])
        return line

    # -- the mouse ----------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """A click activates the pane, and may mean a row or a cell of it."""
        self.post_message(
            PaneClicked(self.key, event.x - self._gap, event.y - self._title_lines)
        )

    @on(events.MouseScrollDown)
    def _wheel_down(self, event: events.MouseScrollDown) -> None:
        self.post_message(PaneScrolled(self.key, _WHEEL_ROWS))

    @on(events.MouseScrollUp)
    def _wheel_up(self, event: events.MouseScrollUp) -> None:
        self.post_message(PaneScrolled(self.key, -_WHEEL_ROWS))
