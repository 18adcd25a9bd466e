"""Every fault is found by what its ops do: which finding, ops, PE, kernel lines and
bytes. In the right benches, and in right kernels that look alike, nothing is found.
"""

import importlib
import inspect
from math import isinf

import numpy as np
import pytest
from bench_sizes import UNEVEN
from click.testing import CliRunner
from pace import first_fast

from kernbench.benches import FAULTS, SHIPPED, SLOW, TUTORIALS
from kernbench.benches.faults.low_bits import OPS
from kernbench.cli import main
from kernbench.replay import ReplaySession
from kernbench.replay.data import hazards as kinds
from kernbench.replay.races.findings import TOGETHER
from kernbench.runtime_api import DPPolicy, run_bench
from kernbench.runtime_api.registry import BENCHES
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine
from kernbench.sim_engine.op_check import debug_check, first_over
from kernbench.trace import Trace
from kernbench.trace.writer import TraceWriter

ONE_CUBE = {"system.sips.count": 1, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}
PE = "sip0.cube0.pe0."
SMALL = UNEVEN | {"matmul": {"m": 70, "k": 40, "n": 50, "tile": 16}}


@pytest.fixture
def record(tmp_path):
    """record(bench, **params) -> the run, and the session of its trace."""

    def record(name, warn_memory=False, **params):
        path = tmp_path / "trace.msgpack"
        run = run_bench(
            name, spec=ONE_CUBE, params=params, trace=path, warn_memory=warn_memory
        )
        return run, ReplaySession(Trace.open(path))

    return record


def line(fault, marker):
    """The site of the line of a fault's file that ends in a comment which begins with
    ``marker``
    """
    source = inspect.getsource(
        importlib.import_module(f"kernbench.benches.faults.{fault}")
    )
    (number,) = (
        i for i, text in enumerate(source.splitlines(), 1) if f"  # {marker}" in text
    )
    return f"kernbench/benches/faults/{fault}.py:{number}"


def alloc(session, name):
    """(space, first byte, number of bytes) of a tensor or scratch handle."""
    (shard,) = (s for s in session.trace.allocs if s.tensor == name)
    return shard.space, shard.addr, shard.nbytes


def checks(session, **options):
    """(check, kernel line) of every op of a session that is not a tile."""
    trace = session.trace
    order = [i for i, op in enumerate(trace.ops) if op.op_kind != "unknown"]
    found = list(debug_check(DataExecutor(trace.executable, **options)))
    sources = [session.source(order[check.position]) for check in found]
    return [
        (check, f"{s.file}:{s.line}") for check, s in zip(found, sources, strict=True)
    ]


@pytest.mark.parametrize(
    ("fault", "params", "kind", "ops", "lines", "handle"),
    [
        (
            "missing_wait",
            {},
            kinds.LATE_WRITER,
            ("add on pe_math", "dma_read on pe_dma"),
            ("fault", "writes"),
            "h0.1",
        ),
        (
            "scratch_reused",
            {"reader": "store"},
            kinds.EARLY_WRITER,
            ("dma_read on pe_dma", "dma_write on pe_dma"),
            ("fault", "reads in store"),
            "h0.1",
        ),
        (
            "scratch_reused",
            {"reader": "composite"},
            kinds.EARLY_WRITER,
            ("dma_read on pe_dma", "composite_gemm on pe_scheduler"),
            ("fault", "reads in composite"),
            "h0.1",
        ),
    ],
)
def test_two_ops_on_the_same_bytes_are_found(
    record, fault, params, kind, ops, lines, handle
):
    run, session = record(f"fault_{fault}", **params)
    (hazard,) = session.hazards().rows
    assert (hazard.kind, hazard.what) == (TOGETHER, kind)
    both = (hazard.op, hazard.other)
    assert tuple(f"{o.name} on {o.component.removeprefix(PE)}" for o in both) == ops
    assert tuple(o.site for o in both) == tuple(line(fault, marker) for marker in lines)
    assert (hazard.space, hazard.addr, hazard.nbytes) == alloc(session, handle)
    assert hazard.other.t_start < hazard.op.t_start < hazard.other.t_end
    assert run.ok  # in program order, as Phase 2 executes them, the data are right


def test_a_read_past_its_shard_is_found(record):
    run, session = record("fault_past_shard", warn_memory=True)
    (hazard,) = session.hazards().rows
    assert (hazard.kind, hazard.op.name, hazard.op.component, hazard.op.site) == (
        kinds.OUTSIDE, "dma_read", f"{PE}pe_dma", line("past_shard", "fault"),
    )  # fmt: skip
    space, addr, nbytes = alloc(session, "x")
    assert hazard.space == space
    assert (
        hazard.addr <= addr + nbytes < hazard.addr + hazard.nbytes == addr + 6 * 64 * 4
    )
    (row,) = run.report.by_tensor()
    assert (row.tensor, row.ok, row.max_abs) == ("y", False, 100.0)


def test_a_read_of_memory_never_written_is_found(record):
    run, session = record("fault_never_written", warn_memory=True)
    (hazard,) = session.hazards().rows
    assert (hazard.kind, hazard.op.name, hazard.op.component, hazard.op.site) == (
        kinds.NEVER_WRITTEN, "dma_read", f"{PE}pe_dma", line("never_written", "fault"),
    )  # fmt: skip
    assert (hazard.space, hazard.addr, hazard.nbytes) == alloc(session, "y")
    (row,) = run.report.by_tensor()
    assert (row.tensor, row.ok, row.nans) == ("y", False, (64, 0))


def test_the_op_that_overflows_is_the_first_of_infinite_error(record):
    run, session = record("fault_overflow")
    found = [(check, site) for check, site in checks(session) if isinf(check.local)]
    assert (found[0][0].op_name, found[0][1]) == ("exp", line("overflow", "fault"))
    assert found[0][0].component_id == f"{PE}pe_math"
    (row,) = run.report.by_tensor()
    assert (row.ok, row.nans, row.mismatches) == (False, (4, 0), 4)
    assert row.first_bad == (1, 0)


def test_the_first_divergence_of_a_softmax_that_overflows_is_named_as_overflow(record):
    _, session = record("fault_overflow")
    found = session.first_divergence()
    assert (found.name, found.check.over, found.check.overflows) == ("exp", 0, True)
    assert session.row(found.op).site == line("overflow", "fault")
    assert found.check.as_text().endswith(": overflow")


def test_the_op_that_loses_mantissa_bits_is_the_first_over_its_bound(record):
    run, session = record("fault_low_bits")
    assert first_over(check for check, _ in checks(session)) is None
    found = [(check, site) for check, site in checks(session, ops=OPS) if check.over]
    ((check, site),) = found
    assert (check.op_name, check.component_id) == ("exp", f"{PE}pe_math")
    assert site == line("low_bits", "fault")
    assert 2**-13 > check.local / np.exp(8) > check.bound / np.exp(8)
    assert run.ok


def test_a_table_that_loses_mantissa_bits_fails_verification(simulate, one_cube):
    run = simulate(BENCHES["fault_low_bits"].run, graph=one_cube)
    assert DataExecutor(run.log).verify(run.torch.expectations).ok
    (row,) = DataExecutor(run.log, ops=OPS).verify(run.torch.expectations).rows
    assert 2**-13 < row.max_rel < 2**-11


def test_a_run_by_a_coarse_table_fails_and_names_the_op(tmp_path):
    path = tmp_path / "trace"
    run = run_bench(
        "fault_low_bits", params={"table": "coarse"}, debug=True, trace=path
    )
    assert (run.ok, run.first_over.op_name) == (False, "exp")
    assert run.error.startswith(
        "VerificationError: y differ from their references; op 3 exp on "
    )
    session = ReplaySession(Trace.open(path))  # which executes with the right one
    verdict = session.verify()
    assert (verdict.ok, verdict.rows[0].row.ok) == (False, True)
    (disagreement,) = verdict.disagreements
    assert disagreement.startswith("y: the run recorded FAIL, and here it is ok; ")
    assert session.first_divergence().note.endswith(
        f"yet the run ended with {run.error}"
    )


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("fault_past_shard", "is in no tensor; nearest: x ["),
        ("fault_never_written", "was never written (in y ["),
    ],
)
@pytest.mark.slow
def test_a_memory_fault_ends_the_run_unless_it_is_to_be_a_warning(name, what):
    result = CliRunner().invoke(main, ["run", name])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert what in result.stderr
    result = CliRunner().invoke(main, ["run", name, "--warn-memory"])
    assert (result.exit_code, "FAIL" in result.stdout) == (1, True)


def test_list_shows_the_faults_after_the_others():
    listed = CliRunner().invoke(main, ["list"]).stdout
    parts = []
    for part in listed.split("\n\n"):
        lines = part.splitlines()
        parts.append([line.split()[0] for line in lines if line[0] != " "])
    right, (_, *tutorials), (_, *slow), (_, *faults) = parts
    listed_names = [*right, *tutorials, *slow, *faults]
    assert listed_names == [*SHIPPED, *TUTORIALS, *SLOW, *FAULTS]
    assert "\nAs in the tutorials of Triton:\n" in listed


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_says_what_is_to_be_found(name):
    module = importlib.import_module(
        f"kernbench.benches.faults.{name.removeprefix('fault_')}"
    )
    assert module.__doc__.startswith("Fault: ")
    assert "o be found " in module.__doc__
    assert BENCHES[name].description.startswith("fault: ")


@pytest.mark.parametrize("name", first_fast(SMALL, fast=3))
def test_nothing_is_found_in_a_right_bench(record, name):
    run, session = record(name, **SMALL[name])
    assert run.ok, run.report.as_text()
    found = session.hazards()
    assert (found.rows, found.note) == ((), "")
    worst = first_over(check for check, _ in checks(session))
    assert worst is None, worst.as_text()


TILE = 64 * 64 * 4  # bytes of a tile of f32


def loads_ahead(x, y, tl):
    """The next tile comes while this one is added, into scratch of its own."""
    total = tl.zeros((64, 64), "f32")
    coming = tl.load(x, (64, 64), "f32", wait=False)
    for i in range(4):
        tile = coming
        if i < 3:
            coming = tl.load(x + (i + 1) * TILE, (64, 64), "f32", wait=False)
        tl.wait(tile)
        tl.add(total, tile, out=total)
    for i in range(4):
        tl.store(y + i * TILE, total)


def stores_over_what_a_load_ahead_reads(x, y, tl):
    """The DMAs of one PE start in program order, though they share the memory's
    channels.
    """
    for i in range(4):
        tile = tl.load(x + i * TILE, (64, 64), "f32")
        ahead = tl.load(y + i * TILE, (64, 64), "f32", wait=False)
        tl.store(y + i * TILE, tile, wait=False)
        tl.wait(ahead)
        tl.store(x + i * TILE, ahead, wait=False)


def stores_that_nobody_awaits(x, y, tl):
    """Several stores of the same bytes are in flight; a load of them comes last."""
    for i in range(4):
        tile = tl.load(x + i * TILE, (64, 64), "f32")
        for factor in (3.0, 2.0):
            tl.store(y + i * TILE, tile * factor, wait=False)
        tl.store(x + i * TILE, tl.load(y + i * TILE, (64, 64), "f32"), wait=False)


def scratch_reused_when_its_reader_has_ended(x, y, tl):
    for i in range(4):
        with tl.scope():
            tile = tl.load(x + i * TILE, (64, 64), "f32")
            tl.wait(tl.composite(a=tile, b=tile, out_ptr=y + i * TILE))
        with tl.scope():
            tl.store(x + i * TILE, tl.load(y + i * TILE, (64, 64), "f32"))


def halves_of_a_tile_by_two_pes(x, y, tl):
    """Two PEs load and store next to each other at one time."""
    mine = tl.program_id(0) * TILE // 2
    for i in range(4):
        half = tl.load(x + i * TILE + mine, (32, 64), "f32")
        tl.store(y + i * TILE + mine, half + half, wait=False)


@pytest.mark.parametrize(
    ("kernel", "meaning"),
    [
        (loads_ahead, lambda x: (x, np.broadcast_to(x.sum(0), x.shape))),
        (stores_over_what_a_load_ahead_reads, lambda x: (x - 1, x)),
        (stores_that_nobody_awaits, lambda x: (2 * x, 2 * x)),
        (scratch_reused_when_its_reader_has_ended, lambda x: (x @ x, x @ x)),
        (halves_of_a_tile_by_two_pes, lambda x: (x, 2 * x)),
    ],
)
@pytest.mark.parametrize("warn_memory", [False, True])
def test_nothing_is_found_in_a_right_kernel(
    tmp_path, one_cube, kernel, meaning, warn_memory
):
    writer = TraceWriter(tmp_path / "trace")
    engine = GraphEngine(one_cube, recorder=writer, warn_memory=warn_memory)
    torch = Torch(engine)
    writer.begin({"warn_memory": warn_memory}, one_cube)
    data = torch.rng.integers(-1, 2, (4, 64, 64)).astype("f4")

    def bench(_):
        dp = DPPolicy(
            "replicate", "replicate", 1, 2 if "two_pes" in kernel.__name__ else 1
        )
        pes = torch.empty((1,), "f32", dp)
        x = torch.tensor(data, name="x")
        y = torch.tensor(data - 1, name="y")
        torch.launch("k", lambda _, x, y, tl: kernel(x, y, tl), pes, x.ptr, y.ptr)
        for tensor, expected in zip((x, y), meaning(data), strict=True):
            torch.expect(tensor, expected)

    engine.run(bench)
    writer.end(engine.env.now)
    session = ReplaySession(Trace.open(tmp_path / "trace"))
    assert session.hazards().rows == ()
    report = DataExecutor(engine.op_log, torch.blank.snapshot()).verify(
        torch.expectations
    )
    assert report.ok, report.as_text()
    assert session.trace.texts == []
