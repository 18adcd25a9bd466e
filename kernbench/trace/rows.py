"""What a ``Trace`` hands out one at a time: frozen rows, and op records made on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import Tolerance
from kernbench.sim_engine.event_log import Site
from kernbench.sim_engine.op_log import OpRecord
from kernbench.trace.frames import Lazy

if TYPE_CHECKING:
    from kernbench.trace.reader import Trace


@dataclass(frozen=True, slots=True)
class Command:
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


@dataclass(frozen=True, slots=True, eq=False)
class Expect:
    """A reference: what shard number ``shard`` of tensor ``name`` holds after ``after`` ops."""

    name: str
    space: str
    shard: int
    addr: int
    dtype: str
    array: npt.NDArray[Any]
    tolerance: Tolerance
    after: int
    origin: tuple[int, ...]
    shape: tuple[int, ...]


class Records(Lazy[OpRecord]):
    """OpRecords of a trace at ``positions`` (of the canonical order), made as they are asked for.

    Their dependency_ids index this sequence; those on ops that it leaves out are not listed.
    """

    def __init__(self, trace: Trace, positions: npt.NDArray[np.intp] | None = None) -> None:
        self._trace, self._positions = trace, positions

    def __len__(self) -> int:
        return len(self._trace.order if self._positions is None else self._positions)

    def get(self, index: int) -> OpRecord:
        """The record at ``index``."""
        trace, columns, mine = self._trace, self._trace.op_columns, self._positions
        row = int(trace.order[index if mine is None else mine[index]])
        held = np.sort(trace.position[trace.deps(row)])
        if mine is not None and len(held):
            places = np.searchsorted(mine, held)
            held = places[mine[np.minimum(places, len(mine) - 1)] == held]
        schema = trace.schemas[int(columns.schema[row])]
        return OpRecord(
            float(columns.t_start[row]),
            float(columns.t_end[row]),
            trace.node_ids[int(columns.component[row])],
            schema.kind if schema is not None else "unknown",
            trace.strings[int(columns.name[row])],
            trace.params(row),
            held.tolist(),
        )
