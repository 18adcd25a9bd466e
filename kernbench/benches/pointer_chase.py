"""Dependent loads: each PE follows a chain through one table.

The table lies over all of them. Exercises latency: the address of a load is the value
of the one before, so nothing overlaps. In its trace every load starts when the last has
landed; its time is the distance to the slice that holds the entry, since hardly any
load waits for another. With ``pes=1`` the chain never leaves the PE's own slice: that
is the shortest load there is.
"""

from typing import Any

import numpy as np

from kernbench.benches.grid import Grid, Pes
from kernbench.runtime_api.registry import at_least_one, bench


def chase_kernel(out: Any, table: Any, entries: int, hops: int, tl: Any) -> None:
    """``hops`` loads from the entry with this PE's number; the last value is stored."""
    ((number,),) = tl.own(out)
    entry = number % entries
    for _ in range(hops):
        entry = tl.load(table[entry])
    tl.store(out[number], entry)


@bench(
    name="pointer_chase",
    description="dependent loads through a table that lies over all PEs",
)
def run(torch: Any, entries: int = 4096, hops: int = 16, pes: Pes = None) -> None:
    """``entries`` of 8 bytes form one random cycle; each PE follows ``hops`` links."""
    at_least_one(entries=entries, hops=hops)
    grid = Grid.of(torch, pes)
    order = torch.rng.permutation(entries)
    following = np.empty(entries, np.int64)
    following[order] = np.roll(order, -1)
    table = torch.tensor(following, "i64", grid.dp(), name="table")
    out = torch.empty((grid.cubes * grid.pes,), "i64", grid.dp(), name="out")
    torch.launch("pointer_chase", chase_kernel, out, table.ptr, entries, hops)
    at = np.arange(grid.cubes * grid.pes) % entries
    for _ in range(hops):
        at = following[at]
    torch.expect(out, at)
