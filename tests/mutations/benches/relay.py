"""Rows go from one cube to another as payloads, through a ring of two slots.

Right: what is received is awaited, and nothing that is still to be sent is overwritten.
"""

from kernbench.ccl.install import install_ipcq
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import bench

TWO_CUBES = {"system.sips.count": 1, "sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}
ROW_A_CUBE = DPPolicy(cube="row_wise", num_pes=1)


def kernel(x_ptr, y_ptr, rows, n, tl):
    """The rows of cube 0, doubled one by one in cube 1."""
    row_bytes = n * 4
    if tl.program_id(1) == 0:
        for row in range(rows):
            with tl.scope():
                x = tl.load(x_ptr + row * row_bytes, (n,), "f32")
                tl.send("E", x)
        return
    for row in range(rows, 2 * rows):
        with tl.scope():
            x = tl.recv("W", (n,), "f32")
            y = x + x
            tl.store(y_ptr + row * row_bytes, y)


@bench(
    name="relay",
    description="rows from cube to cube through a ring of two slots",
    machine=lambda **_: TWO_CUBES,
)
def run(torch, rows: int = 8, n: int = 64) -> None:
    """``rows`` payloads of ``n`` elements."""
    install_ipcq(
        torch.engine,
        world_size=2,
        rank_to_pe=[(0, 0, 0), (0, 1, 0)],
        neighbors=[{"E": 1}, {"W": 0}].__getitem__,
        slots=2,
        slot_bytes=n * 4,
    )
    data = torch.rng.integers(-8, 9, (2 * rows, n)).astype("f4")
    x = torch.tensor(data, dp=ROW_A_CUBE, name="x")
    y = torch.zeros((2 * rows, n), "f32", dp=ROW_A_CUBE, name="y")
    torch.launch("relay", kernel, x, y, rows, n)
    data[rows:] = 2 * data[:rows]
    data[:rows] = 0
    torch.expect(y, data)
