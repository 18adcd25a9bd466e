"""``kernbench-tui`` begins here, in two processes: one draws, one waits for it.

The child is the debugger. The parent imports nothing of it and only waits: whatever
ends the child, a bus error or the system that runs out of memory as well, the parent
gives the terminal back as it was found, says in a line what happened, and exits with
128 plus the number of the signal.

Both are in one process group, so a shell and the terminal treat them as one job. What
the parent alone is sent it passes on. Unless they were told to end, it stops when the
child has stopped, and continues the child when it is continued itself. The child learns
from LIFELINE that the parent is gone, and ends.

Without a terminal, or where only text is asked for, there is one process. So it is
where TEXTUAL_DRIVER names who draws: then the terminal, if any, is not this program's.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import termios
import time
from contextlib import suppress
from threading import Thread
from typing import Any, NoReturn

from tui.terminal import RESET, is_terminal, named_driver

TAKEN = mmap.mmap(-1, 1)
"""A byte that both processes see: 1 while the child has taken the terminal."""

LIFELINE = os.pipe()
"""The child reads from its first end, which hangs up when the parent is gone."""

# With one of these nothing is drawn here.
_TEXT_ONLY = ("--script", "--info", "--version", "--help", "-h", "--serve")
_PASSED_ON = {
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTSTP,
}
_PATIENCE_S = 1.0  # for a terminal that takes no bytes
_CONTINUED_S = 0.02  # in which a signal to the group has reached all of it

_REASONS: dict[int, str] = {
    signal.SIGKILL: "the system does that when memory runs out",
    signal.SIGBUS: "was the trace cut while it was open, or can its disk not be read?",
}


def main() -> None:
    """Run ``kernbench-tui``: with a parent that waits, if it draws on a terminal."""
    text_only = any(word.startswith(_TEXT_ONLY) for word in sys.argv[1:])
    on_terminal = is_terminal(os.environ) and not named_driver(os.environ)
    if on_terminal and not text_only:
        stand_by()
    from tui.__main__ import main

    main()


def stand_by() -> None:
    """Fork, and return in the child. The parent waits, and ends as the child did."""
    found = termios.tcgetattr(0)
    heard = {signal.SIGCHLD}
    for number in _PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            heard.add(number)
    # Signals wait until they are asked for, so none is lost. One that is ignored is
    # dropped, and SIGCHLD may be.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    child = os.fork()
    if child:
        os.close(LIFELINE[0])
        _wait(child, heard, found)
    os.close(LIFELINE[1])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if signal.SIGINT in heard:  # until the screen is taken: no traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _wait(child: int, heard: set[signal.Signals], found: list[Any]) -> NoReturn:
    """Pass signals on, stop and go on with the child, and end as it does.

    ``found`` is what termios says of the terminal as it was found.
    """
    # Whoever is in the background may change the terminal only without this signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    endings = heard - {signal.SIGCHLD, signal.SIGTSTP}
    ending = False
    while True:
        number = signal.sigwait(heard)
        if number != signal.SIGCHLD:
            ending = ending or number in endings
            os.kill(child, number)
            if number != signal.SIGTSTP:  # to end, it must not be stopped
                os.kill(child, signal.SIGCONT)
            continue
        changed, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        while changed and os.WIFSTOPPED(status):
            if ending or signal.sigpending() & endings:
                # The child stopped on its way to the end, as it does where it is
                # continued in the background. Nobody would continue them both.
                os.kill(child, signal.SIGCONT)
                changed, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
                continue
            _give_back(found)
            changed, status = _stop_with(child)
            with suppress(termios.error):
                now = termios.tcgetattr(0)
                if not TAKEN[0]:  # so these are still the shell's
                    found = now
        if changed and not os.WIFCONTINUED(status):
            _end_as(status, found)


def _stop_with(child: int) -> tuple[int, int]:
    """Stop until somebody continues this process; then the child goes on as well.

    A shell continues both, and then the child needs nothing more. Returns what
    ``waitpid`` says of the child: in the background it has stopped again.
    """
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(_CONTINUED_S)
    changes = os.WNOHANG | os.WCONTINUED | os.WUNTRACED
    changed, status = os.waitpid(child, changes)
    if not changed:
        os.kill(child, signal.SIGCONT)
    return changed, status


def _end_as(status: int, found: list[Any]) -> NoReturn:
    """Give the terminal back, and end with the exit code that is due."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        _give_back(found, what_happened(number))
        os._exit(128 + number)
    _give_back(found)
    os._exit(os.WEXITSTATUS(status))


def what_happened(number: int) -> str:
    """Return in a line what ended the child, by the number of the signal."""
    names = {int(known): known.name for known in signal.Signals}
    name = names.get(number, f"signal {number}")  # those of real time have none
    reason = _REASONS.get(number, signal.strsignal(number))
    return f"error: kernbench-tui was ended by {name}: {reason}\n"


def _give_back(found: list[Any], said: str = "") -> None:
    """Restore the terminal where the child has not, and write what is to be said.

    Nothing is changed for a job in the background: the terminal is the shell's then.
    """
    reset = ""
    if TAKEN[0] and _in_foreground():
        reset = RESET
        with suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, found)
            termios.tcflush(0, termios.TCIFLUSH)  # reports of the mouse, for nobody
    TAKEN[0] = 0
    if reset or said:
        writer = Thread(target=_write, args=(reset + said,), daemon=True)
        writer.start()
        writer.join(_PATIENCE_S)
        if writer.is_alive():  # nobody reads: make room for it
            with suppress(termios.error):
                termios.tcflush(2, termios.TCOFLUSH)
            writer.join(_PATIENCE_S)


def _in_foreground() -> bool:
    """Whether the terminal belongs to this job, or knows no jobs."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return True


def _write(text: str) -> None:
    """Write to the terminal, unless that is gone. It may never return."""
    with suppress(OSError):
        os.write(2, text.encode())
