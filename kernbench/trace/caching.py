"""How a trace keeps what it has computed, when several threads read it.

Workers and the screen's thread share one ``Trace``. Everything that it computes from
its file depends on the file alone, so two threads that compute the same column come to
the same column: filling a cache twice costs time and harms nothing. A lock would cost
more. The thread that holds it may be stopped in the middle, since whoever opened the
trace is called with every frame and may wait there until a key has been drawn; the
screen's thread, if it needed the same column for that key, would wait for the worker,
and the worker for the screen.

So no cache of the room is locked. Those that are dicts, and ``functools.cache`` and
``lru_cache``, are changed in one step of the interpreter, and hold what is made of the
file or of the key alone. One thing may be counted only once: what was found damaged,
and what was inflated. ``FrameFile`` notes these two under a lock that it never holds
while it reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_without_lock(Generic[T]):
    """A property that is computed when it is first asked for, and kept.

    It differs from ``functools.cached_property`` in that no thread ever waits for
    another: Python 3.11 holds a lock while it computes, one for all instances of the
    class. Threads that ask at the same time may all compute the value. The first to
    finish decides: it is kept, and all of them get that same object.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, owner: None, cls: type) -> cached_without_lock[T]: ...
    @overload
    def __get__(self, owner: object, cls: type) -> T: ...
    def __get__(self, owner: object, cls: type) -> T | cached_without_lock[T]:
        if owner is None:
            return self
        # Once the value is in there, Python finds it before this method. setdefault
        # is one step for every other thread.
        value: T = vars(owner).setdefault(self._name, self._compute(owner))
        return value
