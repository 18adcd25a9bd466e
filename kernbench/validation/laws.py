"""A better machine is not slower.

Random improvements of the machine, such as a faster clock or link, a shorter latency,
or more commands in flight, are tried on some benches, and the time of their launches is
held against that of the machine as it ships. The array's shape stays as it is: a larger
array takes longer to load (docs/machine.md, "GEMM").
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from random import Random
from typing import Any

from kernbench.ccl.config import load_ccl
from kernbench.runtime_api.registry import find_bench
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologySpec, load_topology
from kernbench.validation.table import Bound, Row, Table

Fields = Mapping[str, float]
"""Values of fields of the topology, by path."""

IMPROVEMENTS = 40
SLACK_PERCENT = 0.5
"""What an improvement may cost and still be none the worse."""

EXCEPTIONS = 2
"""How many launches may cost more."""

_MACHINE: Fields = {"sips.count": 1, "cube_mesh.w": 2, "cube_mesh.h": 1}

BENCHES: Mapping[str, Mapping[str, Any]] = {
    "matmul": {"m": 512, "k": 512, "n": 512},
    "softmax": {"m": 512, "n": 512},
    "flash_attention": {"seq": 256},
}
"""The parameters of each bench."""

FASTER = (
    "cube.router.link_bw_gbs",
    "cube.ucie.bw_gbs",
    "cube.hbm.channel_bw_gbs",
    "cube.hbm.to_router_bw_gbs",
    "pe.tcm.read_bw_gbs",
    "pe.tcm.write_bw_gbs",
    "pe.dma.to_router_bw_gbs",
    "pe.clock_ghz",
)
"""What becomes one to three times as much."""

SHORTER = (
    "system.ns_per_mm",
    "cube.router.overhead_ns",
    "cube.ucie.overhead_ns",
    "pe.dma.setup_ns",
    "cube.hbm.controller_ns",
    "cube.hbm.trcd_ns",
    "cube.hbm.trp_ns",
    "cube.hbm.tras_ns",
    "cube.hbm.trrd_s_ns",
    "cube.hbm.trrd_l_ns",
    "cube.hbm.tfaw_ns",
    "cube.hbm.twtr_s_ns",
    "cube.hbm.twtr_l_ns",
    "cube.hbm.trtp_ns",
    "cube.hbm.twr_ns",
    "cube.hbm.turn_ns",
    "cube.hbm.cl_ns",
    "cube.hbm.cwl_ns",
    "cube.hbm.trfc_ns",
)
"""What becomes a part of what it was."""

MORE = (
    "pe.dma.outstanding",
    "pe.tile.window",
    "pe.math.lanes",
    "cube.hbm.channels",
    "cube.hbm.banks",
    "cube.hbm.queue",
    "cube.hbm.bank_queue",
    "cube.hbm.write_buffer",
)
"""What becomes two or four times as much."""


@dataclass(frozen=True, slots=True)
class Slower:
    """A launch that an improvement made slower, by more than the slack."""

    seed: int
    bench: str
    percent: float
    fields: Fields

    def __str__(self) -> str:
        values = [f"{path} {value:.4g}" for path, value in self.fields.items()]
        improved = ", ".join(values)
        return f"seed {self.seed}, {self.bench}: {self.percent:+.2f} % by {improved}"


def improvement(seed: int) -> Fields:
    """One to four fields of the machine with a better value each."""
    random = Random(seed)
    shipped = TopologySpec()
    fields: dict[str, float] = {}
    for path in random.sample(FASTER + SHORTER + MORE, random.randint(1, 4)):
        value = attrgetter(path)(shipped)
        if path in FASTER:
            fields[path] = value * random.uniform(1, 3)
        elif path in SHORTER:
            fields[path] = value * random.random()
        else:
            fields[path] = value * random.choice((2, 4))
    return fields


def launch_ns(bench: str, fields: Fields) -> float:
    """How long the launches of a bench take on the machine with these fields, in ns.

    Transfers of the host, which would hide the rest, are not in it.
    """
    engine = GraphEngine(load_topology(overrides={**_MACHINE, **fields}))
    torch = Torch(engine, 0, load_ccl())
    entry = find_bench(bench)
    engine.run(lambda _: entry.run(torch, **BENCHES[bench]))
    return sum(span.t_end - span.t_start for span in engine.launches)


def slower_launches(seeds: Iterable[int] = range(IMPROVEMENTS)) -> list[Slower]:
    """The launches that were made slower, of these improvements on every bench."""
    before = {bench: launch_ns(bench, {}) for bench in BENCHES}
    slower = []
    for seed in seeds:
        fields = improvement(seed)
        for bench in BENCHES:
            ratio = launch_ns(bench, fields) / before[bench]
            percent = 100 * (ratio - 1)
            if percent > SLACK_PERCENT:
                slower.append(Slower(seed, bench, percent, fields))
    return slower


def laws_table() -> Table:
    """How many launches are none the worse; the notes say which are."""
    slower = slower_launches()
    launches = IMPROVEMENTS * len(BENCHES)
    what = f"random improvements: launches at most {SLACK_PERCENT:g} % slower"
    row = Row(
        what=f"{IMPROVEMENTS} {what}",
        source="none is slower",
        reference=launches,
        model=launches - len(slower),
        unit=f"of {launches}",
        bound=Bound(100 * EXCEPTIONS / launches, never_above=True),
    )
    return Table("A better machine is not slower", [row], tuple(map(str, slower)))
