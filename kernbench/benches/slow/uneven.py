"""Slow: the last PE takes all the rows that do not divide evenly.

To be found by ``diagnose``: one PE works far longer than the median, and its loop runs
more often than that of the others.
"""

from typing import Any

import numpy as np

from kernbench.benches.grid import Grid, rounded
from kernbench.runtime_api.registry import at_least_one, bench

_PES = 8


def kernel(x_ptr: Any, y_ptr: Any, each: int, rest: int, n: int, tl: Any) -> None:
    """y = exp(x) for this PE's rows; they lie in its own memory."""
    pe = tl.program_id(0)
    rows = each
    if pe == tl.num_programs(0) - 1:
        rows = each + rest
    start = pe * each
    for row in range(start, start + rows):
        at = row * n * x_ptr.itemsize
        with tl.scope():
            x = tl.load(x_ptr + at, (n,), "f16")  # slow: on one PE 4 times as often
            tl.store(y_ptr + at, tl.exp(x))


@bench(name="slow_uneven", description="slow: one PE with most of the rows")
def run(torch: Any, each: int = 4, rest: int = 12, n: int = 512) -> None:
    """``each`` rows of ``n`` elements a PE, and on the last one ``rest`` more."""
    at_least_one(each=each, n=n)
    grid = Grid.of(torch, _PES)
    rows = each * grid.pes + rest
    data = torch.rng.standard_normal((rows, n))
    x = torch.tensor(data, "f16", grid.dp(), name="x")
    y = torch.empty((rows, n), "f16", grid.dp(), name="y")
    torch.launch("uneven", kernel, x, y, each, rest, n)
    torch.expect(y, np.exp(rounded(data, "f16")))
