"""Whether there is memory for what a trace describes, asked before it is taken."""

from __future__ import annotations

import mmap
import resource
from pathlib import Path

from kernbench.errors import RefusedError

_NOT_WORTH_ASKING = 16 << 20  # bytes


def make_room(nbytes: int, what: str) -> None:
    """KernbenchError, which says how much it would be, if ``what`` takes too much.

    That is more than half of the memory that this process may still have: arrays are
    copied to be shown. A trace of a few bytes may describe any number of them.
    """
    if nbytes <= _NOT_WORTH_ASKING:
        return
    free = _free_bytes()
    if nbytes > free // 2:
        raise RefusedError(
            f"{what} takes {nbytes:,} bytes of memory, and there are {free:,}; ask for "
            "a part of it, or on a larger machine"
        )


def _free_bytes() -> int:
    """What the system has free, and no more than the process's limit leaves."""
    free = 1 << 62
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text(encoding="ascii").splitlines():
            name, _, amount = line.partition(":")
            if name == "MemAvailable":
                free = int(amount.split()[0]) << 10
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    statm = Path("/proc/self/statm")
    if limit != resource.RLIM_INFINITY and statm.exists():
        pages = int(statm.read_text(encoding="ascii").split()[0])
        free = min(free, max(limit - pages * mmap.PAGESIZE, 0))
    return free
