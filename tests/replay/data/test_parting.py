"""Two elements beside each other: the first place where their chains part."""

import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.replay import ReplaySession
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

SUMS = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

ONE = DPPolicy(num_cubes=1, num_pes=1)

def kernel(x_ptr, y_ptr, tl):
    for row in range(4):
        x = tl.load(x_ptr + row * 64, (16,), "f32")
        total = tl.sum(x, axis=0, keepdims=True)
        if row != SKIPPED:
            total = tl.mul(total, 0.5)
        tl.store(y_ptr + row * 4, total)

@bench(name="sums", description="")
def run(torch):
    x = torch.tensor(torch.rng.standard_normal((4, 16)), "f32", ONE, name="x")
    y = torch.zeros((4,), "f32", ONE, name="y")
    torch.launch("sums", kernel, x, y)
"""


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """asked(skipped, words) -> what a command answers about the sums."""
    monkeypatch.chdir(tmp_path)

    def asked(skipped, words):
        (tmp_path / "sums.py").write_text(SUMS.replace("SKIPPED", str(skipped)))
        run_bench("sums.py", trace="t.msgpack")
        return ReplaySession(Trace.open("t.msgpack")).run_line(words)

    return asked


def test_they_part_at_the_line_that_one_of_them_lacks(asked):
    found = asked(2, "blame y[1] y[2]")
    first, *_ = found.differences
    assert first.site == "sums.py:12"
    assert first.what.startswith("mul is in one chain only; its line 1 times and 0")
    assert (first.good >= 0, first.bad) == (True, -1)
    assert "they part at sums.py:12: mul" in "\n".join(found.lines(100))


def test_they_part_where_one_reads_another_row_than_its_own(asked, monkeypatch):
    off = SUMS.replace("row * 64", "(0 if row == 2 else row) * 64")
    monkeypatch.setitem(globals(), "SUMS", off)
    (difference,) = asked(9, "blame y[1] y[2]").differences
    assert difference.site == "sums.py:9"
    assert "reads x[1, 0:16] in one, and x[0, 0:16]" in difference.what


@pytest.mark.slow
def test_chains_that_are_alike_part_nowhere(asked):
    found = asked(9, "blame y[1] y[2]")
    assert found.differences == ()
    assert "the chains are alike" in found.lines(200)[-1]


def test_a_second_place_that_is_none_is_one_line(asked, tmp_path):
    asked(9, "info")
    result = CliRunner().invoke(
        main, ["trace", "blame", "t.msgpack", "y[1]", "nothing[2]"]
    )
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "nothing" in line


@pytest.mark.slow
def test_a_number_is_a_depth_still(asked):
    assert len(asked(9, "blame y[1] 1").links) == 2
