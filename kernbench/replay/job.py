"""Long answers: a ``Job`` can be watched and cancelled while another thread computes it."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import CDLL
from time import monotonic
from typing import Generic, TypeAlias, TypeVar

from kernbench.errors import KernbenchError

T = TypeVar("T")
_LONG_S = 0.5
Tell: TypeAlias = Callable[
    [float], None
]  # is told the share done so far, 0 to 1; may raise


def trim() -> None:
    """Give back to the system what threads have freed: the C library keeps it."""
    getattr(CDLL(None), "malloc_trim", id)(0)


def untold(done: float) -> None:
    """A ``Tell`` for callers who just wait."""


class Cancelled(KernbenchError):
    """The user has cancelled a job."""


class Job(Generic[T]):
    """``compute(tell)``, to be called once by ``run``; ``done`` is the share told last, 0 to 1.

    ``begun`` is when it was asked for, in seconds of ``time.monotonic``.
    """

    def __init__(self, title: str, compute: Callable[[Tell], T]) -> None:
        self.title, self._compute = title, compute
        self.begun, self.done, self._cancelled = monotonic(), 0.0, False

    def run(self) -> T:
        """The result; raises what computing raises, Cancelled soon after ``cancel``."""
        try:
            return self._compute(self._tell)
        finally:
            if monotonic() - self.begun > _LONG_S:
                trim()

    def cancel(self) -> None:
        """Make ``run`` raise Cancelled when it next tells how far it is; of any thread."""
        self._cancelled = True

    def _tell(self, done: float) -> None:
        if self._cancelled:
            raise Cancelled(f"{self.title} was cancelled at {self.done:.0%}")
        self.done = done
