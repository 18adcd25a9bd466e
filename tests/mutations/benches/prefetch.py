"""Sums of groups of rows: the next row is on its way while one is added.

Right: a row is awaited before it is added, and the sum begins at 0 in each group.
"""

from kernbench.benches.grid import Grid
from kernbench.runtime_api.registry import bench


def kernel(x_ptr, y_ptr, rows, n, tl):
    """Each PE has some groups of ``rows`` of ``n`` elements: those of its sums."""
    row_bytes = n * 4
    mine, _ = tl.own(y_ptr)
    total = tl.zeros((n,), "f32")
    for group in range(mine.start, mine.stop):
        at = x_ptr + group * rows * row_bytes
        tl.mul(total, 0.0, out=total)
        with tl.scope():
            coming = tl.load(at, (n,), "f32", wait=False)
            for row in range(1, rows):
                x = coming
                coming = tl.load(at + row * row_bytes, (n,), "f32", wait=False)
                tl.wait(x)
                tl.add(total, x, out=total)
            tl.wait(coming)
            tl.add(total, coming, out=total)
        tl.store(y_ptr + group * row_bytes, total)


@bench(name="prefetch", description="sums of groups of rows, one row ahead")
def run(torch, groups: int = 2, rows: int = 4, n: int = 16, pes: int = 4) -> None:
    """``groups`` for each of ``pes`` PEs."""
    grid = Grid.of(torch, pes)
    data = torch.rng.integers(-8, 9, (groups * pes * rows, n)).astype("f4")
    x = torch.tensor(data, dp=grid.dp(), name="x")
    y = torch.zeros((groups * pes, n), "f32", dp=grid.dp(), name="y")
    torch.launch("prefetch", kernel, x, y, rows, n)
    torch.expect(y, data.reshape(groups * pes, rows, n).sum(axis=1))
