"""Which line a call stands for where lines are told apart by how often they ran.

The line of a helper stands for all that call it, so each of these is told by its own.
"""

from __future__ import annotations

import numpy as np

from kernbench.common.arrays import Ints, numbered
from kernbench.replay.answers import OpRow
from kernbench.trace import Trace
from kernbench.trace.hops import kernel_lines, rows_of_calls

LIBRARY = "kernbench/ccl/"
"""Where the lines of collectives are that everybody calls."""


def telling_lines(trace: Trace) -> tuple[list[str], Ints]:
    """Every "file:line" that calls stand for; by row of ``Trace.commands`` its number.

    That is the line which made the call, or where its function was called, if that
    was at several lines or the function is one of the library.
    """
    lines, which = kernel_lines(trace)
    log = trace.callers
    if not len(log.cmd):
        return lines, which
    called = rows_of_calls(trace, log.cmd[:])
    is_known = called >= 0
    called = called[is_known]
    keys = log.file[:][is_known].astype(np.int64) << 32 | log.line[:][is_known]
    used, caller = numbered(keys)
    pairs = np.unique(which[called].astype(np.int64) * len(used) + caller)
    times = np.bincount(pairs // len(used), minlength=len(lines))
    of_library = np.array([line.startswith(LIBRARY) for line in lines], np.bool_)
    is_told = ((times > 1) | of_library)[which[called]]
    texts = [f"{trace.strings[key >> 32]}:{key % (1 << 32)}" for key in used.tolist()]
    numbers = {line: number for number, line in enumerate(lines)}
    for text in texts:
        numbers.setdefault(text, len(numbers))
    number_of = np.array([numbers[text] for text in texts], np.int32)
    found = which.copy()
    found[called[is_told]] = number_of[caller[is_told]]
    return list(numbers), found


def telling_line(row: OpRow) -> str:
    """The line of an op, or if that is in the library the one that called it."""
    if row.caller and row.site.startswith(LIBRARY):
        return row.caller
    return row.site
