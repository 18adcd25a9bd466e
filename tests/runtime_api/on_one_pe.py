"""The source of a bench that runs a kernel on one PE; its body is to be filled in."""

_BENCH = """
from pathlib import Path

from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

ONE = DPPolicy(num_cubes=1, num_pes=1)

def kernel(x_ptr, y_ptr, n, tl):
    BODY

@bench(name="one_pe", description="")
def run(torch, n=4096):
    x = torch.tensor(torch.rng.standard_normal(n), "f32", ONE, name="x")
    y = torch.zeros((n,), "f32", ONE, name="y")
    torch.launch("kernel", kernel, x, y, n)
"""

BESIDE = """
    a = tl.load(x_ptr, (n,), "f32")
    quick = tl.load(y_ptr, (4,), "f32", wait=False)
    tl.exp(a)
    tl.exp(a)
"""
"""A short load beside a long one, and two functions in turn."""


def bench_of(body: str) -> str:
    """The source of ``one_pe``, whose kernel has a body, lines with four spaces each.

    ``x`` and ``y`` are vectors of ``n`` f32.
    """
    return _BENCH.replace("    BODY", body)
