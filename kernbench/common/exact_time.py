"""Times as whole multiples of 2^-10 ns, so that their sums are exact in floats.

Owns the one rounding of durations that a model computes (docs/machine.md, "Exact
time"). A float of 64 bits holds such a time exactly for 2^43 ns, which is 2.4 hours.
"""

from functools import lru_cache

import numpy as np

from kernbench.common.arrays import Floats

_TICKS_PER_NS = 1024

TICK_NS = 1 / _TICKS_PER_NS
"""The shortest time there is, in ns. A data op whose model takes no time lasts as long.

In no time it would end as it starts, and the critical path, which goes from an end back
to what ended then, would begin there.
"""

SAME_NS = 0.75 * TICK_NS
"""Times of a trace that are closer than this many ns are one.

The times of a run are whole ticks. Those of older files are not, and of them what is
computed from a duration that is rounded is up to half a tick off.
"""


def exact_ns(duration: float) -> float:
    """A duration in ns, rounded to the nearest 2^-10 ns; of two the even one."""
    return round(duration * _TICKS_PER_NS) / _TICKS_PER_NS


def exact_times(durations: Floats) -> Floats:
    """Durations in ns, each rounded as ``exact_ns`` rounds it."""
    return np.asarray(np.rint(durations * _TICKS_PER_NS) / _TICKS_PER_NS)


@lru_cache(maxsize=4096)
def bytes_ns(nbytes: int, bytes_per_ns: float) -> float:
    """How long so many bytes take at a bandwidth, in exact ns."""
    return exact_ns(nbytes / bytes_per_ns)


@lru_cache(maxsize=4096)
def cycles_ns(cycles: float, clock_ghz: float) -> float:
    """How long so many cycles of a clock take, in exact ns."""
    return exact_ns(cycles / clock_ghz)
