"""Kernels of two PEs in a row, given by their lines."""

HEAD = """
from kernbench.ccl.install import install_ipcq
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import bench

MACHINE = {
    "system.sips.count": 1,
    "sip.cube_mesh.w": 1,
    "sip.cube_mesh.h": 1,
    "cube.pes": 2,
    "cube.memory_map.slices_per_cube": 2,
}


def kernel(x, y, tl):
    pe = tl.program_id(0)
"""

FOOT = """

@bench(name="by_hand", description="by hand", machine=lambda **_: MACHINE)
def run(torch):
    install_ipcq(
        torch.engine,
        world_size=2,
        rank_to_pe=[(0, 0, 0), (0, 0, 1)],
        neighbors=[{"E": 1}, {"W": 0}].__getitem__,
    )
    rows = DPPolicy(pe="row_wise")
    x = torch.zeros((2, 64), "f32", dp=rows, name="x")
    y = torch.zeros((2, 64), "f32", dp=rows, name="y")
    torch.launch("by_hand", kernel, x, y)
"""


def text_of(*lines):
    """A bench whose kernel has these lines."""
    return HEAD + "".join(f"    {line}\n" for line in lines) + FOOT


def first_line():
    """The number of the line behind the head."""
    return HEAD.count("\n") + 1


def lines_of(finding):
    """The lines of a finding, counted from the first that was given."""
    return [int(site.rpartition(":")[2]) - first_line() for site in finding.sites]
