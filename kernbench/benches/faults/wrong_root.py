"""Fault: an all-reduce whose broadcast starts at another cube than its reduce ended at.

No op is wrong, no two conflict. To be found by verification: every row is cube 0's own.
"""

from typing import Any

from kernbench.benches.faults.early_credit import ROW_A_CUBE, TWO_CUBES, join
from kernbench.runtime_api.registry import bench


def kernel(x_ptr: Any, tl: Any) -> None:
    """Cube 0 sends its row to cube 1, which adds its own; both are to have the sum."""
    cube = tl.program_id(1)
    toward = {0: "E", 1: "W"}  # the other cube
    x = tl.load(x_ptr)
    if cube == 0:
        tl.send("E", x)
    else:
        tl.add(x, tl.recv("W", x.shape, "f32"), out=x)
    root = 0  # fault: the sum is in cube 1
    if cube == root:
        tl.send(toward[root], x)
    else:
        tl.recv(toward[1 - root], x.shape, "f32", out=x)  # broadcast
        tl.store(x_ptr, x)


@bench(
    name="fault_wrong_root",
    description="fault: an all-reduce that broadcasts from another root",
    machine=lambda **_: TWO_CUBES,
)
def run(torch: Any, n: int = 64) -> None:
    """``n`` elements a cube."""
    join(torch, {"E": 1}, {"W": 0})
    data = torch.rng.integers(-1, 2, (2, n)).astype("f4")
    x = torch.tensor(data, dp=ROW_A_CUBE, name="x")
    torch.launch("wrong_root", kernel, x)
    torch.expect(x, [data.sum(0)] * 2)
