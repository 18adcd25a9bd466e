"""All-reduce of one row a cube over the cubes of all SIPs, by ``torch.distributed``.

Exercises ranks, the process group, the queues between PEs and the algorithms of
ccl.yaml. In its trace look at how long the last PE of the chain waits for arrivals, and
which links carry what: the five-phase algorithm sends the whole row over each, the
chunked one at most twice its size in all.
"""

from typing import Any

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.common.dtypes import nbytes_of
from kernbench.errors import UsageError
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import bench, one_of

REDUCE: dict[str, Any] = {"sum": np.sum, "max": np.max, "min": np.min}
ROW_A_CUBE = DPPolicy(cube="row_wise", pe="replicate", num_pes=1)


def machine(sips: int | None, topology: str, **_: Any) -> dict[str, Any]:
    """The fields of the topology that are given."""
    fields: dict[str, Any] = {}
    if sips is not None:
        fields["system.sips.count"] = sips
    if topology != "default":
        fields["system.sips.topology"] = topology
    return fields


def init_group(torch: Any, algorithm: str) -> Any:
    """The process group of all ranks, with an algorithm of ccl.yaml or "default"."""
    chosen = None if algorithm == "default" else algorithm
    torch.distributed.init_process_group(backend="ahbm", algorithm=chosen)
    return torch.distributed


def worker(rank: int, torch: Any, rows: Ints, dtype: str, op: str) -> None:
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
    """``n_elem`` elements a cube.

    0 and "default" are what topology.yaml and ccl.yaml say.
    """
    one_of(("f16", "bf16", "f32"), dtype=dtype)
    one_of(tuple(REDUCE), op=op)
    if n_elem < 0:
        raise UsageError(
            f"n_elem={n_elem}: must be at least 1, or 0 for that of ccl.yaml"
        )
    dist = init_group(torch, algorithm)
    mesh = torch.engine.graph.spec.sip.cube_mesh
    sip_count = dist.get_world_size()
    cubes = mesh.w * mesh.h
    n_elem = n_elem or dist.algorithm.n_elem
    # Their sum is exact in any order.
    rows = torch.rng.integers(-1, 2, (sip_count, cubes, n_elem))
    torch.multiprocessing.spawn(worker, (torch, rows, dtype, op), sip_count)
    overhead_ns = dist.algorithm.call_overhead_ns
    _note_bandwidth(torch, sip_count * cubes, nbytes_of((n_elem,), dtype), overhead_ns)


def _note_bandwidth(torch: Any, parties: int, nbytes: int, overhead_ns: float) -> None:
    """Note how long the all-reduce took, and the bandwidths that nccl-tests gives.

    algbw is bytes / time. busbw is algbw times 2 (n - 1) / n, the bytes that each of n
    parties has to send and receive at least. The time has the software of the call in
    it, ``overhead_ns``.
    """
    spans = [span for span in torch.engine.launches if span.name == "all_reduce"]
    start = min(span.t_start for span in spans)
    end = max(span.t_end for span in spans)
    ns = end - start + overhead_ns
    factor = 2 * (parties - 1) / parties
    torch.notes.append(
        f"all_reduce of {nbytes:,} bytes in each of {parties} cubes: {ns:,.1f} ns, "
        f"algbw {nbytes / ns:.3f} GB/s, busbw {nbytes / ns * factor:.3f} GB/s"
    )
