"""FLOPs and bytes against the machine's peaks, and the ideal time of ops."""

import numpy as np
import pytest
from bench_sizes import UNEVEN
from pace import some_in_ci
from replay_logs import Log, double, load

from kernbench.common.messages import Region
from kernbench.common.pe_commands import GemmCmd
from kernbench.common.peaks import peaks
from kernbench.errors import KernelError, TraceFormatError
from kernbench.probes.probe import describe
from kernbench.replay import ReplaySession
from kernbench.replay.plain import as_data
from kernbench.replay.text import as_text
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace, TraceWriter
from kernbench.trace.cut import cut

BENCHES = [*UNEVEN, "mlp_tp"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """run(bench, **params) -> its session."""

    def run(name, **params):
        path = tmp_path_factory.mktemp("trace") / "trace"
        run_bench(name, params=params, trace=path, verify=False)
        return ReplaySession(Trace.open(path))

    return run


@pytest.fixture(scope="module")
def matmul(run):
    return run("matmul", m=64, k=128, n=32, tile=32, pes=1)


def test_a_matmul_has_2mnk_flops_and_the_bytes_that_its_tiles_move(matmul):
    total = matmul.roofline().total
    assert total.flops == 2 * 64 * 128 * 32
    tiles = 2 * 4 * 1  # along m, k, n
    block = 32 * 32 * 2  # of f16
    assert total.nbytes == 2 * tiles * block + 2 * block


def test_its_intensity_rate_and_share_of_the_roof_follow(matmul):
    answer = matmul.roofline()
    total = answer.total
    ns = np.ptp(matmul.launch_window())
    assert total.intensity == pytest.approx(total.flops / total.nbytes)
    assert total.gflops == pytest.approx(total.flops / ns)
    assert total.bound == "memory"  # below 8192 / 256 FLOPs a byte
    assert total.share == pytest.approx(total.gflops / (256 * total.intensity))


@pytest.mark.slow
def test_a_gemm_of_operands_that_are_used_often_is_bound_by_compute(run):
    session = run("matmul_ref", m=256, k=256, n=256, variant="dot", pes=1)
    total = session.roofline().total
    assert total.nbytes == 3 * 256 * 256 * 2
    assert total.flops == 2 * 256**3
    assert total.bound == "compute"
    assert total.share == pytest.approx(total.gflops / 8192)


def test_peaks_are_those_that_info_shows(matmul, one_cube):
    answer = matmul.roofline()
    machine = describe(one_cube)
    assert f"({answer.peak_gflops / 1e3:g} a PE)" in machine["GEMM"]
    assert f"({answer.peak_gbs:g} a PE)" in machine["HBM"]


@pytest.mark.slow
def test_peaks_follow_the_spec(tmp_path):
    path = tmp_path / "trace"
    params = {"m": 32, "k": 32, "n": 32, "pes": 1}
    spec = {"pe.clock_ghz": 2.0, "cube.hbm.channels": 4}
    run_bench("matmul", params=params, spec=spec, trace=path)
    answer = ReplaySession(Trace.open(path)).roofline()
    assert (answer.peak_gflops, answer.peak_gbs) == (2 * 64 * 64 * 2.0, 4 * 32)


def test_math_counts_an_element_once(tmp_path, one_cube):
    log = Log(tmp_path / "trace", one_cube)
    log.op(load(0, 0, 16), 0.0, 10.0)
    log.op(double(0, 64, 16), 10.0, 20.0, engine="pe_math")
    total = log.session().roofline().total
    assert (total.flops, total.nbytes) == (16, 64)


def test_the_pes_add_up_and_the_furthest_from_its_roof_is_first(benches):
    answer = benches("flash_attention").roofline()
    assert sum(pe.flops for pe in answer.pes) == answer.total.flops
    assert sum(pe.nbytes for pe in answer.pes) == answer.total.nbytes
    shares = [pe.share for pe in answer.pes]
    assert shares == sorted(shares)


@pytest.mark.slow
@pytest.mark.parametrize("name", some_in_ci(BENCHES, 3))
@pytest.mark.parametrize("ops", [5, pytest.param(200, marks=pytest.mark.soak)])
def test_no_op_is_quicker_than_its_ideal_time(benches, name, ops):
    session = benches(name)
    for op in range(0, len(session), max(len(session) // ops, 1)):
        bound = session.bound(op)
        assert 0 < bound.ideal <= bound.real + 1e-6


@pytest.mark.slow
def test_the_ideal_time_of_a_gemm_and_of_a_load(run):
    session = run("matmul_ref", m=64, k=64, n=64, variant="dot", pes=1)
    ideal = {}
    for op in range(len(session)):
        ideal[session.row(op).name] = session.bound(op).ideal
    assert ideal["gemm_f16"] == 2 * 64**3 / 8192
    assert ideal["dma_read"] == 64 * 64 * 2 / 256
    assert ideal["host_write"] == pytest.approx(64 * 64 * 2 / 63)


def ideals(session, kind):
    """The ideal times of the ops of a kind."""
    return {
        session.bound(op).ideal
        for op in range(len(session))
        if session.row(op).name == kind
    }


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "rate"), [("f32", 0.5), ("f64", 0.25)])
def test_the_peak_is_that_of_the_dtype(run, dtype, rate):
    session = run("matmul_ref", m=64, k=64, n=64, variant="dot", pes=1, dtype=dtype)
    answer = session.roofline()
    assert answer.peak_gflops == 8192 * rate
    assert ideals(session, f"gemm_{dtype}") == {2 * 64**3 / (8192 * rate)}
    assert 0 < answer.total.share < 1


@pytest.mark.slow
def test_tiles_have_the_rate_of_their_composite(run):
    session = run("matmul", m=64, k=128, n=64, tile=64, pes=1, dtype="f32")
    assert session.roofline().peak_gflops == 4096
    assert ideals(session, "TileToken/GEMM") == {2 * 64**3 / 4096}
    for op in range(len(session)):
        bound = session.bound(op)
        assert 0 < bound.ideal <= bound.real


def test_several_dtypes_share_the_time_of_the_array(tmp_path, one_cube):
    log = Log(tmp_path / "trace", one_cube)
    for i, dtype in enumerate(("f16", "f32")):
        size = {"f16": 2, "f32": 4}[dtype]
        square = Region("tcm", i << 16, (64, 64), dtype, 64 * 64 * size)
        out = Region("tcm", i << 16 | 1 << 15, (64, 64), dtype, 64 * 64 * size)
        dot = GemmCmd(a=square, b=square, out=out, m=64, k=64, n=64)
        log.op(dot, 1000.0 * i, 1000.0 * (i + 1), engine="pe_gemm")
    # one part at 8192, one of as many FLOPs at 4096
    answer = log.session().roofline()
    assert answer.peak_gflops == pytest.approx(2 / (1 / 8192 + 1 / 4096))


@pytest.mark.slow
def test_a_dot_takes_at_least_what_its_tcm_gives(tmp_path):
    path = tmp_path / "trace"
    params = {"m": 64, "k": 64, "n": 64, "variant": "dot", "pes": 1}
    run_bench("matmul_ref", params=params, spec={"pe.tcm.read_bw_gbs": 8}, trace=path)
    session = ReplaySession(Trace.open(path))
    assert ideals(session, "gemm_f16") == {2 * 64 * 64 * 2 / 8}


def test_a_trace_without_rates_had_dtypes_of_equal_speed():
    fields = {"pe.clock_ghz": 1.0, "pe.gemm.rows": 64, "pe.gemm.cols": 64}
    best = peaks(lambda path: fields.get(path, 0.0))
    assert best.gemm == 8192
    assert {*best.gemm_rates.values(), *best.math_rates.values()} == {1.0}


def test_the_plot_has_the_roof_and_all_pes(matmul):
    lines = as_text(matmul.roofline(), 80).splitlines()
    plot = [line for line in lines if "|" in line]
    assert len(plot) <= 15
    assert any("/" in line for line in plot)
    assert "-" in plot[0]
    assert sum(line.count("T") for line in plot) == 1


def test_commands_answer_in_text_and_data(matmul):
    matmul.goto(3)
    bound = matmul.run_line("bound")
    assert as_data(bound)["op"]["op"] == 3
    assert as_text(bound).startswith("op 3 ")
    total = as_data(matmul.run_line("roofline"))["total"]
    assert total["flops"] == 2 * 64 * 128 * 32


def test_a_trace_without_a_topology_has_no_roof(tmp_path):
    TraceWriter(tmp_path / "trace").close()
    with pytest.raises(TraceFormatError, match="says no peaks"):
        ReplaySession(Trace.open(tmp_path / "trace")).roofline()


def test_a_trace_of_no_ops_is_all_zero(tmp_path, one_cube):
    answer = Log(tmp_path / "trace", one_cube).session().roofline()
    assert (answer.total.flops, answer.pes) == (0, ())
    assert as_text(answer)


# -- traces that have not all of the run -----------------------------------------------

STOPPED = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

ONE = DPPolicy(num_cubes=1, num_pes=1)


def kernel(a, b, c, tl):
    for turn in range(2):
        done = tl.composite(a=tl.ref(a), b=tl.ref(b), out_ptr=c, tile=(16, 16, 16))
        if turn == 1:
            for _ in range(8):
                tl.zeros((4096,), "f32")
            raise ValueError("enough")
        tl.wait(done)


@bench(name="stopped", description="two launches; composites of which one is not done")
def run(torch):
    a = torch.zeros((64, 64), "f16", ONE, name="a")
    b = torch.zeros((64, 64), "f16", ONE, name="b")
    c = torch.zeros((64, 64), "f16", ONE, name="c")
    torch.launch("idle", lambda a, tl: tl.load(a), a)
    torch.launch("kernel", kernel, a, b, c)
"""


def products(trace):
    """The FLOPs of the array in all tiles of a trace, counted one by one."""
    flops = 0
    for op in trace.ops:
        if op.op_name == "TileToken/GEMM":
            m, n, k = op.params["extent"]
            flops += 2 * m * n * k
    return flops


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The session of a run that an error ended within its second launch."""
    folder = tmp_path_factory.mktemp("stopped")
    (folder / "stopped.py").write_text(STOPPED)
    with pytest.raises(KernelError):
        run_bench(str(folder / "stopped.py"), trace=folder / "t")
    return ReplaySession(Trace.open(folder / "t"))


def test_what_a_composite_without_an_end_has_computed_counts(stopped):
    trace = stopped.trace
    ended = [op for op in trace.ops if op.op_name == "composite_gemm"]
    total = stopped.roofline().total
    elements = 8 * 4096
    assert len(ended) == 1
    assert products(trace) > 2 * 64**3
    assert total.flops == products(trace) + elements
    assert "an error ended the run" in as_text(stopped.roofline(), 100)


def test_a_launch_that_has_not_ended_counts_until_the_trace_does(stopped):
    (launch,) = stopped.trace.launches
    assert stopped.launch_window() == (launch.t_start, stopped.trace.end_ns)
    total = stopped.roofline().total
    ns = stopped.trace.end_ns - launch.t_start
    assert total.gflops == pytest.approx(total.flops / ns)


@pytest.mark.parametrize("glob", ["*", "*.pe_[dg]*"])
def test_a_part_has_the_flops_of_its_tiles_and_its_own_time(matmul, tmp_path, glob):
    """Whether the composite is there, whose other tiles may not be, or not."""
    tiles = [op for op in matmul.trace.ops if op.op_name == "TileToken/GEMM"]
    t0 = tiles[3].t_start
    cut(matmul.trace.path, tmp_path / "part", t0, t0 + 20.0, glob)
    part = ReplaySession(Trace.open(tmp_path / "part"))
    answer = part.roofline()
    assert 0 < products(part.trace) < products(matmul.trace)
    assert (answer.t0, answer.t1) == (t0, t0 + 20.0)
    assert answer.total.flops == products(part.trace)
    assert "a part of a run, " in as_text(answer, 100)
    busy = {row.node: row.share for row in part.run_line("busiest 100").components}
    (gemm,) = [name for name in busy if name.endswith("pe_gemm")]
    spans = [
        (max(op.t_start, t0), min(op.t_end, t0 + 20.0))
        for op in matmul.trace.ops
        if op.component_id == gemm
    ]
    inside = sum(max(high - low, 0.0) for low, high in spans)
    assert busy[gemm] == pytest.approx(inside / 20.0)
