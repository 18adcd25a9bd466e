"""The debugger's screen: one session, its panes, and what each action does to them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from operator import attrgetter
from time import monotonic
from typing import cast

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Container

from kernbench.replay import ReplaySession
from tui.actions import BY_ID
from tui.keymap import Keymap
from tui.lifecycle import TerminalApp
from tui.messages import Activate
from tui.screens.ahead import likely, look_ahead
from tui.screens.asking import AskingScreen
from tui.screens.help import help_lines
from tui.screens.layout import ALL, Plan, plan
from tui.widgets.diff import DiffPane
from tui.widgets.draw import Glyphs
from tui.widgets.memory import MemoryPane
from tui.widgets.ops import OpsPane
from tui.widgets.route import RoutePane
from tui.widgets.source import SourcePane
from tui.widgets.stats import StatsPane
from tui.widgets.status import KeyFooter, Tabs
from tui.widgets.tiles import TilesPane
from tui.widgets.timeline import TimelinePane

_LOOK_S = 0.1  # between two looks at how far jobs are
_FOCUSED, _REFOCUSED = (
    (5, 7, 8),
    ("widen", "narrow"),
)  # panes of the focus, what changes it


class DebuggerScreen(AskingScreen, inherit_bindings=False):
    """Owns which pane is active, which tab is shown, and whether one is maximised."""

    AUTO_FOCUS = ""  # keys are the screen's but for the command line's

    def __init__(
        self,
        session: ReplaySession,
        name: str,
        glyphs: Glyphs,
        keymap: Keymap | None = None,
    ) -> None:
        super().__init__(session, name, glyphs)
        self.keymap = keymap or Keymap()
        self.notes = [*self.keymap.notes]
        self.tabs, self.footer = Tabs(glyphs), KeyFooter(self.keymap)
        self.timeline = timeline = TimelinePane(session, glyphs)
        self.ops, self.memory = OpsPane(session, glyphs), MemoryPane(session, glyphs)
        kinds = RoutePane, DiffPane, SourcePane, StatsPane
        panes = timeline, self.ops, TilesPane(session, glyphs), self.memory
        self.panes = {
            p.number: p for p in (*panes, *(kind(session, glyphs) for kind in kinds))
        }
        self.taken = asyncio.Event()  # a key was acted on
        self._ahead: asyncio.Task[None] | None = None
        self.tab, self.maximised, self._beside = 2, False, 1  # where x goes back to
        self._plan = Plan({})
        for pane in self.panes.values():
            pane.jobs, pane.span = self.jobs, lambda: (timeline.t0, timeline.t1)

    def compose(self) -> ComposeResult:
        """Two lines, the body, the footer; command line and notice lie above them."""
        yield from (self.status, self.crumbs)
        yield Container(*self.panes.values(), self.tabs, id="body")
        yield from (self.footer, self.notice, self.line)

    def on_mount(self) -> None:
        """Nothing is typed yet; what was found wrong is said."""
        self.line.display = self.notice.display = False
        head = f"{len(self.notes)} notes; {self.keymap.shown('help')} lists all"
        self.say("\n".join([head] * (len(self.notes) > 1) + self.notes))
        self.set_interval(_LOOK_S, self.glance)
        loop, context = asyncio.get_running_loop(), copy_context()

        def ended() -> None:
            with suppress(RuntimeError):  # the loop has ended too
                loop.call_soon_threadsafe(self.call_later, self.look, context=context)

        self.jobs.ended = ended
        self.jobs.key_waits = lambda: cast(TerminalApp, self.app).key_waits
        self._drawn = self.session.cursor
        self.tell()
        self.taken.set()
        self.draw_ahead()

    def on_unmount(self) -> None:
        """Nobody waits for the answers any more."""
        self.jobs.close()
        if self._ahead is not None:
            self._ahead.cancel()

    def draw_ahead(self) -> None:
        """What was pressed is drawn: draw what may be pressed next, until that comes."""
        if self._ahead is not None:
            self._ahead.cancel()
        moves, panes = likely(self.made), [*self.panes.values()]
        ahead = look_ahead(self.session, moves, panes, self._quiet)
        self._ahead = asyncio.create_task(ahead)

    def _quiet(self) -> bool:
        return self.taken.is_set() and not self.jobs.key_waits()

    def glance(self) -> None:
        """How far jobs are is drawn with what keys do, or once none came for a while."""
        if monotonic() - self.stirred > _LOOK_S:
            self.look()

    def look(self) -> None:
        """What is drawn late may be followed by other things than before."""
        late = any(pane.waiting for pane in self.panes.values())
        with self.jobs.held():
            super().look()
        if late:
            self.draw_ahead()

    def on_screen_resume(self) -> None:
        """What lay above may have changed the stops."""
        self.tell()

    def on_resize(self, event: events.Resize) -> None:
        """Choose the layout; cursor, active pane and tab stay."""
        self.lay_out()

    def lay_out(self) -> None:
        """Put the panes where the plan wants them and tell each whether it is active."""
        self._plan = plan(self.size, self.active, self.tab, self.maximised)
        if (
            self.active not in self._plan.regions
        ):  # behind a tab, since the size is another
            self.tab = self.active
            self._plan = plan(self.size, self.active, self.tab, self.maximised)
        for number, pane in self.panes.items():
            region = self._plan.regions.get(number)
            pane.stand(region, number not in self._plan.tabbed, number == self.active)
        self.tabs.display = self._plan.tabs is not None
        if self._plan.tabs is not None:
            shown = next(n for n in self._plan.tabbed if n in self._plan.regions)
            tabbed = [self.panes[n] for n in self._plan.tabbed]
            names = [
                (p.number, p.heading if p.number == shown else p.title) for p in tabbed
            ]
            self.tabs.place(self._plan.tabs, names, shown, self.active == shown)
        self.footer.tell(self.size.width, self.pane)
        self.note = self._plan.note
        self.tell()

    @on(Activate)
    def _activated(self, message: Activate) -> None:
        self._do_activate(message.number)

    def on_key(self, event: events.Key) -> None:
        """Run the key's action; while a line is typed, keys are its."""
        self.stirred = monotonic()
        self.jobs.key()
        if self._ahead is not None and not self._ahead.done():
            self._ahead.cancel()
            self.jobs.give_way()
        if self.focused is None:
            id = self.keymap.action(event.key, event.character)
            if self.lettered(event.character):
                event.stop()
            elif id:
                event.stop()
                self.action_act(id)
        self.taken.set()
        self.draw_ahead()

    def action_act(self, id: str) -> None:
        """Do the action of the table."""
        self.app.past.append(id)  # type: ignore[attr-defined]
        if self.pause() and id == "play":
            return
        action = BY_ID[id]
        if action.command_line:
            self.run(action.command_line)
        else:
            self.say("")
            of_screen = "." not in action.method
            attrgetter(f"_do_{action.method}" if of_screen else action.method)(self)(
                *action.args
            )
            for pane in self.panes.values():
                of_focus = id in _REFOCUSED and pane.number in _FOCUSED
                if of_focus or (action.group == "View" and not pane.alone):
                    pane.repaint()

    def _do_focus(self, by: int) -> None:
        self.session.widen(by)
        self.tell()

    def _do_help(self) -> None:
        keymap = replace(self.keymap, notes=tuple(self.notes))
        self.show_text("help", help_lines(keymap, self.size.width))

    def _do_activate(self, number: int) -> None:
        self.active = number
        self.tab = number if number in (self._plan.tabbed or ALL[1:]) else self.tab
        self.lay_out()

    def _do_cycle(self, by: int) -> None:
        self._do_activate((self.active - 1 + by) % len(ALL) + 1)

    def _do_cycle_tab(self, by: int) -> None:
        tabs = self._plan.tabbed or ALL
        here = next(n for n in tabs if n in self._plan.regions)
        self._do_activate(tabs[(tabs.index(here) + by) % len(tabs)])

    def _do_maximise(self) -> None:
        self.maximised = not self.maximised
        self.lay_out()

    def _do_view(self, by: int) -> None:
        if not self.pane.change_view(by):
            self.say(f"{self.pane.title} has one view only")
        self.lay_out()

    def _do_diff(self) -> None:
        here = self.active
        self._do_activate(self._beside if here == DiffPane.number else DiffPane.number)
        self._beside = here if here != DiffPane.number else self._beside

    def _do_marked(self, by: int) -> None:
        if not self.pane.next_mark(by):
            self.say(
                "no further changed number (4 Memory) or mismatch (6 Diff) that way"
            )

    def _do_pin(self) -> None:
        if not self.pane.pin():
            self.say(
                "rows of the timeline can be pinned: 1 shows it, j and k pick a row"
            )

    def _do_enter(self) -> None:
        if (line := self.pane.enter()) is not None:
            self.run(line)

    def _do_pan(self, by: int) -> None:
        if not self.pane.pan(by):
            self.timeline.pan(by)

    def _do_fit(self) -> None:
        was = self.timeline.text
        self.timeline.fit()
        if self.timeline.text == was:
            self.say("the timeline is fitted to the launches")

    def _do_fit_marks(self) -> None:
        ends = self.between()
        if ends is None or ends[1] == ends[2]:
            self.say("set two marks at other times first, as with m a and m b")
        else:
            self.timeline.fit_between(*ends[1:])

    def _do_redraw(self) -> None:
        self.app.cells.forget()  # type: ignore[attr-defined]
        self.jobs.forget()
        self.refresh(layout=True)

    def _do_back(self) -> None:
        if self.jobs.cancel():
            self.say(f"cancelled; {self.keymap.shown('redraw')} computes again")
        elif self.active == OpsPane.number and self.ops.where:
            self.ops.keep("", None)
        elif not self.pane.back() and self.maximised:
            self._do_maximise()
