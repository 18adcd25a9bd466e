"""Kernels that differ in one thing: what compare says of that, and of nothing else.

Each is written here, run and recorded. What has to be found is known from the kernel;
which elements differ is computed in numpy.
"""

import json
import shlex
import shutil
from textwrap import dedent, indent

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernbench.cli import main
from kernbench.replay import ReplaySession
from kernbench.replay.compare import compare
from kernbench.replay.plain import as_data
from kernbench.replay.text import as_text
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

ONE_CUBE = {"system.sips.count": 1, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}
N = 16
X = np.random.default_rng(0).standard_normal((N, N)).astype(np.float32)

BENCH = """
import numpy as np

from kernbench.benches import bench
from kernbench.runtime_api.placement import DPPolicy


def kernel(x, y, n, tl):
{kernel}


@bench(name="{name}", description="made for a test")
def run(torch, n: int = {n}):
    data = np.random.default_rng(0).standard_normal((n, n)).astype(np.float32)
{before}
    x = torch.tensor(data, "f32", {dp}name="x")
    y = torch.empty((n, n), "f32", {dp}name="y")
    torch.launch("kernel", kernel, x, y, n)
{after}
"""
COPY = """
    for row in range(n):
        v = tl.load(x + row * n * 4, (n,), "f32")
        tl.store(y + row * n * 4, v)
"""


@pytest.fixture
def traced(tmp_path):
    """traced(kernel, …) -> the trace of a run of a bench with that kernel.

    Of the machine's cubes there is one, unless ``spec`` says otherwise.
    """
    made = []

    def traced(
        kernel, name="one", before="", after="", dp="", n=N, spec=None, **options
    ):
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(folder)
        parts = {"before": before, "after": after}
        parts = {part: indent(dedent(text), "    ") for part, text in parts.items()}
        body = indent(dedent(kernel).strip(), "    ")
        source = BENCH.format(kernel=body, name=name, n=n, dp=dp, **parts)
        (folder / "bench.py").write_text(source)
        path = folder / "t.msgpack"
        spec = ONE_CUBE | (spec or {})
        run_bench(str(folder / "bench.py"), trace=path, spec=spec, **options)
        return Trace.open(path)

    return traced


def whole(made):
    """A kernel that makes y of all of x, v."""
    return f'v = tl.load(x, (n, n), "f32")\ntl.store(y, {made})'


def differing(found):
    return {kind: n for kind, n in found.counts.items() if n and kind != "matched"}


def details(found, kind="params"):
    return [change.detail for change in found.changes if change.kind == kind]


def output(found):
    """The only tensor that differs."""
    (pair,) = found.outputs
    return pair


# -- params ----------------------------------------------------------------------------


def test_another_scalar_is_another_param_and_other_data(traced):
    found = compare(traced(whole("v * 2.0")), traced(whole("v * 3.0")))
    assert not found.ok
    assert differing(found) == {"params": 1}
    assert details(found) == ["scalars [2.0] -> [3.0]"]
    two = X * np.float32(2)
    three = X * np.float32(3)
    pair = output(found)
    assert (pair.tensor, pair.elements) == ("y", N * N)
    assert pair.differ == pair.beyond == (two != three).sum()
    assert pair.first == "y[0,0]"
    assert (np.float32(pair.a), np.float32(pair.b)) == (two[0, 0], three[0, 0])
    assert "ok" not in found.verdict
    assert "y differs in 256 of 256 elements, 256 beyond tolerance" in found.verdict


def test_another_axis_is_another_param(traced):
    reduced = 'v = tl.load(x, (n, n), "f32")\ntl.store(y, tl.sum(v, axis={}))'
    found = compare(traced(reduced.format(0)), traced(reduced.format(1)))
    assert differing(found) == {"params": 1}
    assert details(found) == ["axis 0 -> 1"]
    pair = output(found)
    assert pair.differ >= pair.beyond == N
    assert pair.first == "y[0,0]"


def test_swapped_extents_are_other_params(traced):
    loads = 'v = tl.load(x, ({}), "f32")\ntl.store(y, v)'
    found = compare(traced(loads.format("4, 16")), traced(loads.format("16, 4")))
    assert differing(found) == {"params": 2}
    assert details(found) == ["shape (4, 16) -> (16, 4)"] * 2
    assert found.outputs == ()  # the same bytes
    assert not found.ok


def test_another_operand_is_another_param(traced):
    loads = 'v = tl.load(x, (n, n), "f32")\nw = tl.load(x, (n, n), "f32")\n'
    found = compare(
        traced(loads + "tl.store(y, v + w)"), traced(loads + "tl.store(y, v + v)")
    )
    assert differing(found) == {"params": 1}
    (detail,) = details(found)
    assert detail.startswith("input_addrs.1 ")
    assert "load bench.py:9" in detail
    assert "load bench.py:10" in detail
    assert found.outputs == ()  # w is v


def test_another_place_in_a_tensor_is_another_param(traced):
    loads = 'tl.store(y, tl.load(x + {}, (n,), "f32"))'
    found = compare(traced(loads.format(0)), traced(loads.format(64)))
    assert differing(found) == {"params": 1}
    owner = "of sip0.cube0.pe0.pe_cpu"
    assert details(found) == [f"src_addr x+0x0 {owner} -> x+0x40 {owner}"]
    assert output(found).differ == (X[0] != X[1]).sum()


def test_where_an_allocator_puts_a_tensor_is_no_difference(traced):
    before = 'torch.empty((n, n), "f32", name="other")'
    a = traced(COPY)
    b = traced(COPY, before=before)
    addresses = [
        {shard.tensor: shard.addr for shard in trace.allocs} for trace in (a, b)
    ]
    assert addresses[0]["x"] != addresses[1]["x"]
    found = compare(a, b)
    assert differing(found) == {}
    assert [(p.tensor, p.note) for p in found.outputs] == [("other", "only in B")]


def test_a_tensor_that_no_op_touches_is_a_difference(traced):
    a = traced(COPY)
    b = traced(COPY, after='torch.empty((n, n), "f32", name="other")')
    found = compare(a, b)
    assert differing(found) == {}
    assert [(p.tensor, p.note) for p in found.outputs] == [("other", "only in B")]
    assert not found.ok


# -- which op is which -----------------------------------------------------------------


def test_a_load_that_is_put_first_is_the_only_one_without_a_partner(traced):
    first = 'tl.load(x + 3 * n * 4, (n,), "f32")\n'
    a = traced(COPY)
    b = traced(first + dedent(COPY).strip())
    found = compare(a, b)
    assert found.counts["matched"] == len(a.ops)
    assert differing(found) == {"added": 1} | times(found)
    (added,) = (c for c in found.changes if c.kind == "added")
    assert (added.row.name, added.op_a) == ("dma_read", -1)
    assert b.params(int(b.order[added.op_b]))["src_addr"] == (
        next(s.addr for s in b.allocs if s.tensor == "x") + 3 * N * 4
    )
    assert found.outputs == ()
    back = compare(b, a)
    assert differing(back) == {"missing": 1} | times(back)


def times(found):
    """The kinds of change that are about times or ways."""
    kinds = ("slower", "faster", "rerouted")
    return {kind: found.counts[kind] for kind in kinds if found.counts[kind]}


def test_an_iteration_left_out_is_the_only_one_without_a_partner(traced):
    some = COPY.replace("range(n)", "[r for r in range(n) if r != 5]")
    found = compare(traced(COPY), traced(some))
    assert differing(found) == {"missing": 2} | times(found)
    pair = output(found)
    assert (pair.differ, pair.beyond, pair.first) == (N, N, "y[5,0]")
    assert (pair.a, pair.b) == (str(X[5, 0]), "not written")
    # nobody has written it in B, so it is blamed in A
    result = CliRunner().invoke(main, shlex.split(pair.blame)[1:])
    assert result.exit_code == 0
    assert "dma_write" in result.output


def test_a_machine_that_is_faster_changes_times_alone(traced):
    a = traced(whole("tl.exp(v)"))
    b = traced(whole("tl.exp(v)"), spec={"pe.clock_ghz": 2})
    found = compare(a, b)
    assert differing(found) == {"faster": 1}
    assert found.verdict.startswith("other runs (machine pe.clock_ghz 1.0 -> 2.0)")
    assert (found.outputs, found.unknown) == ((), ())
    assert not found.same
    within = compare(a, b, 5.0)
    assert (within.ok, within.same) == (True, False)
    assert "within 5 %" in within.verdict


def test_pes_that_take_turns_in_another_order_have_the_same_partners(traced):
    kernel = """
        v = tl.load(x, (n,), "f32")
        for _ in range(30):
            if tl.program_id(0):
                v = tl.exp(v * 0.01)
            else:
                v = tl.load(x, (n,), "f32")
        tl.store(y + tl.program_id(0) * n * 4, v)
    """
    dp = "dp=DPPolicy(num_pes=2, num_cubes=1), "
    a = traced(kernel, dp=dp)
    b = traced(kernel, dp=dp, spec={"pe.clock_ghz": 8})
    ran = [[op.component_id for op in trace.ops] for trace in (a, b)]
    assert ran[0] != ran[1]
    found = compare(a, b)
    assert differing(found) == times(found)
    assert found.counts["matched"] == len(a.ops)
    assert found.outputs == ()


def test_a_wait_that_is_left_out_is_a_difference(traced):
    loads = 'v = tl.load(x, (n, n), "f32", wait=False)\n'
    a = traced(loads + "tl.wait(v)\ntl.wait(v)\ntl.store(y, v)")
    b = traced(loads + "tl.wait(v)\ntl.store(y, v)")
    found = compare(a, b)
    assert differing(found) == {}
    assert not found.ok
    assert "2 -> 1 calls of wait" in found.verdict


def test_what_is_printed_is_compared(traced):
    said = 'tl.device_print("{}")\n'
    a = traced(said.format("one") + dedent(COPY).strip())
    b = traced(said.format("two") + dedent(COPY).strip())
    found = compare(a, b)
    assert (differing(found), found.ok) == ({}, False)
    assert "1 text only in A, the first print 'one'" in found.verdict
    assert "1 text only in B, the first print 'two'" in found.verdict


# -- data ------------------------------------------------------------------------------


def test_bytes_and_tolerance_are_both_said(traced):
    found = compare(traced(whole("v * 1.0")), traced(whole("v * 1.000001")))
    scaled = X * np.float32(1.000001)
    pair = output(found)
    assert pair.differ == (scaled != X).sum()
    assert pair.differ
    assert pair.beyond == 0
    assert f"{pair.differ:,} of 256 elements, 0 beyond tolerance" in found.verdict
    first = np.argwhere(scaled != X)[0]
    assert pair.first == f"y[{first[0]},{first[1]}]"
    assert compare(traced(whole("v * 1.0")), traced(whole("v * 1.000001")), 5.0).ok


def test_the_first_element_beyond_tolerance_is_named_before_closer_ones(traced):
    one = 'v = tl.load(x, (n,), "f32")\ntl.store(y, v * {})\n'
    two = 'w = tl.load(x + n * 4, (n,), "f32")\ntl.store(y + n * 4, w * {})'
    a = traced((one + two).format(1.0, 1.0))
    b = traced((one + two).format(1.000001, 2.0))
    pair = output(compare(a, b))
    assert pair.differ > pair.beyond == N
    assert pair.first == "y[1,0]"
    assert (pair.a, pair.b) == (str(X[1, 0]), str(X[1, 0] * np.float32(2)))


def test_the_command_that_is_named_blames_the_element(traced):
    found = compare(traced(whole("v * 2.0")), traced(whole("v * 3.0")))
    words = shlex.split(output(found).blame)
    assert words[:3] == ["kernbench", "trace", "blame"]
    result = CliRunner().invoke(main, words[1:])
    assert result.exit_code == 0
    assert "mul" in result.output


def test_a_copy_that_is_not_the_first_is_named_with_its_owner(traced):
    dp = 'dp=DPPolicy(cube="replicate", pe="replicate", num_pes=2, num_cubes=1), '
    kernel = """
        v = tl.load(x, (n, n), "f32")
        spoiled = v * {}
        tl.store(y, spoiled if tl.program_id(0) == 1 else v)
    """
    a = traced(kernel.format(1.0), dp=dp)
    b = traced(kernel.format(2.0), dp=dp)
    pair = output(compare(a, b))
    assert pair.differ == (X != 2 * X).sum()
    assert pair.elements == 2 * N * N
    assert pair.first == "y@sip0.cube0.pe1.pe_cpu[0,0]"
    result = CliRunner().invoke(main, shlex.split(pair.blame)[1:])
    assert result.exit_code == 0


def test_a_tensor_laid_out_otherwise_is_compared_by_its_elements(traced):
    kernel = """
        rows = n // 4
        first = tl.program_id(1) * rows * n * 4
        tl.store(y + first, tl.load(x + first, (rows, n), "f32") * {})
    """
    dp = 'dp=DPPolicy(cube="row_wise", num_pes=1, num_cubes=4), '
    whole_dp = "dp=DPPolicy(num_pes=1, num_cubes=1), "
    four = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 2}
    a = traced(whole("v * 2.0"), dp=whole_dp, spec=four)
    alike = traced(kernel.format(2.0), dp=dp, spec=four)
    assert compare(a, alike).outputs == ()
    other = traced(kernel.format(3.0), dp=dp, spec=four)
    pair = output(compare(a, other))
    assert (pair.differ, pair.elements) == (N * N, N * N)


def test_a_tensor_of_another_shape_is_said_to_be(traced):
    found = compare(traced(COPY), traced(COPY, n=8))
    notes = {pair.tensor: pair.note for pair in found.outputs}
    assert notes["y"] == "f32[16, 16] -> f32[8, 8]"
    assert not compare(traced(COPY), traced(COPY, n=8)).ok


def test_without_data_it_is_never_ok(traced):
    a = traced(COPY, data=False, verify=False)
    b = traced(COPY)
    for pair in ((a, a), (a, b), (b, a)):
        found = compare(*pair)
        assert not found.ok
        assert any("run again without --no-data" in why for why in found.unknown)
        assert "not all could be compared" in found.verdict
    assert compare(b, b).ok


def test_a_recording_that_was_cut_off_is_never_ok(traced, tmp_path):
    trace = traced(COPY)
    part = tmp_path / "part.msgpack"
    part.write_bytes(trace.path.read_bytes()[:-100])
    found = compare(Trace.open(part), Trace.open(part))
    assert not found.ok
    assert any("cut off" in why for why in found.unknown)


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_what_a_cut_off_recording_lost_is_no_difference(traced, tmp_path, share):
    kernel = COPY.replace("        tl.store", "        w = v + 1.0\n        tl.store")
    trace = traced(kernel, after="torch.expect(y, data)")
    part = tmp_path / "part.msgpack"
    part.write_bytes(trace.path.read_bytes()[: int(share * trace.path.stat().st_size)])
    for a, b, which in ((trace, part, "B"), (part, trace, "A")):
        pair = [Trace.open(getattr(one, "path", one)) for one in (a, b)]
        found = compare(*pair, 5.0)
        assert not found.ok
        assert any(why.startswith(f"{which} was cut off") for why in found.unknown)
        assert f"{which} was cut off" in found.verdict
        for claim in (" calls of ", "only in ", "ended with", "longer", "runs"):
            assert claim not in found.verdict
        assert (found.outputs, found.tensors) == ((), ())


def test_a_part_of_a_trace_is_never_ok(traced, tmp_path):
    trace = traced(COPY)
    session = ReplaySession(trace)
    part = tmp_path / "part.msgpack"
    session.run_line(f"cut '{part}'")
    found = compare(Trace.open(part), Trace.open(part))
    assert not found.ok
    assert any("part of a trace" in why for why in found.unknown)


def test_the_same_ops_on_other_inputs_have_other_results(traced):
    other = "data = -data"
    found = compare(traced(COPY), traced(COPY, before=other))
    assert differing(found) == {"data": 1}
    assert {(p.tensor, p.differ) for p in found.outputs} == {
        ("x", N * N),
        ("y", N * N),
    }


# -- what is said first ----------------------------------------------------------------


def test_other_runs_are_said_first(traced):
    a = traced(whole("v * 2.0"), name="twice")
    b = traced(whole("v * 3.0"), name="thrice", seed=3)
    found = compare(a, b)
    first = as_text(found, 200).splitlines()[0]
    assert first.startswith("other runs (bench twice -> thrice, seed 0 -> 3, source ")
    rows = {row.what: (row.a, row.b) for row in found.runs}
    assert rows["bench"] == ("twice", "thrice")
    assert rows["source"] == (
        "bench.py 10: tl.store(y, v * 2.0)",
        "bench.py 10: tl.store(y, v * 3.0)",
    )
    parameter = compare(a, traced(whole("v * 2.0"), name="twice", params={"n": 8}))
    assert parameter.verdict.startswith("other runs (parameter n 16 -> 8)")


def test_another_machine_that_does_the_same_is_not_ok(traced):
    found = compare(traced(COPY), traced(COPY, spec={"pe.gemm.rows": 32}))
    assert (found.ok, differing(found)) == (False, {})
    assert found.verdict == (
        "other runs (machine pe.gemm.rows 64 -> 32); nothing else differs"
    )


def test_only_what_is_the_same_is_ok(traced):
    trace = traced(COPY)
    copied = trace.path.with_name("copied.msgpack")
    shutil.copy(trace.path, copied)
    found = compare(trace, Trace.open(copied))
    assert (found.ok, found.same, found.verdict) == (True, True, "ok: nothing differs")
    again = compare(trace, traced(COPY))
    assert (again.ok, again.runs, again.outputs) == (True, (), ())


def test_a_limit_lets_no_other_result_of_the_same_inputs_pass(traced):
    two = traced(whole("v * 2.0"))
    found = compare(two, traced(whole("v * 3.0")), 5.0)
    assert not found.ok
    assert "y is not as in A" in found.verdict
    other = compare(two, traced(whole("v * 2.0"), before="data = -data"), 5.0)
    assert (other.ok, other.same) == (True, False)


def test_the_first_error_is_said(traced):
    expects = 'torch.expect(y, data * 2, name="y")'
    a = traced(whole("v * 2.0"), after=expects)
    b = traced(whole("v * 3.0"), after=expects)
    found = compare(a, b)
    assert "B with VerificationError" in found.verdict
    assert [(row.a, row.b) for row in found.tensors] == [("ok", "wrong")]


# -- any kernel ------------------------------------------------------------------------

STEPS = {
    "v = v * 3.0": lambda v, row: v * np.float32(3),
    "v = v + 1.0": lambda v, row: v + np.float32(1),
    "v = v + w": lambda v, row: v + row,
    "tl.load(x + 64, (n,), 'f32')": lambda v, row: v,
}
"""Lines of a kernel, and what each makes of v, a row, with another row."""

LINES = st.lists(st.sampled_from(list(STEPS)), max_size=6)
LOADS = 'v = tl.load(x, (n,), "f32")\nw = tl.load(x + 128, (n,), "f32")\n'


def kernel_of(lines):
    return LOADS + "\n".join([*lines, "tl.store(y, v)"])


def longest(a, b):
    """The length of a longest common subsequence of two lists."""
    if not a or not b:
        return 0
    if a[-1] == b[-1]:
        return longest(a[:-1], b[:-1]) + 1
    return max(longest(a[:-1], b), longest(a, b[:-1]))


@pytest.mark.slow
@given(a=LINES, b=LINES)
@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_of_any_two_kernels_what_differs_is_what_numpy_says(traced, a, b):
    found = compare(traced(kernel_of(a)), traced(kernel_of(b)))
    results = []
    for lines in (a, b):
        v = X[0]
        for line in lines:
            v = STEPS[line](v, X[2])
        results.append(v)
    differ = int((results[0] != results[1]).sum())
    assert sum(pair.differ for pair in found.outputs) == differ
    assert found.ok == (a == b)
    others = len(LOADS.splitlines()) + 2  # the host's write, and the store
    assert found.counts["matched"] >= longest(a, b) + others
    assert found.counts["matched"] + found.counts["missing"] == len(a) + others
    assert found.counts["matched"] + found.counts["added"] == len(b) + others


# -- savings ---------------------------------------------------------------------------


def test_savings_are_those_of_all_ops_the_largest_first(traced):
    kernel = """
        v = tl.load(x, (n, n), "f32")
        w = tl.exp(v)
        w = tl.exp(w)
        tl.store(y, w + v)
    """
    a = traced(kernel)
    b = traced(kernel, spec={"pe.clock_ghz": 2})
    spent = {}
    for trace, sign in ((a, 1), (b, -1)):
        for op in trace.ops:
            took = op.t_end - op.t_start
            spent[op.op_name] = spent.get(op.op_name, 0.0) + sign * took
    found = compare(a, b)
    saved = [row.saved_ns for row in found.savings]
    assert saved == sorted(saved, reverse=True)
    by_name = {}
    for row in found.savings:
        assert row.saved_ns == pytest.approx(row.a_ns - row.b_ns)
        by_name[row.name] = by_name.get(row.name, 0.0) + row.saved_ns
    assert by_name == pytest.approx({k: v for k, v in spent.items() if abs(v) > 1e-6})
    assert found.savings[0].name == "exp"
    back = compare(b, a)
    assert [row.saved_ns for row in back.savings] == pytest.approx(
        [-saved for saved in saved[::-1]]
    )


# -- as text and as data ---------------------------------------------------------------


def test_it_is_said_on_the_command_line_and_in_the_debugger(traced):
    two = traced(whole("v * 2.0"))
    three = traced(whole("v * 3.0"))
    paths = [str(two.path), str(three.path)]
    result = CliRunner().invoke(main, ["trace", "compare", *paths, "--width", "300"])
    assert result.exit_code == 1
    assert "scalars [2.0] -> [3.0]" in result.output
    assert f"kernbench trace blame {paths[1]} 'y[0,0]'" in result.output
    result = CliRunner().invoke(main, ["trace", "compare", *paths, "--json"])
    assert json.loads(result.output)["outputs"][0]["differ"] == 256
    answer = ReplaySession(two).run_line(f"compare '{paths[1]}'")
    assert answer == compare(two, three)
    assert json.loads(json.dumps(as_data(answer)))["ok"] is False
