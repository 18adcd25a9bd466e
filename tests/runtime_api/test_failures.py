"""A failing output is explained: its element, values and copy, and the command."""

import shlex

import half_written
import numpy as np
import pytest

import kernbench
from kernbench.runtime_api import run_bench
from kernbench.trace.frames import FrameFile

BENCH = """\
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def kernel(x, y, n, tl):
    {body}

@bench(name="fails", description="fails")
def run(torch, n=32):
    data = torch.rng.standard_normal(n).astype("f4")
    x = torch.tensor(data, dp=DPPolicy(pe="{x}", num_cubes=1), name="x")
    y = torch.{made} "{dtype}", dp=DPPolicy(pe="{y}", num_cubes=1), name="y")
    torch.launch("k", kernel, x, y, n)
    torch.expect(y, {expected})
"""


@pytest.fixture
def failures(tmp_path):
    def failures(
        body,
        expected="data",
        x="replicate",
        y="replicate",
        dtype="f32",
        made="zeros((n,),",
    ):
        file = tmp_path / "fails.py"
        text = BENCH.format(
            body=body, expected=expected, x=x, y=y, dtype=dtype, made=made
        )
        file.write_text(text)
        result = run_bench(str(file), trace=tmp_path / "t.msgpack")
        assert "\n".join(result.failures) in result.as_text()
        return result.failures

    return failures


@pytest.mark.slow
def test_nothing_is_said_of_what_is_right(failures):
    assert failures("tl.store(y, tl.load(x))") == ()


def test_the_first_bad_element_has_both_values_and_its_pe(failures, tmp_path):
    data = np.random.default_rng(0).standard_normal(32).astype("f4")
    row = "i = 4 * tl.program_id(0)"
    body = f"{row}; tl.store(y[i:i+4], tl.load(x[i:i+4]) * (1 + (i == 20)))"
    first, why = failures(body, x="row_wise", y="row_wise")
    assert first.startswith(
        f"y[20] on sip0.cube0.pe5 is to be {data[20]:.7g}, and is {2 * data[20]:.7g}; "
    )
    assert first.endswith("1e-05 + 1e-05 |expected| off would do")
    assert why == f"  why: kernbench trace blame {tmp_path / 't.msgpack'} 'y[20]'"


@pytest.mark.slow
def test_a_replica_that_each_pe_writes_in_part_is_named(failures):
    body = "i = 4 * tl.program_id(0); tl.store(y[i:i+4], tl.load(x[i:i+4]))"
    _first, copies, _why = failures(body)
    assert copies == "  y is replicated, and all 8 copies of that part are wrong"


def test_a_copy_that_is_not_written_is_named(failures):
    body = "tl.program_id(0) == 3 or tl.store(y, tl.load(x))"
    first, copies, _why = failures(body)
    assert first.startswith("y[0] on sip0.cube0.pe3 is to be ")
    assert copies.endswith("a PE writes its own copy: wrong are sip0.cube0.pe3")


SPLIT_K = """\
from kernbench.benches import bench

def kernel(a, b, c, flips, tl):
    sums = tl.zeros((32, 32), "f32")
    for k in range(0, 512, 128):
        product = tl.dot(tl.load(a[:, k:k+128]), tl.load(b[k:k+128, :]))
        sums = sums - product if flips and k else sums + product
    tl.store(c, sums)

@bench(name="split_k", description="f16 inputs, summed up in f32")
def run(torch, flips=False):
    a_host = torch.rng.standard_normal((32, 512)).astype("f2")
    b_host = torch.rng.standard_normal((512, 32)).astype("f2")
    a = torch.tensor(a_host, name="a")
    b = torch.tensor(b_host, name="b")
    c = torch.zeros((32, 32), "f32", name="c")
    torch.launch("k", kernel, a, b, c, flips)
    torch.expect(c, a_host.astype("f8") @ b_host.astype("f8"))
"""


@pytest.mark.parametrize("flips", [False, True])
def test_split_k_of_f16_is_told_from_a_wrong_sum(tmp_path, flips):
    file = tmp_path / "split_k.py"
    file.write_text(SPLIT_K)
    said = run_bench(str(file), params={"flips": flips}).failures
    assert said
    suggested = any("off by what rounding to f16 leaves" in line for line in said)
    assert suggested == (not flips)


def test_an_element_that_no_pe_writes_is_named(failures, tmp_path):
    data = np.random.default_rng(0).standard_normal(32).astype("f4")
    body = "i = 4 * tl.program_id(0); tl.store(y[i:i+3], tl.load(x[i:i+3]))"
    body = body.replace("i+3", "i+3 if i > 8 else i+4")
    path = tmp_path / "t.msgpack"
    made = failures(body, x="row_wise", y="row_wise", made="empty((n,),")
    first, why = made
    assert first.startswith(
        f"y[15] on sip0.cube0.pe3 is to be {data[15]:.7g}, and was never written"
    )
    assert why == f"  why: kernbench trace blame {path} 'y[15]'"


LONG_NUMBERS = """
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy


def kernel(x, y, tl):
    tl.store(y, tl.load(x))


@bench(name="long_numbers", description="y is x, which has more digits than seven")
def run(torch):
    one = DPPolicy(num_cubes=1, num_pes=1)
    x = torch.tensor(np.array([123456789, 5]), "DTYPE", one, name="x")
    y = torch.zeros((2,), "DTYPE", one, name="y")
    torch.launch("kernel", kernel, x, y)
    torch.expect(y, np.array([123456790, 5]))
"""


@pytest.mark.parametrize("dtype", ["i32", "i64", "u32"])
def test_an_integer_that_is_off_by_one_is_told_from_what_it_is_to_be(dtype, tmp_path):
    (tmp_path / "long.py").write_text(LONG_NUMBERS.replace("DTYPE", dtype))
    first, *_ = run_bench(str(tmp_path / "long.py")).failures
    assert "is to be 123456790, and is 123456789; it has to be equal" in first


def test_a_part_whose_pe_ran_no_kernel_says_so(tmp_path):
    bench = tmp_path / "half_written.py"
    bench.write_text(half_written.SOURCE)
    first, why, *_ = run_bench(str(bench)).failures
    assert first.startswith("y[1, 0] on sip0.cube0.pe1 is to be 3, and was never")
    assert why.startswith("  no kernel ran on sip0.cube0.pe1: ")


@pytest.mark.slow
def test_what_is_off_by_little_may_be_rounding(failures):
    said = failures("tl.store(y, tl.load(x) * 1.0001)", expected="data")
    assert any("--debug says whether rounding explains that" in line for line in said)


CAST = """\
import numpy as np
from kernbench.benches import bench

def kernel(x, y, tl):
    tl.store(y, tl.cast(tl.load(x), "i32"))

@bench(name="cast", description="a NaN as an integer")
def run(torch):
    x = torch.tensor(np.array([0, np.nan, 2, 3], "f4"), name="x")
    y = torch.zeros((4,), "i32", name="y")
    torch.launch("k", kernel, x, y)
    torch.expect(y, np.array([0, 0, 2, 3], "i4"))
"""


def test_what_is_to_be_0_and_is_far_from_it_is_not_off_by_little(tmp_path):
    file = tmp_path / "cast.py"
    file.write_text(CAST)
    first, why = run_bench(str(file)).failures
    assert first.startswith("y[1] on sip0.cube0.pe0 is to be 0, and is -2.147484e+09")
    assert why.startswith("  why: ")


REUSED = """\
import numpy as np
from kernbench.benches import bench

def kernel(x, y, factor, tl):
    tl.store(y, tl.load(x) * factor)

@bench(name="reused", description="y is 3 x where 2 x is expected, then 4 x")
def run(torch, name="doubled in place"):
    numbers = np.arange(64)
    x = torch.tensor(numbers, "f32", name="x")
    y = torch.zeros((64,), "f32", name="y")
    torch.launch("k", kernel, x, y, 3)
    torch.expect(y, 2 * numbers, name=name)
    torch.launch("k", kernel, x, y, 4)
    torch.expect(y, 4 * numbers, name="later")
"""


@pytest.fixture
def reused(tmp_path):
    """A run of REUSED: its trace, and what it says of the failing output."""
    file = tmp_path / "reused.py"
    file.write_text(REUSED)
    trace = tmp_path / "t.msgpack"
    return trace, run_bench(str(file), trace=trace).failures


def test_what_was_overwritten_since_is_not_taken_for_what_the_bench_saw(reused):
    _trace, (first, _why) = reused
    expected = "is to be 2, and was not when the bench looked"
    assert first.startswith(f"doubled in place[1] on sip0.cube0.pe0 {expected}")


def test_the_command_asks_by_the_name_and_at_the_op_of_the_expectation(reused):
    trace, (_first, why) = reused
    *_, name, path, place, option, op = shlex.split(why)
    assert (name, path, option) == ("blame", str(trace), "--op")
    assert place == "doubled in place[1]"
    with kernbench.open(trace) as session:
        session.goto(int(op))
        chain = session.blame(place)
        assert (chain.part.name, chain.part.value) == ("y[1]", "3")
        writers = [session.row(op).site for op in chain.part.writers]
        assert [site.rpartition(":")[2] for site in writers] == ["5"]
        assert f"why: blame {place}, at op {op}" in session.verify().lines(100)


SCALAR = """\
import numpy as np
from kernbench.benches import bench

def kernel(x, s, tl):
    tl.store(s, tl.sum(tl.load(x)))

@bench(name="scalar", description="the sum of x is 45")
def run(torch, expected=45):
    x = torch.tensor(np.arange(10), "f32", name="x")
    s = torch.zeros((), "f32", name="s")
    torch.launch("k", kernel, x, s)
    torch.expect(s, expected)
    torch.expect(x, np.arange(10))
"""


@pytest.fixture
def scalar(tmp_path):
    """scalar(expected) -> the trace of a run of SCALAR, and what fails in it."""

    def scalar(expected):
        file = tmp_path / "scalar.py"
        file.write_text(SCALAR)
        trace = tmp_path / "t.msgpack"
        params = {"expected": expected}
        return trace, run_bench(str(file), params=params, trace=trace).failures

    return scalar


@pytest.mark.parametrize("expected", [45, 5])
def test_a_scalar_is_verified_in_the_trace_as_in_the_run(scalar, expected):
    trace, failures = scalar(expected)
    assert [line.startswith("s[] on ") for line in failures[:1]] == [True] * (
        expected == 5
    )
    with kernbench.open(trace) as session:
        verdict = session.verify()
        assert not session.trace.damaged
        assert [out.row.tensor for out in verdict.rows] == ["s", "x"]
        assert verdict.ok == (expected == 45)


def test_an_expectation_that_is_damaged_is_not_verified(scalar):
    trace, _failures = scalar(5)
    data = bytearray(trace.read_bytes())
    frame = FrameFile(trace).by_tag["expect"][0]
    data[(frame.offset + frame.start) // 2] ^= 0xFF
    trace.write_bytes(data)
    with kernbench.open(trace) as session:
        verdict = session.verify()
        assert [out.row.tensor for out in verdict.rows] == ["x"]
        assert not verdict.ok
        assert verdict.disagreements == (
            "s: what the bench expects of it is damaged in the file, so it was not "
            "compared; check says more",
        )


FOUR_AXES = """\
import numpy as np
from kernbench.benches import bench

def kernel(x, y, tl):
    tl.store(y, tl.load(x) + 1)

@bench(name="four_axes", description="y is x + 1, but for one that is to be 0")
def run(torch):
    numbers = np.arange(120).reshape(2, 3, 4, 5)
    expected = numbers + 1
    expected[1, 2, 3, 1] = 0
    x = torch.tensor(numbers, "f32", name="x")
    y = torch.zeros(numbers.shape, "f32", name="y")
    torch.launch("k", kernel, x, y)
    torch.expect(y, expected)
"""


@pytest.mark.slow
def test_an_element_of_four_axes_is_asked_for_in_three(tmp_path):
    file = tmp_path / "four_axes.py"
    file.write_text(FOUR_AXES)
    trace = tmp_path / "t.msgpack"
    first, why = run_bench(str(file), trace=trace).failures
    assert first.startswith("y[1, 2, 3, 1] on sip0.cube0.pe0 is to be 0, and is 117;")
    place = shlex.split(why)[-1]
    with kernbench.open(trace) as session:
        session.goto(len(session) - 1)
        assert session.blame(place).part.value == "117"
        assert f"why: blame {place}" in session.verify().lines(100)
        wrong = session.run_line("diagnose")[0]
        assert wrong.title.startswith("y: 1 of 120 elements are wrong, the first ")
        assert wrong.title.endswith("= 117, which is to be 0")


@pytest.mark.slow
def test_the_copy_that_is_wrong_is_asked_for(failures, tmp_path):
    body = "tl.store(y, tl.load(x) * (1 + (tl.program_id(0) == 3)))"
    first, _copies, why = failures(body)
    assert first.startswith("y[0] on sip0.cube0.pe3 is to be ")
    place = shlex.split(why)[-1]
    assert place == "y@sip0.cube0.pe3.pe_cpu[0]"
    with kernbench.open(tmp_path / "t.msgpack") as session:
        session.goto(len(session) - 1)
        value = session.blame(place).part.value
        assert value != session.blame("y[0]").part.value
        assert f"why: blame {place}" in session.verify().lines(100)
        wrong = session.run_line("diagnose")[0]
        assert f"the first {place} = {value}, which is to be " in wrong.title
        components = [session.row(op).component for op in wrong.ops[:1]]
        assert components == ["sip0.cube0.pe3.pe_dma"]
