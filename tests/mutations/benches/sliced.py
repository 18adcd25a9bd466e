"""Sums of blocks of columns, which are slices of whole tensors in several shards.

Right: a block is awaited before it is added, and each PE has rows of its own.
"""

from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import bench

PES = 4
ROWS = 2
"""Rows that a PE sums."""


def kernel(x_ptr, y_ptr, n, block, tl):
    """Rows of ``n`` elements, ``block`` of them at a time; sums go to even columns."""
    first = ROWS * tl.program_id(0)
    last = first + ROWS
    total = tl.zeros((ROWS, block), "f32")
    with tl.scope():
        coming = tl.load(x_ptr[first:last, :block], wait=False)
        for low in range(block, n, block):
            now = coming
            coming = tl.load(x_ptr[first:last, low : low + block], wait=False)
            tl.wait(now)
            tl.add(total, now, out=total)
        tl.wait(coming)
        tl.add(total, coming, out=total)
    tl.store(y_ptr[first:last, ::2], total)


@bench(name="sliced", description="sums of blocks of columns")
def run(torch, n: int = 24, block: int = 6) -> None:
    """Columns of x lie on four PEs, rows of y."""
    columns = DPPolicy(num_cubes=1, pe="column_wise", num_pes=PES)
    rows = DPPolicy(num_cubes=1, pe="row_wise", num_pes=PES)
    data = torch.rng.integers(-64, 65, (ROWS * PES, n)).astype("f4")
    x = torch.tensor(data, dp=columns, name="x")
    y = torch.zeros((ROWS * PES, 2 * block), "f32", dp=rows, name="y")
    torch.launch("sliced", kernel, x, y, n, block)
    sums = data.reshape(ROWS * PES, n // block, block).sum(axis=1)
    expected = sums.repeat(2, axis=1)
    expected[:, 1::2] = 0
    torch.expect(y, expected)
