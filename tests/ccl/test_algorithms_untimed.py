"""Both algorithms on queues and numpy: the right data on every topology, mesh, dtype
and size.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from untimed import run

from kernbench.ccl.algorithms import intercube_allreduce, ring_chunked_allreduce

BOTH = pytest.mark.parametrize(
    "algorithm",
    [intercube_allreduce, ring_chunked_allreduce],
    ids=["intercube", "ring_chunked"],
)
TOPOLOGIES = [("ring_1d", n) for n in (1, 2, 3, 4, 5, 8)]
TOPOLOGIES += [(name, n) for name in ("torus_2d", "mesh_2d_no_wrap") for n in (1, 4, 9)]
NUMPY = {"sum": np.sum, "max": np.max, "min": np.min}


def integers(sips, mesh, n_elem, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(-1, 2, (sips, mesh[0] * mesh[1], n_elem)).astype(np.float64)


def check(algorithm, topology, sips, mesh, n_elem, dtype="f16", op="sum", seed=0):
    data = integers(sips, mesh, n_elem, seed)
    got = run(algorithm, data, dtype, topology, mesh, op).data.astype(np.float64)
    assert np.array_equal(
        got, np.broadcast_to(NUMPY[op](data, axis=(0, 1)), data.shape)
    )


@BOTH
@pytest.mark.parametrize(("topology", "sips"), TOPOLOGIES)
def test_every_cube_holds_the_sum_of_all(algorithm, topology, sips):
    check(algorithm, topology, sips, (4, 4), 100)


@BOTH
@pytest.mark.parametrize("mesh", [(w, h) for w in range(1, 5) for h in range(1, 5)])
def test_every_cube_mesh_reduces(algorithm, mesh):
    check(algorithm, "ring_1d", 2, mesh, 37)


@BOTH
@pytest.mark.parametrize("op", NUMPY)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "i32"])
def test_every_operator_and_dtype_reduces(algorithm, op, dtype):
    check(algorithm, "torus_2d", 4, (2, 2), 33, dtype, op)


@pytest.mark.slow
@BOTH
@given(
    where=st.sampled_from(TOPOLOGIES),
    mesh=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    n_elem=st.integers(1, 20_000),
    seed=st.integers(0, 9),
)
@settings(max_examples=25, deadline=None)
def test_sizes_need_divide_nothing(algorithm, where, mesh, n_elem, seed):
    if where[1] * mesh[0] * mesh[1] * n_elem > 500_000:
        n_elem = 1 + n_elem % 1_000
    check(algorithm, *where, mesh, n_elem, seed=seed)


@BOTH
def test_inside_a_sip_a_link_carries_the_tensor_once_each_way(algorithm):
    data = integers(1, (4, 4), 1600)
    sent = run(algorithm, data, "f16", "ring_1d", (4, 4)).sent
    assert {nbytes for ways in sent for nbytes in ways.values()} == {1600 * 2}


def test_in_chunks_a_cube_sends_2_n_minus_1_nths_of_its_chunk_between_n_sips():
    data = integers(8, (4, 4), 12800)
    sent = run(ring_chunked_allreduce, data, "f16", "ring_1d", (4, 4)).sent
    assert {ways["global_E"] for ways in sent} == {2 * 7 * 12800 * 2 // 16 // 8}


@pytest.mark.parametrize(
    ("topology", "sips", "tensors"),
    [("ring_1d", 8, 7), ("torus_2d", 9, 4), ("mesh_2d_no_wrap", 9, 4)],
)
def test_only_root_cubes_send_whole_tensors_between_sips(topology, sips, tensors):
    data = integers(sips, (2, 2), 10)
    sent = run(intercube_allreduce, data, "f16", topology, (2, 2)).sent
    across = [
        sum(n for way, n in ways.items() if way.startswith("global_")) for ways in sent
    ]
    assert not any(n for cube, n in enumerate(across) if cube % 4 != 3)
    assert max(across) == tensors * 10 * 2
