"""How the program begins on a terminal, takes keys there, and ends.

However it ends, the terminal is left as it was found, and the exit code says why: 128
plus the number of a signal, 129 if the terminal went away, 1 after a crash. What cannot
be handled here is the parent's (``tui/guardian.py``). This file owns signals, the
terminal or the parent that goes away, crash reports, keys that wait to be acted on, and
the moments at which garbage is collected. It knows no trace and no debugger.

A key takes this way. The thread that reads the terminal counts it, which clears
``quiet``, and posts it to the App. The App hands it to the widget with the focus, and
takes the next key only when that has acted on it. With the next frame, or once there
turns out to be none, the key is drawn, and ``quiet`` is set again. Threads that compute
wait for ``quiet``, so that a key has the interpreter for itself. Keys that were typed
before their screen was there (``type_on``) are taken first, in the order in which they
were typed, and those read meanwhile come behind them.
"""

from __future__ import annotations

import asyncio
import gc
import os
import select
import signal
import sys
import termios
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Event, Lock, Thread, Timer
from typing import Any

from textual import events
from textual.screen import Screen

from kernbench.visible import visible, visible_text
from tui.ansi import DiffApp
from tui.guardian import LIFELINE, TAKEN
from tui.private_file import write_private
from tui.terminal import RESET, info_lines

_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_PATIENCE_S = 1.5  # for an orderly end, or for a key to be acted on
IDLE_S = 2.0  # between two looks at whether the user has paused

# Thresholds of the garbage collector. New objects are looked through after a thousand
# of them, and once more after ten thousand, in some 2 ms; of a hundred thousand that
# was 20 ms, which is a key that is late. Full collections take up to 170 ms on a large
# trace, and are left to IdleCollector.
_GC_THRESHOLDS = (1000, 10, 1_000_000)


class PendingKeys:
    """Keys that were read from the terminal and are not yet visible on it.

    ``quiet`` is set while there are none. The thread that reads the terminal clears it;
    the App sets it when the frame that shows what the last key did was handed to the
    driver, or when that key turned out to draw nothing.
    """

    def __init__(self) -> None:
        self.quiet = Event()
        self.quiet.set()
        self._lock = Lock()
        self._read = 0  # keys so far
        self._acted_on = 0  # of these

    @property
    def waiting(self) -> bool:
        """Whether a key was read that has not been acted on yet."""
        return self._read > self._acted_on

    def read(self) -> None:
        """Count a key that was read; for the thread that reads."""
        with self._lock:
            self._read += 1
            self.quiet.clear()

    def began(self) -> None:
        """Begin to act on a key; count it here if nobody read it, as in a test."""
        if not self.waiting:
            self.read()

    def acted_on(self) -> None:
        """Count the key that was begun as acted on."""
        with self._lock:
            self._acted_on += 1

    def drawn(self) -> None:
        """Know that all that was acted on so far is drawn."""
        with self._lock:
            if self._acted_on == self._read:
                self.quiet.set()


class IdleCollector:
    """Collects garbage once after each spell of work: a pause would be felt within one.

    ``collect`` is called for it; ``look`` has to be called every few seconds.
    """

    def __init__(self, collect: Callable[[], None]) -> None:
        self._collect = collect
        self._work = 0  # keys and clicks so far
        self._work_seen = 0  # the same at the last look
        self._work_collected = 0  # the same at the last collection

    def note_work(self) -> None:
        """Count a key or a click."""
        self._work += 1

    def look(self) -> None:
        """Collect if there was work since the last collection, and none lately."""
        paused = self._work == self._work_seen
        if paused and self._work_collected != self._work:
            self._work_collected = self._work
            self._collect()
        self._work_seen = self._work


def collect_garbage() -> None:
    """Collect garbage, and give free memory back to the system."""
    from tui.runner import trim  # not before the first frame

    gc.collect()
    Thread(target=trim, daemon=True).start()


class TerminalApp(DiffApp, inherit_bindings=False):
    """An App that ends when it is told to, and acts on keys one after the other.

    ``past`` has what the user did last, ``opened`` the hash of the trace, and ``crash``
    the traceback of what ended the program; these go into a crash report.

    ``is_program`` says that the App has the process for itself. In a test it has not:
    then no signal is handled. ``attributes`` is what termios says of the terminal as it
    was found; it is empty where there is none, as in a browser.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.past: deque[str] = deque(maxlen=50)  # actions, command lines, clicks
        self.crash = ""
        self.opened = "none"
        self.is_program = False
        self.attributes: list[Any] = []
        self.pending_keys = PendingKeys()
        self._typed_before: deque[events.Key] = deque()
        self._key_acted_on = asyncio.Event()
        self._collector = IdleCollector(collect_garbage)

    # -- keys --

    @property
    def quiet(self) -> Event:
        """Set while no key waits to be acted on and drawn; for threads that compute."""
        return self.pending_keys.quiet

    @property
    def input_pending(self) -> bool:
        """Whether a key was read that has not been acted on yet."""
        return self.pending_keys.waiting

    def on_key_read(self) -> None:
        """Count a key; called by the thread that reads the terminal."""
        self.pending_keys.read()

    def on_frame(self) -> None:
        """Count what was acted on as drawn."""
        self.pending_keys.drawn()

    async def on_event(self, event: events.Event) -> None:
        """Act on keys in their order and remember clicks; the rest is Textual's."""
        if isinstance(event, events.MouseMove):
            return  # Textual would redraw what is under the mouse
        if isinstance(event, events.Key | events.MouseDown):
            self._collector.note_work()
        if isinstance(event, events.MouseDown):
            self.past.append(f"mouse at {event.x},{event.y}")
        if isinstance(event, events.Resize):  # or the program was suspended
            self.cells.forget()
            event = self.sized(event)
        if isinstance(event, events.Key) and not event.is_forwarded:
            if self._typed_before:
                self._typed_before.append(event)
            else:
                await self._take_key(event)
        else:
            await super().on_event(event)

    async def _take_key(self, key: events.Key) -> None:
        """Act on a key, and know when what it did is drawn."""
        self.pending_keys.began()
        try:
            await self.act_on_key(key)
        finally:
            self.pending_keys.acted_on()
            if self.is_running:  # a key that draws nothing makes no frame
                self.screen.call_after_refresh(self.pending_keys.drawn)

    async def act_on_key(self, key: events.Key) -> None:
        """Hand a key to the widget with the focus; return when it has acted on it.

        The key behind it may be for what this one opens, so it must not be handed on
        before.
        """
        target = self.focused or self.screen
        await super().on_event(key)
        if not key.is_forwarded:  # it was the App's
            return
        acted_on = asyncio.Event()
        self._key_acted_on = acted_on
        if target.call_later(acted_on.set):  # behind the key in the same queue
            with suppress(TimeoutError):
                await asyncio.wait_for(acted_on.wait(), _PATIENCE_S)

    def type_on(self, screen: Screen[Any], keys: Iterable[events.Key]) -> None:
        """Let a screen have keys that were typed before it was there.

        They are acted on once it is drawn. Those that are read until then, or while one
        of them is acted on, were typed later and come behind them.
        """
        waits = bool(self._typed_before)
        for key in keys:
            self.pending_keys.read()
            self._typed_before.append(events.Key(key.key, key.character))
        if self._typed_before and not waits:
            screen.call_after_refresh(self.call_later, self._take_typed_before)

    async def _take_typed_before(self) -> None:
        """Act on the first of the keys that wait for a screen, then on the next."""
        await self._take_key(self._typed_before.popleft())
        if self._typed_before:
            self.call_later(self._take_typed_before)

    # -- beginning and ending --

    def keep(self) -> None:
        """Save what the user has set: the program ends."""

    def on_load(self) -> None:
        """Handle signals, and watch the terminal, before the screen is taken."""
        if not self.is_program:
            return
        loop = asyncio.get_running_loop()

        def end(number: int, frame: object = None) -> None:
            self.ending = True
            code = 128 + number
            last_resort = Timer(_PATIENCE_S, os._exit, (code,))  # the App may hang
            last_resort.daemon = True
            last_resort.start()
            loop.call_soon_threadsafe(self._leave, code)

        for number in _ENDING_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                signal.signal(number, end)
        Thread(target=self._wait_for_hangup, args=(end,), daemon=True).start()
        gc.set_threshold(*_GC_THRESHOLDS)
        self.set_interval(IDLE_S, self._collector.look)

    def _wait_for_hangup(self, end: Callable[[int], None]) -> None:
        """Sleep until the terminal or the parent is gone, then end as on SIGHUP.

        In place of a terminal there may be a pipe, from who draws elsewhere.

        Runs in a thread. When the parent is gone, the shell soon has the terminal, so
        its modes are restored at once; that needs SIGTTOU blocked.
        """
        poll = select.poll()
        poll.register(0, 0)  # a hangup is reported though nothing is asked for
        poll.register(LIFELINE[0], 0)
        poll.poll()
        if TAKEN[0]:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
            self.restore()
        end(signal.SIGHUP)

    def _leave(self, code: int) -> None:
        """End in order. In the background the terminal is the shell's and is left."""
        signal.signal(signal.SIGTTOU, lambda *_: None)  # by default it stops who tries
        self.exit(None, code)

    def exit(
        self, result: None = None, return_code: int = 0, message: Any = None
    ) -> None:
        """End in order, and keep what the user has set."""
        with suppress(Exception):  # nothing may keep it from ending
            self.keep()
        super().exit(result, return_code, message)

    def on_failure(self) -> None:
        """Keep the traceback for the crash report, and what the user has set."""
        self.crash = self.crash or traceback.format_exc()
        with suppress(Exception):
            self.keep()
        self._key_acted_on.set()  # whoever acted on a key will not come back

    def excuse(self) -> str:
        """What else than a mistake of ours a crash may come from; empty: nothing."""
        return ""

    def restore(self) -> None:
        """Set the line discipline as it was found, where Textual did not come to it."""
        with suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, self.attributes)

    def settle(self) -> None:
        """Exempt what is loaded from collections; collect what was loaded before it."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()


def run(app: TerminalApp) -> int:
    """Run the App to its end and return the exit code.

    Of a crash it prints one line on stderr, and writes a report.
    """
    app.is_program = True
    reset = ""
    if os.isatty(0):
        app.attributes = termios.tcgetattr(0)
        reset = RESET
    try:
        app.run()
    except Exception:
        app.crash = app.crash or traceback.format_exc()
    if app.crash:
        if app.attributes:
            app.restore()
        TAKEN[0] = 0  # nobody else is to write behind what is said
        why = visible(app.excuse())
        why = why or visible_text(app.crash).strip().splitlines()[-1]
        sys.stderr.write(f"{reset}error: {why}; {visible(report(app))}\n")
        return 1
    return app.return_code or 0


def report(app: TerminalApp) -> str:
    """Write the crash report into the state directory; return in words where it is.

    It has the traceback, the hash of the trace, what was done last, and what the
    terminal is.
    """
    lines = [
        app.crash,
        f"trace {app.opened}",
        "",
        "done last",
        *app.past,
        "",
        *info_lines(os.environ),
        "",
    ]
    text = visible_text("\n".join(lines))
    try:
        path = write_private(f"crash-{os.getpid()}.txt", text.encode())
    except OSError as why:
        return f"no crash report: {why.filename}: {why.strerror}"
    return f"crash report: {path}"
