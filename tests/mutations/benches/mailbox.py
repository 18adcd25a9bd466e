"""Rows go from one cube to another through slots in memory, by messages and credits.

Right: a slot is filled when it has been emptied, and read when it has been filled.
"""

from kernbench.ccl.install import install_ipcq
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import bench

SLOTS = 2
TWO_CUBES = {"system.sips.count": 1, "sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}
FIRST_PE = DPPolicy(num_cubes=1, num_pes=1)
BOTH = DPPolicy(cube="row_wise", num_pes=1)


def kernel(x_ptr, box_ptr, y_ptr, ready_ptr, rows, n, tl):
    """Cube 0 doubles its rows, cube 1 adds 1 to each."""
    row_bytes = n * 4
    token = tl.load(ready_ptr, (1,), "f32")
    if tl.program_id(1) == 0:
        for row in range(rows):
            with tl.scope():
                if row >= SLOTS:
                    tl.recv("E", (1,), "f32")
                x = tl.load(x_ptr + row * row_bytes, (n,), "f32")
                tl.store(box_ptr + row % SLOTS * row_bytes, x + x)
                tl.send("E", token)
        return
    for row in range(rows):
        with tl.scope():
            tl.recv("W", (1,), "f32")
            doubled = tl.load(box_ptr + row % SLOTS * row_bytes, (n,), "f32")
            tl.send("W", token)
            y = doubled + 1.0
            tl.store(y_ptr + row * row_bytes, y)


@bench(
    name="mailbox",
    description="rows through slots in memory, with credits",
    machine=lambda **_: TWO_CUBES,
)
def run(torch, rows: int = 6, n: int = 16) -> None:
    """``rows`` of ``n`` elements."""
    install_ipcq(
        torch.engine,
        world_size=2,
        rank_to_pe=[(0, 0, 0), (0, 1, 0)],
        neighbors=[{"E": 1}, {"W": 0}].__getitem__,
    )
    data = torch.rng.integers(-8, 9, (rows, n)).astype("f4")
    x = torch.tensor(data, dp=FIRST_PE, name="x")
    box = torch.zeros((SLOTS, n), "f32", dp=FIRST_PE, name="box")
    y = torch.zeros((rows, n), "f32", dp=FIRST_PE, name="y")
    ready = torch.zeros((2,), "f32", dp=BOTH, name="ready")
    # It runs where a shard of each tensor is: all of memory is any PE's by address.
    args = (x.ptr, box.ptr, y.ptr, ready, rows, n)
    torch.launch("mailbox", kernel, *args)
    torch.expect(y, 2 * data + 1)
