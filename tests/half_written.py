"""A bench whose kernel runs on one of the two PEs that its output lies on."""

from kernbench.runtime_api import run_bench

SOURCE = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

ROW_A_PE = DPPolicy(pe="row_wise", num_cubes=1, num_pes=2)

def kernel(x, y, tl):
    tl.store(y, tl.load(x))

@bench(name="half_written", description="x lies on PE 0 alone")
def run(torch):
    x = torch.tensor([[1.0, 2.0]], "f32", name="x")
    y = torch.empty((2, 2), "f32", ROW_A_PE, name="y")
    torch.launch("k", kernel, x, y)
    torch.expect(y, [[1, 2], [3, 4]])
"""


def recorded_in(folder):
    """Run it; the trace."""
    bench = folder / "half_written.py"
    bench.write_text(SOURCE)
    path = folder / "t.msgpack"
    run_bench(str(bench), trace=path)
    return path
