"""The debugger's screen: one session, six panes, and what each action does to them."""

from __future__ import annotations

from textwrap import wrap

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Container
from textual.screen import Screen
from textual.widgets import Static

from kernbench.errors import KernbenchError
from kernbench.replay import ReplaySession
from kernbench.replay.commands import Moved, run_command
from kernbench.replay.diff import OpDiff
from kernbench.replay.memory import TensorView
from kernbench.replay.text import as_text
from kernbench.replay.tiles import Tiles
from kernbench.replay.timeline import Timeline
from tui.actions import BY_ID, bindings
from tui.jobs import Jobs
from tui.messages import Activate, Hint, RunCommand
from tui.screens.help import TextScreen, help_lines
from tui.screens.layout import ALL, Plan, plan
from tui.widgets.command_line import CommandLine
from tui.widgets.diff import DiffPane
from tui.widgets.draw import Glyphs, Line
from tui.widgets.footer import KeyFooter
from tui.widgets.memory import MemoryPane
from tui.widgets.ops import OpsPane
from tui.widgets.pane import Pane
from tui.widgets.route import RoutePane
from tui.widgets.status import Crumbs, Status
from tui.widgets.tabs import Tabs
from tui.widgets.tiles import TilesPane
from tui.widgets.timeline import TimelinePane

_LOOK_S = 0.1  # between two looks at jobs
_FITTED = (TensorView, OpDiff, Timeline, Tiles)  # answers whose text knows the width


class DebuggerScreen(Screen[None], inherit_bindings=False):
    """Owns which pane is active, which tab is shown, and whether one is maximised."""

    BINDINGS = bindings()
    AUTO_FOCUS = ""  # keys are the screen's but for the command line's

    def __init__(self, session: ReplaySession, name: str, glyphs: Glyphs) -> None:
        super().__init__()
        self.session, self._glyphs = session, glyphs
        self.status, self.crumbs, self.tabs = Status(session, name), Crumbs(session), Tabs(glyphs)
        self.timeline = timeline = TimelinePane(session, glyphs)
        self._do_zoom, self._do_fit = timeline.zoom, timeline.fit
        kinds: list[type[Pane]] = [OpsPane, TilesPane, MemoryPane, RoutePane, DiffPane]
        self.panes = {1: timeline, **{k.number: k(session, glyphs) for k in kinds}}
        words = {"goto": ["start", "end"], "memory": session.memories.names}
        self.line, self.notice = CommandLine(words), Static(id="notice", markup=False)
        self.active, self.tab, self.maximised = 1, 2, False
        self._plan = Plan({})
        self.jobs = Jobs()
        for pane in self.panes.values():
            pane.jobs = self.jobs

    def compose(self) -> ComposeResult:
        """Two lines, the body, the footer; command line and notice lie above them."""
        yield from (self.status, self.crumbs)
        yield Container(*self.panes.values(), self.tabs, id="body")
        yield from (KeyFooter(), self.notice, self.line)

    def on_mount(self) -> None:
        """Nothing is typed or said yet."""
        self.line.display = self.notice.display = False
        self.set_interval(_LOOK_S, self._look)
        self.moved()

    def on_unmount(self) -> None:
        """Nobody waits for the answers any more."""
        self.jobs.close()

    def _look(self) -> None:
        """Draw what waits for a job: how far it is, or its answer."""
        for pane in self.panes.values():
            if pane.waiting:
                pane.repaint()

    def on_resize(self, event: events.Resize) -> None:
        """Choose the layout; cursor, active pane and tab stay."""
        self.lay_out()

    def lay_out(self) -> None:
        """Put the panes where the plan wants them and tell each whether it is active."""
        self._plan = plan(self.size, self.active, self.tab, self.maximised)
        for number, pane in self.panes.items():
            region = self._plan.regions.get(number)
            pane.stand(region, number not in self._plan.tabbed, number == self.active)
        self.tabs.display = self._plan.tabs is not None
        if self._plan.tabs is not None:
            shown = next(n for n in self._plan.tabbed if n in self._plan.regions)
            names = [(n, self.panes[n].title) for n in self._plan.tabbed]
            self.tabs.place(self._plan.tabs, names, shown, self.active == shown)
        self._tell()

    def _tell(self) -> None:
        self.status.tell(self.size.width, self._plan.note)
        self.crumbs.tell()

    def moved(self) -> None:
        """The cursor moved: every pane follows; those in view draw."""
        for pane in self.panes.values():
            pane.follow()
        self._tell()

    def say(self, text: str) -> None:
        """A message above the footer until the next key; empty: none."""
        self.notice.update(text)
        self.notice.display = bool(text)

    def show_text(self, title: str, lines: list[Line]) -> None:
        """Lines over the whole screen until Esc."""
        self.app.push_screen(TextScreen(self.session, self._glyphs, title, lines))

    @on(RunCommand)
    def _run_asked(self, message: RunCommand) -> None:
        self.run(message.line)

    @on(Hint)
    def _hinted(self, message: Hint) -> None:
        self.say(message.text)

    @on(Activate)
    def _activated(self, message: Activate) -> None:
        self._do_activate(message.number)

    def run(self, line: str) -> None:
        """Run a command line: a move moves all panes, another answer opens over them."""
        before = self.session.cursor
        try:
            answer = run_command(self.session, line)
        except KernbenchError as error:
            self.say(f"error: {error}")
            return
        self.say("")
        if self.session.cursor != before:
            self.moved()
        elif isinstance(answer, Moved) and line.startswith(("step", "next")):
            self.say("no further op that way" + (" in the focus: u widens it" * (line[0] == "n")))
        if not isinstance(answer, Moved):
            wide = self.size.width
            text = as_text(answer, wide if isinstance(answer, _FITTED) else 400).splitlines()
            parts = [wrap(row, wide, subsequent_indent="    ") or [""] for row in text]
            self.show_text(line, [[(part, "")] for row in parts for part in row])

    def action_act(self, id: str) -> None:
        """Do the action of the table."""
        action = BY_ID[id]
        if action.command_line:
            self.run(action.command_line)
        else:
            self.say("")
            getattr(self, f"_do_{action.method}")(*action.args)

    def _do_first(self) -> None:
        self.run("goto 0" if len(self.session) else "goto start")

    def _do_focus(self, by: int) -> None:
        self.session.widen(by)
        self.crumbs.tell()

    def _do_command(self) -> None:
        self.line.open()

    def _do_help(self) -> None:
        self.show_text("help", help_lines())

    def _do_palette(self) -> None:
        self.app.action_command_palette()

    def _do_activate(self, number: int) -> None:
        self.active = number
        self.tab = self.tab if number == 1 else number
        self.lay_out()

    def _do_cycle(self, by: int) -> None:
        self._do_activate((self.active - 1 + by) % len(ALL) + 1)

    def _do_cycle_tab(self, by: int) -> None:
        tabs = self._plan.tabbed or ALL
        here = next((n for n in tabs if n in self._plan.regions), self.active)
        here = here if self._plan.tabbed else self.active
        self._do_activate(tabs[(tabs.index(here) + by) % len(tabs)])

    def _do_maximise(self) -> None:
        self.maximised = not self.maximised
        self.lay_out()

    def _do_view(self, by: int) -> None:
        if not self.panes[self.active].change_view(by):
            self.say(f"{self.panes[self.active].title} has one view only")

    def _do_pin(self) -> None:
        if not self.panes[self.active].pin():
            self.say("rows of the timeline can be pinned: 1 shows it, j and k pick a row")

    def _do_rows(self, by: int, pages: bool = False) -> None:
        pane = self.panes[self.active]
        (pane.scroll_page if pages else pane.scroll_rows)(by)

    def _do_enter(self) -> None:
        line = self.panes[self.active].enter()
        if line is not None:
            self.run(line)

    def _do_pan(self, by: int) -> None:
        if not self.panes[self.active].pan(by):
            self.timeline.pan(by)

    def _do_redraw(self) -> None:
        self.jobs.forget()
        self.refresh(layout=True)

    def _do_back(self) -> None:
        if self.jobs.cancel():
            self.say("cancelled; ctrl+l computes again")
        elif self.maximised:
            self._do_maximise()

    def _do_quit(self) -> None:
        self.app.exit()
