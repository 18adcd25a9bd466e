"""Fault: a PE_IPCQ that gives a slot back before its bytes have been read.

The component is named by ``components.pe_ipcq.impl``; the kernel is right.
To be found as a hazard: a slot is read while the next payload is on its way into it;
and by verification, as what is read is a later payload than it should be.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernbench.ccl.install import install_ipcq
from kernbench.common.pe_commands import SlotCopy
from kernbench.components.builtin.pe_ipcq import PeIpcq, Queue
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import bench

TWO_CUBES = {"system.sips.count": 1, "sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}
ROW_A_CUBE = DPPolicy(cube="row_wise", num_pes=1)


def join(torch: Any, *neighbors: Mapping[str, int], **ring: Any) -> None:
    """Wire the first PEs of the two cubes, each by its table of ``neighbors``."""
    install_ipcq(
        torch.engine,
        world_size=2,
        rank_to_pe=[(0, 0, 0), (0, 1, 0)],
        neighbors=neighbors.__getitem__,
        **ring,
    )


class EarlyCredit(PeIpcq):
    """Returns a credit for what has landed, none for what has been taken."""

    def arrive(self, direction: str, number: int, copy: SlotCopy) -> None:
        """The payload has landed."""
        super().arrive(direction, number, copy)
        super().give_back(self.queues[direction], copy)  # fault: nobody has read it

    def give_back(self, queue: Queue, copy: SlotCopy) -> None:
        """Nothing is left to give back."""


def kernel(x_ptr: Any, y_ptr: Any, tl: Any) -> None:
    """The rows of cube 0, doubled one by one in cube 1."""
    rows, cols = tl.own(x_ptr)
    if tl.program_id(1) == 0:
        for x in [tl.load(x_ptr[row]) for row in rows]:
            tl.send("E", x, wait=False)  # writes
        return
    for row in rows:
        x = tl.recv("W", (len(cols),), "f32")  # reads
        tl.store(y_ptr[row], 2 * x)


@bench(
    name="fault_early_credit",
    description="fault: a credit returned before its slot was read",
    machine=lambda **_: (
        TWO_CUBES | {"components.pe_ipcq.impl": f"{__name__}:EarlyCredit"}
    ),
)
def run(torch: Any, rows: int = 16, n: int = 1024, slots: int = 2) -> None:
    """``rows`` payloads of ``n`` elements through a ring of ``slots``."""
    join(torch, {"E": 1}, {"W": 0}, slots=slots, slot_bytes=n * 4)
    data = torch.rng.standard_normal((2 * rows, n)).astype("f4")
    x = torch.tensor(data, dp=ROW_A_CUBE, name="x")
    y = torch.zeros((2 * rows, n), "f32", dp=ROW_A_CUBE, name="y")
    torch.launch("early_credit", kernel, x, y)
    expected = np.zeros_like(data)
    expected[rows:] = 2 * data[:rows]
    torch.expect(y, expected)
