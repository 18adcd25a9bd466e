"""What the simulator tells whoever records it: the ``Recorder`` (architecture.md, Interfaces 3).

Paths come from transactions, never from the router, so this module asks no helper of ADR-0051.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy.typing as npt

from kernbench.common.dtypes import Tolerance
from kernbench.common.messages import Transfer, Wait

if TYPE_CHECKING:
    from kernbench.sim_engine.op_log import OpRecord

Waits: TypeAlias = list[Wait]
Transfers: TypeAlias = list[Transfer]


class Site(NamedTuple):
    """The innermost kernel or bench frame of a call; ``file`` as the trace shows it."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Shard:
    """One row of the ``alloc`` frame: a shard, a replica or a scratch handle (Interfaces 6).

    ``origin`` and ``shape`` are in elements of the whole tensor; at most 3 axes are kept.
    ``owner`` is the node id of the memory's PE (its pe_cpu), ``va`` 0 where it has none, ``cmd``
    the call from which it is valid.
    """

    tensor: str
    dtype: str
    space: str
    addr: int
    va: int
    nbytes: int
    owner: str
    origin: tuple[int, ...]
    shape: tuple[int, ...]
    cmd: int
    index: int = 0


class Recorder(Protocol):
    """A sink of everything that a run does; all times in ns. Node arguments are node ids."""

    def command(
        self,
        cmd: int,
        pe: str,
        launch: int,
        call: str,
        site: Site,
        awaits: int,
        t_issue: float,
        t_resume: float,
        /,
    ) -> None:
        """One tl call of the kernel on ``pe`` (a pe_cpu; a pcie_ep and launch -1 for host calls).

        Made when the kernel goes on; a PE's commands of one launch cover its life without gaps.
        ``awaits`` is the cmd it waited for (its own for a blocking call) or NO_CMD.
        """

    def op(
        self,
        row: int,
        record: OpRecord,
        cmd: int,
        slot: int,
        waits: Waits,
        transfers: Transfers,
        /,
    ) -> None:
        """One finished op; ``row`` counts from 0 as ops end, ``dependency_ids`` are rows."""

    def op_log(self) -> Sequence[OpRecord]:
        """All ops so far by t_start: asked of a sink that alone has them."""

    def transfer(self, cmd: int, transfer: Transfer) -> None:
        """A transaction that belongs to no op: launch, credit."""

    def launch(
        self,
        launch: int,
        kernel: str,
        pes: tuple[str, ...],
        t_issue: float,
        t_start: float,
        t_end: float,
        /,
    ) -> None:
        """A launch that has ended on all its ``pes`` (pe_cpu ids)."""

    def alloc(self, shard: Shard) -> None:
        """Memory that an access may lie in from now on."""

    def expect(
        self,
        name: str,
        shard: Shard,
        array: npt.NDArray[Any],
        tolerance: Tolerance,
        after: int,
    ) -> None:
        """The reference of one shard, to be judged when the first ``after`` ops have run."""

    def text(self, t: float, cmd: int, level: str, message: str, /) -> None:
        """device_print, late launch, memory warning…; level: print, assert, warning, error."""

    def source(self, file: str, kernel: str, text: str) -> None:
        """The text of a file that sites refer to, once, before the first command that does."""
