"""What a run that has just ended has spent, from its log and its network.

The sums are those of ``kernbench/trace/energy.py``, which makes them of a trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, prod
from operator import attrgetter
from typing import Any

from kernbench.common.energy import PJ, EnergyRates, Passed, Spent, cost_dtype, passed
from kernbench.sim_engine.accesses import access_columns, accesses
from kernbench.sim_engine.engine import GraphEngine
from kernbench.sim_engine.op_log import OpRecord
from kernbench.trace import Trace
from kernbench.trace.energy import energy_columns


@dataclass(frozen=True, slots=True)
class RunEnergy:
    """The energy of a run, that of static power in it, and the bytes of HBM moved."""

    joules: float
    static_joules: float
    hbm_bytes: int

    def as_text(self, ns: float) -> str:
        """A line, with the mean power over ``ns``."""
        watts = 0.0
        if ns > 0:
            watts = self.joules / ns * 1e9
        return (
            f"energy: {self.joules:.4g} J, {self.static_joules:.4g} J of it static; "
            f"{watts:.4g} W, {self.hbm_bytes:,} bytes to and from HBM"
        )


def energy_of_run(engine: GraphEngine, trace: Trace | None) -> RunEnergy:
    """The energy of all that an engine has simulated; a ``trace`` of it is faster."""
    spec = engine.graph.spec
    rates = EnergyRates.of(lambda path: float(attrgetter(path)(spec)))
    if trace is not None:
        spent = energy_columns(trace, access_columns(trace), rates).spent
    else:
        spent = Spent()
        _add_ops(spent, rates, engine.op_log)
        _add_transfers(spent, rates, engine)
    types = Counter(node.type for node in engine.graph.nodes.values())
    static_w = rates.static_w(types["pe_cpu"], types["m_cpu"])
    spent.pj["static"] = static_w * engine.env.now * 1e3
    return RunEnergy(spent.joules, spent.pj["static"] * PJ, spent.hbm_bytes)


def _add_transfers(spent: Spent, rates: EnergyRates, engine: GraphEngine) -> None:
    """What the bytes of each path pass."""
    for path, nbytes in engine.network.carried():
        for kind, pj in rates.way_pj(_passed(engine, path)).items():
            spent.pj[kind] += pj * nbytes


def _passed(engine: GraphEngine, path: tuple[str, ...]) -> Passed:
    """What lies on a path of nodes."""
    graph = engine.graph
    edges = [graph.edge_by_ends[ends] for ends in pairwise(path)]
    return passed(
        [graph.nodes[node].type for node in path],
        [(edge.kind, edge.distance_mm) for edge in edges],
    )


def _add_ops(spent: Spent, rates: EnergyRates, log: Iterable[OpRecord]) -> None:
    """What ops compute, and the bytes that they move into and out of memories."""
    moved: Counter[str] = Counter()
    macs: Counter[str] = Counter()
    elements: Counter[str] = Counter()
    from_host = 0
    for record in log:
        name = record.op_name
        params = record.params
        if name.startswith("TileToken/"):
            _count_stage(moved, name, params)
            continue
        if record.op_kind == "gemm":
            macs[params["dtype_in"]] += params["m"] * params["n"] * params["k"]
            steps = _epilogue_steps(params)
            if steps:
                elements[str(params["dtype_out"])] += params["m"] * params["n"] * steps
        elif record.op_kind == "math":
            shapes = (params["shape_out"], *params.get("input_shapes", ()))
            elements[params["dtype"]] += max(map(prod, shapes))
        if name.startswith("composite_"):
            continue
        for access in accesses(record):
            moved[access.space] += access.nbytes
        if name.startswith("host_"):
            from_host += params["nbytes"]
    for space, nbytes in moved.items():
        spent.add_memory(rates, space, nbytes)
    for dtype, count in macs.items():
        spent.pj["array"] += count * rates.mac[cost_dtype(dtype)]
    for dtype, count in elements.items():
        spent.pj["math"] += count * rates.element[cost_dtype(dtype)]
    spent.pj["pcie"] += from_host * rates.pcie


def _count_stage(moved: Counter[str], name: str, params: Mapping[str, Any]) -> None:
    """The bytes that a stage of a tile moves."""
    if "sizes" in params:
        for space, nbytes in zip(params["spaces"], params["sizes"], strict=True):
            moved[space] += nbytes
            moved["tcm"] += nbytes
    elif name in ("TileToken/FETCH", "TileToken/STORE"):
        moved["tcm"] += params["nbytes"]


def _epilogue_steps(params: Mapping[str, Any]) -> int:
    """How often an epilogue works on each element of the output."""
    steps = 0
    for scope in params.get("epilogue_scopes", ()):
        times = 1
        if scope == "k_tile":
            times = ceil(params["k"] / params["tile"][2])
        steps += times
    return steps
