"""Where an output went wrong though no op did by itself: errors that add up, and NaN
that an op makes of operands that have none.
"""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from kernbench.common.progress import no_progress
from kernbench.replay import ReplaySession
from kernbench.replay.data.slices import ops_behind
from kernbench.runtime_api import run_bench
from kernbench.sim_engine.access_columns import AccessColumns
from kernbench.trace import Trace

ADDS = """
import numpy as np
from kernbench.benches import bench

def kernel(y_ptr, z_ptr, n, tl):
    y = tl.full((4,), 0.0, "bf16")
    z = tl.full((4,), 0.0, "bf16")
    for _ in range(n):
        z = z + 1.0
    for _ in range(n):
        y = y + 1.0
    tl.store(y_ptr, y)
    tl.store(z_ptr, z)

@bench(name="adds", description="sums of ones")
def run(torch, n: int = 300, z: float = 256.0):
    y_out = torch.empty((4,), "bf16", name="y")
    z_out = torch.empty((4,), "bf16", name="z")
    torch.launch("adds", kernel, y_out, z_out, n)
    torch.expect(y_out, np.full(4, float(n)))
    torch.expect(z_out, np.full(4, z))
"""

SOFTMAX = """
import numpy as np
from kernbench.benches import bench

def kernel(x_ptr, y_ptr, tl):
    x = tl.load(x_ptr, (4, 8), "f32")
    e = tl.exp(x - tl.max(x, axis=1, keepdims=True))  # born here
    tl.store(y_ptr, e / tl.sum(e, axis=1, keepdims=True))

@bench(name="rows", description="softmax of a row of -inf")
def run(torch):
    data = torch.rng.standard_normal((4, 8)).astype("f4")
    data[2] = -np.inf
    x = torch.tensor(data, name="x")
    y = torch.empty((4, 8), "f32", name="y")
    torch.launch("rows", kernel, x, y)
    torch.expect(y, np.zeros((4, 8)))
"""


@pytest.fixture
def session_of(tmp_path):
    """session_of(source, **params) -> a session on the trace of that bench."""

    def session_of(source, **params):
        bench = tmp_path / "stranger.py"
        bench.write_text(source)
        path = tmp_path / "trace.msgpack"
        run_bench(str(bench), params=params, trace=path)
        return ReplaySession(Trace.open(path))

    return session_of


@pytest.mark.slow
def test_the_finding_says_of_which_op_none_is_wrong_by_itself(session_of):
    """It read "op 257 add no op is wrong by itself"."""
    session = session_of(ADDS)
    titles = [one.title for one in session.run_line("diagnose")]
    (title,) = [one for one in titles if "by itself" in one]
    assert re.match(r"op [\d,]+ add: no op is wrong by itself; of those ", title)


REUSED = """
import numpy as np
from kernbench.benches import bench

def sums(x_ptr, y_ptr, n, tl):
    y = tl.full((4,), 0.0, "bf16")
    for _ in range(n):
        y = y + 1.0
    tl.store(y_ptr, y)

def born(x_ptr, y_ptr, n, tl):
    x = tl.load(x_ptr)
    tl.store(y_ptr, x - x)

@bench(name="reused", description="a sum of ones, and then NaN as it is to be")
def run(torch, n: int = 300):
    x = torch.tensor(np.full(4, np.inf), "bf16", name="x")
    y = torch.empty((4,), "bf16", name="y")
    torch.launch("sums", sums, x, y, n)
    torch.expect(y, np.full(4, float(n)), name="sum")
    torch.launch("born", born, x, y, n)
    torch.expect(y, np.full(4, np.nan), name="nan")
"""


@pytest.mark.slow
def test_an_output_that_was_overwritten_is_followed_from_when_it_was_due(session_of):
    found = session_of(REUSED).first_divergence()
    # the host writes x, the full comes, and then the adds
    assert found.op == 2 + 259 - 1
    assert "those behind sum this is the first at which the errors" in found.note


@pytest.mark.slow
def test_errors_that_add_up_are_blamed_on_the_op_where_they_exceed_the_tolerance(
    session_of,
):
    found = session_of(ADDS).first_divergence()
    # bf16 counts to 256: of 259 it is off by 3, more than 0.01 + 0.01 x 259.
    # Of the 602 ops those behind y are the second half: full, then the adds.
    adds_of_z = 300
    assert found.op == 2 + adds_of_z + 259 - 1
    assert found.check.accumulated == 3.0
    assert not found.check.over
    assert "those behind y " in found.note
    assert "4 of 4 elements" in found.note


@pytest.mark.slow
def test_where_all_outputs_are_right_errors_that_add_up_are_no_divergence(session_of):
    found = session_of(ADDS, n=258, z=258.0).first_divergence()
    assert found.op == -1
    assert found.note == "rounding explains every op"


def test_the_op_that_makes_nan_of_infinities_is_named(session_of):
    found = session_of(SOFTMAX).first_divergence()
    assert found.name == "sub"
    assert "makes NaN of operands that have none: 8 elements" in found.note


def slice_by_bytes(accesses, places):
    """The ops behind some bytes, from one set of every single byte."""
    wanted = {(s, at) for s, addr, n in places for at in range(addr, addr + n)}
    found = set()
    for row in sorted({access[0] for access in accesses}, reverse=True):
        mine = [access for access in accesses if access[0] == row]
        for _, is_write, space, addr, n in mine:
            written = {(space, at) for at in range(addr, addr + n)}
            if is_write and written & wanted:
                wanted -= written
                found.add(row)
        if row in found:
            for _, is_write, space, addr, n in mine:
                if not is_write:
                    wanted |= {(space, at) for at in range(addr, addr + n)}
    return found


@pytest.mark.parametrize("seed", range(50))
def test_the_ops_behind_bytes_are_those_of_a_walk_byte_by_byte(seed):
    chance = random.Random(seed)
    spaces = ("hbm", "tcm")
    accesses = []
    for row in range(chance.randrange(1, 60)):
        for is_write in [0] * chance.randrange(3) + [1]:
            place = (chance.randrange(40), chance.randrange(1, 9))
            accesses.append((row, is_write, chance.choice(spaces), *place))
    columns = zip(*accesses, strict=True)
    row, mode, space, addr, nbytes = (list(column) for column in columns)
    numbers = [spaces.index(name) for name in space]
    arrays = map(np.array, (row, mode, numbers, addr, nbytes))
    touched = AccessColumns(*arrays, spaces)
    places = [(chance.choice(spaces), chance.randrange(40), 5) for _ in range(2)]
    ops = accesses[-1][0] + 1
    for count in (chance.randint(0, ops), ops):
        by_bytes = slice_by_bytes([x for x in accesses if x[0] < count], places)
        assert ops_behind(touched, places, count, no_progress) == by_bytes
