"""Ops by names that survive another run, and for how long an op is held back.

The number of a call, the row of an op, times and addresses are others when anything has
been changed. What stays is the kernel line, the PE that runs it, and how often it has
run the line before. Knows no trace and no component.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernbench.common.exact_time import TICK_NS, exact_ns
from kernbench.common.phys_addr import PhysAddr
from kernbench.errors import UsageError

DELAYED = "delayed"
"""The wait reason of an op that was held back on request."""

LONGEST_NS = float(1 << 43)
"""Up to here a sum of exact times is exact (``common/exact_time.py``)."""


@dataclass(frozen=True, slots=True)
class CallName:
    """A call: number ``nth``, from 0, of those of its name at a line on a PE.

    ``pe`` is the pe_cpu that runs the kernel, or the pcie_ep of a call of the host.
    ``call`` and ``file`` are as a trace has them.
    """

    pe: str
    call: str
    file: str
    line: int
    nth: int


@dataclass(frozen=True, slots=True)
class OpName:
    """An op of a call.

    ``op`` is what a record calls it. Of a tile ``tile`` is its index along m, n and k,
    and ``op`` has the stage. Any other op is number ``piece``, from 0, of those that
    the call has issued; of a call of the host, of those for the same ``memory``.
    """

    op: str
    call: CallName
    tile: tuple[int, ...] = ()
    piece: int = 0
    memory: str = ""

    def __str__(self) -> str:
        call = self.call
        text = f"{self.op} of {call.call} #{call.nth} at {call.file}:{call.line}"
        if self.tile:
            text += f", tile ({', '.join(map(str, self.tile))})"
        if self.piece:
            text += f", piece {self.piece}"
        if self.memory:
            text += f", {self.memory}"
        return f"{text} on {call.pe}"


@dataclass(frozen=True, slots=True)
class Delay:
    """The service of ``op`` begins ``ns`` later than it could."""

    op: OpName
    ns: float

    def __str__(self) -> str:
        return f"{self.op}: +{self.ns:,.15g} ns"


def memory_name(addr: int, slice_bytes: int) -> str:
    """Which memory a physical address is in; of HBM, which slice of so many bytes."""
    place = PhysAddr.decode(addr)
    part = place.kind
    if place.kind == "hbm":
        part = f"HBM slice {place.hbm_offset // slice_bytes}"
    return f"{part} of cube {place.die_id} of SIP {place.sip_id}"


def checked_delay(ns: float) -> float:
    """``ns`` in exact time; UsageError for a delay that no run can have."""
    if not TICK_NS <= ns <= LONGEST_NS:
        raise UsageError(
            f"a delay of {ns:g} ns: must be from {TICK_NS:g} to {LONGEST_NS:g} ns"
        )
    return exact_ns(ns)
