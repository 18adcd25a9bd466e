"""Whatever bytes it is given, the reader opens or raises TraceFormatError.

It does so in bounded memory, and so does what answers the debugger's questions on top.
100 files in CI, 10,000 under ``-m soak``.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recordings import record_all, touch

from kernbench.errors import TraceFormatError
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace, TraceWriter
from kernbench.trace.columns import LOGS
from kernbench.trace.schema import pack_frame

ONE_CUBE = {"sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1, "system.sips.count": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two small sound traces, to be broken."""
    folder = tmp_path_factory.mktemp("fuzz")
    record_all(TraceWriter(folder / "plain.msgpack"), None)
    sizes = {"m": 32, "k": 32, "n": 32, "tile": 16, "pes": 2}
    run_bench("matmul", params=sizes, spec=ONE_CUBE, trace=folder / "matmul.msgpack")
    return folder


def fuzzed(folder, first, count, *sabotage):
    """What became of so many broken files, in a process of its own."""
    fuzz = Path(__file__).parent / "fuzz.py"
    words = [sys.executable, "-W", "ignore", fuzz, folder, first, count, *sabotage]
    # A thread reserves memory.
    lean = {"MALLOC_ARENA_MAX": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        env=os.environ | lean,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_survived(found, count):
    assert found["failures"] == []
    ends = [found["seen"].get(end, 0) for end in ("opened", "damaged", "refused")]
    assert sum(ends) == count + 2  # two sound ones go first
    assert min(ends) > count // 200  # it reaches every kind of end


@pytest.mark.slow
def test_broken_files_open_or_are_refused(folder):
    assert_survived(fuzzed(folder, 0, 100), 100)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 10_000, 1000))
def test_ten_thousand_broken_files_open_or_are_refused(folder, first):
    assert_survived(fuzzed(folder, first, 1000), 1000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sabotage", "error"), [("sizes", "MemoryError"), ("numbers", "IndexError")]
)
def test_the_fuzzer_notices_a_reader_that_is_too_trusting(folder, sabotage, error):
    failures = fuzzed(folder, 0, 30, sabotage)["failures"]
    assert any(error in failure for failure in failures)


@pytest.fixture(scope="module")
def varied(tmp_path_factory):
    """Four small sound traces, which have ops and logs of every kind between them."""
    folder = tmp_path_factory.mktemp("varied")
    record_all(TraceWriter(folder / "plain.msgpack"), None)
    for bench, sizes in (
        ("matmul", {"m": 32, "k": 32, "n": 32, "tile": 16, "pes": 2}),
        ("softmax", {"m": 4, "n": 16, "block": 2, "pes": 2}),
        ("flash_attention", {"seq": 16, "d": 8, "block": 8, "pes": 2}),
    ):
        path = folder / f"{bench}.msgpack"
        run_bench(bench, params=sizes, spec=ONE_CUBE, trace=path)
    return folder


@pytest.mark.slow
def test_every_command_answers_about_values_that_cannot_be(varied):
    found = fuzzed(varied, 0, 8, "values")
    assert found["failures"] == []
    seen = found["seen"]
    assert seen["opened"] + seen.get("damaged", 0) > 6


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 11_000, 1000))
def test_ten_thousand_more_mutants_break_no_command(varied, first):
    assert fuzzed(varied, first, 1000, "values")["failures"] == []


HEADS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner)
    ),
    max_leaves=12,
)
TAGS = [
    *LOGS,
    "topology",
    "source",
    "strings",
    "expect",
    "verify",
    "end",
    "kernbench-trace",
    "future",
]
KEYS = [
    "n",
    "first",
    "columns",
    "raw",
    "params",
    "schemas",
    "first_schema",
    "results",
    "counts",
    "nodes",
    "edges",
    "spec",
    "spaces",
    "name",
    "dtype",
    "tensor",
    "tolerance",
    "end_ns",
]
HEAD = st.dictionaries(st.sampled_from(KEYS), HEADS | st.integers(0, 3), max_size=7)
FRAME = st.tuples(st.sampled_from(TAGS), HEAD, st.binary(max_size=64))


@pytest.mark.slow
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(frames=st.lists(FRAME, max_size=5))
def test_frames_of_anything_are_skipped(tmp_path, frames):
    data = pack_frame("kernbench-trace", {"version": [1, 0]}, b"", 0)
    for tag, head, body in frames:
        data += pack_frame(tag, head, body, len(data))
    (tmp_path / "x").write_bytes(data)
    assert len(touch(Trace.open(tmp_path / "x")).ops) == 0


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=200))
def test_bytes_of_anything_are_refused(folder, data):
    path = folder / "bytes"
    path.write_bytes(data)
    with pytest.raises(TraceFormatError, match="at offset 0"):
        Trace.open(path)


# An empty map is 88 times as large in memory.
LARGE = {"results": [{}] * 300_000}
DEEP = {"results": [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]}


@pytest.mark.parametrize(("head", "found"), [(LARGE, "?"), (DEEP, "verify")])
def test_a_head_that_is_too_large_or_too_deep_is_refused(tmp_path, head, found):
    first = pack_frame("kernbench-trace", {"version": [1, 0]}, b"", 0)
    (tmp_path / "x").write_bytes(first + pack_frame("verify", head, b"", len(first)))
    trace = touch(Trace.open(tmp_path / "x"))
    assert [damage.tag for damage in trace.damaged] == [found]


def test_more_frames_than_its_size_can_hold_are_not_kept(tmp_path):
    first = pack_frame("kernbench-trace", {"version": [1, 0]}, b"", 0)
    tiny = msgpack.packb(["x", {"crc": 0}, b""])
    (tmp_path / "x").write_bytes(first + tiny * 5000)
    (damage,) = Trace.open(tmp_path / "x").damaged
    assert "so many frames" in damage.reason
