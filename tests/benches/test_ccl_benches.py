"""The benches whose PEs talk to each other, and the faults in how they do."""

import importlib
import inspect
import re

import numpy as np
import pytest
from click.testing import CliRunner
from pace import first_fast

from kernbench.ccl.config import load_ccl
from kernbench.cli import main
from kernbench.errors import DeadlockError, UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.data import hazards as kinds
from kernbench.replay.races.findings import TOGETHER
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

SMALL = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}
CHUNKED = {"algorithm": "ring_chunked_allreduce"}
ALGORITHMS = ["default", *(set(load_ccl().algorithms) - {load_ccl().default})]
TO = "sip0.cube1.pe0."
FROM = "sip0.cube0.pe0."


def line(fault, marker):
    """The site of the line of a fault's file that ends in a comment which begins so."""
    source = inspect.getsource(
        importlib.import_module(f"kernbench.benches.faults.{fault}")
    )
    (number,) = (
        i for i, text in enumerate(source.splitlines(), 1) if f"  # {marker}" in text
    )
    return f"kernbench/benches/faults/{fault}.py:{number}"


@pytest.mark.parametrize("algorithm", first_fast(ALGORITHMS))
def test_all_reduce_is_right_on_the_shipped_machine(algorithm):
    result = run_bench("ccl_allreduce", params={"algorithm": algorithm, "n_elem": 100})
    assert [row.tensor for row in result.report.by_tensor()] == ["rank0.x", "rank1.x"]
    assert result.ok


@pytest.mark.parametrize("topology", ["ring_1d", "torus_2d", "mesh_2d_no_wrap"])
@pytest.mark.parametrize(
    ("dtype", "op"), [("f16", "sum"), ("bf16", "max"), ("f32", "min")]
)
@pytest.mark.slow
def test_sips_and_topology_are_parameters(topology, dtype, op):
    params = {"sips": 4, "topology": topology, "dtype": dtype, "op": op, "n_elem": 33}
    result = run_bench("ccl_allreduce", params=params | CHUNKED, spec=SMALL)
    assert len(result.report.by_tensor()) == 4
    assert result.ok, result.as_text()


def test_without_a_size_it_is_that_of_the_ccl_file(tmp_path):
    path = tmp_path / "ccl.yaml"
    path.write_text(
        "defaults: {algorithm: mine}\nalgorithms: {mine: {n_elem: 21, "
        "module: kernbench.ccl.algorithms.ring_chunked_allreduce}}"
    )
    result = run_bench("ccl_allreduce", ccl=path, spec=SMALL)
    assert {row.elements for row in result.report.by_tensor()} == {2 * 21}


def test_bandwidth_is_that_of_nccl_tests():
    result = run_bench("ccl_allreduce", params=CHUNKED | {"n_elem": 1000}, spec=SMALL)
    (note,) = result.notes
    found = re.fullmatch(
        r"all_reduce of 2,000 bytes in each of 4 cubes: ([\d,.]+) ns, algbw (.*) GB/s, "
        r"busbw (.*) GB/s",
        note,
    )
    ns, algbw, busbw = (float(text.replace(",", "")) for text in found.groups())
    assert algbw == pytest.approx(2000 / ns, abs=1e-3)
    assert busbw == pytest.approx(2000 / ns * 2 * 3 / 4, abs=1e-3)
    assert 0 < ns < result.end_ns
    assert note in result.as_text()
    assert result.summary()["notes"] == (note,)


def test_all_reduce_from_the_command_line():
    line = "run ccl_allreduce --set sips=1 n_elem=5 algorithm=ring_chunked_allreduce"
    mesh = ["--spec", "cube_mesh.w=1", "cube_mesh.h=2"]
    done = CliRunner().invoke(main, [*line.split(), *mesh])
    assert done.exit_code == 0, done.output
    assert "all_reduce of 10 bytes in each of 2 cubes" in done.output


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize(
    ("tokens", "d", "hidden"), [(64, 64, 256), (5, 7, 19), (1, 1, 1)]
)
def test_a_tensor_parallel_mlp_is_that_of_numpy(dtype, tokens, d, hidden):
    params = {"tokens": tokens, "d": d, "hidden": hidden, "dtype": dtype}
    result = run_bench("mlp_tp", params=params | CHUNKED, spec=SMALL)
    assert len(result.report.by_tensor()) == 2
    assert result.ok, result.as_text()


def test_the_hidden_columns_are_shared_out_over_all_cubes():
    result = run_bench("mlp_tp", params=CHUNKED | {"hidden": 40}, spec=SMALL)
    gemms = [r.params for r in result.op_log if r.op_name == "composite_gemm"]
    assert len(gemms) == 2 * 4
    assert {(p["m"], p["k"], p["n"]) for p in gemms} == {(64, 64, 10), (64, 10, 64)}


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("ccl_allreduce", {"n_elem": -1}, "n_elem=-1: must be at least 1, or 0"),
        ("ccl_allreduce", {"dtype": "i32"}, "dtype=i32: valid: f16, bf16, f32"),
        ("ccl_allreduce", {"op": "prod"}, "op=prod: valid: sum, max, min"),
        ("mlp_tp", {"hidden": 0}, "hidden=0: must be at least 1"),
        ("mlp_tp", {"dtype": "f8"}, "dtype=f8: valid: f16, bf16, f32"),
    ],
)
def test_what_is_impossible_is_refused(name, params, message):
    with pytest.raises(UsageError, match=message):
        run_bench(name, params=params, spec=SMALL)


@pytest.mark.parametrize("name", ["ccl_allreduce", "mlp_tp"])
def test_two_runs_give_the_same_bytes_and_a_trace_without_findings(tmp_path, name):
    for path in (tmp_path / "1", tmp_path / "2"):
        run_bench(name, params=CHUNKED, spec=SMALL, trace=path)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    session = ReplaySession(Trace.open(tmp_path / "1"))
    assert (session.hazards().rows, session.hazards().note) == ((), "")


def test_the_routes_of_copies_between_sips_cross_the_switch(tmp_path):
    path = tmp_path / "t.msgpack"
    run_bench("ccl_allreduce", params={"n_elem": 33, **CHUNKED}, spec=SMALL, trace=path)
    session = ReplaySession(Trace.open(path))
    copies = [i for i, op in enumerate(session.trace.ops) if op.op_name == "ipcq_copy"]
    paths = [[hop.node for hop in session.route(i).legs[0].hops] for i in copies]
    between = [p for p in paths if p[0].split(".")[0] != p[-1].split(".")[0]]
    assert 0 < len(between) < len(paths)
    assert all("fabric.switch0" in p for p in between)
    assert not any("fabric.switch0" in p for p in paths if p not in between)


@pytest.mark.parametrize("name", ["ccl_allreduce", "mlp_tp"])
def test_a_bench_says_what_it_exercises_and_what_to_look_for(name):
    text = " ".join(
        importlib.import_module(f"kernbench.benches.{name}").__doc__.split()
    )
    assert "Exercises " in text
    assert " trace " in text.partition("Exercises ")[2]


@pytest.fixture
def record(tmp_path):
    """record(bench, **options) -> the run, and the session of its trace."""

    def record(name, **options):
        run = run_bench(name, trace=tmp_path / "trace", **options)
        return run, ReplaySession(Trace.open(tmp_path / "trace"))

    return record


def test_a_credit_before_its_slot_was_read_is_a_read_of_what_is_being_written(record):
    run, session = record("fault_early_credit")
    found = session.hazards().rows
    assert {row.what or row.kind for row in found} == {
        kinds.LATE_WRITER,
        kinds.SNAPSHOT,
    }
    for row in found:
        assert (row.op.name, row.op.component) == ("ipcq_recv", f"{TO}pe_ipcq")
        assert row.op.site == line("early_credit", "reads")
        assert (row.space, row.nbytes) == ("tcm", 4096)
    for row in (row for row in found if row.kind == TOGETHER):
        assert (row.other.name, row.other.site) == (
            "ipcq_copy",
            line("early_credit", "writes"),
        )
        assert row.other.t_start < row.op.t_start < row.other.t_end
    (ring,) = (s for s in session.trace.allocs if s.tensor == "ipcq.1.W")
    assert all(ring.addr <= row.addr < ring.addr + ring.nbytes for row in found)
    (row,) = run.report.by_tensor()
    assert (row.tensor, row.ok) == ("y", False)
    assert row.first_bad[0] > 16  # the first payload is read before the ring is full


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_the_same_kernel_is_right_where_credits_come_in_time(record, slots):
    impl = {"components.pe_ipcq.impl": "pe_ipcq"}
    run, session = record("fault_early_credit", spec=impl, params={"slots": slots})
    assert run.ok
    assert session.hazards().rows == ()


def test_a_ring_of_two_that_is_joined_by_name_is_a_deadlock_of_both_ranks(tmp_path):
    with pytest.raises(DeadlockError) as caught:
        run_bench("fault_ring_by_name", trace=tmp_path / "trace")
    text = str(caught.value)
    site = re.escape(line("ring_by_name", "waits"))
    for pe in (FROM, TO):
        assert re.search(
            rf"{re.escape(pe)}pe_cpu: recv W at {site} since [\d.]+ ns", text
        )
    assert f"cycle: {FROM}pe_cpu -> {TO}pe_cpu -> {FROM}pe_cpu" in text
    trace = Trace.open(tmp_path / "trace")
    assert [op.op_name for op in trace.ops].count("ipcq_copy") == 2
    assert "ipcq_recv" not in [op.op_name for op in trace.ops]


def test_the_same_ring_works_both_ways_where_it_is_joined_by_address(record):
    run, _ = record("fault_ring_by_name", spec={"components.pe_ipcq.impl": "pe_ipcq"})
    assert run.ok


def test_a_broadcast_from_the_wrong_root_is_found_by_verification_alone(record):
    run, session = record("fault_wrong_root", debug=True)
    (row,) = run.report.by_tensor()
    assert (row.tensor, row.ok) == ("x", False)
    assert session.hazards().rows == ()
    assert run.first_over is None  # no op is wrong
    writes = [r.params for r in run.op_log if r.op_name == "host_write"]
    of_cube_0 = writes[0]["snapshot"].ravel()
    for write in writes:  # one a cube
        assert np.array_equal(
            run.store.view("hbm", write["dst_addr"], (64,), "f32"), of_cube_0
        )
