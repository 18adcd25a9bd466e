"""What ``hazards`` calls a race, against reachability over the edges, byte by byte.

And against re-runs that hold DMA ops back at random: what comes out otherwise then was
a race, whatever any model says.
"""

import random

import plain_frames
import plain_order
import plain_time
import pytest
import random_kernels
import random_races
import random_ranks
import random_slices
from random_delays import delayed

from kernbench.errors import KernbenchError
from kernbench.replay import ReplaySession
from kernbench.replay.races.search import races_of
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

GAPS = 0.3
RUNS = 20
"""Re-runs that a program with a race has to show it in."""


def recorded(text, folder):
    """The trace of a program."""
    file = folder / "program.py"
    file.write_text(text)
    try:
        run_bench(str(file), trace=folder / "recorded.msgpack")
    except KernbenchError:
        assert (folder / "recorded.msgpack").exists()
    return folder / "recorded.msgpack"


def pair(one, other):
    return min(one, other), max(one, other)


def found_by_kernbench(path):
    """The pairs of ops that race, and those of them that met in the run."""
    session = ReplaySession(Trace.open(path))
    history = session.index.history
    races = races_of(session.trace, history.touched, history.allocs)
    rows = history.touched.row
    ops = zip(rows[races.earlier].tolist(), rows[races.later].tolist(), strict=True)
    every = [pair(*ops) for ops in ops]
    met = {ops for ops, did in zip(every, races.met.tolist(), strict=True) if did}
    return {*every}, met


def check(path):
    """Compare the races of a trace with those that reachability gives."""
    found, met = found_by_kernbench(path)
    recording = plain_frames.read(path)
    wanted = {pair(*ops) for ops in plain_order.races(recording)}
    together = {
        pair(later, earlier) for *_, later, earlier in plain_time.conflicts(recording)
    }
    assert found == wanted | together
    assert together <= met
    return len(wanted)


def seeds(fast, slow, soak):
    """Seeds of the tests that run always, in CI, and when there is time."""
    return [
        *range(fast),
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(fast, slow)),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(slow, soak)),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(3, 8, 300))
def test_races_of_random_kernels_are_those_of_all_pairs(seed, tmp_path):
    check(recorded(random_kernels.program(seed), tmp_path))


@pytest.mark.parametrize("seed", seeds(20, 50, 1000))
@pytest.mark.slow
def test_races_of_shared_rows_are_those_of_all_pairs(seed, tmp_path):
    check(recorded(random_races.program(seed, GAPS), tmp_path))


@pytest.mark.parametrize("seed", seeds(8, 24, 400))
@pytest.mark.slow
def test_races_of_shared_slices_are_those_of_all_pairs(seed, tmp_path):
    check(recorded(random_slices.program(seed, GAPS), tmp_path))


@pytest.mark.parametrize("seed", seeds(8, 24, 400))
def test_slices_that_are_ordered_by_construction_have_no_race(seed, tmp_path):
    session = ReplaySession(Trace.open(recorded(random_slices.program(seed), tmp_path)))
    assert session.index.ops.error == ""
    assert session.hazards().rows == ()


@pytest.mark.parametrize("seed", seeds(15, 50, 500))
def test_a_program_that_is_ordered_by_construction_has_no_race(seed, tmp_path):
    path = recorded(random_races.program(seed), tmp_path)
    assert ReplaySession(Trace.open(path)).hazards().rows == ()


def outcome(path, error=""):
    """What a run leaves in the tensors of the host, and what ended it."""
    session = ReplaySession(Trace.open(path))
    memory = session.index.history.at(len(session))
    tensors = [shard for shard in session.trace.allocs if shard.va]
    return error, [
        memory.view(shard.space, shard.addr, (shard.nbytes,), "u8").tobytes()
        for shard in tensors
    ]


def differs(path, new, seed):
    """Whether one of some re-runs with ops held back comes to something else."""
    rng = random.Random(seed)
    before = outcome(path)
    recording = plain_frames.read(path)
    for _ in range(RUNS):
        error = delayed(path, new, recording, rng)
        if error or outcome(new) != before:
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2, 8, 200))
def test_what_comes_out_otherwise_with_delays_is_reported(seed, tmp_path):
    path = recorded(random_races.program(seed, GAPS), tmp_path)
    found = ReplaySession(Trace.open(path)).hazards()
    if differs(path, tmp_path / "new.msgpack", seed):
        assert not found.ok


@pytest.mark.parametrize("seed", seeds(0, 4, 40))
def test_nothing_comes_out_otherwise_where_nothing_is_reported(seed, tmp_path):
    path = recorded(random_races.program(seed), tmp_path)
    assert not differs(path, tmp_path / "new.msgpack", seed)


@pytest.mark.parametrize("seed", seeds(5, 20, 300))
def test_races_of_launches_of_two_ranks_are_those_without_a_barrier(seed, tmp_path):
    """Whether they are on two PEs or on one, which serves them one after the other.

    A trace does not say who launched what: where that is told, the program may have
    other races than are found.
    """
    program = random_ranks.program(seed)
    hazards = ReplaySession(Trace.open(recorded(program.text, tmp_path))).hazards()
    found = set()
    for row in hazards.rows:
        lines = [int(site.rpartition(":")[2]) for site in row.sites]
        found.add(pair(*map(program.number_of, lines)))
    if "which rank asked for launch" not in hazards.unchecked:
        assert found == program.races()
