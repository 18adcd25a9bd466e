"""What the time of a PE counts as, and time cut into pieces that count as one thing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Floats, Ints
from kernbench.common.messages import WAIT_REASONS
from kernbench.replay.time.op_classes import CLASSES

# What a piece of time counts as: the first of these that holds. "issue" is PE_CPU
# issuing the call; "unexplained" is what no op and no wait of the call accounts for.
KINDS = ("compute", "load", "store", *WAIT_REASONS, "issue", "unexplained", "idle")
COMPUTE = KINDS.index("compute")
LOAD = KINDS.index("load")
STORE = KINDS.index("store")
FIRST_WAIT = KINDS.index(WAIT_REASONS[0])
ISSUE = KINDS.index("issue")
UNEXPLAINED = KINDS.index("unexplained")
IDLE = KINDS.index("idle")

# What a call waits for that never came back, so that none of its ops was recorded.
NEVER_ENDED = {"recv": KINDS.index("arrival"), "send": KINDS.index("credit")}
_KIND_OF_CLASS = {
    "G": COMPUTE,
    "M": COMPUTE,
    "R": LOAD,
    "F": LOAD,
    "W": STORE,
    "S": STORE,
}
NO_KIND = -1
KIND_BY_CLASS = np.array([_KIND_OF_CLASS.get(letter, NO_KIND) for letter in CLASSES])


class Spans(NamedTuple):
    """Spans of time (ns) in which one of KINDS holds for their owner."""

    owner: Ints
    low: Floats
    high: Floats
    kind: Ints


class Pieces(NamedTuple):
    """Pieces of time that do not overlap, each of an owner.

    ``reason`` is the KIND that was waited for meanwhile, -1 for none.
    """

    owner: Ints
    kind: Ints
    reason: Ints
    ns: Floats


def cut(spans: Spans) -> Pieces:
    """The time that spans cover, cut where one of the same owner begins or ends.

    Where several hold, the piece is of the first of their kinds, and ``reason`` is the
    first wait among them.
    """
    count = len(spans.owner)
    times = np.concatenate([spans.low, spans.high])
    place = np.tile(np.arange(count), 2)
    order = np.lexsort((times, spans.owner[place]))
    times = times[order]
    place = place[order]
    step = np.where(order < count, 1, -1)
    owner = spans.owner[place]
    kind = spans.kind[place]

    first = np.full(len(times), IDLE)
    reason = np.full(len(times), NO_KIND)
    for one in np.unique(spans.kind)[::-1].tolist():
        holds = np.cumsum(np.where(kind == one, step, 0)) > 0
        first[holds] = one
        if FIRST_WAIT <= one < ISSUE:
            reason[holds] = one

    length = np.diff(times, append=0.0)
    same_owner = np.append(owner[1:] == owner[:-1], False)
    kept = same_owner & (length > 0)
    return Pieces(owner[kept], first[kept], reason[kept], length[kept])
