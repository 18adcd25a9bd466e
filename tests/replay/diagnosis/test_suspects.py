"""The lines to suspect of an output that is wrong, of kernels with one guilty line.

What is wrong with each is known because it was put there, at a line that says so.
"""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernbench.cli import main

TREE = """
import numpy as np
from kernbench.benches import bench
from kernbench.ccl.install import install_ipcq
from kernbench.runtime_api import DPPolicy

FOUR = {"system.sips.count": 1, "sip.cube_mesh.w": 2, "sip.cube_mesh.h": 2}
AROUND = [{"E": 1, "S": 2}, {"W": 0, "S": 3}, {"E": 3, "N": 0}, {"W": 2, "N": 1}]

def kernel(x, y, tl):
    cube = tl.program_id(1)
    mine = tl.load(x)
    if cube in (1, 3):
        tl.send("W", mine)
        tl.store(y, mine * 0.0)
        return
    total = tl.add(mine, tl.recv("E", mine.shape, "f32"))
    if cube == 2:
        tl.send("N", mine)  # guilty
        tl.store(y, mine * 0.0)
        return
    tl.store(y, total + tl.recv("S", mine.shape, "f32"))

@bench(name="tree", description="", machine=lambda **_: FOUR)
def run(torch):
    places = [(0, cube, 0) for cube in range(4)]
    install_ipcq(
        torch.engine, world_size=4, rank_to_pe=places, neighbors=AROUND.__getitem__
    )
    dp = DPPolicy(cube="row_wise", num_pes=1)
    data = torch.rng.standard_normal((4, 64)).astype("f4")
    x = torch.tensor(data, dp=dp, name="x")
    y = torch.empty((4, 64), "f32", dp=dp, name="y")
    torch.launch("tree", kernel, x, y)
    wanted = np.zeros_like(data)
    wanted[0] = data.sum(0)
    torch.expect(y, wanted, rtol=1e-4, atol=1e-4)
"""

ROWS = """
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def kernel(x, y, tl):
    rows, columns = tl.own(x)
    KERNEL

@bench(name="rows", description="")
def run(torch):
    dp = DPPolicy(cube="row_wise", pe="row_wise", num_cubes=1, num_pes=2)
    d = torch.rng.standard_normal((8, 128)).astype("f4")
    x = torch.tensor(d, "f32", dp, name="x")
    y = torch.zeros((8, 128), "f32", dp, name="y")
    torch.launch("kernel", kernel, x, y)
    torch.expect(y, WANTED, rtol=1e-4, atol=1e-4)
"""

SOFTMAX = """
    for r in range(rows.start, rows.stop):
        row = tl.load(x[r : r + 1, :])
        shifted = row - tl.max(row, axis=1, keepdims=True)
        e = tl.exp(shifted)
        total = tl.sum(e, axis=1, keepdims=True)
        if r == rows.start:
            first = total
        z = e / total
        tl.mul(z, 2.0, out=z)
        tl.store(y[r : r + 1, :], z)
"""
OF_SOFTMAX = "2 * np.exp(d) / np.exp(d).sum(1, keepdims=True)"

UNSHIFTED = ("tl.exp(shifted)", "tl.exp(row)  # guilty")
STALE = ("e / total", "e / first  # guilty")
IN_VAIN = ("tl.mul(z, 2.0, out=z)", "tl.mul(z, 2.0)  # guilty")

SUMS = """
    for r in range(rows.start, rows.stop):
        total = tl.zeros((1, 32), "f32")
        for c in range(0, 128, 32):
            tl.add(total, tl.load(x[r : r + 1, c : c + 32]), out=total)
        if r == rows.start + 1:
            tl.add(total, before, out=total)  # guilty
        before = total
        tl.store(y[r : r + 1, :32], total)
"""
OF_SUMS = "np.pad(d.reshape(8, 4, 32).sum(1), ((0, 0), (0, 96)))"

HALVES = """
    top = tl.load(x[rows.start : rows.start + 2, :])
    low = tl.load(x[rows.start + 2 : rows.start + 4, :])
    weight = tl.full((2, 128), 3.0, "f32")
    tl.store(y[rows.start : rows.start + 2, :], top * weight)
    tl.store(y[rows.start + 2 : rows.start + 4, :], low * top)  # guilty
"""

SHORT = """
    for r in range(rows.start, rows.stop):
        total = tl.zeros((1, 32), "f32")
        for c in range(0, 96, 32):
            part = tl.load(x[r : r + 1, c : c + 32])
            tl.add(total, part, out=total)
        tl.store(y[r : r + 1, :32], total)
"""


CLIPPED = """
    for r in range(rows.start, rows.stop):
        row = tl.load(x[r : r + 1, :])
        if r == rows.start:
            tl.mul(row, 1.5, out=row)  # guilty
        tl.store(y[r : r + 1, :], tl.maximum(row, 0.0))
"""


TIMES = """
    for r in range(rows.start, rows.stop):
        row = tl.load(x[r : r + 1, :]) + 1.0
        times = 1.5 if r == 5 else 2.0
        twice = row * times  # guilty
        tl.store(y[r : r + 1, :], tl.exp(twice))
"""


PRODUCTS = """
    total = tl.zeros((4, 32), "f32")
    before = tl.zeros((4, 32), "f32")
    for c in range(0, 128, 32):
        part = tl.load(x[rows.start : rows.stop, c : c + 32])
        tl.add(total, part * before, out=total)
        before = part + 0.0
    tl.store(y[rows.start : rows.stop, :32], total * 2.0)  # guilty
"""
OF_PRODUCTS = (
    "np.pad((d[:, 32:] * d[:, :96]).reshape(8, 3, 32).sum(1), ((0, 0), (0, 96)))"
)


@pytest.fixture
def blamed(tmp_path, monkeypatch):
    """blamed(source) -> the finding about y, and what is in each line it names."""
    monkeypatch.chdir(tmp_path)

    def blamed(source):
        Path("mine.py").write_text(source)
        runner = CliRunner()
        ran = runner.invoke(main, ["run", "./mine.py", "--trace", "t.msgpack"])
        assert "y" in ran.output
        told = runner.invoke(main, ["trace", "diagnose", "t.msgpack", "--json"])
        (finding,) = (f for f in json.loads(told.stdout) if f["title"][:2] == "y:")
        numbers = [int(line.rpartition(":")[2]) for line in finding["lines"]]
        return finding, [source.splitlines()[number - 1] for number in numbers]

    return blamed


def rows_of(kernel, wanted, *change):
    """A bench of rows with a kernel, in which one text was replaced by another."""
    kernel = kernel.strip().replace(*change) if change else kernel.strip()
    return ROWS.replace("KERNEL", kernel).replace("WANTED", wanted)


@pytest.mark.slow
def test_who_sends_the_wrong_operand_is_suspected_first(blamed):
    """All right elements are zeros of other cubes, which do other things."""
    finding, lines = blamed(TREE)
    assert lines[0].endswith("# guilty")
    assert any("nobody reads what op" in sentence for sentence in finding["evidence"])


@pytest.mark.parametrize(
    "change",
    [UNSHIFTED, STALE],
    ids=["an input for its output", "a row's before"],
)
@pytest.mark.slow
def test_who_reads_another_value_than_the_one_just_made_is_first(blamed, change):
    wanted = OF_SOFTMAX
    if change is UNSHIFTED:  # else it is right: the largest cancels out
        wanted = OF_SOFTMAX.replace("np.exp(d) /", "np.exp(d - d.max(1)[:, None]) /")
    _, lines = blamed(rows_of(SOFTMAX, wanted, *change))
    assert lines[0].endswith("# guilty")


@pytest.mark.slow
def test_an_op_whose_result_is_dropped_is_suspected(blamed):
    _, lines = blamed(rows_of(SOFTMAX, OF_SOFTMAX, *IN_VAIN))
    assert lines[1].endswith("# guilty")


@pytest.mark.slow
def test_a_line_that_only_the_wrong_one_ran_is_before_those_that_both_did(blamed):
    _, lines = blamed(rows_of(SUMS, OF_SUMS))
    assert lines[0].endswith("# guilty")


@pytest.mark.slow
def test_right_elements_that_another_line_stored_are_no_measure(blamed):
    finding, lines = blamed(rows_of(HALVES, "3 * d"))
    assert lines[0].endswith("# guilty")
    assert "they part" not in str(finding["evidence"])


@pytest.mark.slow
def test_elements_that_are_right_by_chance_are_no_measure(blamed):
    """Half of the wrong row is 0, which is right whatever it is multiplied with."""
    _, lines = blamed(rows_of(CLIPPED, "np.maximum(d, 0)"))
    assert lines[0].endswith("# guilty")


@pytest.mark.slow
def test_a_line_that_is_given_another_number_is_suspected_first(blamed):
    finding, lines = blamed(rows_of(TIMES, "np.exp(2 * d + 2)"))
    assert lines[0].endswith("# guilty")
    assert "mul is given 2 in one, and 1.5 in the other" in str(finding["evidence"])


@pytest.mark.slow
def test_that_nobody_reads_what_a_loop_hands_on_at_its_end_is_not_told(blamed):
    finding, lines = blamed(rows_of(PRODUCTS, OF_PRODUCTS))
    assert lines[0].endswith("# guilty")
    assert "nobody reads" not in str(finding["evidence"])


@pytest.mark.slow
def test_it_is_unsure_where_nothing_tells_one_line_from_another(blamed):
    """All that is right was filled by the host."""
    finding, lines = blamed(rows_of(SHORT, OF_SUMS))
    *of_kernel, of_host = lines
    assert [line.partition("(")[0].split()[-1] for line in of_kernel] == [
        "tl.store",
        "tl.add",
        "tl.load",
        "tl.zeros",
    ]
    assert "torch.tensor" in of_host
    assert "unsure: any of the 5 lines behind it may be wrong" in finding["evidence"]
