"""What passes between a kernel and its runner: the services a PE_CPU lends, and one tl call on its
way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy.typing as npt

from kernbench.common.messages import MsgBase
from kernbench.sim_engine.event_log import Recorder, Site
from kernbench.triton_emu.sites import CallSites


class PhysicalPiece(Protocol):
    """One physical piece of a virtual range: where it starts in the range, where it lies."""

    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def nbytes(self) -> int: ...  # noqa: D102
    @property
    def addr(self) -> int: ...  # noqa: D102


class Store(Protocol):
    """The part of a memory store that a kernel needs."""

    def view(self, space: str, addr: int, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
        """The tensor there, read-only."""

    def patch(self, space: str, addr: int, data: npt.NDArray[Any]) -> None:
        """Write a tensor there."""


class Pending(Protocol):
    """Which bytes are compute results not yet executed (simulator.md section 7)."""

    def mark(self, space: str, addr: int, nbytes: int, op: Any) -> None:
        """They are, of ``op``."""

    def clear(self, space: str, addr: int, nbytes: int) -> None:
        """They no longer are."""

    def find(self, space: str, addr: int, nbytes: int) -> Any | None:
        """The op that will write one of these bytes."""


@dataclass(slots=True)
class KernelContext:
    """What a PE_CPU lends to the kernel that runs on it; times in ns."""

    env: Any
    pe: str
    place: tuple[int, int, int]
    programs: tuple[int, int, int]
    launch: int
    kernel: str
    issue_ns: float
    cycle_ns: float
    scratch_addr: int
    scratch_bytes: int
    default_tile: tuple[int, int, int]
    store: Store
    pending: Pending
    events: Recorder | None
    sites: CallSites
    commands: Iterator[int]
    dispatch: Callable[[MsgBase], Any]
    translate: Callable[[int, int], Sequence[PhysicalPiece]]


@dataclass(slots=True, eq=False)
class Call:
    """One tl call on its way: its commands, what to do as each is issued and lands, whom it waits
    for.
    """

    name: str
    cmd: int
    site: Site
    messages: list[MsgBase] = field(default_factory=list)
    blocking: bool = True
    waits_for: Call | None = None
    on_issue: Callable[[MsgBase], None] | None = None
    on_done: Callable[[MsgBase], None] | None = None
    processes: list[Any] = field(default_factory=list)
    last: MsgBase | None = None
    error: Exception | None = None
