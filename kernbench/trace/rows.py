"""What rows of the logs are told as."""

from __future__ import annotations

from typing import NamedTuple

from kernbench.sim_engine.event_log import Site


class Command(NamedTuple):
    """A row of ``commands``: one tl call of the kernel on ``pe``; times in ns."""

    cmd: int
    pe: str
    launch: int
    call: str
    site: Site
    awaits: int
    t_issue: float
    t_resume: float


class Launch(NamedTuple):
    """A row of ``launches``; ``pes`` are pe_cpu ids, times in ns."""

    launch: int
    kernel: str
    pes: tuple[str, ...]
    t_issue: float
    t_start: float
    t_end: float


class Text(NamedTuple):
    """A row of ``text`` at ``t`` ns."""

    t: float
    cmd: int
    level: str
    message: str


class Source(NamedTuple):
    """The text of a file and the kernel for which it was recorded."""

    kernel: str
    text: str
