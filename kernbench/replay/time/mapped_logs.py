"""The logs of a trace, mapped before a long computation reads them."""

from __future__ import annotations

from functools import partial

from kernbench.common.progress import Progress, computed_beside
from kernbench.trace import Trace


def map_logs(trace: Trace, progress: Progress, *names: str) -> None:
    """Map some logs of a trace that are going to be read: attributes of these names.

    The first time that takes up to 30 ms a log of a million rows, beside progress.
    """
    for name in names:
        is_mapped = name in vars(trace)  # where a cached property is kept
        if not is_mapped:
            computed_beside(partial(getattr, trace, name), progress, 0.0)
