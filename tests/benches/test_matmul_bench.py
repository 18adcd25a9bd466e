"""The matmul bench: right for odd sizes, dtypes and numbers of PEs, and what its ops
are.
"""

import numpy as np
import pytest
from hypothesis import strategies as st
from pace import for_all

from kernbench.benches.matmul import run as matmul
from kernbench.errors import UsageError
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.engine import GraphEngine

SIZE = st.integers(1, 200)


@for_all(
    m=SIZE,
    k=SIZE,
    n=SIZE,
    dtype=st.sampled_from(["f16", "bf16", "f32"]),
    pes=st.integers(1, 8),
    fast=10,
    whole=64,
)
def test_every_size_dtype_and_number_of_pes_matches_numpy(
    one_cube, verify, m, k, n, dtype, pes
):
    report = verify(
        lambda torch: matmul(torch, m=m, k=k, n=n, dtype=dtype, pes=pes), one_cube
    )
    assert report.ok, report.as_text()
    (row,) = report.by_tensor()
    assert row.elements == m * n


@pytest.mark.parametrize("pes", [8, 16, 32, None])
def test_whole_cubes_of_both_sips_take_part(verify, pes, small):
    report = verify(lambda torch: matmul(torch, m=37, k=20, n=50, pes=pes), small)
    assert report.ok, report.as_text()


@pytest.mark.parametrize("tile", [1, 7, 32, 1000])
def test_any_tile_size_gives_the_same(verify, tile, one_cube):
    report = verify(
        lambda torch: matmul(torch, m=10, k=9, n=8, pes=2, tile=tile), one_cube
    )
    assert report.ok, report.as_text()


def test_a_wrong_result_is_noticed(verify, one_cube):
    def bench(torch):
        matmul(torch, m=8, k=8, n=8, pes=1)
        torch.expectations["c"].array[0, 0] += 1

    (row,) = verify(bench, one_cube).by_tensor()
    assert (row.ok, row.mismatches, row.first_bad) == (False, 1, (0, 0))


def test_one_composite_a_pe_and_its_tiles(simulate, one_cube):
    run = simulate(
        lambda torch: matmul(torch, m=64, k=128, n=128, pes=2, tile=32), graph=one_cube
    )
    composites = [r for r in run.log if r.op_name == "composite_gemm"]
    assert len(composites) == 2
    tiles = (64 // 32) * (128 // 32) * (64 // 32)
    stages = [r.op_name for r in run.log if r.op_name.startswith("TileToken/")]
    assert (
        stages.count("TileToken/GEMM")
        == stages.count("TileToken/DMA_READ")
        == 2 * tiles
    )
    assert (
        stages.count("TileToken/STORE")
        == stages.count("TileToken/DMA_WRITE")
        == 2 * 2 * 2
    )


def test_inputs_depend_on_the_seed_only(small):
    def snapshots(seed):
        engine = GraphEngine(small)
        torch = Torch(engine, seed)
        engine.run(lambda _: matmul(torch, m=4, k=4, n=4, pes=1))
        writes = [r for r in engine.op_log if r.op_name == "host_write"]
        return [r.params["snapshot"] for r in writes]

    assert all(
        np.array_equal(a, b) for a, b in zip(snapshots(1), snapshots(1), strict=True)
    )
    assert not np.array_equal(snapshots(1)[0], snapshots(2)[0])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"m": 0}, "m=0: must be at least 1"),
        ({"k": -3}, "k=-3: must be at least 1"),
        ({"tile": 0}, "tile=0"),
        ({"pes": 0}, "pes=0: must be at least 1"),
        ({"pes": 9}, "pes=9: valid are 1 to 8, or a multiple of 8 up to 32"),
        ({"pes": 40}, "pes=40: valid are"),
        ({"dtype": "i32"}, "dtype=i32: matmul multiplies floats"),
        ({"dtype": "f99"}, "unknown dtype 'f99'; valid: f16"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(simulate, params, message):
    with pytest.raises(UsageError, match=message):
        simulate(lambda torch: matmul(torch, **params))


@pytest.fixture(scope="module")
def verify(simulate, phase2):
    return lambda bench, graph: phase2(simulate(bench, graph=graph))


@pytest.mark.slow
def test_on_the_whole_machine_no_pe_is_late_by_rounding(simulate, shipped, events):
    run = simulate(
        lambda torch: matmul(torch, m=64, k=16, n=64), graph=shipped, recorder=events
    )
    starts = {
        record.t_start for record in run.log if record.op_name == "composite_gemm"
    }
    assert len(starts) == 1
    assert events.of("text") == []
