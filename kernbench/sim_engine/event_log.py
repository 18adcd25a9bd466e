"""What the simulator reports to whoever records a run: the ``Recorder``.

It is docs/architecture.md, "The recorder". Paths come from transactions, never from the
router, so this module needs none of the helpers of ADR-0051.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy.typing as npt

from kernbench.common.dtypes import Tolerance
from kernbench.common.messages import Transfer
from kernbench.sim_engine.op_log import OpRecord, OpSink, Transfers, Waits

__all__ = ["Recorder", "Shard", "Site", "Transfers", "Waits"]


class Site(NamedTuple):
    """The innermost kernel or bench frame of a call; ``file`` as the trace shows it."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Shard:
    """One row of the ``alloc`` frame: a shard, a replica or a scratch handle.

    It is docs/architecture.md, "Allocations". ``addr`` is physical, ``va`` virtual and
    0 where there is none. ``origin`` and ``shape`` are in elements of the whole tensor;
    a file keeps them ``in_three_axes``. ``owner`` is the node id of the PE whose memory
    it is (its pe_cpu), ``cmd`` the call from which on it is valid.
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

    @property
    def place(self) -> tuple[str, int, int]:
        """Where its bytes are: space, address and how many."""
        return self.space, self.addr, self.nbytes


def in_three_axes(extents: tuple[int, ...]) -> tuple[int, ...]:
    """The shape or the origin of a box with its axes between first and last as one.

    No tensor is split along those, so that they begin at 0 in every shard, and the
    elements of a shard lie as before.
    """
    if len(extents) <= 3:
        return extents
    first, *between, last = extents
    return first, prod(between), last


def index_in_three_axes(
    index: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[int, ...]:
    """An element of a tensor by its index ``in_three_axes``.

    ``shape`` is that of the tensor or of a shard: those between are the same.
    """
    if len(index) <= 3:
        return index
    first, *between, last = index
    number = 0
    for at, extent in zip(between, shape[1:-1], strict=True):
        number = number * extent + at
    return first, number, last


class Recorder(OpSink, Protocol):
    """A sink of everything that a run does.

    All times are in ns, all nodes are node ids. ``op``, one finished op, is
    ``OpSink``'s.
    """

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
        """Take one tl call of the kernel on ``pe``, when the kernel goes on.

        ``pe`` is a pe_cpu; of a call of the host it is a pcie_ep, and ``launch`` is -1.
        The calls of one launch on one PE cover its life without gaps. ``awaits`` is the
        number of the call that was waited for (its own if it blocks), or NO_CMD.
        """

    def caller(self, cmd: int, site: Site, /) -> None:
        """Take where the function was called that made tl call ``cmd``.

        It comes before the call goes on, and only if that function is no kernel.
        """

    def sites_of(self, ops: Collection[int]) -> dict[int, Site]:
        """By op, a position in ``op_log``, where it was issued, if that is known."""

    def op_log(self) -> Sequence[OpRecord]:
        """All ops so far by t_start; asked of a sink that alone has them."""

    def transfer(self, cmd: int, transfer: Transfer) -> None:
        """Take a transaction that belongs to no op: that of a launch, or a credit."""

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
        """Take a launch that has ended on all its ``pes`` (pe_cpu ids)."""

    def alloc(self, shard: Shard) -> None:
        """Take memory that an access may lie in from now on."""

    def expect(
        self,
        name: str,
        shard: Shard,
        array: npt.NDArray[Any],
        tolerance: Tolerance,
        after: int,
    ) -> None:
        """Take the reference of one shard.

        It is to be compared when the first ``after`` ops have run.
        """

    def text(self, t: float, cmd: int, level: str, message: str, /) -> None:
        """Take a line of text: of device_print, a late launch, a memory warning …

        ``level`` is one of print, assert, warning, error.
        """

    def source(self, file: str, kernel: str, text: str) -> None:
        """Take the text of a file that sites refer to.

        It comes once, before the first command of that file.
        """
