"""Runs a recorded program again with ops held back, each by a random time."""

from kernbench.errors import KernbenchError
from kernbench.runtime_api import Change, rerun

TIMES_NS = (0.0, 50.0, 200.0, 800.0, 3000.0)
MOVED = ("dma_read", "dma_write", "ipcq_copy")


def delayed(path, new, recording, rng):
    """The program of a trace with every DMA op held back by one of some times.

    Its trace is ``new``. The text of what ended it, "" for nothing.
    """
    delays = []
    for op in recording.ops:
        ns = rng.choice(TIMES_NS)
        if op.name in MOVED and ns:
            delays.append((op.position, ns))
    try:
        done = rerun(path, new, Change(delays=delays))
    except KernbenchError as error:
        return str(error)
    return "" if done.error is None else str(done.error)
