"""What must hold on any machine: a better part makes nothing slower, and nothing is
faster than its roofline.
"""

import random
from operator import attrgetter

import pytest
from pace import some_in_ci

from kernbench.benches import matmul
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import load_topology
from kernbench.topology.spec import TopologySpec, load_spec
from kernbench.validation.laws import FASTER, MORE, SHORTER

ONE_CUBE = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}


def matmul_ns(fields, size=512):
    """How long a matmul takes on one PE of one cube with some other fields, in ns."""
    graph = load_topology(overrides={**ONE_CUBE, **fields})
    engine = GraphEngine(graph, op_logger=None)
    engine.run(lambda _: matmul.run(Torch(engine), m=size, k=size, n=size, pes=1))
    return sum(each.t_end - each.t_start for each in engine.launches)


@pytest.mark.slow
def test_more_outstanding_reads_make_a_composite_no_slower():
    times = [matmul_ns({"pe.dma.outstanding": n}) for n in (2, 8)]
    assert times[1] <= times[0] * 1.001
    assert times[1] == pytest.approx(times[0], rel=0.05)


@pytest.mark.slow
def test_a_faster_clock_makes_a_composite_no_slower():
    times = [matmul_ns({"pe.clock_ghz": ghz}) for ghz in (0.92, 1.2)]
    assert times[1] <= times[0] * 1.001


@pytest.mark.slow
def test_the_interleave_does_not_change_a_composite_of_balanced_accesses():
    times = [
        matmul_ns({"cube.hbm.interleave_bytes": nbytes})
        for nbytes in (256, 512, 1024, 2048, 4096)
    ]
    assert max(times) <= 1.05 * min(times)


def random_machine(seed):
    """Six fields anywhere between 0.4 times and three times their default."""
    chance = random.Random(seed)
    spec = TopologySpec()
    fields = {}
    for field in chance.sample(FASTER + SHORTER + MORE, 6):
        value = attrgetter(field)(spec)
        if isinstance(value, int):
            fields[field] = max(1, int(value * chance.choice((0.5, 1, 2))))
        else:
            fields[field] = value * chance.uniform(0.4, 3)
    return fields


@pytest.mark.slow
@pytest.mark.parametrize("seed", some_in_ci(range(12), 4))
def test_no_machine_beats_its_roofline(seed):
    fields = random_machine(seed)
    spec = load_spec(None, {**ONE_CUBE, **fields})
    hbm = spec.cube.hbm
    size = 512
    cycles = size**3 / (spec.pe.gemm.rows * spec.pe.gemm.cols)
    tiles = size // 64
    block = 2 * size * size
    read = block * 2 * tiles  # A and B once a block of C
    written = block
    # Channels have the bytes of both directions, a link those of one.
    channels_ns = (read + written) / (hbm.channels * hbm.channel_bw_gbs)
    links_ns = read / min(hbm.to_router_bw_gbs, spec.cube.router.link_bw_gbs * 2)
    roofline_ns = max(cycles / spec.pe.clock_ghz, channels_ns, links_ns)
    assert matmul_ns(fields) >= roofline_ns * 0.999
