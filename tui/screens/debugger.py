"""The debugger's screen: one session, its panes, and what each action does to them."""

from __future__ import annotations

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Container

from kernbench.replay import ReplaySession
from tui.actions import BY_ID
from tui.keymap import Keymap
from tui.messages import Activate
from tui.screens.asking import AskingScreen
from tui.screens.help import help_lines
from tui.screens.layout import ALL, Plan, plan
from tui.widgets.diff import DiffPane
from tui.widgets.draw import Glyphs
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


class DebuggerScreen(AskingScreen, inherit_bindings=False):
    """Owns which pane is active, which tab is shown, and whether one is maximised."""

    AUTO_FOCUS = ""  # keys are the screen's but for the command line's

    def __init__(
        self, session: ReplaySession, name: str, glyphs: Glyphs, keymap: Keymap | None = None
    ) -> None:
        super().__init__(session, glyphs)
        self.keymap = keymap or Keymap()
        self._actions = self.keymap.actions()
        self.status, self.crumbs, self.tabs = Status(session, name), Crumbs(session), Tabs(glyphs)
        self.footer = KeyFooter(self.keymap)
        self.timeline = timeline = TimelinePane(session, glyphs)
        self._do_zoom, self._do_fit = timeline.zoom, timeline.fit
        self.ops = OpsPane(session, glyphs)
        kinds: list[type[Pane]] = [TilesPane, MemoryPane, RoutePane, DiffPane]
        self.panes = {1: timeline, 2: self.ops, **{k.number: k(session, glyphs) for k in kinds}}
        self.tab, self.maximised = 2, False
        self._plan = Plan({})
        self._drawn, self._worked = session.cursor, False
        for pane in self.panes.values():
            pane.jobs = self.jobs

    def compose(self) -> ComposeResult:
        """Two lines, the body, the footer; command line and notice lie above them."""
        yield from (self.status, self.crumbs)
        yield Container(*self.panes.values(), self.tabs, id="body")
        yield from (self.footer, self.notice, self.line)

    def on_mount(self) -> None:
        """Nothing is typed yet; what is wrong with the keymap is said."""
        self.line.display = self.notice.display = False
        self.say("\n".join(self.keymap.notes))
        self.set_interval(_LOOK_S, self._look)
        self.moved()

    def on_unmount(self) -> None:
        """Nobody waits for the answers any more."""
        self.jobs.close()

    def on_screen_resume(self) -> None:
        """What lay above may have changed the stops."""
        self.tell()

    def _look(self) -> None:
        """Draw what waits for a job: how far it is, or its answer."""
        self.poll()
        for pane in self.panes.values():
            if pane.waiting:
                pane.repaint()
        if self._worked or self.jobs.busy:
            self.tell()
        self._worked = self.jobs.busy

    def on_resize(self, event: events.Resize) -> None:
        """Choose the layout; cursor, active pane and tab stay."""
        self.lay_out()

    def lay_out(self) -> None:
        """Put the panes where the plan wants them and tell each whether it is active."""
        self._plan = plan(self.size, self.active, self.tab, self.maximised)
        if self.active not in self._plan.regions:  # behind a tab, since the size is another
            self.tab = self.active
            self._plan = plan(self.size, self.active, self.tab, self.maximised)
        for number, pane in self.panes.items():
            region = self._plan.regions.get(number)
            pane.stand(region, number not in self._plan.tabbed, number == self.active)
        self.tabs.display = self._plan.tabs is not None
        if self._plan.tabs is not None:
            shown = next(n for n in self._plan.tabbed if n in self._plan.regions)
            names = [(n, self.panes[n].title) for n in self._plan.tabbed if n in self.panes]
            self.tabs.place(self._plan.tabs, names, shown, self.active == shown)
        self.tell()

    def tell(self) -> None:
        """Status, breadcrumb and footer say how things stand."""
        note = self._plan.note or "playing" * (self.playing is not None)
        self.status.tell(self.size.width, note, self.between(), self.jobs)
        self.crumbs.tell()
        self.footer.tell(self.size.width, self.panes[self.active])

    def moved(self) -> None:
        """The cursor moved: every pane follows; those in view draw."""
        self._drawn = self.session.cursor
        for pane in self.panes.values():
            pane.follow()
        self.tell()

    def follow_cursor(self) -> bool:
        """Draw where the cursor is now; whether it has moved since that was drawn last."""
        if self.session.cursor == self._drawn:
            return False
        self.moved()
        return True

    @on(Activate)
    def _activated(self, message: Activate) -> None:
        self._do_activate(message.number)

    def on_key(self, event: events.Key) -> None:
        """Run the key's action; while a line is typed, keys are its."""
        if self.focused is not None:
            return
        id = self._actions.get(event.character or "") or self._actions.get(event.key)
        if self.lettered(event.character):
            event.stop()
        elif id is not None:
            event.stop()
            self.action_act(id)

    def action_act(self, id: str) -> None:
        """Do the action of the table."""
        if self.pause() and id == "play":
            return
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
        self.tell()

    def _do_help(self) -> None:
        self.show_text("help", help_lines(self.keymap))

    def _do_palette(self) -> None:
        self.app.action_command_palette()

    def _do_activate(self, number: int) -> None:
        if number not in self.panes:
            return
        self.active = number
        self.tab = number if number in (self._plan.tabbed or ALL[1:]) else self.tab
        self.lay_out()

    def _do_cycle(self, by: int) -> None:
        numbers = [*self.panes]
        self._do_activate(numbers[(numbers.index(self.active) + by) % len(numbers)])

    def _do_cycle_tab(self, by: int) -> None:
        tabs = [n for n in self._plan.tabbed or ALL if n in self.panes]
        here = next((n for n in tabs if n in self._plan.regions), self.active)
        here = here if self._plan.tabbed else self.active
        self._do_activate(tabs[(tabs.index(here) + by) % len(tabs)])

    def _do_maximise(self) -> None:
        self.maximised = not self.maximised
        self.lay_out()

    def _do_view(self, by: int) -> None:
        if not self.panes[self.active].change_view(by):
            self.say(f"{self.panes[self.active].title} has one view only")
        self.tell()

    def _do_diff(self) -> None:
        if self.active == DiffPane.number:
            self._do_view(1)
        else:
            self._do_activate(DiffPane.number)

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

    def _do_fit_marks(self) -> None:
        ends = self.between()
        if ends is None or ends[1] == ends[2]:
            self.say("set two marks at other times first, as with m a and m b")
        else:
            self.timeline.fit_between(*ends[1:])

    def _do_redraw(self) -> None:
        self.jobs.forget()
        self.refresh(layout=True)

    def _do_back(self) -> None:
        if self.jobs.cancel():
            self.say(f"cancelled; {self.keymap.shown('redraw')} computes again")
        elif self.active == OpsPane.number and self.ops.where:
            self.ops.keep("", None)
        elif self.maximised:
            self._do_maximise()

    def _do_quit(self) -> None:
        self.app.exit()

    def carry(self, old: DebuggerScreen) -> None:
        """Stand as the screen of an older reading of the file stood."""
        new, was = self.session, old.session
        new.goto(min(was.cursor, len(new) - 1))
        new.level, new.marks = was.level, {m: op for m, op in was.marks.items() if op < len(new)}
        self.active, self.tab, self.maximised = old.active, old.tab, old.maximised
        self.sought = old.sought
        for number, pane in self.panes.items():
            pane.view = old.panes[number].view
        self.timeline.t0, self.timeline.t1 = old.timeline.t0, old.timeline.t1
        if old.ops.where:
            self.call_after_refresh(self.run, f"filter {old.ops.where}")
