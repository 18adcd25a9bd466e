"""Simulated time of both algorithms against their formulas (alpha_beta.py)."""

from functools import cache

import numpy as np
import pytest
from alpha_beta import Model
from ccl_machines import timed
from pace import some_in_ci

from kernbench.ccl.topologies import sip_shape

SMALL = [
    ("ring_1d", 1),
    ("ring_1d", 2),
    ("ring_1d", 3),
    ("torus_2d", 4),
    ("mesh_2d_no_wrap", 4),
]
CASES = [
    (mesh, *where, n)
    for mesh in ((2, 2), (4, 4))
    for where in SMALL
    for n in (512, 8192)
]
CASES += [((4, 4), *where, 65536) for where in (("ring_1d", 2), ("mesh_2d_no_wrap", 4))]
CASES += [
    ((2, 2), name, 9, n)
    for name in ("torus_2d", "mesh_2d_no_wrap")
    for n in (512, 8192)
]


@pytest.fixture(scope="module")
def model(layout_cache):
    """model(mesh): the hops of machines with that cube mesh, measured once."""
    return cache(lambda mesh: Model(layout_cache, mesh))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["intercube_allreduce", "ring_chunked_allreduce"])
@pytest.mark.parametrize("case", some_in_ci(CASES, 4))
def test_simulated_time_is_within_a_tenth_of_the_formula(
    model, layout_cache, algorithm, case
):
    mesh, topology, sips, n_elem = case
    data = np.zeros((sips, mesh[0] * mesh[1], n_elem))
    simulated = timed(data, "f16", layout_cache, algorithm, topology, mesh).ns
    formula = getattr(model(mesh), algorithm)(
        topology, sip_shape(topology, sips), n_elem
    )
    assert simulated == pytest.approx(formula, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_elem", "faster"),
    [
        (512, "intercube_allreduce"),
        (16384, "ring_chunked_allreduce"),
        (65536, "ring_chunked_allreduce"),
    ],
)
def test_the_five_phases_win_for_small_tensors_and_chunks_for_large_ones(
    layout_cache, n_elem, faster
):
    ns = {
        name: timed(np.zeros((2, 16, n_elem)), "f16", layout_cache, name).ns
        for name in ("intercube_allreduce", "ring_chunked_allreduce")
    }
    assert min(ns, key=ns.get) == faster


@pytest.mark.slow
def test_chunks_come_near_the_bandwidth_of_a_link_where_whole_tensors_do_not(
    layout_cache,
):
    nbytes = 2 * 65536
    cubes = 16
    ideal = (
        2 * (cubes - 1) / cubes * nbytes / 128
    )  # ns at the rate of a UCIe connection
    whole, chunked = (
        timed(np.zeros((1, cubes, 65536)), "f16", layout_cache, name).ns
        for name in ("intercube_allreduce", "ring_chunked_allreduce")
    )
    assert whole > 6 * ideal
    assert chunked < 3 * ideal
