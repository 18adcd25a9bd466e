"""The debugger's screen: what keys do, where panes stand, what is drawn when.

A key becomes a picture in four steps: its action makes an event or a call; that makes
new states; the desk draws the panes in view, waiting a moment for answers; the views
show what is another picture than before. Then what the next key is likely to show is
drawn ahead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from textwrap import wrap
from time import monotonic
from typing import Any, cast

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Container
from textual.geometry import Size
from textual.widgets import Input, Static

from kernbench.replay import ReplaySession
from kernbench.replay.commands import GOTO
from kernbench.replay.query import Query
from kernbench.visible import visible_text
from tui.actions import BY_ID, Own, ToPane
from tui.ansi import lay_out_next
from tui.clipboard import copy
from tui.desk import ROW_OF, Desk, Drawn
from tui.draw import Glyphs
from tui.keymap import Keymap, shown
from tui.lifecycle import TerminalApp
from tui.messages import Activate, PaneClicked, PaneScrolled
from tui.panes import PANES
from tui.panes.base import Back, ChangeView, Click, Enter, NextMark, Pan, Pin, Scroll
from tui.panes.timeline import Fit, FitBetween
from tui.prefetch import prefetch
from tui.runner import Runner, Urgency
from tui.screens.command import CommandScreen
from tui.screens.help import help_lines
from tui.screens.layout import ALL, SMALLEST, Plan, columns_alone, plan
from tui.widgets.pane_view import PaneView
from tui.widgets.status import (
    LATE_S,
    Crumbs,
    KeyFooter,
    Status,
    Tab,
    Tabs,
    between_marks,
)

LOOK_S = 0.1
"""Between two looks at how far jobs are."""
REST_S = 1.0
"""Without a key, before what nobody has asked for is computed."""
TOGETHER_S = 0.005
"""That an answer waits for others that will soon be there, to be shown with them: to
show it alone would take as long from the worker.
"""


_VERDICT = "diff"
_PROMPT_EDGES = 4
_NOTICE_EDGES = 2
_MOST_NOTICE = 5
"""Lines of a message, at most."""
_FEW_OPS = 20
"""A list of so many ops leaves most of its pane empty."""


def opening_tab(desk: Desk) -> str:
    """The pane behind the strip that a trace opens with: what failed, or else why the
    run ended early; the tiles, or else the ops, or the kernel if these are few.
    """
    if not all(desk.index.trace.recorded_verdicts.values()):
        return _VERDICT
    if desk.index.ops.error:
        return "stats"
    if not desk.missing["tiles"]:
        return "tiles"
    return "source" if len(desk.index.ops) <= _FEW_OPS else "ops"


class DebuggerScreen(CommandScreen, inherit_bindings=False):
    """Owns which pane is active, which tab is shown, and whether one is maximised."""

    AUTO_FOCUS = ""  # keys are the screen's but for the command line's

    def __init__(
        self,
        replay: ReplaySession,
        name: str,
        glyphs: Glyphs,
        keymap: Keymap | None = None,
    ) -> None:
        runner = Runner(replay.index)
        super().__init__(replay, runner, glyphs, keymap or Keymap())
        self.notes = [*self.keymap.notes]
        self.status = Status(replay.index, name, glyphs)
        self.crumbs = Crumbs(replay.index, glyphs)
        self.tabs = Tabs(glyphs)
        self.footer = KeyFooter(self.keymap)
        self.views = {row.key: PaneView(row.key, glyphs) for row in PANES}
        self.prompt = Static(id="prompt", markup=False)
        self.proposals = Static(id="proposals", markup=False)
        self._lines_below = 0
        """That a message or the line that is typed take of the body."""
        self.tab = opening_tab(self.desk)
        if self.tab == _VERDICT or self.desk.index.ops.error:
            self.active = self.tab  # what it says of Enter is so at once
        self.maximised = False
        self.stirred = 0.0
        """When a key last came, s."""
        self._plan = Plan({})
        self._most_rows = len(self.desk.index.op_index.components)
        """Of the timeline, as far as is known."""
        self._beside_diff = self.active
        self._late: dict[str, float] = {}
        self._missed: frozenset[Query] = frozenset()
        self._late_is_due = False
        self._ahead: asyncio.Task[None] | None = None
        self._acts = False
        """Whether an action is being done, after which all is drawn in any case."""
        self.desk.follow()

    # -- the life of the screen -----------------------------------------------

    def compose(self) -> ComposeResult:
        """Two lines, the body, the footer; command line and notice lie above them."""
        yield from (self.status, self.crumbs)
        yield Container(*self.views.values(), self.tabs, id="body")
        yield from (self.footer, self.notice, self.proposals, self.line, self.prompt)

    def on_mount(self) -> None:
        """Nothing is typed yet; what was found wrong is said."""
        self.line.display = False
        self.notice.display = False
        self._show_prompt()
        notes = list(self.notes)
        if len(notes) > 1:
            keys = self.keymap.shown("help")
            notes.insert(0, f"{len(notes)} notes; {keys} lists all")
        self.say("\n".join(notes))
        self.set_interval(LOOK_S, self.glance)
        self.runner.ended = self._on_loop(self._answer_came)
        self.prover.came = self._on_loop(self.proof_came)
        self.runner.quiet = self._terminal_app.quiet
        self.restore_stops()

    @property
    def _terminal_app(self) -> TerminalApp:
        return cast(TerminalApp, self.app)

    def _on_loop(self, act: Callable[[Any], None]) -> Callable[[Any], None]:
        """Let a worker call something that runs on this thread."""
        loop = asyncio.get_running_loop()
        context = copy_context()

        def called(come: Any) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(act, come, context=context)

        return called

    def on_unmount(self) -> None:
        """Nobody waits for the answers any more."""
        self.runner.close()
        self.prover.close()
        self._stop_ahead()

    def on_screen_resume(self) -> None:
        """What lay above may have changed the stops."""
        self.show()

    def on_resize(self, event: events.Resize) -> None:
        """Choose the layout; cursor, active pane and tab stay."""
        self.lay_out()
        self.draw_ahead()

    # -- layout ---------------------------------------------------------------

    def say(self, text: str) -> None:
        """A message in place of the footer, or of the proposals; a longer one takes
        lines of the body: nothing is covered.
        """
        super().say(text)
        self._fit_below()

    def _show_prompt(self) -> None:
        """Show what stands in front of the line that is typed, and what it proposes."""
        self.prompt.display = self.line.display
        self.proposals.display = self.line.display and not self.notice.display
        if self.line.display:
            self.prompt.update(self.line.prompt)
            proposed = self.line.proposals(self.size.width - _PROMPT_EDGES)
            self.proposals.update(visible_text(proposed))
            self.notice.styles.offset = (0, -1)
        else:
            self.notice.styles.offset = (0, 0)
        self._fit_below()

    def _fit_below(self) -> None:
        """Give the body the lines that are left."""
        lines = 1 if self.line.display else 0
        if self.notice.display:
            room = max(self.size.width - _NOTICE_EDGES, 1)
            text = self.said.splitlines()
            wrapped = sum(max(len(wrap(line, room)), 1) for line in text)
            lines += min(wrapped, _MOST_NOTICE) - 1
        if lines != self._lines_below and self.size.height > SMALLEST[1]:
            self._lines_below = lines
            self.lay_out()

    @on(Input.Changed)
    def _typed(self) -> None:
        """Once something is typed, what may follow is worth more than what was said."""
        if self.line.display and self.line.value != self.line.opened_with:
            self.say("")
        self._show_prompt()

    def lay_out(self) -> None:
        """Put the panes where the plan wants them, and draw, but for an action: that
        would ask what its key is to wait for, as if nobody waited.
        """
        if self.active not in self.desk.shown:
            self.active = ALL[0]
        self._place_panes()
        if not self._acts:
            self.show()

    def _place_panes(self) -> None:
        """Put the panes where the plan wants them."""
        self._plan = self._planned()
        if self.active not in self._plan.regions:
            # it is behind a tab since the size is another
            self.tab = self.active
            self._plan = self._planned()
        for key, view in self.views.items():
            region = self._plan.regions.get(key)
            titled = key not in self._plan.tabbed
            view.place_at(region, titled, self._plan.bordered)
            self.desk.sizes[key] = (view.room.width, view.room.height)
        self.desk.columns_alone = columns_alone(self.size.width)
        self.tabs.display = self._plan.tabs is not None
        if self._plan.tabs is not None:
            self.tabs.place_at(self._plan.tabs)
        if self.is_mounted:
            lay_out_next(self, self.query_one("#body"))

    def _planned(self) -> Plan:
        """Where the panes stand, for as many rows as the timeline has."""
        rows = self.desk.states[ALL[0]].rows
        _, height = self.desk.sizes[ALL[0]]
        around = 2 if self._plan.bordered else 1
        needs = {"ops": len(self.desk.index.ops) + 1 + around}
        if height and rows.total:
            # as if all were unfolded: what a move folds must not move other panes
            self._most_rows = max(self._most_rows, rows.total)
            needs[ALL[0]] = self._most_rows + height - rows.room + around
        return plan(
            Size(self.size.width, self.size.height - self._lines_below),
            self.active,
            self.tab,
            self.maximised,
            self.desk.shown,
            needs,
        )

    @property
    def _shown_tab(self) -> str:
        """The pane in view of those behind the strip."""
        return next(key for key in self._plan.tabbed if key in self._plan.regions)

    # -- drawing --------------------------------------------------------------

    def show(self, urgency: Urgency = Urgency.VISIBLE) -> None:
        """Draw the panes in view and the lines around them.

        What the timeline needs is known once it has been drawn: if these are other
        rows, panes are put elsewhere, and drawn again.
        """
        self._draw(urgency)
        if self._plan.regions and self._planned() != self._plan:
            self._place_panes()
            self._draw(Urgency.VISIBLE)

    def _draw(self, urgency: Urgency) -> None:
        self._late_is_due = False
        if self.prompt.display != self.line.display:
            self._show_prompt()
        found = self.desk.draw(urgency, self.awaited)
        missed: set[Query] = set()
        for key, drawn in found.items():
            missed |= drawn.missed
            self._put(key, drawn)
        self._missed = frozenset(missed)
        self._late = {key: since for key, since in self._late.items() if key in found}
        self._show_lines()

    def _put(self, key: str, drawn: Drawn) -> None:
        """Show a picture; what is late leaves the old one for a moment."""
        view = self.views[key]
        picture = drawn.picture
        if drawn.waiting is None:
            self._late.pop(key, None)
        else:
            since = self._late.setdefault(key, monotonic())
            if monotonic() - since < LATE_S and view.fits:
                picture = view.picture
        view.put(picture, self.desk.heading(key), active=key == self.active)

    def _show_lines(self) -> None:
        """Status, breadcrumb, tabs and footer say how things stand."""
        width = self.size.width
        note = self._plan.note
        if self.playing is not None and not note:
            note = "playing"
        note = note or cast(Any, self.app).run_note
        hazards = self.desk.hazards
        self.status.update_line(self.session, width, note, self.running, hazards)
        self.crumbs.update_line(self.session)
        if self._plan.tabs is not None:
            shown = self._shown_tab
            tabs = []
            for key in self._plan.tabbed:
                text = ROW_OF[key].name
                if key == shown:
                    text = self.desk.heading(key)
                tabs.append(Tab(key, text))
            self.tabs.update_line(
                self._plan.tabs,
                tabs,
                shown,
                active=self.active == shown,
                bordered=self._plan.bordered,
            )
        enter = self.desk.enter_word(self.active)
        self.footer.update_line(width, enter, self.desk.next_view(self.active))

    @property
    def waiting(self) -> list[str]:
        """The keys of the panes in view that wait for an answer."""
        return list(self._late)

    def _answer_came(self, query: Query) -> None:
        """A job has ended: show its answer, if anything on screen waits for it."""
        self.desk.answered(query)
        if query in self.awaited:
            self.call_later(self._finish_awaited, query)
        elif query in self._missed:
            if not self.runner.busy_for_a_moment:
                self._late_is_due = True
                self.call_later(self._show_late_answers)
            elif not self._late_is_due:
                self._late_is_due = True
                self.set_timer(TOGETHER_S, self._show_late_answers)

    def _finish_awaited(self, query: Query) -> None:
        """Go on with what the screen has asked for, now that the answer is there."""
        if query in self.awaited:
            self.poll()
            self.restore_stops()
            self.show()

    def _show_late_answers(self) -> None:
        """Show the answers that have come for panes in view, unless they are shown."""
        if self._late_is_due:
            self.show()
            self.draw_ahead()

    def glance(self) -> None:
        """Look around, unless keys come: those draw by themselves."""
        quiet_s = monotonic() - self.stirred
        if quiet_s >= LOOK_S:
            self.look(rested=quiet_s >= REST_S)

    def look(self, rested: bool) -> None:
        """Show how far jobs are; once ``rested``, let panes compute what they
        wish for, and what may be shown next even if it takes long.
        """
        self.poll()
        if self.restore_stops() or self._late:
            self.show()
        else:
            self._show_lines()
        if rested:
            self.desk.rest()
            if not self.runner.resting:
                self.runner.resting = True
                self.draw_ahead()

    # -- ahead ----------------------------------------------------------------

    def draw_ahead(self) -> None:
        """Draw what may be shown next, until a key comes."""
        self._stop_ahead()
        self.runner.drop_ahead()
        task = prefetch(self.desk, self.last_move, self.views, self._is_quiet)
        self._ahead = asyncio.create_task(task)

    def _stop_ahead(self) -> None:
        if self._ahead is not None and not self._ahead.done():
            self._ahead.cancel()

    def _is_quiet(self) -> bool:
        """Whether no key waits to be acted on."""
        return not self._terminal_app.input_pending

    # -- keys -----------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        """Run the key's action; while a line is typed, keys are its.

        A key that was on its way here as another trace replaced this is of that one.
        """
        app: Any = self.app
        if app.debugger is not self:
            event.stop()
            app.type_on(app.debugger, [event])
            return
        self.stirred = monotonic()
        self.runner.resting = False
        self._stop_ahead()
        if self.focused is None:
            id = self.keymap.action(event.key, event.character)
            if self.reads and (id != "quit" or self.types_kept_line):
                event.stop()
                self.keep_key(event, id)
            elif self.lettered(event.character):
                event.stop()
                self.show(Urgency.KEY)
            elif id:
                event.stop()
                self.act(id)
            else:
                self.say(f"{shown(event.key)} has no meaning here; ? lists the keys")
        self.draw_ahead()

    def act(self, id: str) -> None:
        """Do an action of the table, and draw what it has changed."""
        self.app.past.append(id)  # type: ignore[attr-defined]
        if id != "shell":
            self.another_key()
        was_playing = self.pause()
        if not (was_playing and id == "play"):
            self._acts = True
            try:
                self.attempt(lambda: self._act(id))
            finally:
                self._acts = False
        self.show(Urgency.KEY)

    def _act(self, id: str) -> None:
        does = BY_ID[id].does
        if isinstance(does, ToPane):
            self.say("")
            self._to_pane(does)
        elif isinstance(does, Own):
            self.say("")
            getattr(self, f"do_{does.name}")(*does.args)
        else:
            self.carry_out(does)

    def _to_pane(self, does: ToPane) -> None:
        """Hand an event to a pane; one that the active pane has no use for goes on."""
        key = does.pane or self.active
        if self._send(key, does.event):
            unfolds = key == ALL[0] and isinstance(does.event, Enter | ChangeView)
            if unfolds and self._planned() != self._plan:
                self.lay_out()
            return
        match does.event:
            case Pan():
                self._send("timeline", does.event)
            case ChangeView():
                self.say(f"{ROW_OF[key].title} has one view only")
            case NextMark():
                self.say(
                    "no further changed number (4 Memory) or mismatch (6 Diff) that way"
                )
            case Pin():
                self.say(
                    "rows of the timeline can be pinned: 1 shows it, j and k pick a row"
                )
            case Fit():
                self.say("the timeline is fitted to the launches")

    # -- actions of the screen itself -----------------------------------------

    def do_help(self) -> None:
        """Every key, command and setting."""
        keymap = replace(self.keymap, notes=tuple(self.notes))
        self.show_text("help", help_lines(keymap, self.size.width))

    def do_activate(self, key: str) -> None:
        """Make a pane the active one, and bring it into view; say why there is nothing
        for it, where that is so.
        """
        why = self.desk.missing[key]
        if why:
            self.say(f"{ROW_OF[key].name}: {why}")
            return
        self.active = key
        if key in (self._plan.tabbed or ALL[1:]):
            self.tab = key
        self.lay_out()

    def do_cycle(self, by: int) -> None:
        """The next or previous pane."""
        panes = [key for key in ALL if key in self.desk.shown]
        self.do_activate(panes[(panes.index(self.active) + by) % len(panes)])

    def do_cycle_tab(self, by: int) -> None:
        """The next or previous tab of the strip."""
        panes = [key for key in ALL if key in self.desk.shown]
        tabs = self._plan.tabbed or panes
        # before the first layout no pane is in view
        here = next((key for key in tabs if key in self._plan.regions), self.tab)
        self.do_activate(tabs[(tabs.index(here) + by) % len(tabs)])

    def do_maximise(self) -> None:
        """One pane alone, or all again."""
        self.maximised = not self.maximised
        self.lay_out()

    def do_diff(self) -> None:
        """Show Diff, and back again."""
        if self.active == "diff":
            self.do_activate(self._beside_diff)
        else:
            self._beside_diff = self.active
            self.do_activate("diff")

    def do_live(self) -> None:
        """To the last op of a run that goes on, and stay on the last one from now."""
        why_not = cast(Any, self.app).stay_on_end()
        if why_not:
            self.say(why_not)
        else:
            self.carry_out(GOTO(op="end"))

    def do_fit_marks(self) -> None:
        """The timeline between the last two marks."""
        between = between_marks(self.desk.index, self.session)
        if between is None or between.t0 == between.t1:
            self.say("set two marks at other times first, as with m a and m b")
        else:
            self._send("timeline", FitBetween(between.t0, between.t1))

    def do_yank(self) -> None:
        """Copy the active pane as text."""
        text = self.views[self.active].text
        how = copy(text, self.app.copy_to_clipboard)
        self.say(f"{len(text.splitlines())} lines copied {how}")

    def do_redraw(self) -> None:
        """Write the whole screen again; ask again what was cancelled."""
        self.app.cells.forget()  # type: ignore[attr-defined]
        self.desk.forget()
        self.restore_stops()
        self.refresh(layout=True)

    def do_back(self) -> None:
        """Let go of one thing: what is computed, what a pane keeps, the
        maximised pane.
        """
        if self.runner.cancel():
            keys = self.keymap.shown("redraw")
            self.say(f"cancelled; {keys} computes again")
        elif self.prover.cancel():
            self.say("")
        elif not self._send(self.active, Back()) and self.maximised:
            self.do_maximise()

    def do_palette(self) -> None:
        """Find an action by a word of it."""
        cast(Any, self.app).action_command_palette()

    def do_suspend(self) -> None:
        """Suspend the program; fg comes back."""
        self.app.action_suspend_process()

    def do_quit(self) -> None:
        """End the program."""
        self.app.exit()

    # -- the mouse ------------------------------------------------------------

    @on(Activate)
    def _activated(self, message: Activate) -> None:
        self.do_activate(message.key)

    @on(PaneClicked)
    def _clicked(self, message: PaneClicked) -> None:
        if message.key not in ALL:
            return
        self.do_activate(message.key)
        self._send(message.key, Click(message.x, message.y))
        self.show()

    @on(PaneScrolled)
    def _scrolled(self, message: PaneScrolled) -> None:
        self._send(message.key, Scroll(message.rows))
        self.show()
