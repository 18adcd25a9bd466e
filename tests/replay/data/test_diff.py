"""Ops beside their float64 oracle, and outputs beside their references."""

from dataclasses import replace
from pathlib import Path

import half_written
import numpy as np
import pytest
from replay_logs import Log, double, host_write, load, region

from kernbench.common.pe_commands import MathCmd
from kernbench.errors import MemoryStoreError
from kernbench.replay import ReplaySession
from kernbench.replay.text import as_text
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace
from kernbench.trace.frames import Damage

TRACES = Path(__file__).parents[3] / "traces"
SIZES = {"m": 96, "k": 80, "n": 100}  # of the recorded matmul


def inputs():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((SIZES["m"], SIZES["k"]))
    b = rng.standard_normal((SIZES["k"], SIZES["n"])) / np.sqrt(SIZES["k"])
    return a.astype(np.float16), b.astype(np.float16)


def positions(session, name):
    ops = session.trace.ops
    return [i for i in range(len(ops)) if ops[i].op_name == name]


# -- one op --


def test_the_diff_of_a_composite_is_against_float64(session):
    a, b = inputs()
    half = SIZES["n"] // 2
    for op in positions(session, "composite_gemm"):
        name = session.trace.ops[op].component_id
        is_left = name.startswith("sip0.cube0.pe0")
        columns = b[:, :half] if is_left else b[:, half:]
        exact = a.astype(np.float64) @ columns.astype(np.float64)
        diff = session.diff(op)
        np.testing.assert_allclose(diff.expected, exact, rtol=1e-12)
        error = diff.actual.astype(np.float64) - diff.expected
        np.testing.assert_array_equal(diff.error, error)
        assert diff.row.ok
        assert diff.row.max_abs == np.abs(diff.error).max() > 0


def test_the_diff_of_a_tile_is_its_block_of_the_composites(session):
    op = positions(session, "TileToken/GEMM")[7]
    params = session.trace.ops[op].params
    m0, n0, _ = params["origin"]
    m, n, _ = params["extent"]
    diff = session.diff(op)
    composite = session.tiles(op).composite
    whole = session.diff(composite)
    block = whole.actual[m0 : m0 + m, n0 : n0 + n]
    np.testing.assert_array_equal(diff.actual, block)
    assert f"composite #{composite}" in diff.note
    assert f"rows {m0}..{m0 + m - 1}, columns {n0}..{n0 + n - 1}" in diff.note


@pytest.mark.slow
def test_a_diff_that_reports_its_progress_is_the_same(session):
    for op in range(0, len(session), 9):
        fresh = ReplaySession(Trace.open(session.trace.path))
        shares = []
        seen = fresh.diff(op, shares.append)
        assert as_text(seen) == as_text(session.diff(op))


@pytest.fixture
def overflowing(tmp_path, one_cube):
    """exp of numbers of up to 127 into hbm 512, of which a reference is given."""
    log = Log(tmp_path / "log", one_cube)
    log.op(host_write(), 0, 10)
    out = MathCmd(op="exp", inputs=(region("hbm", 344, 4),), out=region("hbm", 512, 4))
    log.op(out, 20, 30, engine="pe_math")
    log.expect("y", 516, [1.0, 2.0, 3.0])
    return log.session()


def test_a_diff_says_how_many_elements_its_errors_leave_out(overflowing):
    shown = as_text(overflowing.diff(1))
    assert "1 of 4 beyond rtol 1e-05 atol 1e-05; 1 not finite, else max abs 3" in shown


@pytest.mark.filterwarnings("error")
def test_infinities_are_compared_without_a_warning():
    session = ReplaySession(Trace.open(TRACES / "fault_overflow.msgpack"))
    for op in range(len(session)):
        as_text(session.check(op))


def test_an_op_whose_operands_nobody_wrote_has_a_note_instead(tmp_path, one_cube):
    log = Log(tmp_path / "log", one_cube)
    log.op(double(0, 64), 10, 20, engine="pe_math")
    diff = log.session().diff(0)
    assert diff.actual is None
    assert "byte 0x0 was never written" in diff.note


# -- rounding or a bug --


def test_the_local_error_of_an_op_far_on_needs_no_oracle_of_all_before(session):
    op = positions(session, "composite_gemm")[1]
    quick = session.index.diffs.checked(op, within=0).check
    whole = session.check(op).check
    assert quick.accumulated is None
    assert whole.accumulated is not None
    assert replace(whole, accumulated=None) == quick
    assert "accumulated" not in quick.as_text()


def test_a_tile_is_judged_by_its_own_block(session):
    op = positions(session, "TileToken/STORE")[0]
    whole = session.index.diffs.producer(op).op
    tile = session.check(op)
    assert 0 < tile.check.local == tile.row.max_abs <= tile.check.bound
    assert tile.check.local <= session.check(whole).check.local


def test_where_a_tile_is_first_over_is_an_index_of_the_whole_tensor(session):
    op = positions(session, "TileToken/STORE")[-1]
    good = session.diff(op)
    actual = good.actual.copy()
    actual[1, 2] += 1
    row, column = good.origin
    judged = session.index.diffs.judge(replace(good, actual=actual))
    assert judged.check.first_over == (row + 1, column + 2)
    assert row + column > 0


def test_a_divergence_shows_the_oracle_phase_2_and_what_the_bench_expects(overflowing):
    found = overflowing.first_divergence()
    assert (found.op, found.check.overflows) == (1, True)
    assert found.source == "expected y"
    assert np.isnan(found.simulated[0])
    assert found.simulated[1:].tolist() == [1, 2, 3]
    assert np.isfinite(found.expected).all()
    assert np.isinf(found.actual[-1])
    shown = as_text(found)
    for title in ("expected", "actual", "simulated: expected y", "simulated - actual"):
        assert f"\n{title}\n" in shown


def test_a_divergence_shows_what_phase_1_saw_of_an_op(session):
    first = positions(session, "host_write")[0]
    diff = session.index.diffs.with_recorded(session.diff(first))
    assert diff.source == "nothing recorded"


def test_a_divergence_that_cannot_be_looked_for_is_never_said_to_be_none(
    tmp_path, one_cube
):
    log = Log(tmp_path / "log", one_cube)
    log.op(
        MathCmd(op="exp", inputs=(region("hbm", 0),), out=region("hbm", 512)), 20, 30
    )
    session = log.session()
    for _ in range(2):
        with pytest.raises(MemoryStoreError, match="op 0"):
            session.first_divergence()


def test_the_walk_beside_the_oracle_goes_on_where_it_was(session):
    last = positions(session, "composite_gemm")[-1]
    session.check(last)
    fresh = ReplaySession(Trace.open(session.trace.path))
    assert session.first_divergence().note == fresh.first_divergence().note
    assert session.index.diffs.over() == fresh.index.diffs.over() == []
    assert session.check(last).check == fresh.check(last).check


# -- outputs --


def test_outputs_are_due_when_their_ops_have_run(session, recorded):
    first, second = positions(session, "composite_gemm")
    (before,) = session.outputs(first).rows
    (after,) = session.outputs(len(session) - 1).rows
    assert (before.due, before.row.ok) == (False, False)
    assert before.row.note.endswith(" bytes are not written yet")
    assert (after.due, after.row.ok) == (True, True)
    assert after.row.max_abs == recorded.report.by_tensor()[0].max_abs
    assert second < len(session) - 1


IN_PART = """
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy


def kernel(x, y, z, tl):
    tl.store(y[:6, :], tl.load(x[:6, :]))
    tl.store(z, tl.load(x))


@bench(name="in_part", description="the last rows of y are never written")
def run(torch):
    one = DPPolicy(num_cubes=1, num_pes=1)
    data = np.arange(128.0).reshape(8, 16)
    x = torch.tensor(data, "f32", one, name="x")
    y = torch.empty((8, 16), "f32", one, name="y")
    z = torch.empty((8, 16), "f32", one, name="z")
    torch.launch("kernel", kernel, x, y, z)
    torch.expect(y, data)
"""


def test_an_output_that_is_never_written_whole_is_judged_when_it_is_due(tmp_path):
    """What was asked before, when the same bytes were not due, makes no difference."""
    (tmp_path / "in_part.py").write_text(IN_PART)
    run_bench(str(tmp_path / "in_part.py"), trace=tmp_path / "t")
    session = ReplaySession(Trace.open(tmp_path / "t"))
    last = len(session) - 1
    (early,) = session.outputs(last - 1).rows
    (late,) = session.outputs(last).rows
    (again,) = session.outputs(last - 1).rows
    assert (early.due, late.due, again.due) == (False, True, False)
    assert early.row.note.endswith("128 of its 512 bytes are not written yet")
    assert again == early
    assert late.row.mismatches == 32
    (fresh,) = ReplaySession(session.trace).outputs(last).rows
    assert late == fresh


def test_an_output_is_beside_what_the_bench_expects_of_it(session):
    last = len(session) - 1
    expected = session.trace.expects
    diff = session.output("c", last)
    for e in expected:
        box = tuple(
            slice(o, o + n) for o, n in zip(e.origin, e.array.shape, strict=True)
        )
        np.testing.assert_array_equal(diff.expected[box], e.array)
    np.testing.assert_array_equal(diff.actual, session.tensor("c", last).values)
    assert diff.row.ok
    assert diff.note == ""


INTEGERS = """
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy


def kernel(x, y, big, copy, tl):
    tl.store(y, tl.cast(tl.load(x), "i8"))
    tl.store(copy, tl.load(big))


@bench(name="integers", description="floats become integers; and integers of 60 bits")
def run(torch):
    one = DPPolicy(num_cubes=1, num_pes=1)
    x = torch.tensor([-1.75, -0.25, 2.5, 200.0], "f32", one, name="x")
    y = torch.zeros((4,), "i8", one, name="y")
    data = np.array([2**60, 2**60 + 3, 5])
    big = torch.tensor(data, "i64", one, name="big")
    copy = torch.zeros((3,), "i64", one, name="copy")
    torch.launch("kernel", kernel, x, y, big, copy)
    torch.expect(copy, data + [0, 1, 0])
"""


@pytest.fixture
def integers(tmp_path):
    (tmp_path / "integers.py").write_text(INTEGERS)
    run_bench(str(tmp_path / "integers.py"), trace=tmp_path / "t")
    return ReplaySession(Trace.open(tmp_path / "t"))


def test_a_cast_to_integers_differs_only_where_there_is_no_such_integer(integers):
    (cast,) = positions(integers, "cast")
    diff = integers.diff(cast)
    assert (diff.row.mismatches, diff.row.first_bad) == (1, (3,))
    np.testing.assert_array_equal(diff.expected, [-1.75, -0.25, 2.5, 200.0])
    np.testing.assert_array_equal(diff.actual, [-1, 0, 2, -56])


def test_integers_are_beside_what_is_expected_though_f64_could_not_tell(integers):
    diff = integers.output("copy", len(integers) - 1)
    assert diff.expected.tolist() == [2**60, 2**60 + 4, 5]
    assert diff.actual.tolist() == [2**60, 2**60 + 3, 5]
    assert (diff.row.mismatches, diff.row.first_bad) == (1, (1,))


def test_of_an_input_the_bench_states_nothing(session):
    assert session.output("a", 4).note == "the bench states nothing of it"


def test_an_output_that_is_not_written_yet_is_nan_on_both_sides(session):
    first, _ = positions(session, "composite_gemm")
    diff = session.output("c", first)
    half = SIZES["m"] * SIZES["n"] // 2
    assert diff.note == f"{half:,} not written yet are nan here"
    assert np.isnan(diff.expected).sum() == np.isnan(diff.actual).sum() == half
    assert not diff.row.ok
    assert diff.row.mismatches == 0


def test_an_output_that_was_never_written_is_a_mismatch(tmp_path):
    session = ReplaySession(Trace.open(half_written.recorded_in(tmp_path)))
    last = len(session) - 1
    diff = session.output("y", last)
    assert diff.note == "2 never written are nan here"
    assert (diff.row.mismatches, diff.row.first_bad) == (2, (1, 0))
    np.testing.assert_array_equal(diff.expected, [[1, 2], [3, 4]])
    assert np.isnan(diff.actual[1]).all()
    (out,) = session.outputs(last).rows
    assert (out.row.mismatches, out.row.first_bad) == (2, (1, 0))


@pytest.mark.parametrize(
    ("error", "cut", "note"),
    [
        (None, False, "the bench states no expected outputs"),
        (
            "DeadlockError: all wait",
            False,
            "the run ended before expected outputs were stated",
        ),
        (None, True, "the recording ends before expected outputs are stated"),
    ],
)
def test_why_there_is_nothing_to_compare_is_said(tmp_path, one_cube, error, cut, note):
    log = Log(tmp_path / "log", one_cube)
    log.op(host_write(), 0, 10)
    session = log.session()
    session.trace.end = None if cut else {"error": error}
    for answer in (session.outputs(), session.verify()):
        assert as_text(answer) == f"nothing to compare: {note}"
    assert session.verify().ok == (error is None and not cut)


def test_expected_outputs_that_are_damaged_are_not_none(tmp_path, one_cube):
    log = Log(tmp_path / "log", one_cube)
    log.op(host_write(), 0, 10)
    session = log.session()
    session.trace.damaged.append(Damage(0, "expect", "its checksum does not match"))
    note = "what the bench expects is damaged in the file; check says more"
    assert as_text(session.outputs()) == f"nothing to compare: {note}"


def test_where_nothing_is_expected_no_op_has_to_be_executed(tmp_path, one_cube):
    log = Log(tmp_path / "log", one_cube)
    log.op(double(0, 64), 10, 20, engine="pe_math")  # of what nobody has written
    answer = log.session().outputs(0)
    assert answer.rows == ()
    assert answer.ok


def test_an_output_is_verified_as_it_was_when_it_was_due(tmp_path, one_cube):
    log = Log(tmp_path / "log", one_cube)
    log.op(host_write(), 0, 10)
    log.op(load(0, 0), 20, 30)
    log.expect("y", 4, [1.0, 2.0])
    log.op(host_write(addr=0, n=4), 40, 50)
    log.op(MathCmd(op="exp", inputs=(region("hbm", 0),), out=region("hbm", 0)), 60, 70)
    session = log.session()
    assert session.verify().ok
    assert not session.outputs(len(session) - 1).ok
