"""What links carry: the bytes a ns of every link, at any time of a run.

A wire carries one burst at a time. Of a transaction of several bursts the first and the
last are recorded; those in between are taken as evenly spread.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Floats
from kernbench.trace.bursts import BurstBytes
from kernbench.trace.hops import Hops, Levels, hop_columns, speeds_of
from kernbench.trace.reader import Trace

_EPS = 1e-6  # ns: what is less is nothing


class HopLog(NamedTuple):
    """One row for each hop of each transaction that a link of known speed carried.

    ``nbytes`` and ``bursts`` are of the whole transaction, ``first_bytes`` and
    ``last_bytes`` of its first and its last burst. ``begun`` is when it began (ns),
    ``speed`` of the link (bytes a ns).
    """

    hops: Hops
    nbytes: Floats
    bursts: Array
    first_bytes: Floats
    last_bytes: Floats
    begun: Floats
    speed: Floats


def hop_log(trace: Trace, sizes: BurstBytes) -> HopLog:
    """Every hop of every transaction that a link of known speed carried."""
    log = trace.transfers
    hops = hop_columns(trace)
    speed = speeds_of(trace, hops.edge)
    sound = speed > 0
    if not sound.all():
        hops = Hops._make(column[sound] for column in hops)
        speed = speed[sound]
    row = hops.transfer
    nbytes = log.nbytes[row].astype(np.float64)
    return HopLog(
        hops,
        nbytes,
        log.bursts[row],
        sizes.first[row],
        sizes.last[row],
        log.t0[row],
        speed,
    )


def carried_by(log: HopLog) -> Levels:
    """The bytes a ns of every link: its speed while it carries a burst.

    From the end of a transaction's first burst to the start of its last it is the mean
    rate of those in between.
    """
    hops = log.hops
    first_ends = hops.start + log.first_bytes / log.speed

    several = np.flatnonzero(log.bursts > 1)
    last_starts = hops.last[several]
    last_ends = last_starts + log.last_bytes[several] / log.speed[several]

    between = np.flatnonzero(log.bursts > 2)
    between_bytes = (log.nbytes - log.first_bytes - log.last_bytes)[between]
    between_ns = np.maximum(hops.last - first_ends, _EPS)[between]

    return Levels(
        np.concatenate([hops.edge, hops.edge[several], hops.edge[between]]),
        np.concatenate([hops.start, last_starts, first_ends[between]]),
        np.concatenate([first_ends, last_ends, hops.last[between]]),
        np.concatenate([log.speed, log.speed[several], between_bytes / between_ns]),
    )
