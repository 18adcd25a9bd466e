"""What kernels print and assert in a run, as whoever runs them gets to see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MOST_TEXTS = 10_000
"""Texts that a run keeps; those after them are counted only."""


@dataclass(frozen=True, slots=True)
class KernelText:
    """What ``tl.device_print`` or a failing ``tl.device_assert`` said at ``t_ns``.

    ``level`` is "print" or "assert", ``pe`` a pe_cpu, ``at`` the kernel line.
    """

    t_ns: float
    pe: str
    at: str
    level: str
    message: str

    def as_text(self) -> str:
        """One line: the PE, the time, the line and what it said."""
        pe = self.pe.rpartition(".")[0]
        said = self.message
        if self.level == "assert":
            said = f"device_assert failed: {said}".removesuffix(": ")
        return f"{pe} {self.t_ns:,.3f} ns {self.at}: {said}"


def _nobody(text: KernelText) -> None:
    """Nobody wants to see texts as they come."""


class KernelTexts:
    """The texts of a run, in order. ``on_text`` is called with each as it comes."""

    def __init__(self) -> None:
        self.rows: list[KernelText] = []
        self.count = 0
        self.on_text: Callable[[KernelText], None] = _nobody

    def add(self, text: KernelText) -> None:
        """Keep a text, unless there are too many, and hand it over."""
        self.count += 1
        if len(self.rows) < MOST_TEXTS:
            self.rows.append(text)
        self.on_text(text)
