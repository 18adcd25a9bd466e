"""Each PE averages its row with those of its neighbours, step by step, in two buffers.

Right: between two steps neighbours wait for one another.
"""

import numpy as np

from kernbench.ccl.install import install_ipcq
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import bench

PES = 4
ROW_A_PE = DPPolicy(num_cubes=1, pe="row_wise", num_pes=PES)


def meet(token, tl):
    """Wait until both neighbours have come here, too."""
    tl.send("E", token)
    tl.send("W", token)
    tl.recv("W", (1,), "f32")
    tl.recv("E", (1,), "f32")


def kernel(even_ptr, odd_ptr, n, steps, tl):
    """A row of ``n`` elements; after an odd number of steps it is in ``odd_ptr``."""
    pe = tl.program_id(0)
    row_bytes = n * 4
    west = (pe - 1) % PES
    east = (pe + 1) % PES
    token = tl.full((1,), 1.0, "f32")
    buffers = (even_ptr, odd_ptr)
    for step in range(steps):
        now = buffers[step % 2]
        then = buffers[(step + 1) % 2]
        with tl.scope():
            mine = tl.load(now + pe * row_bytes, (n,), "f32")
            left = tl.load(now + west * row_bytes, (n,), "f32")
            right = tl.load(now + east * row_bytes, (n,), "f32")
            total = left + right
            tl.store(then + pe * row_bytes, mine * 0.5 + total * 0.25)
        meet(token, tl)


@bench(name="halo", description="rows averaged with those of neighbours, in steps")
def run(torch, n: int = 16, steps: int = 3) -> None:
    """Four rows of ``n`` elements."""
    install_ipcq(
        torch.engine,
        world_size=PES,
        rank_to_pe=[(0, 0, pe) for pe in range(PES)],
        neighbors=lambda pe: {"E": (pe + 1) % PES, "W": (pe - 1) % PES},
    )
    data = torch.rng.integers(-64, 65, (PES, n)).astype("f4")
    buffers = [
        torch.tensor(data, dp=ROW_A_PE, name="even"),
        torch.zeros((PES, n), "f32", dp=ROW_A_PE, name="odd"),
    ]
    torch.launch("halo", kernel, *buffers, n, steps)
    rows = data
    for _ in range(steps):
        around = np.roll(rows, 1, axis=0) + np.roll(rows, -1, axis=0)
        rows = rows / 2 + around / 4
    torch.expect(buffers[steps % 2], rows)
