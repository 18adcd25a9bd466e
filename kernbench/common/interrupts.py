"""What ends the program from outside: Ctrl-C, SIGTERM, SIGHUP.

They raise KeyboardInterrupt wherever the program happens to be, so that an endless
kernel ends too. What must not be left half done holds them back for so long.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EndedBySignal(KeyboardInterrupt):
    """A signal asked the program to end; as after Ctrl-C, nobody goes on.

    SimPy makes another one of its type and args where a process waits for the one that
    it was raised in.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __str__(self) -> str:
        return signal.Signals(self.number).name


class _Held:
    """How many hold signals back now, the last that came meanwhile, and was raised."""

    holders = 0
    came: int | None = None
    raised: int | None = None


@contextmanager
def interruptible() -> Iterator[None]:
    """Have Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt, for a program's work.

    A signal that is ignored stays ignored, as under nohup. Threads other than the main
    one get no signals, and nothing is done there.
    """
    _Held.raised = None
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in _ENDING}
    changed = [number for number in before if before[number] is not signal.SIG_IGN]
    for number in changed:
        signal.signal(number, _on_signal)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, before[number])


class Uninterrupted:
    """Holds the signals of ``interruptible`` back; one that came is raised at the end.

    It is entered for every array that is recorded, and so has no generator.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        _Held.holders += 1

    def __exit__(self, *_: object) -> None:
        _Held.holders -= 1
        came = _Held.came
        if came is not None and not _Held.holders:
            _Held.came = None
            _raise(came)


def _on_signal(number: int, frame: object) -> None:
    if _Held.holders:
        _Held.came = number
    else:
        _raise(number)


def raised_signal() -> int | None:
    """The signal that was raised last; None if none was.

    What it was raised in may have made another error of it: modules in C raise
    ImportError if they are interrupted while they are imported.
    """
    return _Held.raised


def _raise(number: int) -> None:
    _Held.raised = number
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise EndedBySignal(number)
