"""Random programs run again: unchanged they are the same, a delay holds the op named.

What is held back is read from the plain recordings, by no code of the program's own.
"""

import random

import plain_frames
import pytest
import random_kernels

from kernbench.errors import KernbenchError
from kernbench.runtime_api import Change, rerun, run_bench

FEW = range(2, 5)
OF_A_PROGRAM = 6
"""Ops of each program that are held back, each in a run of its own."""


def delayed(recording):
    """The ops that waited for a delay, and for how long."""
    found = []
    for wait in recording.waits:
        if plain_frames.REASONS[wait["reason"]] == "delayed":
            found.append((recording.rows[wait["row"]], wait["t1"] - wait["t0"]))
    return found


def told(recording, op):
    """What is the same of an op in every run: its line, its PE, which time that is.

    The last is what number its call is of those of the PE at that line.
    """
    mine = recording.call_of(op)
    place = ("pe", "call", "file", "line")

    def said(call):
        texts = recording.strings
        return [texts[call[name]] for name in place[:3]] + [call["line"]]

    alike = [call["cmd"] for call in recording.calls if said(call) == said(mine)]
    index = op.params.get("tile_index")
    return op.name, said(mine), sorted(alike).index(op.cmd), index


def check(seed, folder):
    file = folder / "program.py"
    file.write_text(random_kernels.program(seed))
    path = folder / "recorded.msgpack"
    new = folder / "new.msgpack"
    try:
        run_bench(str(file), trace=path)
    except KernbenchError:
        assert path.exists()
    assert rerun(path, new).ok
    assert new.read_bytes() == path.read_bytes()
    before = plain_frames.read(path)
    rng = random.Random(seed)
    for position in rng.sample(range(len(before.ops)), OF_A_PROGRAM):
        delay = rng.choice([0.5, 50.0, 3000.0])
        done = rerun(path, new, Change(delays=[(position, delay)]))
        op = before.ops[position]
        after = plain_frames.read(new)
        ((held, waited),) = delayed(after)
        assert waited == delay, (seed, position)
        assert told(after, held) == told(before, op), (seed, position)
        assert done.end_ns == after.end["end_ns"]
        again = folder / "again.msgpack"
        assert rerun(new, again).ok
        assert again.read_bytes() == new.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("seed", FEW)
def test_a_random_program_is_run_again(seed, tmp_path):
    check(seed, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 130))
def test_more_random_programs_are_run_again(seed, tmp_path):
    check(seed, tmp_path)
