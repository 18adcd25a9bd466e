"""Rows of the logs, as a trace gives them; times are in ns."""

from __future__ import annotations

from typing import NamedTuple

from kernbench.sim_engine.event_log import Site


class Command(NamedTuple):
    """A row of ``commands``: one tl call of the kernel on ``pe``, or a host's call.

    ``launch`` is -1 for the host. ``awaits`` is the call that it waited for, its own
    number if it blocked by itself, or NO_CMD.
    """

    cmd: int
    pe: str
    launch: int
    call: str
    site: Site
    awaits: int
    t_issue: float
    t_resume: float


class Launch(NamedTuple):
    """A row of ``launches``: a kernel that ran on ``pes``, which are ids of pe_cpu."""

    launch: int
    kernel: str
    pes: tuple[str, ...]
    t_issue: float
    t_start: float
    t_end: float


class Text(NamedTuple):
    """A row of ``text``: what a call said at ``t``, and at which level."""

    t: float
    cmd: int
    level: str
    message: str


class Source(NamedTuple):
    """The text of a file and the kernel for which it was recorded."""

    kernel: str
    text: str
