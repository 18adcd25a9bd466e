"""All-reduces on the simulated machine: one launch of all ranks, and what it left."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from kernbench.ccl.config import load_ccl
from kernbench.ccl.sfr_config import configure_sfr_intercube_multisip
from kernbench.ccl.topologies import TOPO_NAME_TO_KIND, sip_shape
from kernbench.common.dtypes import np_dtype
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologySpec, build_topology
from kernbench.topology.spec import CubeMeshSpec, MemoryMapSpec, SipsSpec


def machine(sips, topology="ring_1d", mesh=(4, 4)):
    """As the default machine, but with one PE a cube."""
    spec = TopologySpec()
    return replace(
        spec,
        system=replace(spec.system, sips=SipsSpec(sips, topology)),
        sip=replace(spec.sip, cube_mesh=CubeMeshSpec(*mesh)),
        cube=replace(spec.cube, pes=1, memory_map=MemoryMapSpec(48, 1)),
    )


def config(algorithm, **fields):
    """The shipped entry of ``algorithm``, with other ``fields``."""
    return replace(load_ccl().of(algorithm), **fields)


def engine_of(cache, sips, topology, mesh, algorithm="intercube_allreduce", **fields):
    """The machine, its queues wired."""
    spec = machine(sips, topology, mesh)
    engine = GraphEngine(build_topology(spec, cache))
    configure_sfr_intercube_multisip(engine, spec, config(algorithm, **fields))
    return engine


def all_reduce(data, dtype, *args, **options):
    """``timed``, and Phase 2: ``.data`` is what it left, ``.findings`` are its own."""
    run = timed(data, dtype, *args, **options)
    executor = DataExecutor(run.engine.op_log)
    executor.run()
    rows = [executor.store.view(s.space, s.addr, s.shape, s.dtype) for s in run.shards]
    run.data = np.array(rows).reshape(data.shape).astype(np_dtype(dtype))
    run.findings = executor.findings
    return run


def timed(
    data, dtype, cache, algorithm, topology="ring_1d", mesh=(4, 4), op="sum", **fields
):
    """One all-reduce of ``data`` (sips, cubes, n_elem): ``.ns`` from its first op to
    its last.
    """
    sips, cubes, n_elem = data.shape
    engine = engine_of(cache, sips, topology, mesh, algorithm, **fields)
    module = config(algorithm).load()
    rest = (*module.kernel_args(sips, n_elem, *mesh), TOPO_NAME_TO_KIND[topology])

    def kernel(ptr, n_elem, cube_w, cube_h, n_sips, kind, w, h, tl):
        sip = tl.program_id(2)
        own = ptr + sip * cubes * n_elem * ptr.itemsize
        module.kernel(
            own, n_elem, cube_w, cube_h, n_sips, sip, kind, w, h, tl=tl, op=op
        )

    torch = Torch(engine)
    found = []

    def bench(_):
        dp = DPPolicy("row_wise", "replicate", num_pes=1)
        rows = torch.tensor(data.reshape(-1, n_elem), dtype, dp, name="rows")
        engine.drain()
        torch.launch("all_reduce", kernel, rows, *rest, *sip_shape(topology, sips))
        engine.drain()
        found.append(rows)

    engine.run(bench)
    log = [r for r in engine.op_log if r.op_name not in ("host_write", "host_read")]
    start = min(r.t_start for r in log)
    end = max(r.t_end for r in log)
    return SimpleNamespace(ns=end - start, engine=engine, shards=found[0].shards)
