"""A run that does not end by itself is ended by a limit, and leaves a whole trace."""

import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.errors import LimitError, UsageError
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace
from kernbench.trace.first_apart import first_apart

ENDLESS = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def endless(a_ptr, tl):
    while True:
        tl.load(a_ptr, (8, 8), "f16")

@bench(name="endless", description="never ends")
def run(torch):
    a = torch.zeros((8, 8), "f16", DPPolicy(), name="a")
    torch.launch("endless", endless, a)
"""
ONE_CUBE = {
    "sip.cube_mesh.w": 1,
    "sip.cube_mesh.h": 1,
    "system.sips.count": 1,
}
SMALL = {"m": "64", "k": "64", "n": "64", "pes": "1"}


@pytest.fixture
def endless(tmp_path):
    path = tmp_path / "endless.py"
    path.write_text(ENDLESS)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [{"max_ns": 20_000.0}, {"max_ops": 1000}])
def test_a_limit_ends_an_endless_kernel_and_its_trace_is_whole(
    endless, tmp_path, limit
):
    path = tmp_path / "x.msgpack"
    with pytest.raises(
        LimitError, match=r"still running: .*launch endless at .*endless.py"
    ):
        run_bench(endless, trace=path, spec=ONE_CUBE, **limit)
    trace = Trace.open(path)
    assert (trace.complete, trace.check()) == (True, [])
    assert trace.end["error"].startswith("LimitError: stopped at ")
    if "max_ns" in limit:
        assert 19_000 < trace.end_ns <= 20_000
    else:
        assert len(trace.ops) == 1001


@pytest.mark.slow
def test_a_limit_that_is_not_reached_changes_nothing(tmp_path):
    free = run_bench("matmul", params=SMALL, trace=tmp_path / "free")
    limited = run_bench(
        "matmul",
        params=SMALL,
        trace=tmp_path / "limited",
        max_ns=free.end_ns,
        max_ops=free.ops,
    )
    assert limited.ok
    parting = first_apart(
        Trace.open(tmp_path / "free"),
        Trace.open(tmp_path / "limited"),
        ("max_ns", "max_ops"),
    )
    assert parting is None


def test_without_a_trace_a_limit_holds_too(endless):
    with pytest.raises(LimitError, match="max_ops=5;"):
        run_bench(endless, spec=ONE_CUBE, max_ops=5)


@pytest.mark.parametrize(
    "limit", [{"max_ns": 0}, {"max_ns": float("nan")}, {"max_ops": 0}]
)
def test_a_limit_of_nothing_is_refused(limit):
    with pytest.raises(UsageError, match="must be"):
        run_bench("matmul", **limit)


@pytest.mark.slow
def test_the_command_line_has_them_and_says_what_still_ran(endless):
    spec = [f"--spec={field}={value}" for field, value in ONE_CUBE.items()]
    done = CliRunner().invoke(main, ["run", endless, "--max-ns", "20000", *spec])
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert "by the limit max_ns=20,000" in line
    assert "; still running: launch endless at " in line


@pytest.mark.slow
def test_progress_says_what_share_of_the_tiles_has_begun():
    said = []
    run_bench(
        "matmul",
        params={"m": "112", "k": "112", "n": "112", "tile": "7", "pes": "1"},
        spec=ONE_CUBE,
        verify=False,
        progress=lambda text, count, unit: said.append(text),
    )
    shares = [text.split(", ")[-1] for text in said]
    assert shares
    assert all(share.endswith("% of 4,096 tiles") for share in shares)
    found = [float(share.split("%")[0]) for share in shares]
    assert found == sorted(found)
    assert 0 < found[0] < found[-1] <= 100
