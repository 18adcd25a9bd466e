"""A small machine whose PEs are wired, and a way to run a kernel on all of them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from kernbench.ccl.install import install_ipcq
from kernbench.common.dtypes import np_dtype
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologySpec, build_topology
from kernbench.topology.spec import ComponentSpec, CubeMeshSpec

PES = [(sip, cube, 0) for sip in range(2) for cube in range(4)]
BY_ROWS = DPPolicy(cube="row_wise", pe="row_wise")


def machine(cache, **components):
    """2 SIPs of 2x2 cubes of 1 PE."""
    spec = TopologySpec()
    impls = {name: ComponentSpec(impl) for name, impl in components.items()}
    memory = replace(spec.cube.memory_map, slices_per_cube=1)
    spec = replace(
        spec,
        sip=replace(spec.sip, cube_mesh=CubeMeshSpec(w=2, h=2)),
        cube=replace(spec.cube, pes=1, memory_map=memory),
        components=replace(spec.components, **impls),
    )
    return build_topology(spec, cache)


def pair(rank):
    """Two ranks in a ring: both directions of each lead to the other."""
    return {"E": 1 - rank, "W": 1 - rank}


def ring(size):
    return lambda rank: {"E": (rank + 1) % size, "W": (rank - 1) % size}


def talk(
    graph,
    program,
    n,
    size=2,
    neighbors=pair,
    dtype="f32",
    places=PES,
    watch=None,
    **options,
):
    """Run ``program(rank, mine, out, tl)`` on ``size`` PEs; ``.out`` is what Phase 2
    left there.

    ``mine`` and ``out`` point at n elements of each rank; ``mine`` holds rank * 1000 +
    0, 1, 2 … ``watch(engine)`` is called after each event.
    """
    engine = GraphEngine(graph, recorder=options.pop("recorder", None))
    torch = Torch(engine)
    install_ipcq(
        engine,
        world_size=size,
        rank_to_pe=places[:size],
        neighbors=neighbors,
        **options,
    )
    ranks = {place: rank for rank, place in enumerate(places[:size])}
    data = np.arange(n)[None, :] + 1000 * np.array([[ranks.get(p, 0)] for p in PES])
    itemsize = np_dtype(dtype).itemsize

    def kernel(x, y, tl):
        row = tl.program_id(2) * 4 + tl.program_id(1)
        at = row * n * itemsize
        if PES[row] in ranks:
            program(ranks[PES[row]], x + at, y + at, tl)

    kernel.__code__ = kernel.__code__.replace(co_filename=program.__code__.co_filename)
    x = torch.tensor(data.astype(np_dtype(dtype)), dp=BY_ROWS)
    y = torch.full((len(PES), n), -1, x.dtype, dp=BY_ROWS)
    torch.launch("talk", kernel, x, y)
    run = SimpleNamespace(engine=engine, torch=torch, ranks=ranks, kernel=kernel)
    while watch is not None and engine.env.peek() < float("inf"):
        engine.env.step()
        watch(engine)
    engine.drain()
    executor = DataExecutor(engine.op_log)
    executor.run()
    outs = [executor.store.view("hbm", s.addr, s.shape, s.dtype)[0] for s in y.shards]
    run.out = [outs[PES.index(place)] for place in places[:size]]
    run.log = engine.op_log
    run.findings = executor.findings
    run.data = data
    return run


def named(run, name):
    return [record for record in run.log if record.op_name == name]
