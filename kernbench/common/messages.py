"""What components hand each other: messages, transfers of bytes, launches, host copies, tiles.

A message whose ``data_op`` is true is one op of the op log (ADR-0020 D4), recorded by the component
that serves it. What merely crosses the network is a ``Transaction``, never an op.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Any, ClassVar, NamedTuple, TypeAlias

NO_CMD = 0xFFFFFFFF  # belongs to no call
NO_ROW = -1  # has no record (yet)

WAIT_REASONS = (
    *("operand", "engine", "window", "dma_slot", "link"),
    *("hbm_channel", "credit", "arrival", "launch", "barrier"),
)

# (path of node ids, t0, nbytes, bursts, start at each hop of the first burst and, if several, of
# the last)
Transfer: TypeAlias = tuple[tuple[str, ...], float, int, int, list[float]]
# (node, reason, t0, t1, row of the op whose end ended it or -1), t1 > t0
Wait: TypeAlias = tuple[str, str, float, float, int]
# the same while the run goes on: the holder is a message that may not have a row yet
OpenWait: TypeAlias = "tuple[str, str, float, float, MsgBase | None]"


@dataclass(slots=True, eq=False, kw_only=True)
class MsgBase:
    """One message; ``cmd`` is the number of the call that caused it, ``row`` that of its record.

    ``waits`` and ``transfers`` gather until the record ends. ``resumed_by`` is the op that last
    let the kernel which issued this one go on. ``t_start`` is when its (present) service started,
    -1 before; ``started`` is a SimPy event, where somebody listens for that.
    """

    data_op: ClassVar[bool] = False
    cmd: int = NO_CMD
    slot: int = 0
    row: int = NO_ROW
    waits: list[OpenWait] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    resumed_by: MsgBase | None = None
    t_start: float = -1.0
    started: Any = None

    def regions(self) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
        """(read, written): the memory that serving this message touches."""
        return (), ()

    def wait(
        self, node: str, reason: str, t0: float, t1: float, holder: MsgBase | None
    ) -> None:
        """Note that this message waited at ``node`` from t0 to t1; nothing if it did not."""
        if t1 > t0:
            self.waits.append(
                (node, reason, t0, t1, None if holder is self else holder)
            )


@dataclass(frozen=True, slots=True)
class Region:
    """A contiguous row-major tensor in one memory: physical ``addr``, our dtype name."""

    space: str
    addr: int
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


@dataclass(slots=True, eq=False)
class Transaction:
    """``nbytes`` carried along ``path`` in bursts of ``burst_bytes`` (0: one piece) for ``owner``.

    ``src_addr`` is set when path[0] is a memory to be read first, ``dst_addr`` when path[-1] is one
    to be written. ``rate_gbs`` bounds the rate where something beyond the path does.
    """

    path: tuple[str, ...]
    nbytes: int
    owner: MsgBase
    burst_bytes: int = 0
    src_addr: int | None = None
    dst_addr: int | None = None
    rate_gbs: float = inf


class Waiter(NamedTuple):
    """A call that has not come back: what and where, since when (ns); its node, and the one that it
    waits for, where that is known. ``record`` records it, as far as it has come.
    """

    what: str
    since: float
    node: str
    peer: str = ""
    record: Callable[[], object] = lambda: None


@dataclass(slots=True, eq=False, kw_only=True)
class LaunchMsg(MsgBase):
    """One launch on its way from the host to PE_CPUs, all of which start at ``target_start_ns``.

    ``pes`` are (sip, cube, pe), ``programs`` how many of each axis (PE, cube, SIP) take part.
    ``remaining`` counts those that have not ended; ``done`` is a SimPy event. ``waiting`` holds the
    calls that have not come back, of all launches, by number.
    """

    launch: int = 0
    name: str
    kernel: Callable[..., None]
    args: tuple[Any, ...] = ()
    pes: tuple[tuple[int, int, int], ...]
    programs: tuple[int, int, int] = (1, 1, 1)
    done: Any
    waiting: dict[int, Waiter] = field(default_factory=dict)
    target_start_ns: float = 0.0
    t_first_start: float = inf
    remaining: int = field(init=False)

    def __post_init__(self) -> None:
        self.remaining = len(self.pes)


@dataclass(slots=True, eq=False, kw_only=True)
class HostWriteCmd(MsgBase):
    """Host memory to one shard; served by pcie_ep."""

    data_op: ClassVar[bool] = True
    dst: Region
    data: Any


@dataclass(slots=True, eq=False, kw_only=True)
class HostReadCmd(MsgBase):
    """One shard to host memory; served by pcie_ep."""

    data_op: ClassVar[bool] = True
    src: Region


class StageType(Enum):
    """Stages of a tile, in pipeline order."""

    DMA_READ = "DMA_READ"
    FETCH = "FETCH"
    GEMM = "GEMM"
    MATH = "MATH"
    STORE = "STORE"
    DMA_WRITE = "DMA_WRITE"


class Stage(NamedTuple):
    """One step of a tile's plan: the node that serves it and what it does there."""

    stage_type: StageType
    node: str
    params: dict[str, Any]


@dataclass(slots=True, eq=False, kw_only=True)
class TileToken(MsgBase):
    """One (m, n, k) tile of a composite that carries its plan through the PE's engines."""

    data_op: ClassVar[bool] = True
    composite: MsgBase
    index: tuple[int, ...]
    stages: tuple[Stage, ...]
    stage_idx: int = 0

    @property
    def stage(self) -> Stage:
        """The stage that it is in."""
        return self.stages[self.stage_idx]
