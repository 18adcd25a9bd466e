"""A run that is killed at any moment leaves a file that opens and holds a prefix of the run.

20 runs by default, 200 under ``-m soak``.
"""

import io
import os
import random
import signal
import sys
import time
from contextlib import suppress

import numpy as np
import pytest

import kernbench.runtime_api  # noqa: F401  # once, not in every run
from kernbench.cli import main
from kernbench.trace import Trace
from kernbench.trace.schema import LOGS

RUN = ["run", "matmul", "--no-verify"]
RUN += [
    f"--set={name}={n}"
    for name, n in (("m", 128), ("k", 128), ("n", 128), ("tile", 16))
]
RUN += ["--set=pes=1", "--spec=sip.cube_mesh.w=1", "--spec=sip.cube_mesh.h=1"]
RUN += ["--spec=system.sips.count=1"]
LISTS = {
    "ops": ["dep"],
    "transfers": ["start"],
    "waits": [],
    "commands": [],
    "alloc": [],
}


def run(path):
    """The number of a process that records the run to ``path``."""
    if pid := os.fork():
        return pid
    try:
        sys.stdout = io.StringIO()
        main([*RUN, f"--trace={path}"])
    finally:
        os._exit(3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(path of the trace of the whole run, how long it took)."""
    path, began = tmp_path_factory.mktemp("whole") / "x.msgpack", time.monotonic()
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
    size = rng.randrange(
        path.stat().st_size * 2 // 3
    )  # the rest it writes at once, as it ends

    def grown():
        with suppress(FileNotFoundError):
            return partial.stat().st_size >= size

    return grown


def logs(trace):
    named = {
        name: vars(getattr(trace, name)) for name in ("transfers", "waits", "commands")
    }
    ops = {
        name: getattr(trace.op_columns, name)
        for name in (*LOGS["ops"], "dep_ptr", "kind")
    }
    return {"ops": ops, **named, "alloc": vars(trace.alloc_columns)}


def assert_prefix(part, whole):
    """Every log of ``part`` is the first rows of that of ``whole``, name for name, row for row."""
    strings, wholes = list(part.strings), logs(whole)
    assert strings == whole.strings[: len(strings)]
    for log, columns in logs(part).items():
        rows = len(columns["cmd"])
        for name in columns.keys() - {"spaces"}:
            size = rows
            if name in LISTS[log]:
                size = columns[f"{name}_ptr"][-1]
            elif name.endswith("_ptr"):
                size = rows + 1
            assert len(columns[name]) == size
            np.testing.assert_array_equal(columns[name], wholes[log][name][:size])
    rows = range(len(part.position))
    for row in rows[:: max(len(rows) // 50, 1)]:
        assert repr(part.params(row)) == repr(whole.params(row))


def survive(folder, whole, seed, kills):
    """How many rows of ops there were after each kill; None where there was no file."""
    partial, complete, found = folder / "x.msgpack.partial", Trace.open(whole[0]), []
    rng = random.Random(seed)
    while len(found) < kills:
        ready = ready_when(rng, partial, whole)
        if not killed(folder / "x.msgpack", ready):
            (folder / "x.msgpack").unlink()
            continue
        rows = None
        if partial.exists() and partial.stat().st_size:
            assert whole[0].read_bytes().startswith(partial.read_bytes())
            trace = Trace.open(partial)
            assert (trace.check(), trace.complete) == ([], False)
            assert_prefix(trace, complete)
            rows = len(trace.ops)
        found.append(rows)
        (folder / "x.msgpack").unlink(missing_ok=True)
        partial.unlink(missing_ok=True)
    return found


def test_a_killed_run_leaves_a_prefix_of_its_records(tmp_path, whole):
    assert any(survive(tmp_path, whole, 0, kills=20))  # in some there were ops already


@pytest.mark.soak
def test_two_hundred_killed_runs_leave_prefixes_of_their_records(tmp_path, whole):
    assert len(set(survive(tmp_path, whole, 1, kills=200))) > 3
