"""All-reduce of one row a cube over the cubes of all SIPs, by ``torch.distributed``.

Exercises ranks, the process group, the queues between PEs and the algorithms of ccl.yaml. In its
trace look at how long the last PE of the chain waits for arrivals, and which links carry what: the
five-phase algorithm sends the whole row over each, the chunked one at most twice its size in all.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import nbytes_of
from kernbench.errors import UsageError
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import bench, one_of

REDUCE: dict[str, Any] = {"sum": np.sum, "max": np.max, "min": np.min}
ROW_A_CUBE = DPPolicy(cube="row_wise", pe="replicate", num_pes=1)


def machine(sips: int | None, topology: str, **_: Any) -> dict[str, Any]:
    """The fields of the topology that are given."""
    given = {"system.sips.count": sips, "system.sips.topology": topology}
    return {
        field: value for field, value in given.items() if value not in (None, "default")
    }


def init_group(torch: Any, algorithm: str) -> Any:
    """The process group of all ranks, with an algorithm of ccl.yaml or "default"."""
    chosen = None if algorithm == "default" else algorithm
    torch.distributed.init_process_group(backend="ahbm", algorithm=chosen)
    return torch.distributed


def worker(
    rank: int, torch: Any, rows: npt.NDArray[np.int64], dtype: str, op: str
) -> None:
    """One rank's rows, reduced with those of all others."""
    x = torch.tensor(rows[rank], dtype, dp=ROW_A_CUBE, name="x")
    torch.distributed.all_reduce(x, op)
    torch.expect(x, np.broadcast_to(REDUCE[op](rows, axis=(0, 1)), x.shape))


@bench(
    name="ccl_allreduce",
    description="all-reduce of a row a cube over all SIPs",
    machine=machine,
)
def run(
    torch: Any,
    sips: int | None = None,
    topology: str = "default",
    n_elem: int = 0,
    algorithm: str = "default",
    dtype: str = "f16",
    op: str = "sum",
) -> None:
    """``n_elem`` elements a cube; 0 and "default" are what topology.yaml and ccl.yaml say."""
    one_of(("f16", "bf16", "f32"), dtype=dtype)
    one_of(tuple(REDUCE), op=op)
    if n_elem < 0:
        raise UsageError(
            f"n_elem={n_elem}: must be at least 1, or 0 for that of ccl.yaml"
        )
    dist, mesh = init_group(torch, algorithm), torch.engine.graph.spec.sip.cube_mesh
    n_elem = n_elem or dist.algorithm.n_elem
    shape = (dist.get_world_size(), mesh.w * mesh.h, n_elem)
    rows = torch.rng.integers(-1, 2, shape)  # their sum is exact in any order
    torch.multiprocessing.spawn(worker, (torch, rows, dtype, op), dist.get_world_size())
    spans = [span for span in torch.engine.launches if span.name == "all_reduce"]
    ns = max(span.t_end for span in spans) - min(span.t_start for span in spans)
    parties, nbytes = shape[0] * shape[1], nbytes_of((n_elem,), dtype)
    factor = 2 * (parties - 1) / parties  # of nccl-tests, for busbw
    torch.notes.append(
        f"all_reduce of {nbytes:,} bytes in each of {parties} cubes: {ns:,.1f} ns, "
        f"algbw {nbytes / ns:.3f} GB/s, busbw {nbytes / ns * factor:.3f} GB/s"
    )
