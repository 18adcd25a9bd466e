"""Sweeps in processes of their own, to be watched and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from child_signals import reset_signals

ROOT = Path(__file__).parents[2]

ONE_CUBE = "sips.count: 1, cube_mesh.w: 1, cube_mesh.h: 1"
"""A machine on which a point takes some ten milliseconds."""

MARKED = """
import os
import signal
import time
from pathlib import Path
from kernbench.benches import bench

HERE = Path(__file__).parent

@bench(name="marked", description="")
def run(torch, n=0, die=-1, fail=-1, flaky=-1, sleep_s=0.0):
    print("point", n)
    mark = HERE / f"begun_{n}"
    was_begun = mark.exists()
    mark.write_text(str(os.getpid()))
    time.sleep(sleep_s)
    if n == die:
        os.kill(os.getpid(), signal.SIGKILL)
    if n == fail or (n == flaky and not was_begun):
        raise ValueError(f"not {n}")
    x = torch.tensor([float(n)], "f32", name="x")
    torch.expect(x, [float(n)])
"""
"""A bench without a kernel, of which some points die, fail, or fail at first."""


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "kernbench", "sweep", *map(str, words)]


def environ(root: Path = ROOT) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(root)}


def start(*words: object) -> subprocess.Popen[str]:
    """Begin a sweep, on which signals act as by default."""
    return subprocess.Popen(
        command(*words),
        env=environ(),
        preexec_fn=reset_signals,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*words: object) -> subprocess.CompletedProcess[str]:
    """A sweep to its end."""
    return subprocess.run(
        command(*words), env=environ(), capture_output=True, text=True, timeout=300
    )


def lines(file: Path) -> list[dict]:
    """The objects of a file with one a line."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def wait_for(met, seconds: float = 60.0) -> None:
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < until, "it never was so"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Whether a process is there, and has not ended unnoticed by its parent."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


def kill(process: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
    process.send_signal(number)
    process.communicate(timeout=60)
