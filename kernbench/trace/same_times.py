"""Whether two runs did the same, and when: what a claim about times rests on."""

from __future__ import annotations

import numpy as np

from kernbench.trace.reader import Trace

_OF_OPS = ("t_start", "t_end", "component", "slot", "cmd", "nbytes")
_OF_CALLS = ("cmd", "pe", "launch", "awaits", "line", "t_issue", "t_resume")
"""What has to be as recorded of ops and calls."""


def same_times(trace: Trace, other: Trace) -> bool:
    """Whether two traces of one machine have the same calls, ops and launches, at the
    same times. Numbers may be rounded otherwise: that moves no time.
    """
    if trace.launches != other.launches or trace.end_ns != other.end_ns:
        return False
    tables = (
        (trace.op_columns, other.op_columns, _OF_OPS),
        (trace.commands, other.commands, _OF_CALLS),
    )
    return all(
        np.array_equal(getattr(mine, name)[:], getattr(its, name)[:])
        for mine, its, names in tables
        for name in names
    )
