"""out = x + y: a grid of blocks, of which the last is shorter.

What a mask is for in Triton is the end of a slice here. There is no grid: each PE goes
over the blocks of what it holds.
"""

from typing import Any

from kernbench import tl
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import at_least_one, bench


def add_kernel(x: Any, y: Any, out: Any, BLOCK: tl.constexpr, tl: Any) -> None:
    """One PE's elements, a block at a time."""
    (mine,) = tl.own(x)
    for start in mine[::BLOCK]:
        block = slice(start, min(start + BLOCK, mine.stop))
        with tl.scope():
            tl.store(out[block], tl.load(x[block]) + tl.load(y[block]))


@bench(
    name="tutorial_add",
    description="out = x + y, in blocks with a tail",
)
def run(
    torch: Any, n: int = 98_432, dtype: str = "f32", block: int = 1024, pes: int = 8
) -> None:
    """``n`` elements over ``pes`` PEs of a cube."""
    at_least_one(n=n, block=block, pes=pes)
    shared_out = DPPolicy(pe="row_wise", num_cubes=1, num_pes=pes)
    x = torch.tensor(torch.rng.random(n), dtype, shared_out, name="x")
    y = torch.tensor(torch.rng.random(n), dtype, shared_out, name="y")
    out = torch.empty((n,), dtype, shared_out, name="out")
    torch.launch("add", add_kernel, x, y, out, BLOCK=block)
    torch.expect(out, x.numpy().astype("f8") + y.numpy().astype("f8"))
