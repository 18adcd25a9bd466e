"""Every shipped bench: right on three machines and 1 to 256 PEs, for uneven sizes.

It is the same each time, and its trace is what its docstring promises.
"""

import importlib
from dataclasses import replace

import numpy as np
import pytest
from bench_sizes import UNEVEN, WIDE
from pace import first_fast, some_in_ci

from kernbench.benches import SHIPPED
from kernbench.errors import KernbenchError, UsageError
from kernbench.runtime_api import run_bench
from kernbench.runtime_api.registry import BENCHES
from kernbench.topology import TopologySpec, build_topology
from kernbench.topology.spec import CubeMeshSpec

# The others run on SIPs.
ON_PES = [name for name in SHIPPED if "pes" in BENCHES[name].params]
FLOATS = [name for name in ON_PES if "dtype" in BENCHES[name].params]


def machine(layout_cache, w, h, pes):
    spec = TopologySpec()
    memory = replace(spec.cube.memory_map, slices_per_cube=pes)
    spec = replace(
        spec,
        sip=replace(spec.sip, cube_mesh=CubeMeshSpec(w=w, h=h)),
        system=replace(spec.system, sips=replace(spec.system.sips, count=1)),
        cube=replace(spec.cube, pes=pes, memory_map=memory),
    )
    return build_topology(spec, layout_cache)


@pytest.fixture(scope="module")
def machines(layout_cache):
    """By their PEs: 1 cube of 1 PE, and 4 cubes of 2 PEs."""
    one = machine(layout_cache, 1, 1, 1)
    four = machine(layout_cache, 2, 2, 2)
    return {1: one, 8: four}


@pytest.fixture(scope="module")
def report(simulate, phase2):
    """The verdict on a bench."""
    return lambda name, graph, **params: phase2(ran(simulate, name, graph, **params))


def in_soak(*values):
    """Cases for ``parametrize`` that run with the soak."""
    return [pytest.param(value, marks=pytest.mark.soak) for value in values]


def ran(simulate, name, graph, **params):
    return simulate(lambda torch: BENCHES[name].run(torch, **params), graph=graph)


@pytest.mark.slow
def test_every_bench_is_tested_here():
    assert sorted(UNEVEN) == sorted(WIDE) == sorted(ON_PES)


@pytest.mark.parametrize("pes", [1, 8])
@pytest.mark.parametrize("name", ON_PES)
@pytest.mark.slow
def test_the_data_are_right_on_small_machines(report, machines, name, pes):
    found = report(name, machines[pes], **UNEVEN[name])
    assert found.ok, found.as_text()
    assert found.rows


@pytest.mark.parametrize("name", some_in_ci(ON_PES, 4))
@pytest.mark.slow
def test_the_data_are_right_on_all_pes_of_the_shipped_machine(report, shipped, name):
    found = report(name, shipped, **WIDE[name])
    assert found.ok, found.as_text()
    assert found.rows


@pytest.mark.slow
@pytest.mark.parametrize("name", some_in_ci(ON_PES, 2))
def test_the_data_are_right_on_the_shipped_machine_by_default(report, shipped, name):
    found = report(name, shipped)
    assert found.ok, found.as_text()
    assert found.rows


@pytest.mark.parametrize("pes", [3, 136, *in_soak(1, 8, 16)])
@pytest.mark.parametrize("name", ON_PES)
@pytest.mark.slow
def test_the_data_are_right_on_any_number_of_pes(report, shipped, name, pes):
    found = report(name, shipped, pes=pes, **UNEVEN[name])
    assert found.ok, found.as_text()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.slow
def test_the_data_are_right_in_every_dtype(report, one_cube, name, dtype):
    found = report(name, one_cube, **UNEVEN[name] | {"dtype": dtype})
    assert found.ok, found.as_text()


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("matmul_ref", {"variant": "load"}),
        ("matmul_ref", {"variant": "dot"}),
        ("matmul_ref", {"variant": "slices"}),
        ("matmul_ref", {"variant": "slices", "m": 300, "k": 130, "n": 140}),
        ("softmax", {"fused": True}),
        ("softmax", {"block": 100, "n": 1}),
        ("layernorm", {"m": 1, "n": 1}),
        ("flash_attention", {"block": 1}),
        ("flash_attention", {"seq": 1, "d": 1}),
        ("moe_route", {"experts": 1, "top": 1}),
        ("moe_route", {"experts": 3, "top": 3}),
        ("moe_route", {"tokens": 1}),
        ("pointer_chase", {"entries": 1}),
        ("pointer_chase", {"hops": 1}),
    ],
)
@pytest.mark.slow
def test_other_ways_and_extremes_are_right(report, one_cube, name, params):
    found = report(name, one_cube, **UNEVEN[name] | params)
    assert found.ok, found.as_text()


@pytest.mark.parametrize("name", first_fast(ON_PES))
def test_two_runs_give_the_same_bytes(tmp_path, name):
    for path in (tmp_path / "1", tmp_path / "2"):
        run_bench(name, params=UNEVEN[name] | {"pes": 2}, trace=path)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


@pytest.mark.parametrize("name", ON_PES)
def test_a_bench_says_what_it_exercises_and_what_to_look_for(name):
    text = " ".join(
        importlib.import_module(f"kernbench.benches.{name}").__doc__.split()
    )
    assert "Exercises " in text
    assert " trace " in text.partition("Exercises ")[2]


SIZES = [
    "m",
    "n",
    "k",
    "seq",
    "d",
    "tokens",
    "top",
    "experts",
    "entries",
    "hops",
    "block",
    "tile",
    "pes",
]


@pytest.mark.parametrize("key", SIZES)
def test_a_size_below_one_is_refused(simulate, one_cube, key):
    for name in (name for name in ON_PES if key in BENCHES[name].params):
        with pytest.raises(UsageError, match=f"{key}=0: must be at least 1"):
            ran(simulate, name, one_cube, **{key: 0})


@pytest.mark.parametrize(
    "name", [name for name in FLOATS if name not in ("matmul", "matmul_ref")]
)
def test_another_dtype_is_refused(simulate, one_cube, name):
    with pytest.raises(UsageError, match="dtype=i32: valid: f16, bf16, f32"):
        ran(simulate, name, one_cube, dtype="i32")


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        (
            "matmul_ref",
            {"variant": "refs"},
            "variant=refs: valid: ref, load, dot, slices",
        ),
        ("moe_route", {"top": 9}, "top=9: must be at most experts=8"),
        ("softmax", {"pes": 9}, "pes=9: valid are 1 to 8, or a multiple of 8 up to 8"),
        ("softmax", {"m": 16, "n": 50_000, "pes": 1}, "bytes of scratch"),
    ],
)
def test_what_is_impossible_is_refused(simulate, one_cube, name, params, message):
    with pytest.raises(KernbenchError, match=message):
        ran(simulate, name, one_cube, **params)


def test_slices_are_read_and_written_in_rows(simulate, one_cube):
    params = {"m": 64, "k": 128, "n": 96, "pes": 1, "variant": "slices"}
    run = ran(simulate, "matmul_ref", one_cube, **params)
    reads = [r.params for r in run.log if r.op_name == "dma_read"]
    # 64 x 64 of A, 64 x 64 of B, twice along k; then the last 32 columns of B and C
    forms = [(p["rows"], p["row_bytes"], p["pitch"]) for p in reads]
    a = (64, 128, 256)
    assert forms == [a, (64, 128, 192)] * 2 + [a, (64, 64, 192)] * 2
    writes = [r.params for r in run.log if r.op_name == "dma_write"]
    forms = [(p["rows"], p["row_bytes"], p["pitch"]) for p in writes]
    assert forms == [(64, 128, 192), (64, 64, 192)]


@pytest.mark.parametrize("variant", ["ref", "load", "dot"])
def test_only_operands_by_ref_are_read_tile_by_tile(simulate, one_cube, variant):
    run = ran(
        simulate, "matmul_ref", one_cube, m=64, k=128, n=64, pes=1, variant=variant
    )
    names = [record.op_name for record in run.log]
    assert names.count("TileToken/DMA_READ") == (2 if variant == "ref" else 0)
    assert names.count("dma_read") == (0 if variant == "ref" else 2)
    assert names.count("gemm_f16") == (variant == "dot")


def test_softmax_fused_is_fewer_ops(simulate, one_cube):
    def math(fused):
        run = ran(simulate, "softmax", one_cube, m=8, n=64, pes=1, fused=fused)
        return [record.op_name for record in run.log if record.op_kind == "math"]

    assert math(True) == ["cast", "softmax", "cast"]
    assert math(False) == ["cast", "max", "sub", "exp", "sum", "div", "cast"]


def test_attention_needs_scratch_for_one_block_at_a_time(simulate, one_cube):
    def scratch(block):
        run = ran(
            simulate, "flash_attention", one_cube, seq=64, d=16, block=block, pes=1
        )
        writes = [
            r.params["dst_addr"] for r in run.log if r.params.get("dst_space") == "tcm"
        ]
        return max(writes) - min(writes)

    assert scratch(4) < scratch(64) / 2


def test_a_pe_loads_the_experts_of_its_own_tokens_only(simulate, one_cube):
    run = ran(simulate, "moe_route", one_cube, tokens=16, d=8, experts=8, top=2, pes=4)
    writes = [r.params for r in run.log if r.op_name == "host_write"]
    (first,) = {p["dst_addr"] for p in writes if p["shape"] == (8, 8, 8)}
    gates = [p["snapshot"] for p in writes if p["dtype"] == "f32"]
    assert [np.count_nonzero(of_token) for part in gates for of_token in part] == [
        2
    ] * 16
    for pe, of_pe in enumerate(gates):
        own = [r for r in run.log if r.component_id == f"sip0.cube0.pe{pe}.pe_dma"]
        loads = [r.params for r in own if r.op_name == "dma_read"]
        reads = [p for p in loads if p["shape"] == (8, 8)]
        loaded = [(p["src_addr"] - first) // (8 * 8 * 2) for p in reads]
        assert loaded == np.flatnonzero(of_pe.any(axis=0)).tolist()


def test_each_load_of_a_chase_waits_for_the_one_before(simulate, small):
    run = ran(simulate, "pointer_chase", small, entries=512, hops=12, pes=32)
    for pe in range(8):
        node = f"sip1.cube1.pe{pe}.pe_dma"
        loads = [
            r for r in run.log if r.component_id == node and r.op_name == "dma_read"
        ]
        ends = [load.t_end for load in loads[:-1]]
        assert len(loads) == 12
        assert all(
            end < later.t_start for end, later in zip(ends, loads[1:], strict=True)
        )


@pytest.mark.slow
def test_a_chase_is_shortest_in_the_slice_of_the_pe(simulate, small):
    def hops(pes):
        run = ran(simulate, "pointer_chase", small, entries=512, hops=12, pes=pes)
        node = "sip0.cube0.pe0.pe_dma"
        loads = [
            r for r in run.log if r.component_id == node and r.op_name == "dma_read"
        ]
        return [load.t_end - load.t_start for load in loads]

    near = hops(1)
    far = hops(32)
    assert max(near) - min(near) < 1e-6
    assert min(far) >= min(near) - 1e-6
    assert max(far) > 5 * min(near)
