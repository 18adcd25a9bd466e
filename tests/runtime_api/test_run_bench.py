"""``run_bench``: one bench, verified and recorded; what is left when it fails."""

import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import kernbench
from kernbench.components.builtin.pe_gemm import PeGemm
from kernbench.errors import KernbenchError, KernelError, UsageError
from kernbench.runtime_api import run_bench
from kernbench.sim_engine.op_log import OpLogger
from kernbench.trace import Trace, TraceWriter
from kernbench.trace.stream import claim

SMALL = {"m": 8, "k": 8, "n": 8, "pes": 1}
ONE_CUBE = {"system.sips.count": 1, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}

WRONG = """
import numpy as np
from kernbench.benches import bench

def kernel(x_ptr, tl):
    tl.load(x_ptr, (4,), "f32")
    BODY

@bench(name="wrong", description="")
def run(torch):
    x = torch.zeros((4,), "f32", name="x")
    torch.launch("k", kernel, x)
    torch.expect(x, np.full(4, EXPECTED))
"""


def run(bench, spec=None, **options):
    """``run_bench`` on the shipped machine with one cube of it."""
    return run_bench(bench, spec=ONE_CUBE | (spec or {}), **options)


@pytest.fixture
def wrong(tmp_path):
    def wrong(body="pass", expected="0.0"):
        path = tmp_path / "wrong.py"
        path.write_text(WRONG.replace("BODY", body).replace("EXPECTED", expected))
        return str(path)

    return wrong


def test_a_bench_is_simulated_and_verified():
    result = run_bench("matmul", params=SMALL)
    assert result.ok
    assert result.end_ns == result.timing.end_ns > 0
    assert [row.name for row in result.report.rows] == ["c"]
    assert result.trace_path is None
    assert result.timing.ops_by_kind["gemm"] == 1


def test_the_store_of_a_verified_run_holds_the_results():
    result = run("matmul", params=SMALL)
    (gemm,) = (r for r in result.op_log if r.op_kind == "gemm")
    c = result.store.view("hbm", gemm.params["out_addr"], (8, 8), "f16")
    assert np.count_nonzero(c) > 0


def test_without_verify_there_is_no_verdict():
    result = run("matmul", params=SMALL, verify=False)
    assert result.report is None
    assert result.ok


def test_the_seed_makes_the_inputs():
    def inputs(seed):
        log = run("matmul", params=SMALL, seed=seed, verify=False).op_log
        return [
            r.params["snapshot"].tobytes() for r in log if r.op_name == "host_write"
        ]

    assert inputs(3) == inputs(3) != inputs(4)


def test_a_wrong_result_is_not_ok(wrong):
    result = run(wrong(expected="1.0"))
    assert not result.ok
    assert result.report.rows[0].mismatches == 4


def test_a_run_is_recorded(tmp_path):
    path = tmp_path / "run.msgpack"
    result = run("matmul", params=SMALL, trace=path)
    assert result.trace_path == path
    assert len(Trace.open(path).ops) == len(result.op_log)


def test_a_failing_kernel_leaves_a_trace_up_to_there(tmp_path, wrong):
    path = tmp_path / "run.msgpack"
    with pytest.raises(KernelError, match=r"kernel k at .*wrong\.py:7: .*mine"):
        run(wrong("raise ValueError('mine')"), trace=path)
    names = [op.op_name for op in Trace.open(path).ops]
    assert names == ["host_write", "dma_read"]


def test_a_run_that_never_began_leaves_nothing(tmp_path):
    path = tmp_path / "run.msgpack"
    with pytest.raises(UsageError, match="m=0"):
        run("matmul", params=SMALL | {"m": 0}, trace=path)
    assert list(tmp_path.iterdir()) == []


def test_a_trace_that_cannot_be_written_is_a_clear_error(tmp_path):
    with pytest.raises(KernbenchError, match=r"run\.msgpack"):
        run("matmul", params=SMALL, trace=tmp_path / "none" / "run.msgpack")


def test_an_interrupted_run_leaves_a_trace_up_to_there(tmp_path, monkeypatch):
    def stop(self, *args):
        raise KeyboardInterrupt

    path = tmp_path / "run.msgpack"
    monkeypatch.setattr(PeGemm, "run", stop)
    with pytest.raises(KeyboardInterrupt) as stopped:
        run("matmul", params=SMALL, trace=path)
    trace = Trace.open(path)
    assert trace.end["error"] == "KeyboardInterrupt"
    assert stopped.value.__notes__ == [
        f"trace up to {trace.end_ns:,.0f} ns: kernbench-tui {path}"
    ]
    assert [op.op_name for op in trace.ops][:2] == ["host_write", "host_write"]


def test_an_error_before_anything_ran_names_no_trace(tmp_path):
    with pytest.raises(UsageError) as refused:
        run("matmul", params=SMALL | {"m": 0}, trace=tmp_path / "run.msgpack")
    assert not hasattr(refused.value, "__notes__")


def test_progress_is_called_in_both_phases(monkeypatch):
    reported = []
    monkeypatch.setattr("kernbench.sim_engine.engine.PROGRESS_EVENTS", 10)
    monkeypatch.setattr("kernbench.runtime_api.run.PHASE2_OPS", 4)
    result = run(
        "matmul",
        params=SMALL | {"m": 128},
        progress=lambda *args: reported.append(args),
    )
    events = [count for _, count, unit in reported if unit == "events"]
    assert events == sorted(set(events))
    assert events[:3] == [10, 20, 30]
    assert "ns simulated, " in reported[0][0]
    total = len(result.op_log)
    ops = [(text, count) for text, count, unit in reported if unit == "ops"]
    assert ops == [(f"Phase 2: {i} of {total} ops", i) for i in range(0, total, 4)]


def test_progress_changes_nothing():
    quiet, reported = (
        run("matmul", params=SMALL, progress=p) for p in (None, lambda *_: None)
    )
    assert (quiet.end_ns, quiet.report) == (reported.end_ns, reported.report)


def test_fields_of_the_topology_are_overridden():
    def end_ns(**spec):
        return run("matmul", params=SMALL, spec=spec, verify=False).end_ns

    assert end_ns(**{"pe.clock_ghz": 2}) < end_ns()


def test_verifying_needs_the_data():
    with pytest.raises(UsageError, match="--no-data and --verify"):
        run("matmul", params=SMALL, data=False)


def test_a_bench_that_reads_tensors_needs_the_data_in_its_trace(tmp_path):
    bench = partial(run, "tutorial_add", params={"n": 64}, verify=False, data=False)
    assert bench().ops
    with pytest.raises(UsageError, match=r"^x\.numpy\(\) needs .* --no-data"):
        bench(trace=tmp_path / "run.msgpack")


def test_memory_errors_are_warnings_if_asked(tmp_path):
    path = tmp_path / "run.msgpack"
    with pytest.raises(KernelError, match="never written"):
        run("fault_never_written")
    result = run("fault_never_written", trace=path, warn_memory=True)
    trace = Trace.open(path)
    assert result.report.by_tensor()[0].nans == (
        64,
        0,
    )  # 0xFF in every byte, in Phase 2 too
    assert trace.header["warn_memory"] is True
    assert [text.level for text in trace.texts] == ["warning"]


def test_a_kernel_of_an_installed_package_is_named_with_its_line(monkeypatch):
    package = f"{Path(kernbench.__file__).parent.parent}{os.sep}"
    monkeypatch.setattr("kernbench.triton_emu.sites._LIBRARIES", (package,))
    with pytest.raises(
        KernelError, match=r"at kernbench/benches/faults/never_written\.py:\d+: "
    ):
        run("fault_never_written")


def test_a_ccl_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(KernbenchError, match=r"ccl\.yaml"):
        run("matmul", ccl=tmp_path / "ccl.yaml")


TALKS = """
import numpy as np
from kernbench.benches import bench

def twice(x_ptr, y_ptr, tl):
    tl.store(y_ptr, tl.load(x_ptr, (64,), "f32") * 2)

@bench(name="talks", description="goes on with what it has read back")
def run(torch):
    x = torch.tensor(torch.rng.standard_normal(64), "f32", name="x")
    for i in range(3):
        y = torch.empty((64,), "f32", name=f"y{i}")
        torch.launch("twice", twice, x, y)
        read = y.numpy()
        x = torch.tensor(read + 1, "f32", name=f"x{i}")
    torch.expect(y, read)
"""


@pytest.fixture
def talks(tmp_path):
    path = tmp_path / "talks.py"
    path.write_text(TALKS)
    return str(path)


def state(result):
    memory = [(s, *e) for s in ("hbm", "tcm") for e in result.store.extents(s)]
    return (
        *(result.end_ns, result.ops, result.tile_stages, result.timing.ops_by_kind),
        *(result.report, result.findings, result.checked, result.first_over),
        [(space, addr, array.tobytes()) for space, addr, array in memory],
    )


def test_a_recorded_run_has_the_results_of_one_that_is_not(tmp_path, talks):
    for bench, params in (
        (talks, {}),
        ("matmul", SMALL),
        ("layernorm", {"m": 8, "pes": 2}),
    ):
        plain, recorded = (
            run(bench, params=params, debug=True, trace=path)
            for path in (None, tmp_path / "run.msgpack")
        )
        assert state(recorded) == state(plain)
        assert len(recorded.op_log) == recorded.ops == len(plain.op_log)


def test_a_recorded_run_keeps_no_op_in_memory(tmp_path, monkeypatch):
    loggers = []
    init = OpLogger.__init__
    monkeypatch.setattr(
        OpLogger,
        "__init__",
        lambda self, *args: (init(self, *args), loggers.append(self))[0],
    )
    result = run("matmul", params=SMALL, trace=tmp_path / "run.msgpack")
    assert [(logger.records, logger.rows) for logger in loggers] == [([], result.ops)]


def test_reading_back_does_not_change_what_a_run_records(tmp_path, talks):
    for name in "ab":
        run(talks, trace=tmp_path / name, verify=name == "a", seed=1)
    ours, theirs = (Trace.open(tmp_path / name) for name in "ab")
    assert [repr(op) for op in ours.ops] == [repr(op) for op in theirs.ops]
    with_verdict, without = ((tmp_path / name).stat().st_size for name in "ab")
    assert with_verdict > without


@pytest.fixture
def full_disk(monkeypatch):
    """The disk is full as soon as a trace has begun."""
    begin = TraceWriter.begin
    files = []

    def claimed(path, unfinished):
        files.append(claim(path, unfinished))
        return files[0]

    def begin_and_fill_the_disk(self, *args):
        begin(self, *args)
        with open("/dev/full", "r+b", buffering=0) as full:
            os.dup2(full.fileno(), files[0].fileno())

    writer = partial(TraceWriter, open_file=claimed)
    monkeypatch.setattr("kernbench.runtime_api.run.TraceWriter", writer)
    monkeypatch.setattr(TraceWriter, "begin", begin_and_fill_the_disk)


@pytest.mark.usefixtures("full_disk")
def test_what_a_full_disk_cut_off_is_verified_from_memory(tmp_path, talks):
    result = run(talks, trace=tmp_path / "run.msgpack")
    assert "No space left on device" in result.trace_error
    assert [row.ok for row in result.report.rows] == [True]
    assert len(result.op_log) == result.ops > 12
    assert len(Trace.open(tmp_path / "run.msgpack").ops) == 0


def test_the_energy_of_a_run_that_a_full_disk_cut_off_is_that_of_all_of_it(
    tmp_path, request
):
    unrecorded = run("matmul", params=SMALL).energy()
    request.getfixturevalue("full_disk")
    result = run("matmul", params=SMALL, trace=tmp_path / "run.msgpack")
    assert "No space left on device" in result.trace_error
    found = result.energy()
    assert found.joules == pytest.approx(unrecorded.joules)
    assert found.static_joules == unrecorded.static_joules
    # a, b and c of f16: the host writes a and b, the kernel reads both and writes c
    assert found.hbm_bytes >= 5 * 8 * 8 * 2
    assert found.hbm_bytes == unrecorded.hbm_bytes
