"""Both all-reduces on the simulated machine: right in every topology, dtype, size."""

import ml_dtypes
import numpy as np
import pytest
from ccl_machines import all_reduce, config
from pace import some_in_ci

from kernbench.common.dtypes import itemsize
from kernbench.errors import KernelError

BOTH = pytest.mark.parametrize(
    "algorithm", ["intercube_allreduce", "ring_chunked_allreduce"]
)
RINGS = [("ring_1d", n) for n in (1, 2, 3, 4, 8)]
SQUARES = [(name, n) for name in ("torus_2d", "mesh_2d_no_wrap") for n in (1, 4, 9)]
TOPOLOGIES = [
    pytest.param(name, n, marks=[pytest.mark.slow] if n > 3 else [])
    for name, n in RINGS + SQUARES
]
FEW_TOPOLOGIES = [("ring_1d", 3), ("torus_2d", 4), ("mesh_2d_no_wrap", 4)]
MORE_TOPOLOGIES = [where for where in RINGS + SQUARES if where not in FEW_TOPOLOGIES]
MESHES = [(w, h) for w in range(1, 5) for h in range(1, 5)]
QUICK_MESHES = [(1, 1), (2, 1), (1, 3), (3, 2)]
LONG_MESHES = [mesh for mesh in MESHES if mesh not in QUICK_MESHES]
DTYPES = ("f16", "bf16", "f32")
NUMPY = {"sum": np.sum, "max": np.max, "min": np.min}


def integers(sips, mesh, n_elem):
    """Sums of these are exact in every order, in every dtype."""
    rng = np.random.default_rng(0)
    return rng.integers(-1, 2, (sips, mesh[0] * mesh[1], n_elem)).astype(np.float64)


@pytest.fixture
def check(layout_cache):
    """check(…): runs an all-reduce and compares all rows of all SIPs; what it ran."""

    def check(algorithm, topology, sips, mesh, n_elem, dtype="f16", op="sum", **fields):
        data = integers(sips, mesh, n_elem)
        done = all_reduce(
            data, dtype, layout_cache, algorithm, topology, mesh, op, **fields
        )
        reference = np.broadcast_to(NUMPY[op](data, axis=(0, 1)), data.shape)
        assert np.array_equal(done.data.astype(np.float64), reference)
        assert done.findings == []
        return done

    return check


@BOTH
@pytest.mark.parametrize(("topology", "sips"), TOPOLOGIES)
@pytest.mark.slow
def test_every_cube_of_every_sip_holds_the_sum(check, algorithm, topology, sips):
    check(algorithm, topology, sips, (3, 2) if sips < 5 else (2, 2), 1000)


@BOTH
@pytest.mark.parametrize("mesh", QUICK_MESHES)
def test_cube_meshes_of_every_sort_reduce(check, algorithm, mesh):
    check(algorithm, "ring_1d", 2, mesh, 100)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("mesh", some_in_ci(LONG_MESHES, 4))
def test_every_other_cube_mesh_reduces(check, algorithm, mesh):
    check(algorithm, "ring_1d", 2, mesh, 100)


@BOTH
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_elem", [1, 7, 2049, 9999])
@pytest.mark.slow
def test_sizes_need_not_divide_slots_or_chunks(check, algorithm, dtype, n_elem):
    check(algorithm, "torus_2d", 4, (2, 2), n_elem, dtype)


@BOTH
@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.slow
def test_max_and_min_reduce_like_sum(check, algorithm, op):
    check(algorithm, "mesh_2d_no_wrap", 4, (2, 2), 500, op=op)


@BOTH
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("topology", "sips"),
    [
        *FEW_TOPOLOGIES,
        *(pytest.param(*where, marks=pytest.mark.soak) for where in MORE_TOPOLOGIES),
    ],
)
@pytest.mark.slow
def test_random_values_are_within_a_rounding_an_addition(
    layout_cache, algorithm, topology, sips, dtype
):
    finfo = ml_dtypes.finfo if dtype == "bf16" else np.finfo
    mesh = (2, 2) if sips < 5 else (2, 1)
    shape = (sips, mesh[0] * mesh[1], 300)
    rows = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    numpy_type = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}[
        dtype
    ]
    rows = rows.astype(numpy_type).astype(np.float64)
    done = all_reduce(rows, dtype, layout_cache, algorithm, topology, mesh)
    rounding = float(finfo(numpy_type).eps) / 2 * np.abs(rows).sum(axis=(0, 1))
    error = np.abs(done.data.astype(np.float64) - rows.sum(axis=(0, 1)))
    assert (error <= (rows.shape[0] * rows.shape[1] - 1) * rounding).all()


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_64_ki_elements_over_8_sips_fit_the_scratch_of_a_pe(check, algorithm, dtype):
    check(algorithm, "ring_1d", 8, (2, 1), 64 * 1024, dtype)


@BOTH
def test_all_ranks_sending_first_twice_what_the_rings_hold_ends(check, algorithm):
    done = check(algorithm, "ring_1d", 2, (1, 1), 16 * 1024)
    cfg = config(algorithm)
    assert 16 * 1024 * itemsize("f16") == 2 * cfg.slots * cfg.slot_bytes
    assert done.ns > 0


@BOTH
@pytest.mark.parametrize("buffer_kind", ["tcm", "sram", "hbm"])
@pytest.mark.parametrize("slots", [1, 64])
@pytest.mark.slow
def test_queues_of_any_kind_and_depth_give_the_same_data(
    check, algorithm, buffer_kind, slots
):
    check(algorithm, "ring_1d", 3, (2, 2), 3000, buffer_kind=buffer_kind, slots=slots)


@BOTH
def test_slots_that_do_not_divide_an_element_give_the_same_data(check, algorithm):
    check(algorithm, "ring_1d", 2, (2, 1), 301, "f32", slot_bytes=77)


@BOTH
def test_equal_runs_take_equal_time(check, algorithm):
    first, second = (check(algorithm, "torus_2d", 4, (2, 1), 700).ns for _ in range(2))
    assert first == second


@BOTH
def test_an_unknown_operator_lists_the_valid_ones(layout_cache, algorithm):
    with pytest.raises(KernelError, match="unknown op 'prod'; valid: sum, max, min"):
        all_reduce(
            np.zeros((1, 1, 4)), "f16", layout_cache, algorithm, mesh=(1, 1), op="prod"
        )


@BOTH
@pytest.mark.parametrize(("kind", "w"), [(3, 2), (0, 3)])
def test_a_topology_that_cannot_be_is_refused_with_the_valid_kinds(algorithm, kind, w):
    kernel = config(algorithm).load().kernel
    with pytest.raises(
        KernelError, match=rf"topology {kind} of {w} x 1 = 2 SIPs .*ring_1d"
    ):
        kernel(0, 8, 1, 1, 2, 0, kind, w, 1, None)


@pytest.mark.soak
@BOTH
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_elem", [1, 100, 2049, 65536])
@pytest.mark.parametrize(("topology", "sips"), RINGS + SQUARES)
def test_every_topology_dtype_and_size_reduces(
    check, algorithm, topology, sips, n_elem, dtype
):
    check(algorithm, topology, sips, (4, 4), n_elem, dtype)
