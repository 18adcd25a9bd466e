"""What the Diff pane asks beside ``outputs`` and ``hazards``.

The comparison of an op or of an output, what rounding explains of it, and the first op
that rounding does not explain.

Each function is ``(index, at, args, progress) -> answer``, as in ``questions.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np

from kernbench.common.arrays import as_f64
from kernbench.common.progress import Cancelled, Progress, stage
from kernbench.errors import KernbenchError
from kernbench.replay import questions
from kernbench.replay.data.diff import OpDiff
from kernbench.replay.index import Index
from kernbench.replay.parsing import NoArguments
from kernbench.replay.query import At
from kernbench.replay.questions import op_of
from kernbench.replay.views.grids import GridShape
from kernbench.sim_engine.op_check import OpCheck
from kernbench.sim_engine.verify import VerifyRow

_MANY = 20_000
"""Ops that are executed unasked, at most; they take some seconds."""
_LARGE = 1 << 24
"""Products of an op that are judged unasked, at most."""
_SMALL = 1 << 14
"""Elements of an op that are compared with Phase 1 unasked, at most."""


@dataclass(frozen=True, slots=True)
class OutputName:
    """An output by name; empty: what the op wrote."""

    output: str


@dataclass(frozen=True, slots=True)
class TextWidth:
    """Columns that a text may have."""

    width: int


@dataclass(frozen=True, slots=True)
class JudgedAfter:
    """Whether the first divergence has been looked for before: then the accumulated
    error of ops up to it is known.
    """

    divergence: bool


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """What is said of a comparison, without its numbers.

    ``row`` and ``grid`` are None where nothing could be compared, as ``note`` says; in
    ``grid`` the mismatches are marked. The first element of the grid is ``origin`` in
    its tensor. It lies at ``addr`` of ``space`` if that is all zeros, each further one
    ``element_bytes`` on, and each row ``row_elements`` elements.
    """

    name: str
    note: str
    space: str
    addr: int
    origin: tuple[int, ...]
    element_bytes: int
    row_elements: int
    row: VerifyRow | None
    grid: GridShape | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What rounding explains of an op's error; ``check`` is None if it takes too long.

    ``apart`` is the largest difference from what ``source`` recorded of the output, nan
    where it recorded nothing.
    """

    check: OpCheck | None
    source: str = ""
    apart: float = nan


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first op that rounding does not explain, -1 if it explains all; ``error``
    says why that could not be found out.
    """

    op: int
    error: str = ""


def comparison(
    index: Index, at: At, args: OutputName, progress: Progress
) -> Comparison:
    """What an op wrote beside its oracle, or an output beside its reference."""
    index.memory.index(progress)
    found = index.grids.compared(op_of(at), args.output, progress)
    diff = found.diff
    element_bytes = 0
    shape = None
    if found.grid is not None and diff.actual is not None:
        element_bytes = diff.actual.dtype.itemsize
        shape = GridShape(found.grid.shape, found.grid.marks)
    return Comparison(
        diff.name,
        diff.note,
        diff.space,
        diff.addr,
        diff.origin,
        element_bytes,
        found.row_elements,
        diff.row if shape is not None else None,
        shape,
    )


def judgement(index: Index, at: At, args: JudgedAfter, progress: Progress) -> Judgement:
    """What rounding explains of the error of an op, if that is found out in some ms.

    The accumulated error is there as far as executing everything has found it before.
    """
    op = op_of(at)
    if index.diffs.producer(op).products > _LARGE:
        return Judgement(None)
    diff = index.diffs.judged(op, stage(progress, 0.0, 0.5))
    if diff.actual is None:
        return Judgement(None)
    if diff.actual.size > _SMALL:
        return Judgement(diff.check)
    diff = index.diffs.with_recorded(diff, stage(progress, 0.5, 1.0))
    return Judgement(diff.check, diff.source, _apart(diff))


@np.errstate(invalid="ignore")
def _apart(diff: OpDiff) -> float:
    """The largest difference between what Phase 1 and Phase 2 saw of an output."""
    if diff.simulated is None or diff.actual is None:
        return nan
    apart = np.abs(diff.simulated - as_f64(diff.actual))
    return float(np.fmax.reduce(apart, None))


def first_divergence(
    index: Index, at: At, args: NoArguments, progress: Progress
) -> Divergence:
    """The first op that rounding does not explain, by executing everything."""
    try:
        found = index.diffs.first_divergence(progress)
    except Cancelled:
        raise
    except KernbenchError as why:
        return Divergence(-1, str(why))
    return Divergence(-1 if found is None else found.op)


def divergence_text(
    index: Index, at: At, args: TextWidth, progress: Progress
) -> tuple[str, ...]:
    """The first op that rounding does not explain, three-way, as text."""
    found = questions.divergence(index, at, NoArguments(), progress)
    return tuple(found.lines(args.width))


def executes_soon(index: Index, at: At, args: NoArguments, progress: Progress) -> bool:
    """Whether all ops are executed within some seconds, none of which takes long."""
    index.memory.index(progress)
    history = index.history
    if history.executed(len(index.ops)) > _MANY:
        return False
    return bool(history.touched.nbytes.max(initial=0) <= _LARGE // 16)
