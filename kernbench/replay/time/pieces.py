"""What the time of a PE counts as, and how it is cut into pieces that count as one.

A call may have several things going on at once: two ops in service, a third that waits.
Its time is cut wherever one of them begins or ends, and the first of KINDS that holds
for a piece is what it counts as: a PE that computes while it also loads is computing.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

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

KIND_MEANINGS = {
    "compute": "a product or math was in service",
    "load": "none of these, but data came in; below it what it waited for meanwhile",
    "store": "none of these, but data went out",
    "operand": "it waited for an earlier op with the same bytes, or the tile in front",
    "engine": "for a busy engine",
    "window": "for tiles in flight of a composite to become fewer",
    "dma_slot": "for one of the DMA's outstanding commands",
    "link": "for a link that others' bytes were on",
    "hbm_channel": "for a pseudo-channel of HBM",
    "credit": "for a free slot of the receiver's ring",
    "arrival": "for a message of another PE",
    "launch": "for the start of a launch",
    "barrier": "for the other ranks",
    "delayed": "for nothing: `kernbench rerun --delay` held it back",
    "sram_port": "for the port of a cube's SRAM",
    "issue": "the PE's CPU issued the call",
    "unexplained": "nothing that was recorded accounts for it",
    "idle": "it ran no kernel",
}
"""What a PE did in a piece of time that counts as one of KINDS."""

KINDS_TEXT = "\n".join(
    [
        "The time of a PE is cut, and each piece is the first of these that holds:",
        *(f"{kind}: {what}" for kind, what in KIND_MEANINGS.items()),
    ]
)
"""The same in words, a line each."""

# What a call did, or waited for, that never came back, or did so as the run ended, so
# that none of its ops was recorded.
NEVER_ENDED = {
    "recv": KINDS.index("arrival"),
    "send": KINDS.index("credit"),
    "load": LOAD,
    "store": STORE,
    "dot": COMPUTE,
}
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


Kinds: TypeAlias = npt.NDArray[np.int8]
"""Places in KINDS: a PE has hundreds of thousands of pieces in a long trace."""


def _lowest(among: int) -> Kinds:
    """By bits of kinds that hold the first of those in ``among``, or NO_KIND."""
    holding = np.arange(1 << IDLE) & among
    lowest = holding & -holding
    place = np.frexp(lowest)[1] - 1
    return np.asarray(place, np.int8)


_WAITS = (1 << ISSUE) - (1 << FIRST_WAIT)
_REASON_OF = _lowest(_WAITS)
_FIRST_OF = _lowest((1 << IDLE) - 1)
_FIRST_OF[0] = IDLE


class Spans(NamedTuple):
    """Spans of time, from low to high (ns), in which one of KINDS holds for an owner.

    Spans of one owner may overlap; ``owner`` is any number, ``kind`` a place in KINDS.
    """

    owner: Ints
    low: Floats
    high: Floats
    kind: Ints


class Pieces(NamedTuple):
    """Pieces of time that do not overlap, by owner, then by time.

    ``kind`` is the place in KINDS that a piece counts as, ``reason`` that of what was
    waited for meanwhile (-1 for nothing), ``ns`` its length.
    """

    owner: Ints
    kind: Kinds
    reason: Kinds
    ns: Floats


def cut(spans: Spans) -> Pieces:
    """The time that spans cover, cut where one of the same owner begins or ends.

    Where several hold, the piece is of the first of their kinds, and ``reason`` is the
    first wait among them. Between spans of one owner there is a piece that is idle.
    """
    count = len(spans.owner)
    times = np.concatenate([spans.low, spans.high])
    place = np.tile(np.arange(count), 2)
    order = np.lexsort((times, spans.owner[place]))
    times = times[order]
    place = place[order]
    step = np.where(order < count, 1, -1).astype(np.int8)
    owner = spans.owner[place]
    kind = spans.kind[place].astype(np.int8)

    # By event the kinds that hold from then on, a bit each. Kind by kind: all spans of
    # one have ended before the events of the next.
    by_kind = np.argsort(kind, kind="stable")
    holds = (np.cumsum(step[by_kind], dtype=np.int32) > 0).astype(np.int32)
    changes = np.empty(len(times), np.int32)
    changes[by_kind] = np.diff(holds, prepend=np.int32(0)) << kind[by_kind]
    holding = np.cumsum(changes, dtype=np.int32)
    first = _FIRST_OF[holding]
    reason = _REASON_OF[holding]

    length = np.diff(times, append=0.0)
    same_owner = np.append(owner[1:] == owner[:-1], False)
    kept = same_owner & (length > 0)
    return Pieces(owner[kept], first[kept], reason[kept], length[kept])
