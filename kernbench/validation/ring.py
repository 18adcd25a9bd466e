"""The ring all-reduce against alpha-beta: 2 (n - 1) (alpha + S / nB).

The ring is of n SIPs of one cube each, so that all its hops are alike: PE to PCIe, over
the switch, and in again. Both sums are worked out here from fields of the machine:
alpha is a call, the set-up of the DMA, the overheads of the nodes on the way, and what
it takes to add a chunk, which half of the steps do. A byte is paid twice: at the
slowest link of a hop, and at the TCM, from which a slot is copied when all of it is
there.
"""

from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory

from kernbench.policy.routing.router import PathRouter
from kernbench.runtime_api import run_bench
from kernbench.topology import TopologyGraph, load_topology
from kernbench.validation.table import Row, Table

SIPS = (2, 3, 4, 8)
KIB = (24, 384)
"""The bytes that every cube holds; they are cut into a chunk a SIP."""

_PCIE_GBS = 32.0
_TCM_GBS = float(1 << 20)  # operands of an addition come in less than its pipeline
_FIELDS = {
    "cube_mesh.w": 1,
    "cube_mesh.h": 1,
    "system.ns_per_mm": 0.0,
    "system.pcie_bw_gbs": _PCIE_GBS,
    "tcm.read_bw_gbs": _TCM_GBS,
    "tcm.write_bw_gbs": _TCM_GBS,
    "math.lanes": 1 << 20,  # a chunk is added in one pass
    "dma.burst_bytes": 1 << 20,  # a slot is one burst
}
_CCL = """\
defaults: {{algorithm: ring_chunked_allreduce, slots: 2, slot_bytes: {slot_bytes}}}
algorithms:
  ring_chunked_allreduce: {{module: kernbench.ccl.algorithms.ring_chunked_allreduce}}
"""


def ring_ns(sips: int, nbytes: int) -> float:
    """How long the all-reduce of ``nbytes`` in every cube takes, in ns.

    That is from when the chunks are in the TCM until the first is stored.
    """
    with TemporaryDirectory() as folder:
        ccl = Path(folder) / "ccl.yaml"
        ccl.write_text(_CCL.format(slot_bytes=nbytes // sips), encoding="utf-8")
        run = run_bench(
            "ccl_allreduce",
            spec={**_FIELDS, "sips.count": sips},
            ccl=ccl,
            params={
                "algorithm": "ring_chunked_allreduce",
                "dtype": "f32",
                "n_elem": nbytes // 4,
            },
        )
    log = run.op_log
    loaded = max(record.t_end for record in log if record.op_name == "dma_read")
    stored = min(record.t_start for record in log if record.op_name == "dma_write")
    return stored - loaded


def formula_ns(sips: int, nbytes: int) -> float:
    """The same by alpha-beta, and a call: that of the store."""
    graph = load_topology(overrides={**_FIELDS, "sips.count": sips})
    pe = graph.spec.pe
    call_ns = pe.cpu.issue_cycles / pe.clock_ghz
    add_ns = (1 + pe.math.latency_cycles) / pe.clock_ghz
    alpha = call_ns + pe.dma.setup_ns + _hop_ns(graph) + (call_ns + add_ns) / 2
    chunk_ns = nbytes / sips * (1 / _PCIE_GBS + 1 / _TCM_GBS)
    return 2 * (sips - 1) * (alpha + chunk_ns) + call_ns


def _hop_ns(graph: TopologyGraph) -> float:
    """The overheads of all nodes that a header comes to on its way to the next SIP."""
    start = graph.at(0, 0, 0, "pe_dma")
    path = PathRouter(graph).route("pe", start, graph.at(1, 0, 0, "pe_tcm"))
    return sum(graph.nodes[node].overhead_ns for _, node in pairwise(path))


def ring_table() -> Table:
    """Rings of some sizes, each with little and with much to reduce."""
    rows = [
        Row(
            what=f"ring of {sips} SIPs, {kib} KiB a cube",
            source="2 (n - 1) (alpha + S / nB)",
            reference=formula_ns(sips, kib << 10),
            model=ring_ns(sips, kib << 10),
            unit="ns",
        )
        for sips, kib in product(SIPS, KIB)
    ]
    return Table("All-reduce on a ring", rows)
