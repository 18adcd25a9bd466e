"""Cycles of the GEMM array (docs/machine.md, "GEMM"), on the default 64 x 64 array at 1
GHz.
"""

from dataclasses import replace
from itertools import pairwise
from math import ceil

import pytest

from kernbench.common.messages import Region
from kernbench.common.pe_commands import GemmCmd
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologySpec, build_topology
from kernbench.topology.spec import CubeMeshSpec, GemmSpec, PeSpec, SipSpec

PE = (0, 0, 0)


def cold(m, k, n, rows=64, cols=64):
    return ceil(k / rows) * ceil(n / cols) * (2 * rows + cols + m - 2)


def streaming(m, k, n):
    return ceil(k / 64) * ceil(n / 64) * max(m, 64)


def gemm_cmd(m, k, n):
    return GemmCmd(
        a=Region("tcm", 0, (m, k), "f16", m * k * 2),
        b=Region("tcm", 1 << 20, (k, n), "f16", k * n * 2),
        out=Region("tcm", 1 << 21, (m, n), "f16", m * n * 2),
        m=m,
        k=k,
        n=n,
    )


def serve(graph, *messages, gap=0.0):
    """Records of ``messages`` on one array, each given to it ``gap`` ns after the one
    before.
    """
    engine = GraphEngine(graph)
    array = engine.sim.component(engine.graph.at(*PE, "pe_gemm"))

    def feed():
        for message in messages:
            engine.env.process(array._forward_txn(engine.env, message))
            yield engine.env.timeout(gap)

    engine.env.process(feed())
    engine.env.run()
    return engine.op_log


@pytest.mark.parametrize(
    "shape",
    [
        (64, 64, 64),
        (1, 1, 1),
        (17, 64, 64),
        (64, 65, 64),
        (64, 64, 65),
        (200, 130, 257),
    ],
)
def test_a_lone_gemm_pays_all_folds_cold(small, shape):
    (record,) = serve(small, gemm_cmd(*shape))
    assert record.t_end - record.t_start == cold(*shape)


def test_the_array_of_the_spec_is_what_counts(layout_cache):
    pe = replace(PeSpec(), gemm=GemmSpec(rows=16, cols=32), clock_ghz=2.0)
    sip = replace(SipSpec(), cube_mesh=CubeMeshSpec(w=1, h=1))
    graph = build_topology(TopologySpec(sip=sip, pe=pe), layout_cache)
    (record,) = serve(graph, gemm_cmd(20, 40, 70))
    assert record.t_end - record.t_start == cold(20, 40, 70, rows=16, cols=32) / 2


def composite_tiles(simulate, m, k, n, **options):
    """GEMM records of one composite over operands in scratch, in time order."""

    def kernel(a_ptr, b_ptr, c_ptr, tl):
        a = tl.load(a_ptr, (m, k))
        b = tl.load(b_ptr, (k, n))
        tl.wait(tl.composite(a=a, b=b, out_ptr=c_ptr, **options))

    def bench(torch):
        a = torch.zeros((m, k))
        b = torch.zeros((k, n))
        torch.launch("k", kernel, a, b, torch.empty((m, n)))

    return [r for r in simulate(bench).log if r.op_name == "TileToken/GEMM"]


def test_only_the_first_of_tiles_in_a_row_is_cold(simulate):
    # A fetch of 16 KiB at 512 GB/s takes 32 ns, a streaming tile 64: the array never
    # starves.
    tiles = composite_tiles(simulate, 128, 192, 64)
    times = [r.t_end - r.t_start for r in tiles]
    assert times == pytest.approx([cold(64, 64, 64)] + 5 * [streaming(64, 64, 64)])
    assert all(b.t_start == a.t_end for a, b in pairwise(tiles))


def test_partial_tiles_pay_their_own_extent(simulate):
    tiles = composite_tiles(simulate, 70, 64, 64)
    assert [r.params["extent"] for r in tiles] == [(64, 64, 64), (6, 64, 64)]
    times = [r.t_end - r.t_start for r in tiles]
    assert times == pytest.approx([cold(64, 64, 64), streaming(6, 64, 64)])


def test_a_tile_behind_a_gap_is_cold(simulate, layout_cache):
    # Operands in HBM, a window of one tile: each tile's reads come only after the tile
    # before.
    def kernel(a_ptr, b_ptr, c_ptr, tl):
        a = tl.ref(a_ptr, (128, 64))
        b = tl.ref(b_ptr, (64, 64))
        tl.wait(tl.composite(a=a, b=b, out_ptr=c_ptr))

    def bench(torch):
        a = torch.zeros((128, 64))
        b = torch.zeros((64, 64))
        torch.launch("k", kernel, a, b, torch.empty((128, 64)))

    spec = TopologySpec()
    narrow = replace(spec, pe=replace(spec.pe, tile=replace(spec.pe.tile, window=1)))
    run = simulate(bench, graph=build_topology(narrow, layout_cache))
    first, second = (r for r in run.log if r.op_name == "TileToken/GEMM")
    assert second.t_start > first.t_end
    assert second.t_end - second.t_start == pytest.approx(cold(64, 64, 64))
