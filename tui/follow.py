"""``kernbench-tui --follow``: a debugger on a run that goes on.

A run writes PATH.partial, and once a second PATH.partial.tail; at its end the file is
named PATH (``kernbench.trace.stream``). Now and then that is looked at. Where there is
more, a trace and an index of it are made beside those on screen. When all panes have
their answers there, a new screen takes the place of the old, between two keys.

Ops are shown in the order of their start, and recorded in that of their completion. So
what was recorded since may lie before the cursor. The op under the cursor, those that
are marked and those that jumps left stay the same ops.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from kernbench.errors import KernbenchError, RefusedError
from kernbench.replay.progress import begun_beside
from kernbench.trace.tail import tail_of
from tui import state
from tui.opening import OpeningApp

if TYPE_CHECKING:
    from kernbench.replay import ReplaySession
    from kernbench.replay.query import Session
    from kernbench.trace import Trace
    from kernbench.trace.frames import OnFrame
    from tui.screens.debugger import DebuggerScreen

LOOK_S = 1.0
"""Between two looks at the file: a run writes its tail about that often."""
CALM_S = 0.5
"""Without a key, before a screen takes the place of another."""
_DRAW_S = 0.03
"""Between two looks at whether all panes have their answers."""
_SHARE = 10
"""A trace is read again after so many times what reading it took: a tenth of a core
goes into that at most, however long the trace is.
"""


class Run(Enum):
    """How a run stands."""

    SAME = "goes on, and there is no more of it than at the last look"
    MORE = "goes on"
    ENDED = "has ended, and named its file"
    KILLED = "has ended without naming its file"
    GONE = "has left no file"
    LEFT = "is followed no more, since another trace was opened"


class _Looks(NamedTuple):
    """What changes of a file and its tail when more is recorded."""

    inode: int
    size: int
    tail: tuple[int, int]
    """Its inode, 0 where there is none, and when it was written, ns."""


class RunFile:
    """The file of a run: what it is called now, and what has become of it.

    It is asked step by step, and does nothing by itself. RefusedError if there is
    neither a file at ``path`` nor one that is to be named so.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix == ".partial":
            path = path.with_suffix("")
        self.path = path
        self.partial = path.with_name(path.name + ".partial")
        self._seen: _Looks | None = None
        if not self.partial.exists() and not path.exists():
            raise RefusedError(
                f"{path}: no such file, and no run that writes it; begin one with "
                f"`kernbench run BENCH --trace {path}`"
            )

    @property
    def now(self) -> Path:
        """Where the trace is."""
        return self.partial if self.partial.exists() else self.path

    def look(self) -> Run:
        """How the run stands. What MORE or ENDED says is to be read after this."""
        seen = self._seen
        looks = _looks_of(self.partial)
        if looks is None:
            named = _looks_of(self.path)
            if named is None:
                return Run.GONE
            if seen is not None and named.inode != seen.inode:
                return Run.GONE  # an older trace has the name
            return Run.ENDED
        self._seen = looks
        if looks != seen:
            return Run.MORE
        if self._is_written():
            return Run.SAME
        # A run names its file before it gives it up.
        return Run.KILLED if self.partial.exists() else self.look()

    def _is_written(self) -> bool:
        """Whether a run has the file: that keeps it locked."""
        try:
            with self.partial.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # no locks here, or it was named just now
            return self.partial.exists()
        return False


def _looks_of(path: Path) -> _Looks | None:
    """How a file and its tail look; None if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    tail = (0, 0)
    try:
        of_tail = os.stat(tail_of(path))
        tail = (of_tail.st_ino, of_tail.st_mtime_ns)
    except OSError:
        pass
    return _Looks(found.st_ino, found.st_size, tail)


def carried(old: Trace, new: Trace, session: Session) -> Session:
    """A session on the same ops in a longer trace of the same run.

    An op that the new trace has not is the last one there. Stops are left out, since
    there may be more to stop at.
    """
    from kernbench.replay.query import Session  # not before the first frame

    last = len(new.order) - 1

    def op(position: int) -> int:
        """The position of the same op."""
        if not 0 <= position < len(old.order):
            return min(position, last)
        row = int(old.order[position])
        return int(new.position[row]) if row <= last else last

    return Session(
        cursor=op(session.cursor),
        level=session.level,
        marks=tuple((name, op(marked)) for name, marked in session.marks),
        left=tuple(map(op, session.left)),
        returned=tuple(map(op, session.returned)),
        made=session.made,
    )


class FollowingApp(OpeningApp):
    """Shows a run while it goes on. It begins on the last op, unless it is to ``stay``.

    ``cost_s`` is what it took last time, in s, to read the trace again and to show it.
    """

    def __init__(
        self,
        run: RunFile,
        read: Callable[[Path, OnFrame], ReplaySession],
        ascii_only: bool = False,
        stay: bool = False,
        theme: str = "dark",
    ) -> None:
        super().__init__(run.now, {}, read, ascii_only, stay, theme=theme)
        self.cost_s = 0.0
        self._run = run
        self._stands = run.look()
        self._on_end = not stay
        self._next_look = 0.0
        self._following: asyncio.Task[None] | None = None

    # -- what the screen shows of it ----------------------------------------------

    @property
    def run_note(self) -> str:
        """A word for how the run stands, for the status line; empty: it has ended."""
        match self._stands:
            case Run.ENDED | Run.LEFT:
                return ""
            case Run.KILLED:
                return "run killed"
            case Run.GONE:
                return "run gone"
        return "live" if self._is_on_end() else "goes on"

    def stay_on_end(self) -> str:
        """Stay on the last op from now on; why not, if so."""
        if self._stands is Run.LEFT:
            return super().stay_on_end()
        if self._stands not in (Run.SAME, Run.MORE):
            return "this run has ended: G goes to its last op"
        self._on_end = True
        return ""

    def _is_on_end(self) -> bool:
        """Whether the cursor is on the last op, to stay there."""
        screen = self.debugger
        return self._on_end and screen.session.cursor == len(screen.desk.index.ops) - 1

    # -- following ----------------------------------------------------------------

    def go_to(self, session: ReplaySession) -> None:
        """Show another trace, and follow the run no more."""
        self._stands = Run.LEFT
        if self._following is not None:
            self._following.cancel()
        super().go_to(session)

    def _show(self, session: ReplaySession) -> None:
        """Show the first session, and look at the file from now on."""
        if self._stands is Run.LEFT:
            super()._show(session)
            return
        if self._on_end:
            session.goto(len(session) - 1)
            self._stay = True
        super()._show(session)
        if self._stands is Run.ENDED:
            self.debugger.notes.append("this run has ended")
        else:
            self.set_interval(LOOK_S, self._look)

    def _look(self) -> None:
        """Follow on, unless that is being done, or costs too much."""
        is_free = self._following is None or self._following.done()
        if is_free and monotonic() >= self._next_look:
            self._following = asyncio.create_task(self.follow())

    async def follow(self) -> None:
        """Look at the file once; show what it has more, and say if the run has ended.

        That what is shown goes on to be shown is waited for: keys, answers, pages that
        lie over the debugger.
        """
        if self._stands not in (Run.SAME, Run.MORE):
            return
        stands = self._run.look()
        if stands in (Run.MORE, Run.ENDED):
            begun = monotonic()
            try:
                session = await asyncio.wrap_future(begun_beside(self._read_more))
            except (KernbenchError, OSError):
                return  # the file was named, or made anew, just now: the next look
            self.cost_s = monotonic() - begun
            await self._take_over(session, stands)
            self._next_look = monotonic() + _SHARE * self.cost_s
        self._stands = stands
        if stands in (Run.KILLED, Run.GONE):
            self.debugger.say(self._said_of(stands))
            self.debugger.show()

    def _said_of(self, stands: Run) -> str:
        """What is said of a run that goes on no more; empty: it does."""
        name = self._run.path.name
        match stands:
            case Run.ENDED:
                return f"the run has ended: this is {name}, whole"
            case Run.KILLED:
                return "the run was killed: this is all that it had recorded"
            case Run.GONE:
                return f"the run left no {name}: this is what it had recorded"
        return ""

    def _read_more(self) -> ReplaySession:
        """Read the trace as it is now, and prepare it. Runs in a thread."""
        session = self._read(self._run.now, lambda frame: None)
        session.index.prepare(self._give_way)
        return session

    def _give_way(self, done: float) -> None:
        """Let keys have the interpreter, while a trace is prepared."""
        self.quiet.wait(0.1)

    async def _take_over(self, session: ReplaySession, stands: Run) -> None:
        """Show a session in place of the one that is shown, once it can be."""
        self.trace_name = session.trace.path.name
        old = self.debugger
        new = self.screen_of(session)
        try:
            while True:
                old = self.debugger
                self._carry(old, new)
                drawn = new.desk.draw().values()
                is_ready = all(picture.waiting is None for picture in drawn)
                is_calm = monotonic() - old.stirred >= CALM_S
                if is_ready and is_calm and old.is_idle:
                    break
                await asyncio.sleep(_DRAW_S)
        except BaseException:
            new.runner.close()
            raise
        begun = monotonic()
        said = self._said_of(stands) or old.said
        new.notes = [said] if said else []
        if stands is Run.ENDED:
            state.remember(session.trace.path)
        self._stands = stands
        self.debugger = new
        self.switch_screen(new)
        new.call_after_refresh(self.settle)
        self.cost_s += monotonic() - begun

    def _carry(self, old: DebuggerScreen, new: DebuggerScreen) -> None:
        """Set a screen as another one is, on the same ops."""
        from kernbench.replay.query import Session

        was = old.session
        there = carried(old.desk.index.trace, new.desk.index.trace, was)
        if self._is_on_end():
            there = there.on(len(new.desk.index.ops) - 1)
        kept = state.state(old)
        kept["cursor"] = there.cursor
        kept["marks"] = dict(there.marks)
        state.restore(new, kept)
        new.sought = old.sought
        new.go_on_from(old)
        new.last_move = old.last_move
        new.stirred = old.stirred
        desk = new.desk
        desk.replay.state = Session(
            cursor=there.cursor,
            level=there.level,
            marks=there.marks,
            left=there.left,
            returned=there.returned,
            stops=desk.session.stops,
            made=desk.session.made,
        )
        desk.sizes = dict(old.desk.sizes)
        desk.columns_alone = old.desk.columns_alone
        fitted = desk.panes["timeline"].start().window
        for key, pane in old.desk.panes.items():
            desk.states[key] = old.desk.states[key]
            if key == "timeline":
                timeline = replace(old.desk.states[key], cells=None)
                if timeline.window == pane.start().window:  # all is shown
                    timeline = replace(timeline, window=fitted)
                desk.states[key] = timeline
        if there.cursor != was.cursor:
            desk.follow()
