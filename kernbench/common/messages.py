"""What components hand each other: messages, transfers, launches, host copies, tiles.

A message whose ``data_op`` is true is one op of the op log (ADR-0020 D4), recorded by
the component that serves it. What merely crosses the network is a ``Transaction``,
never an op. What a kernel can issue is in ``pe_commands``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from math import inf
from types import MethodType
from typing import Any, ClassVar, NamedTuple, TypeAlias

from kernbench.common.rows import Rows
from kernbench.errors import KernbenchError

NO_CMD = 0xFFFFFFFF
"""The number of a call, where something belongs to none."""

NO_ROW = -1
"""The row of a record, where there is none (yet)."""

WAIT_REASONS = (
    "operand",
    "engine",
    "window",
    "dma_slot",
    "link",
    "hbm_channel",
    "credit",
    "arrival",
    "launch",
    "barrier",
    "delayed",
    "sram_port",
)
"""Why something waited; a trace stores the index into this tuple, so a new reason comes
last.
"""

Transfer: TypeAlias = tuple[tuple[str, ...], float, int, int, list[float]]
"""One transaction as recorded: path of node ids, t0 in ns, bytes, number of bursts, and
the start in ns at each hop of the first burst and, if there are several, of the last
one."""

Wait: TypeAlias = tuple[str, str, float, float, int]
"""One wait as recorded: node id, reason, t0 and t1 in ns (t1 > t0), and the row of the
op that it waited behind, or ``NO_ROW``: there was none, or it had not ended yet."""

OpenWait: TypeAlias = "tuple[str, str, float, float, MsgBase | None]"
"""A ``Wait`` while the run goes on: the op that ended it may not have a row yet, so the
message stands for it."""

COMMANDS: dict[str, str] = {}
"""The names of the messages that a kernel can issue, each with the engine of a PE that
serves it; ``register_command`` adds one, and a class that sets ``served_by`` itself."""


def register_command(kind: type, engine: str) -> None:
    """Have messages of a class served by ``engine`` ("pe_math", …) of the issuing PE.

    Then a kernel can issue them, with ``tl.issue``. The ``serves`` of the engine's
    model has to have the class.
    """
    kind.served_by = engine  # type: ignore[attr-defined]
    COMMANDS[kind.__name__] = engine


class _Open:
    """A base with a ``__dict__``, so that any attribute of an instance can be set."""

    __slots__ = ("__dict__",)


@dataclass(slots=True, eq=False, kw_only=True)
class MsgBase(_Open):
    """One message on its way through the machine.

    ``cmd`` is the number of the call that caused it, ``slot`` the slot of its server,
    and ``row`` that of its record, once there is one. ``waits`` and ``transfers``
    gather until the record ends. ``resumed_by`` is the op that last let the kernel
    which issued this message go on. ``t_start`` is when its present service started in
    ns, -1 before; ``started`` is a SimPy event for whoever listens for that.
    ``data_op`` may be set on a class or, before it is served, on one message.
    """

    data_op: ClassVar[bool] = False
    served_by: ClassVar[str] = ""
    """The engine of the issuing PE that serves it; "" for what no kernel issues."""
    undone: ClassVar[str] = ""
    """What a service leaves out that takes time only; "" where that is nothing, or
    once it is done."""

    cmd: int = NO_CMD
    slot: int = 0
    row: int = NO_ROW
    waits: list[OpenWait] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    resumed_by: MsgBase | None = None
    t_start: float = -1.0
    started: Any = None

    def __init_subclass__(cls) -> None:
        if cls.served_by:
            register_command(cls, cls.served_by)

    def regions(self) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
        """The memory that serving this message reads, and the memory that it writes."""
        return (), ()

    def wait(
        self, node: str, reason: str, t0: float, t1: float, holder: MsgBase | None
    ) -> None:
        """Note that this message waited at ``node`` from t0 to t1, in ns.

        ``holder`` is the message that it waited behind. Nothing is noted where
        nothing was waited for.
        """
        if t1 > t0:
            other = None if holder is self else holder
            self.waits.append((node, reason, t0, t1, other))


def unserved(msg: MsgBase) -> str:
    """What to say of a message that no engine serves."""
    kind = type(msg).__name__
    return (
        f"no engine serves {kind}; valid: {', '.join(COMMANDS)}; "
        f"register_command({kind}, engine) of kernbench.common.messages adds it"
    )


def adopt(msg: Any) -> None:
    """Give a message whose class is not derived from MsgBase what it lacks of one.

    KernbenchError if it takes no attributes.
    """
    if isinstance(msg, MsgBase):
        return
    model = MsgBase()
    names = [each.name for each in fields(MsgBase)]
    given = {name: getattr(model, name) for name in (*names, *_CLASS_ATTRIBUTES)}
    given["wait"] = MethodType(MsgBase.wait, msg)
    given["regions"] = model.regions
    try:
        for name, value in given.items():
            if not hasattr(msg, name):
                setattr(msg, name, value)
    except AttributeError as refused:
        raise KernbenchError(
            f"{type(msg).__name__} takes no attributes, so it cannot be served; derive "
            "it from MsgBase (kernbench.common.messages)"
        ) from refused


_CLASS_ATTRIBUTES = ("data_op", "served_by", "undone")


@dataclass(frozen=True, slots=True)
class Region:
    """A row-major tensor in one memory, contiguous unless ``strided`` says otherwise.

    ``space`` is "hbm", "tcm" or "sram", ``addr`` a physical address, ``dtype`` one of
    our names. ``strided`` has the rows in which the elements lie, in order; they begin
    at ``addr`` and are ``nbytes`` in all.
    """

    space: str
    addr: int
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    strided: Rows | None = None

    @property
    def where(self) -> Rows:
        """Where its bytes lie."""
        if self.strided is not None:
            return self.strided
        return Rows(self.addr, 1, self.nbytes, 0)


def as_matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a tensor of at most two axes; one of one axis is a row."""
    rows, columns = (1, 1, *shape)[-2:]
    return rows, columns


@dataclass(slots=True, eq=False)
class Transaction:
    """``nbytes`` carried along ``path`` (node ids) on behalf of ``owner``.

    They go in bursts of ``burst_bytes`` each; 0 is one piece. ``src`` is set where
    path[0] is a memory to be read first, ``dst`` where path[-1] is one to be written:
    where the bytes lie in it, ``nbytes`` in all. ``rate_gbs`` bounds the rate where
    something beyond the path does.
    """

    path: tuple[str, ...]
    nbytes: int
    owner: MsgBase
    burst_bytes: int = 0
    src: Rows | None = None
    dst: Rows | None = None
    rate_gbs: float = inf


class Held(NamedTuple):
    """What a send or recv waits for, in words; whether that is a full ring."""

    words: str = ""
    by_full_ring: bool = False


class Waiter(NamedTuple):
    """A call that has not come back, as a ``DeadlockError`` lists it.

    ``what`` says what and where it is, ``since`` is in ns. ``node`` is where it waits
    and ``peer`` the node that it waits for, where that is known; ``held`` says what
    holds its send or recv at the moment when it is asked. Of what ``is_host`` the host
    waits for the kernels. ``record`` records the call as far as it has come.
    """

    what: str
    since: float
    node: str
    peer: str = ""
    held: Callable[[], Held] = Held
    is_host: bool = False
    record: Callable[[], object] = lambda: None


@dataclass(slots=True, eq=False, kw_only=True)
class LaunchMsg(MsgBase):
    """One launch on its way from the host to PE_CPUs.

    All of them start at ``target_start_ns``. ``pes`` are (sip, cube, pe); ``programs``
    says how many of each axis (PE, cube, SIP) take part. ``remaining`` counts the PEs
    that have not ended, and ``done`` is the SimPy event that all have. ``waiting``
    holds the calls that have not come back, of all launches, by number. ``ran`` are
    the pe_cpus that have run the kernel. ``options`` are its arguments by name.
    """

    launch: int = 0
    name: str
    kernel: Callable[..., None]
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    pes: tuple[tuple[int, int, int], ...]
    programs: tuple[int, int, int] = (1, 1, 1)
    done: Any
    waiting: dict[int, Waiter] = field(default_factory=dict)
    target_start_ns: float = 0.0
    t_first_start: float = inf
    remaining: int = field(init=False)
    ran: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.remaining = len(self.pes)


@dataclass(slots=True, eq=False, kw_only=True)
class HostWriteCmd(MsgBase):
    """Host memory to one shard; served by a pcie_ep."""

    data_op: ClassVar[bool] = True
    dst: Region
    data: Any


@dataclass(slots=True, eq=False, kw_only=True)
class HostReadCmd(MsgBase):
    """One shard to host memory; served by a pcie_ep."""

    data_op: ClassVar[bool] = True
    src: Region


class StageType(Enum):
    """Stages of a tile, in pipeline order."""

    __hash__ = object.__hash__  # that of Enum costs a Python call

    DMA_READ = "DMA_READ"
    FETCH = "FETCH"
    GEMM = "GEMM"
    MATH = "MATH"
    STORE = "STORE"
    DMA_WRITE = "DMA_WRITE"


STAGE_ENGINES = {
    StageType.DMA_READ: "pe_dma",
    StageType.FETCH: "pe_fetch_store",
    StageType.GEMM: "pe_gemm",
    StageType.MATH: "pe_math",
    StageType.STORE: "pe_fetch_store",
    StageType.DMA_WRITE: "pe_dma",
}
"""The engine of a PE that serves each stage."""


class Stage(NamedTuple):
    """One step of a tile's plan: the node that serves it and what it does there."""

    stage_type: StageType
    node: str
    params: dict[str, Any]


@dataclass(slots=True, eq=False, kw_only=True)
class TileToken(MsgBase):
    """One (m, n, k) tile of a composite that carries its plan through a PE's engines.

    ``index`` counts tiles along m, n and k; ``stage_idx`` is the stage of ``stages``
    that this token is in.
    """

    data_op: ClassVar[bool] = True
    composite: MsgBase
    index: tuple[int, ...]
    stages: tuple[Stage, ...]
    stage_idx: int = 0

    @property
    def stage(self) -> Stage:
        """The stage that it is in."""
        return self.stages[self.stage_idx]
