"""What panes ask beside the commands: answers cut to what a screen can show.

Each function is ``(index, at, args, progress) -> answer``, as in ``questions.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.common.progress import Progress
from kernbench.replay.answers import OpRow
from kernbench.replay.index import Index
from kernbench.replay.parsing import NoArguments
from kernbench.replay.query import At


@dataclass(frozen=True, slots=True)
class Positions:
    """Some ops, by position."""

    ops: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class InService:
    """The ops in service at the time of an op, in canonical order; of each its
    position, the node and the lane of it that serve it, and its kernel line (see
    ``OpIndex.sites``).
    """

    ops: Ints
    nodes: Ints
    lanes: Ints
    sites: Ints


def op_rows(
    index: Index, at: At, args: Positions, progress: Progress
) -> tuple[OpRow, ...]:
    """Lines of the op log."""
    return tuple(index.ops.rows_of(args.ops))


def in_service(
    index: Index, at: At, args: NoArguments, progress: Progress
) -> InService:
    """The ops in service at the time of an op."""
    ops = np.array(index.ops.in_flight(-1 if at.op is None else at.op), np.int64)
    log = index.trace.op_columns
    rows = index.trace.order[ops]
    nodes = log.component[rows].astype(np.int64)
    lanes = log.slot[rows].astype(np.int64)
    return InService(ops, nodes, lanes, index.ops.sites(ops))
