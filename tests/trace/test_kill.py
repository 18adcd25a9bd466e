"""A run that is killed at any moment leaves a file that opens and holds a part of it.

What is there is the first rows of every log. 6 runs by default, 200 under ``-m soak``.
"""

import io
import os
import random
import signal
import sys
import time
from contextlib import suppress
from dataclasses import fields

import numpy as np
import pytest
from recordings import LOGS

import kernbench.runtime_api  # noqa: F401  # once, not in every run
from kernbench.cli import main
from kernbench.trace import Trace

RUN = [
    "run",
    "matmul",
    "--no-verify",
    "--set=m=128",
    "--set=k=128",
    "--set=n=128",
    "--set=tile=16",
    "--set=pes=1",
    "--spec=sip.cube_mesh.w=1",
    "--spec=sip.cube_mesh.h=1",
    "--spec=system.sips.count=1",
]
LISTS = {"op_columns": ["dep"], "transfers": ["start"]}


def run(path):
    """The number of a process that records the run to ``path``."""
    pid = os.fork()
    if pid:
        return pid
    try:
        sys.stdout = io.StringIO()
        main([*RUN, f"--trace={path}"])
    finally:
        os._exit(3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(path of the trace of the whole run, how long it took)."""
    path = tmp_path_factory.mktemp("whole") / "x.msgpack"
    began = time.monotonic()
    os.waitpid(run(path), 0)
    return path, time.monotonic() - began


def killed(path, ready):
    """Kill the run as soon as ``ready()``, or let it end; whether it was killed."""
    pid = run(path)
    while not ready():
        if os.waitpid(pid, os.WNOHANG)[0]:
            return False
    os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def ready_when(rng, partial, whole):
    """A random moment: when the file has grown to some size, or after some time."""
    path, seconds = whole
    if rng.random() < 0.5:
        at = time.monotonic() + rng.random() * seconds
        return lambda: time.monotonic() > at
    # The last third it writes at once, as it ends.
    size = rng.randrange(path.stat().st_size * 2 // 3)

    def grown():
        with suppress(FileNotFoundError):
            return partial.stat().st_size >= size

    return grown


def assert_first_rows(part, whole, lists):
    """Every column of a log is the first rows of that of the whole log."""
    rows = len(part.cmd)
    for name in {field.name for field in fields(part)} - {"spaces"}:
        column = getattr(part, name)
        size = rows
        if name in lists:
            size = getattr(part, f"{name}_ptr")[-1]
        elif name.endswith("_ptr"):
            size = rows + 1
        assert len(column) == size
        np.testing.assert_array_equal(column, getattr(whole, name)[:size])


def assert_prefix(part, whole):
    """Every log of ``part`` is the first rows of that of ``whole``; so are params."""
    strings = list(part.strings)
    assert strings == whole.strings[: len(strings)]
    for log in LOGS:
        assert_first_rows(getattr(part, log), getattr(whole, log), LISTS.get(log, []))
    rows = range(len(part.position))
    for row in rows[:: max(len(rows) // 50, 1)]:
        assert repr(part.params(row)) == repr(whole.params(row))


def survive(folder, whole, seed, kills):
    """How many rows of ops there were after each kill; None where there was no file."""
    partial = folder / "x.msgpack.partial"
    tail = folder / "x.msgpack.partial.tail"
    complete = Trace.open(whole[0])
    found = []
    rng = random.Random(seed)
    while len(found) < kills:
        ready = ready_when(rng, partial, whole)
        if not killed(folder / "x.msgpack", ready):
            (folder / "x.msgpack").unlink()
            continue
        rows = None
        if partial.exists() and partial.stat().st_size:
            written = partial.read_bytes()
            assert whole[0].read_bytes().startswith(written)
            # All of it may be there, when only its name was still to come.
            is_whole = len(written) == whole[0].stat().st_size
            trace = Trace.open(partial)
            assert (trace.check(), trace.complete) == ([], is_whole)
            rows = len(trace.ops)
            # What the tail has is the same; its order is that of the rows so far.
            tail.unlink(missing_ok=True)
            in_frames = Trace.open(partial)
            assert_prefix(in_frames, complete)
            assert len(in_frames.ops) <= rows
        found.append(rows)
        (folder / "x.msgpack").unlink(missing_ok=True)
        partial.unlink(missing_ok=True)
        tail.unlink(missing_ok=True)
    return found


def test_a_killed_run_leaves_a_prefix_of_its_records(tmp_path, whole):
    assert any(survive(tmp_path, whole, 0, kills=6))  # in some there were ops already


@pytest.mark.soak
def test_two_hundred_killed_runs_leave_prefixes_of_their_records(tmp_path, whole):
    assert len(set(survive(tmp_path, whole, 1, kills=200))) > 3
