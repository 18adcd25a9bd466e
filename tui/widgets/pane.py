"""What all numbered panes share: lazy lines, rows that scroll, and repainting changed lines only.

A pane asks the session while it draws, and draws only while it is displayed; so what is hidden
costs a step nothing. It knows no other widget.
"""

from __future__ import annotations

from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from kernbench.errors import KernbenchError
from kernbench.replay import ReplaySession
from tui.messages import Activate, RunCommand
from tui.widgets.draw import STYLES, Glyphs, Line, rule, strip


class Pane(Widget):
    """Base of the panes: a subclass gives ``draw`` and, where rows can be entered, ``enter``."""

    DEFAULT_CSS = "Pane { position: absolute; }"
    ALLOW_SELECT = False
    number = 0
    title = ""
    picks = True  # rows are picked one by one; else the text just scrolls

    def __init__(self, session: ReplaySession, glyphs: Glyphs) -> None:
        super().__init__(id=f"pane-{self.number}")
        self.session, self.glyphs = session, glyphs
        self.subtitle = ""
        self.active, self.titled, self.gap = False, True, 0
        self.top, self.total, self.room = 0, 0, 1
        self.pick: int | None = None
        self._strips: list[Strip] = []
        self._drawn: tuple[int, int, int, bool, bool] | None = None

    # -- for subclasses

    def draw(self, width: int, height: int) -> list[Line]:
        """The lines below the title, at most ``height``."""
        raise NotImplementedError

    def enter(self) -> str | None:
        """The command line that Enter on the picked row runs, if any."""
        return None

    def pan(self, by: int) -> bool:
        """Move sideways by ``by`` steps; False if this pane does not."""
        return False

    def first_row(self, total: int, room: int, at: int | None = None) -> int:
        """The first row to show of ``total`` in ``room``, so that the picked one, or ``at``, is seen."""
        self.total, self.room = total, max(room, 1)
        if self.pick is not None:
            self.pick = min(self.pick, max(total - 1, 0))
            at = self.pick
        if at is not None:
            margin = min(2, (self.room - 1) // 2)
            self.top = min(max(self.top, at + margin - self.room + 1), max(at - margin, 0))
        self.top = max(min(self.top, total - self.room), 0)
        self.at = at
        return self.top

    at: int | None = None

    # -- for the screen

    def follow(self) -> None:
        """The cursor moved: forget the pick, show what is there now."""
        self.pick = None
        if not self.picks:
            self.top = 0
        self.repaint()

    def scroll_rows(self, by: int) -> None:
        """Move the picked row, or the text, by ``by`` rows."""
        if self.picks:
            self.pick = min(max((self.at or 0) + by, 0), max(self.total - 1, 0))
        else:
            self.top = max(min(self.top + by, self.total - self.room), 0)
        self.repaint()

    def place(self, region: Region, titled: bool, active: bool) -> None:
        """Stand at ``region`` of the body; a pane that is not at the left edge draws a bar there."""
        self.display = True
        self.styles.offset = (region.x, region.y)
        self.styles.width, self.styles.height = region.width, region.height
        self.titled, self.active, self.gap = titled, active, 2 if region.x else 0

    def repaint(self) -> None:
        """Draw anew and refresh the lines that differ from those on screen."""
        self._drawn, old = None, self._strips
        if not self.display or not self.size:
            return
        self._build()
        new, width = self._strips, self.size.width
        changed = [y for y, line in enumerate(new) if y >= len(old) or line != old[y]]
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    # -- Textual

    def render_line(self, y: int) -> Strip:
        """One line of the pane, built with all the others if anything changed."""
        if self._drawn != (*self.size, self.gap, self.titled, self.active):
            self._build()
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)

    def _build(self) -> None:
        width, height = self.size.width - self.gap, self.size.height
        try:
            lines = self.draw(width, max(height - self.titled, 0))
        except KernbenchError as error:
            lines = [[(str(error), "wait")]]
        if self.titled:
            lines.insert(0, self._title(width))
        lines += [[]] * (height - len(lines))
        bar = [Segment(self.glyphs.bar + " ", STYLES["rule"])] if self.gap else []
        self._strips = [
            Strip([*bar, *strip(line, width)], width + self.gap) for line in lines[:height]
        ]
        self._drawn = (*self.size, self.gap, self.titled, self.active)

    def _title(self, width: int) -> Line:
        text, style = f" {self.number} {self.title} ", "title"
        if self.active:
            text, style = f"[{self.number} {self.title}]", "active"
        return rule([(self.glyphs.rule, "rule"), (text, style)], self.subtitle, width, self.glyphs)

    def on_click(self, event: events.Click) -> None:
        """Activate the pane; a click on a row of a list picks it."""
        self.post_message(Activate(self.number))
        row = self.top + event.y - self.titled - self.header
        if self.picks and 0 <= row - self.top < self.room and row < self.total:
            self.pick = row
            line = self.enter()
            if line is not None:
                self.post_message(RunCommand(line))
            self.repaint()

    header = 0  # lines above the first row

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Three rows down."""
        self.scroll_rows(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Three rows up."""
        self.scroll_rows(-3)
