"""Fault: a ring of two ranks joined by name: what goes E arrives from the E.

The component is named by ``components.pe_ipcq.impl``; the kernel is right.
To be found as a deadlock: both ranks wait in a recv from the W, each for the other.
"""

from typing import Any

from kernbench.benches.faults.early_credit import ROW_A_CUBE, TWO_CUBES, join
from kernbench.components.builtin.pe_ipcq import PeIpcq, Ring
from kernbench.runtime_api.registry import bench


class ByName(PeIpcq):
    """Takes the direction of the same name for the other end of one."""

    def connect(self, direction: str, ring: Ring, peer: PeIpcq, back: str) -> None:
        """Wire a direction."""
        super().connect(direction, ring, peer, direction)  # fault: it is ``back``


def kernel(x_ptr: Any, y_ptr: Any, tl: Any) -> None:
    """y of each cube is x of the other."""
    x = tl.load(x_ptr)
    tl.send("E", x)
    tl.store(y_ptr, tl.recv("W", x.shape, x.dtype))  # waits


@bench(
    name="fault_ring_by_name",
    description="fault: a ring of 2 ranks, joined by name",
    machine=lambda **_: TWO_CUBES | {"components.pe_ipcq.impl": f"{__name__}:ByName"},
)
def run(torch: Any, n: int = 64) -> None:
    """``n`` elements a cube."""
    join(torch, {"E": 1, "W": 1}, {"E": 0, "W": 0})
    data = torch.rng.standard_normal((2, n)).astype("f4")
    x = torch.tensor(data, dp=ROW_A_CUBE, name="x")
    y = torch.empty((2, n), "f32", dp=ROW_A_CUBE, name="y")
    torch.launch("ring_by_name", kernel, x, y)
    torch.expect(y, data[::-1])
