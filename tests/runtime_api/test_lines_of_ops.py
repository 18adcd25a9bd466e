"""What Phase 2 cannot do, or finds, of an op is said with the op's kernel line."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from kernbench.cli import main

PICK = """
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def kernel(x_ptr, at_ptr, y_ptr, tl):
    rows, _ = tl.own(x_ptr)
    mine = slice(rows.start, rows.stop)
    x = tl.load(x_ptr[mine])
    at = tl.load(at_ptr[mine])
    twice = tl.add(x, x)
    y = tl.gather(twice, at, 0)  # out of it
    tl.store(y_ptr[mine], y)

@bench(name="pick", description="")
def run(torch, looks: int = 0):
    dp = DPPolicy(num_cubes=1, num_pes=4, pe="row_wise")
    at = np.zeros((32, 4), np.int32)
    at[16:24] = 9
    x = torch.zeros((32, 4), "f32", dp, name="x")
    y = torch.empty((32, 4), "f32", dp, name="y")
    torch.launch("kernel", kernel, x, torch.tensor(at, "i32", dp, name="at"), y)
    if looks:
        y.numpy()
"""

OVERFLOW = """
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def kernel(x_ptr, y_ptr, tl):
    x = tl.load(x_ptr, (8,), "f16")
    y = tl.mul(x, x)  # too large
    tl.store(y_ptr, y)

@bench(name="square", description="")
def run(torch):
    dp = DPPolicy(num_cubes=1, num_pes=1)
    x = torch.tensor(np.full(8, 60000.0), "f16", dp, name="x")
    y = torch.empty((8,), "f16", dp, name="y")
    torch.launch("kernel", kernel, x, y)
"""


@pytest.fixture
def ended(tmp_path, monkeypatch):
    """ended(source, *options) -> what a run of that bench says."""
    monkeypatch.chdir(tmp_path)

    def ended(source, *options):
        Path("mine.py").write_text(source)
        result = CliRunner().invoke(main, ["run", "./mine.py", *options])
        assert result.exit_code == 1  # it ran, and is wrong
        return result.output

    return ended


def line_of(source, text):
    """The kernel line with a text in it."""
    (number,) = (i for i, line in enumerate(source.split("\n"), 1) if text in line)
    return f"mine.py:{number}"


RECORDED = pytest.mark.parametrize(
    "recorded", [(), ("--trace", "t.msgpack")], ids=["not recorded", "recorded"]
)


@RECORDED
@pytest.mark.parametrize("looks", ["looks=0", "looks=1"])
@pytest.mark.slow
def test_an_op_that_cannot_be_executed_is_named_with_its_line(ended, looks, recorded):
    said = ended(PICK, "--set", looks, *recorded)
    line = line_of(PICK, "# out of it")
    assert f"(gather on sip0.cube0.pe2.pe_math) at {line}: gather has indices" in said


@RECORDED
def test_an_op_that_is_off_is_named_with_its_line(ended, recorded):
    said = ended(OVERFLOW, "--debug", *recorded)
    assert f"overflow at {line_of(OVERFLOW, '# too large')}" in said
