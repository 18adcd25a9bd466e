"""``Trace``: a mapped trace file as records, columns and tensors, decoded when they are asked for.

Owns the meaning of what the frames hold. Rows are in completion order, positions in canonical order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import DTYPES, Tolerance
from kernbench.common.messages import WAIT_REASONS, Transfer, Wait
from kernbench.errors import TraceFormatError
from kernbench.sim_engine.event_log import Shard, Site
from kernbench.sim_engine.op_log import KIND_RANK, OpRecord, canonical_order
from kernbench.trace.chunks import Chunk, ParamBlock, Schemas, build, read_chunk
from kernbench.trace.frames import (
    Columns,
    Damage,
    Frame,
    FrameFile,
    Strings,
    join_columns,
    read_columns,
    whole,
)
from kernbench.trace.schema import DTYPE_NAMES, NONE

Array = npt.NDArray[Any]


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
    shard: int
    space: str
    addr: int
    dtype: str
    array: Array
    tolerance: Tolerance
    after: int
    origin: tuple[int, ...]
    shape: tuple[int, ...]


class Records(Sequence[OpRecord]):
    """OpRecords of a trace at ``positions`` (of the canonical order), made one by one as asked for.

    Their dependency_ids index this sequence; those on ops that it leaves out are not listed.
    """

    def __init__(self, trace: Trace, positions: npt.NDArray[np.intp] | None = None) -> None:
        self._trace, self._positions = trace, positions

    def __len__(self) -> int:
        return len(self._trace.order if self._positions is None else self._positions)

    @overload
    def __getitem__(self, index: int) -> OpRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[OpRecord]: ...
    def __getitem__(self, index: int | slice) -> OpRecord | list[OpRecord]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = range(len(self))[index]  # IndexError, and negative ones, as of any sequence
        trace, columns, mine = self._trace, self._trace.op_columns, self._positions
        row = int(trace.order[at if mine is None else mine[at]])
        held = np.sort(trace.position[trace.deps(row)])
        if mine is not None:
            held = np.flatnonzero(np.isin(mine, held)) if len(held) else held
        schema = trace.schemas[int(columns.schema[row])]
        return OpRecord(
            float(columns.t_start[row]),
            float(columns.t_end[row]),
            trace.node_ids[columns.component[row]],
            schema.kind if schema is not None else "unknown",
            trace.strings[int(columns.name[row])],
            trace.params(row),
            held.tolist(),
        )


class Trace:
    """One trace file. Nothing that it holds makes a method raise anything but TraceFormatError.

    ``header`` and ``end`` are the heads of the first and last frame (``end`` None: cut off).
    Columns stand in row order; ``order[position]`` is a row, ``position[row]`` a position.
    """

    def __init__(self, file: FrameFile) -> None:
        self._file = file
        self.path = file.path
        self.header: dict[str, Any] = file.header
        self.strings = Strings(file)
        self.schemas = Schemas(file)
        ends = list(file.each("end", lambda frame: frame.head))
        self.end: dict[str, Any] | None = ends[-1] if ends else None
        self.complete = bool(ends)

    @classmethod
    def open(cls, path: str | Path) -> Trace:
        """Map the file and find its frames; TraceFormatError if it has no readable first frame."""
        return cls(FrameFile(Path(path)))

    @property
    def damaged(self) -> list[Damage]:
        """(offset, tag, reason) of the frames skipped so far; ``check`` looks at all of them."""
        return self._file.damaged

    def check(self) -> list[Damage]:
        """Touch every frame; all that are damaged."""
        parts = (self.op_columns, self.transfers, self.waits, self.commands, self.edges)
        del parts, self.allocs, self.launches, self.texts, self.sources
        return self.damaged

    # -- the machine ------------------------------------------------------------
