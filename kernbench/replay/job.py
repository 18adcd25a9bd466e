"""Long answers: a ``Job`` can be watched and cancelled while another thread computes it."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import CDLL
from time import monotonic
from typing import Generic, TypeVar

from kernbench.common.progress import Cancelled, Progress

T = TypeVar("T")
_LONG_S = 0.5


def trim() -> None:
    """Give back to the system what threads have freed: the C library keeps it."""
    getattr(CDLL(None), "malloc_trim", id)(0)


class Job(Generic[T]):
    """``compute(progress)``, to be called once by ``run``; ``done`` is the share told last, 0 to 1.

    ``begun`` is when it was asked for, in seconds of ``time.monotonic``.
    """

    def __init__(self, title: str, compute: Callable[[Progress], T]) -> None:
        self.title, self._compute = title, compute
        self.begun, self.done, self._cancelled = monotonic(), 0.0, False

    def run(self) -> T:
        """The result; raises what computing raises, Cancelled soon after ``cancel``."""
        try:
            return self._compute(self._progress)
        finally:
            if monotonic() - self.begun > _LONG_S:
                trim()

    def cancel(self) -> None:
        """Make ``run`` raise Cancelled when it next tells how far it is; of any thread."""
        self._cancelled = True

    def _progress(self, done: float) -> None:
        if self._cancelled:
            raise Cancelled(f"{self.title} was cancelled at {self.done:.0%}")
        self.done = done
