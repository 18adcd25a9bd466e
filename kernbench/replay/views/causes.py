"""Why an op began when it did, and what began because of it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np

from kernbench.common.progress import Progress
from kernbench.replay.index import Index
from kernbench.replay.moves import cause_of, stages_beside

_EFFECTS = 16
"""Ops that waited for one, of which the first to begin is looked for."""
_LEAST_NS = 0.5
"""A wait that is worth a word."""


@dataclass(frozen=True, slots=True)
class Linked:
    """An op that another waited for, or that waited for it: its position, a short name
    of the component that served it, its name, and its times (ns).
    """

    op: int
    component: str
    name: str
    t0: float
    t1: float


@dataclass(frozen=True, slots=True)
class Causes:
    """What an op waited for and what waited for it; None: no op.

    ``reason`` is what it waited longest for, for ``waited`` ns, at ``node``; empty
    where it waited for nothing. ``cause`` is what it waited for last, and ``behind``
    says that the longest wait was for that.
    """

    op: int
    t0: float
    reason: str
    waited: float
    node: str
    behind: bool
    cause: Linked | None
    effect: Linked | None


def causes_of(index: Index, op: int | None, progress: Progress) -> Causes:
    """The causes of the op at a position; of none before the first."""
    if op is None or op < 0:
        return Causes(-1, 0.0, "", 0.0, "", False, None, None)
    trace = index.trace
    row = index.ops.row_of(op)
    before, after = stages_beside(index, op)
    waits = index.ops.waits(op)
    cause = cause_of(index, op, before, waits)
    reason = ""
    node = ""
    waited = 0.0
    behind = False
    for where, why, t0, t1, holder in waits:
        if t1 - t0 > max(waited, _LEAST_NS):
            waited = t1 - t0
            reason = why
            node = where
            behind = holder >= 0 and holder == cause
    waiting = trace.effects(row, progress)
    some = np.array([*islice(waiting, _EFFECTS)], np.int64)
    others = np.append(trace.position[some], after)
    waiters = np.append(others, index.ops.held_by(op)).astype(np.int64)
    effect = None
    if len(waiters):
        effect = int(waiters[index.ops.starts(waiters).argmin()])
    return Causes(
        op=op,
        t0=index.ops.time(op),
        reason=reason,
        waited=waited,
        node=node,
        behind=behind,
        cause=_linked(index, cause),
        effect=_linked(index, effect),
    )


def _linked(index: Index, op: int | None) -> Linked | None:
    if op is None:
        return None
    (name,) = index.slices.names.of(np.array([index.ops.row_of(op)]))
    node = index.ops.component(op)
    assert node is not None
    component = index.ops.label(node, 4).replace("pe_", "")
    return Linked(op, component, name, index.ops.time(op), float(index.ops.ends(op)))
