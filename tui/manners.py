"""Manners: whatever ends the program, the terminal is left as it was found, and the end is told.

Owns signals, the terminal that goes away, crash reports and when garbage is collected.
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
from collections.abc import Callable
from contextlib import suppress
from threading import Thread, Timer
from typing import Any, cast

from platformdirs import user_state_path
from textual import events
from textual._compositor import CompositorUpdate
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message
from textual.screen import Screen

from tui.cells import Cells
from tui.terminal import RESET, info_lines

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_PATIENCE_S = 1.5  # for an orderly end, before a hard one
_IDLE_S = 2.0
_SELDOM = (
    5000,
    20,
    1_000_000,
)  # the third: collections of all objects, which last long


class _Prompt(LinuxDriver):
    """Tells the App of a key as soon as that is read, while it is still at something else."""

    def send_message(self, message: Message) -> None:
        if isinstance(message, events.Key):
            cast(MannerlyApp, self._app).key_waits = True
        super().send_message(message)


class MannerlyApp(App[None], inherit_bindings=False):
    """An App that ends as it is told to; ``past`` is what was done last, ``opened`` a hash.

    ``key_waits`` is set, by a thread, when a key was read that is not acted on yet.
    """

    ENABLE_COMMAND_PALETTE = (
        False  # by a key of its own; ours is in the table of actions
    )

    def __init__(self, **options: Any) -> None:
        super().__init__(driver_class=_Prompt, **options)
        self.key_waits = False
        self.past: deque[str] = deque(maxlen=50)  # actions, command lines, clicks
        self.crash, self.opened = "", "none"
        self.cells = Cells()
        self.attributes: list[Any] = []
        self._stirred = self._seen = self._collected = 0

    def keep(self) -> None:
        """Save what the user has set: the program ends."""

    def on_load(self) -> None:
        """Before the screen is taken: signals, and a thread that sleeps until the tty is gone."""
        if not self.attributes:  # no terminal of its own
            return
        loop = asyncio.get_running_loop()

        def end(number: int, frame: object = None) -> None:
            last = Timer(_PATIENCE_S, self._end_hard, (128 + number,))
            last.daemon = True
            last.start()
            loop.call_soon_threadsafe(self.exit, None, 128 + number)

        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                signal.signal(number, end)
        Thread(target=_wait_for_hangup, args=(end,), daemon=True).start()
        gc.set_threshold(*_SELDOM)
        self.set_interval(_IDLE_S, self._collect)

    def exit(
        self, result: None = None, return_code: int = 0, message: Any = None
    ) -> None:
        """End in order, with what was set kept."""
        with suppress(Exception):  # nothing may keep it from ending
            self.keep()
        super().exit(result, return_code, message)

    def restore(self) -> None:
        """Line discipline as it was found; Textual may not have come to it."""
        with suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, self.attributes)

    def _end_hard(self, code: int) -> None:
        """The screen's thread hangs, or its writes do: restore by hand, end."""
        with suppress(OSError):
            self.restore()
            os.set_blocking(2, False)
            os.write(2, RESET.encode())
        os._exit(code)

    async def on_event(self, event: events.Event) -> None:
        """Clicks are remembered, and that somebody is at work."""
        if isinstance(
            event, events.MouseMove
        ):  # all that follows is drawing under a mouse
            return
        if isinstance(event, events.Key | events.MouseDown):
            self._stirred += 1
            self.key_waits = False
        if isinstance(event, events.MouseDown):
            self.past.append(f"mouse at {event.x},{event.y}")
        if isinstance(event, events.Resize):  # or the program was suspended
            self.cells.forget()
        new = isinstance(event, events.Key) and not event.is_forwarded
        taken = getattr(self.focused or self.screen, "taken", None) if new else None
        if taken is not None:
            taken.clear()
        await super().on_event(event)
        if taken is not None and cast(events.Key, event).is_forwarded:
            with suppress(
                TimeoutError
            ):  # the key behind it may be for what this one opens
                await asyncio.wait_for(taken.wait(), _PATIENCE_S)

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        if isinstance(renderable, CompositorUpdate):
            self.cells.update, renderable = renderable, self.cells
        super()._display(screen, renderable)

    def _collect(self) -> None:
        """Collect garbage once after each spell of work: while keys come it would be felt."""
        if self._stirred == self._seen != self._collected:
            from tui.runner import trim  # not before the first frame

            self._collected = self._seen
            gc.collect()
            Thread(target=trim, daemon=True).start()
        self._seen = self._stirred

    def settle(self) -> None:
        """What is loaded stays: collections need not look at it. What was loaded before goes."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()

    def _fatal_error(self) -> None:
        self.panic()

    def panic(self, *renderables: Any) -> None:
        """What Textual would print at length goes to the crash report."""
        self.crash = self.crash or traceback.format_exc()
        self._return_code = 1
        with suppress(Exception):
            self.keep()
        self._close_messages_no_wait()


def _wait_for_hangup(end: Callable[[int], None]) -> None:
    poll = select.poll()
    poll.register(0, 0)  # a hangup is reported though nothing is asked for
    poll.poll()
    end(signal.SIGHUP)


def run(app: MannerlyApp) -> int:
    """Run it to its end; the exit code. Of a crash it prints one line, and writes a report."""
    app.attributes = termios.tcgetattr(0)
    try:
        app.run()
    except Exception:
        app.crash = app.crash or traceback.format_exc()
    if app.crash:
        app.restore()
        why = app.crash.strip().splitlines()[-1]
        sys.stderr.write(f"{RESET}error: {why}; {report(app)}\n")
        return 1
    return app.return_code or 0


def report(app: MannerlyApp) -> str:
    """Write the crash report into the state directory; where it is, in words."""
    path = user_state_path("kernbench") / f"crash-{os.getpid()}.txt"
    parts = [app.crash, f"trace {app.opened}", "", "done last", *app.past, ""]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "\n".join([*parts, *info_lines(os.environ), ""]), encoding="utf-8"
        )
    except OSError as why:
        return f"no crash report: {path}: {why.strerror}"
    return f"crash report: {path}"
