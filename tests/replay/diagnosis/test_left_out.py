"""Lines that some iterations leave out: in the middle, or at the ends of a loop.

The kernels load ahead by hand, as anybody would. Which of them are right is known
without asking.
"""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernbench.cli import main

BENCH = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def kernel(x, y, tl):
    rows, _ = tl.own(x)
    KERNEL

@bench(name="ahead", description="")
def run(torch):
    dp = DPPolicy(num_cubes=1, num_pes=2, pe="row_wise")
    data = torch.rng.standard_normal((64, 32)).astype("f4")
    x = torch.tensor(data, "f32", dp, name="x")
    y = torch.empty((64, 32), "f32", dp, name="y")
    torch.launch("kernel", kernel, x, y)
    torch.expect(y, data * 2)
"""

ONE_LOOP = """
    ahead = tl.load(x[rows.start : rows.start + 4, :], wait=False)
    for low in range(rows.start, rows.stop, 4):
        now = ahead
        tl.wait(now)
        if low + 4 < rows.stop:
            ahead = tl.load(x[low + 4 : low + 8, :], wait=False)  # ahead
        once = now * 1.0
        tl.store(y[low : low + 4, :], once + once)
"""

TWO_LOOPS = """
    for half in range(4):
        first = rows.start + half * 8
        ahead = tl.load(x[first : first + 2, :], wait=False)
        for low in range(first, first + 8, 2):
            now = ahead
            tl.wait(now)
            if low + 2 < first + 8:
                ahead = tl.load(x[low + 2 : low + 4, :], wait=False)  # ahead
            once = now * 1.0
            tl.store(y[low : low + 2, :], once + once)
"""

TWO_AHEAD = """
    lows = list(range(rows.start, rows.stop, 4))
    coming = [tl.load(x[low : low + 4, :], wait=False) for low in lows[:2]]
    for number, low in enumerate(lows):
        now = coming.pop(0)
        tl.wait(now)
        if number + 2 < len(lows):
            after = lows[number + 2]
            coming.append(tl.load(x[after : after + 4, :], wait=False))  # ahead
        once = now * 1.0
        tl.store(y[low : low + 4, :], once + once)
"""

IN_ALL_BUT_ONE = """
    for low in range(rows.start, rows.stop, 4):
        twice = tl.load(x[low : low + 4, :])
        if low - rows.start != 8:
            tl.mul(twice, 2.0, out=twice)  # left out
        tl.store(y[low : low + 4, :], twice)
"""

IN_ALL_BUT_ONE_OF_EACH = """
    for half in range(4):
        first = rows.start + half * 8
        ones = tl.full((2, 32), 1.0, "f32")
        for low in range(first, first + 8, 2):
            twice = tl.load(x[low : low + 2, :])
            if low - first != 2:
                tl.mul(twice, 2.0, out=twice)  # left out
            tl.store(y[low : low + 2, :], twice * ones)
"""

RIGHT = {"one loop": ONE_LOOP, "two loops": TWO_LOOPS, "two ahead": TWO_AHEAD}
WRONG = {"one loop": IN_ALL_BUT_ONE, "two loops": IN_ALL_BUT_ONE_OF_EACH}


@pytest.fixture
def odd_lines(tmp_path, monkeypatch):
    """odd_lines(kernel) -> the lines, with what is in them, that are called odd."""
    monkeypatch.chdir(tmp_path)

    def odd_lines(kernel):
        source = BENCH.replace("KERNEL", kernel.strip())
        Path("mine.py").write_text(source)
        runner = CliRunner()
        runner.invoke(main, ["run", "./mine.py", "--trace", "t.msgpack"])
        told = runner.invoke(main, ["trace", "diagnose", "t.msgpack", "--json"])
        numbers = [
            int(line.rpartition(":")[2])
            for finding in json.loads(told.stdout)
            if finding["kind"] == "odd"
            for line in finding["lines"]
        ]
        return [source.splitlines()[number - 1] for number in numbers]

    return odd_lines


@pytest.mark.parametrize("kernel", RIGHT.values(), ids=RIGHT)
@pytest.mark.slow
def test_that_nothing_is_loaded_ahead_at_the_end_of_a_loop_is_not_odd(
    odd_lines, kernel
):
    assert odd_lines(kernel) == []


@pytest.mark.parametrize("kernel", WRONG.values(), ids=WRONG)
@pytest.mark.slow
def test_what_is_left_out_in_the_middle_of_a_loop_is_odd(odd_lines, kernel):
    (odd,) = odd_lines(kernel)
    assert odd.endswith("# left out")
