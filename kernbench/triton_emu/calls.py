"""What passes between a kernel and its runner: what a PE_CPU lends, and one tl call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kernbench.common.arrays import Array
from kernbench.common.kernel_texts import KernelTexts
from kernbench.common.messages import Held, LaunchMsg, MsgBase, Region
from kernbench.common.rows import share_a_byte
from kernbench.sim_engine.event_log import Recorder, Site
from kernbench.sim_engine.pending import PendingRanges
from kernbench.topology.graph import Node
from kernbench.topology.spec import PeSpec
from kernbench.triton_emu.sites import CallSites


class Piece(NamedTuple):
    """One physical piece of a virtual range.

    It starts ``offset`` bytes into the range and lies at the physical ``addr``.
    """

    offset: int
    nbytes: int
    addr: int


class CallNumbers:
    """The numbers of calls, in the order in which they are made, from 0.

    ``upcoming`` is the next. ``sites`` has the site of each by its number, if they are
    kept.
    """

    def __init__(self, keep_sites: bool = False) -> None:
        self.upcoming = 0
        self.sites: list[Site] = []
        self._keep_sites = keep_sites

    def take(self, pe: str, call: str, site: Site) -> int:
        """The number of the call of that name that ``pe`` makes at ``site`` now."""
        self.upcoming += 1
        if self._keep_sites:
            self.sites.append(site)
        return self.upcoming - 1


@dataclass(slots=True)
class KernelContext:
    """What a PE_CPU lends to a kernel.

    ``translate(va, nbytes, past_end)`` gives the physical pieces of a virtual range,
    ``describe(addr)`` the nearest allocation in words; ``peek`` and ``put`` are those
    of ``Sim``. ``peers`` are the pe_cpus of the neighbours by direction, and
    ``slot_bytes`` the sizes of a slot of the rings there; ``held(direction, is_send)``
    says what a send or recv waits for there. ``numbers`` gives the numbers of calls,
    ``scratch_bytes`` is the size of the scratch in the PE's TCM; ``notes`` are printed
    with the run's results, ``texts`` are what kernels print.
    """

    env: Any
    node: Node
    spec: PeSpec
    msg: LaunchMsg
    pending: PendingRanges
    events: Recorder | None
    sites: CallSites
    numbers: CallNumbers
    warnings: list[str]
    notes: list[str]
    texts: KernelTexts
    dispatch: Callable[[MsgBase], Any]
    translate: Callable[[int, int, bool], Sequence[Piece]]
    describe: Callable[[int], str]
    peek: Callable[[Region], Array | str]
    put: Callable[[Region, Array | str], None]
    scratch_bytes: int
    peers: Mapping[str, str]
    slot_bytes: Mapping[str, int]
    held: Callable[[str, bool], Held]


@dataclass(slots=True, eq=False)
class Call:
    """One tl call on its way; its function was called at ``caller``, unless that is a
    kernel.

    ``messages`` are its commands; ``on_issue`` and ``on_done`` are called with each as
    it is issued and as it has landed, ``processes`` serve them, and ``last`` is the one
    that landed last. The kernel goes on when ``waits_for`` has ended (by default the
    call itself, if it is ``blocking``). ``link`` is the direction, and the pe_cpu of
    the neighbour, of a send or recv. ``error`` is raised in the kernel when it goes on.
    """

    name: str
    cmd: int
    site: Site
    caller: Site | None = None
    messages: list[MsgBase] = field(default_factory=list)
    blocking: bool = True
    waits_for: Call | None = None
    on_issue: Callable[[Any], None] = lambda _: None
    on_done: Callable[[Any], None] = lambda _: None
    processes: list[Any] = field(default_factory=list)
    link: tuple[str, str] | None = None
    last: MsgBase | None = None
    error: Exception | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a command of it has been issued and has not landed."""
        return not all(process.processed for process in self.processes)


def overlap(a: Region, b: Region) -> bool:
    """Whether two regions share a byte."""
    if a.space != b.space:
        return False
    return share_a_byte(a.where, b.where)
