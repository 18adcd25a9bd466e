"""What all panes share: lines drawn only while displayed (what is hidden costs a step nothing),
rows that scroll, and repainting of changed lines only. A pane knows no other widget.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from rich.segment import Segment
from textual import events, on
from textual.filter import ANSIToTruecolor
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from kernbench.errors import KernbenchError
from kernbench.replay import ReplaySession
from kernbench.replay.job import Job
from kernbench.replay.progress import Progress as Tell
from tui.jobs import PATIENCE_S, Jobs, Key, KeyWaits
from tui.messages import Activate, RunCommand
from tui.widgets.draw import STYLES, Glyphs, Line, Run, rule, strip

T = TypeVar("T")
# ops: an answer about no more of them is computed at once; takes some ten ms
QUICK, LIGHT = 1 << 14, 1 << 21
BEFORE: Line = [
    (" before the first op: ", "dim"),
    ("s", "bold"),
    (" steps to it", "dim"),
]
NO_OPS: Line = [(" this trace has no ops", "dim")]


class Pane(Widget):
    """Base of the panes: a subclass gives ``draw`` and, where rows can be entered, ``enter``."""

    DEFAULT_CSS = "Pane { position: absolute; }"
    ALLOW_SELECT = False
    number, title = 0, ""
    picks = True  # rows are picked one by one; else the text just scrolls
    header = 0  # lines above the first row
    columns_a_step = 0  # of numbers, that h and l move by
    views: tuple[
        str, ...
    ] = ()  # what v and V go through; the title names the one shown
    enter_word = "go"  # what Enter does, in the footer

    def __init__(self, session: ReplaySession, glyphs: Glyphs) -> None:
        super().__init__(id=f"pane-{self.number}")
        self.session, self.glyphs, self.subtitle = session, glyphs, ""
        self.span = (
            session.launch_window
        )  # the times, ns, that the timeline shows: the screen's
        self.jobs, self.waiting, self.view = Jobs(), False, 0
        self.active, self.titled, self.gap = False, True, 0
        self.top, self.total, self.room, self.column = 0, 0, 1, 0
        self.pick: int | None = (
            None  # the row that the user picked; None: as the cursor has it
        )
        self.at: int | None = None  # that row, or the cursor's
        self.seek = True  # the next drawing goes to what the cursor changed
        self._lines, self._strips = list[Line](), list[Strip]()
        self._made, self._wide = dict[tuple[Run, ...], Strip](), (0, 0)
        self._drawn: tuple[object, ...] | None = None
        self._since: float | None = None  # when it began to wait, s
        self._asks = dict[
            Key, bool
        ]()  # what the last drawing asked for, and whether it waits
        self._ahead = dict[
            int, dict[str, Any]
        ]()  # what it will be at other ops, if nothing else

    def draw(self, width: int, height: int) -> list[Line]:
        """The lines below the title, at most ``height``."""
        raise NotImplementedError

    def enter(self) -> str | None:
        """The command line that Enter on the picked row runs, if any."""
        return None

    def change_view(self, by: int) -> bool:
        """Show the next or previous view; False if there is one only."""
        self.view = (self.view + by) % max(len(self.views), 1)
        self.seek = True
        self.repaint()
        return len(self.views) > 1

    @property
    def mode(self) -> str:
        """The name of the view that is shown."""
        return self.views[self.view]

    @property
    def heading(self) -> str:
        """The title, with the view that is shown unless it is the first."""
        return f"{self.title}: {self.mode}" if self.view else self.title

    @property
    def text(self) -> str:
        """What is shown, as lines."""
        return "\n".join(strip.text.rstrip() for strip in self._strips).rstrip("\n")

    def place(self) -> str | None:
        """The bytes that are picked, as ``watch`` and ``blame`` name them; None: the op's own."""
        return None

    def idle(self) -> None:
        """What is likely was drawn ahead: begin, as ``Jobs.spare``, what few other keys need."""

    def rest(self) -> None:
        """No key comes: compute what nobody has asked for, as ``Jobs.spare``."""

    def back(self) -> bool:
        """Let go of what the user keeps here; False if there is nothing."""
        return False

    def delete(self) -> None:
        """Forget what the picked row stands for, where a pane has such rows."""

    def next_mark(self, by: int) -> bool:
        """To the next or previous cell that is marked; False if there is none."""
        return False

    def pin(self) -> bool:
        """Keep the picked row on top, or let go of it; False if this pane does not."""
        return False

    def answer(
        self,
        key: Key,
        title: str,
        compute: Callable[[Tell], T],
        quick: bool = False,
        light: bool = False,
    ) -> T | Line:
        """The answer, or while its job runs the line to show; see ``Jobs.ask``.

        What the next drawing does not ask for any more is given up.
        """
        found = self.jobs.ask(key, title, compute, quick, light=light)
        if not self.jobs.ahead:
            self._asks = self._asks | {key: isinstance(found, Job)}
        if not isinstance(found, Job):
            return found
        self.waiting = True
        return [
            (f" computing {title}: {found.done:.0%}", "mark"),
            ("  Esc cancels", "dim"),
        ]

    def pan(self, by: int) -> bool:
        """Move sideways by ``by`` steps; False if this pane does not."""
        self.column = max(self.column + self.columns_a_step * by, 0)
        self.repaint()
        return bool(self.columns_a_step)

    def first_row(self, total: int, room: int, at: int | None = None) -> int:
        """The first of ``total`` rows to show in ``room`` so that the picked one or ``at`` is."""
        self.total, self.room = total, max(room, 1)
        self.at = at if self.pick is None else min(self.pick, max(total - 1, 0))
        if self.at is not None:
            margin = min(2, (self.room - 1) // 2)
            top = min(max(self.top, self.at + margin - self.room + 1), self.at - margin)
            if (
                top != self.top and self.pick is None
            ):  # the cursor left: not a line a step
                top = self.at - self.room // 2
            self.top = top
        self.top = max(min(self.top, total - self.room), 0)
        return self.top

    @property
    def alone(self) -> bool:
        """Whether what it shows depends on no other pane."""
        return True

    def look_ahead(self, op: int) -> bool:
        """Draw what ``arrive`` shall show at ``op``; False if a job or a key has to come first."""
        if op in self._ahead or not (self.display and self.size and self.alone):
            return True
        session, here, was = self.session, self.session.cursor, vars(self).copy()
        session.cursor, self.jobs.ahead, late = op, True, True
        try:
            self.follow()
            late = self.waiting
        except KeyWaits:
            pass
        finally:
            session.cursor, self.jobs.ahead = here, False
            new = {
                name: x for name, x in vars(self).items() if was.get(name, was) is not x
            }
            for name in new.keys() - was.keys():
                delattr(self, name)
            vars(self).update(was)
        if not late:
            self._ahead[op] = new
        return not late

    def arrive(self) -> None:
        """The cursor moved: show what was drawn for it ahead, or draw it."""
        ahead, old = self._ahead.get(self.session.cursor), self._strips
        if ahead is None:
            self.follow()
        else:
            vars(self).update(ahead, _ahead={})
            self._show(old)

    def follow(self) -> None:
        """The cursor moved: forget the pick, show what is there now."""
        self.pick, self.seek = None, True
        if not self.picks:
            self.top = 0
        self.repaint()

    def scroll_rows(self, by: int) -> None:
        """Move the picked row, or the text, by ``by`` rows."""
        if self.picks:
            self.pick = min(max((self.at or 0) + by, 0), max(self.total - 1, 0))
        self.top += 0 if self.picks else max(min(by, self.total), -self.total)
        self.repaint()

    def scroll_page(self, by: int) -> None:
        """The same by what the pane shows."""
        self.scroll_rows(by * max(self.room - 1, 1))

    def stand(self, region: Region | None, titled: bool, active: bool) -> None:
        """Stand at ``region`` of the body, or nowhere; away from the left edge a bar is drawn."""
        self.display = region is not None
        if region is not None:
            self.styles.offset = (region.x, region.y)
            self.styles.width, self.styles.height = region.width, region.height
            self.titled, self.gap, was = titled, 2 if region.x else 0, self.active
            self.active = active
            if self._drawn == (region.size, self.gap, titled) and was != active:
                old, self._ahead = self._strips, {}
                self._finish(region.size)
                self._show(old)
            elif self.size == region.size and self._drawn != (
                region.size,
                self.gap,
                titled,
            ):
                self.repaint()  # a new size draws by itself

    def repaint(self) -> None:
        """Draw anew and refresh the lines that differ from those on screen."""
        self._drawn, old, size = None, self._strips, self.size
        if not self.display or not size:
            return
        self._build(size)
        if not self.jobs.ahead:
            self._show(old)

    def _show(self, old: list[Strip]) -> None:
        """Refresh the lines that differ from ``old``."""
        pairs, wide = enumerate(zip(self._strips, old, strict=False)), self.size.width
        changed = [Region(0, y, wide, 1) for y, (new, was) in pairs if new is not was]
        if changed:
            self.refresh(*changed)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines as they were built; there is no border or padding for Textual to add."""
        size = self.size
        if self._drawn != (size, self.gap, self.titled):
            self._build(size)
        lines, span = self._strips[crop.y : crop.bottom], crop.column_span
        return (
            lines if span == (0, size.width) else [line.crop(*span) for line in lines]
        )

    def _build(self, size: Size) -> None:
        width, height = size.width - self.gap, size.height
        self.waiting, asked = False, self._asks
        if not self.jobs.ahead:
            self._ahead, self._asks = {}, {}
        try:
            lines = self.draw(width, max(height - self.titled, 0))
        except KernbenchError as error:
            lines = [[(f" {error}", "mark")]]
        for key, running in asked.items():
            if running and key not in self._asks:
                self.jobs.drop(key)
        if not len(self.session):
            lines = [NO_OPS if line is BEFORE else line for line in lines]
        self._since = (self._since or monotonic()) if self.waiting else None
        late = self._since is None or monotonic() - self._since > PATIENCE_S
        if not late and self._wide == (width, self.gap) and len(self._strips) == height:
            self._drawn = (size, self.gap, self.titled)  # what was shown stays
            return
        self.seek, self._lines = False, lines
        self._finish(size)

    def _finish(self, size: Size) -> None:
        """Make strips of the title and the lines: of most there are some from before."""
        width, height, lines = size.width - self.gap, size.height, [*self._lines]
        if self.titled:
            name = f"{self.number} {self.heading}"
            name = f"[{name}]" if self.active else f" {name} "
            left = [
                (self.glyphs.rule, "rule"),
                (name, "active" if self.active else "title"),
            ]
            lines.insert(0, rule(left, self.subtitle, width, self.glyphs))
        lines += [[]] * (height - len(lines))
        bar = [Segment(self.glyphs.bar + " ", STYLES["rule"])] if self.gap else []
        made = self._made if self._wide == (width, self.gap) else {}
        # what NO_COLOR asks for; these styles have no colours of 16 to be made true ones
        inks = [
            ink
            for ink in self.get_line_filters()
            if not isinstance(ink, ANSIToTruecolor)
        ]
        self._made, self._wide, self._strips = {}, (width, self.gap), []
        for line in map(tuple, lines[:height]):
            if (fresh := made.get(line)) is None:
                fresh = Strip([*bar, *strip(line, width)])
                for ink in inks:
                    fresh = fresh.apply_filter(ink, self.background_colors[1])
            self._made[line] = fresh
            self._strips.append(fresh)
        self._drawn = (size, self.gap, self.titled)

    def on_click(self, event: events.Click) -> None:
        """Activate the pane; a click on a row of a list enters it."""
        self.post_message(Activate(self.number))
        row = event.y - self.titled - self.header
        if self.picks and 0 <= row < min(self.room, self.total - self.top):
            self.at = self.pick = self.top + row
            line = self.enter()
            if line is not None:
                self.post_message(RunCommand(line))

    @on(events.MouseScrollDown)
    @on(events.MouseScrollUp)
    def _wheel(self, event: events.MouseEvent) -> None:
        self.scroll_rows(3 if isinstance(event, events.MouseScrollDown) else -3)
