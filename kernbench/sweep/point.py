"""One point of a sweep, run in a worker: on this machine, or on another.

A worker gets names and hashes, and answers with plain values. So it needs the same
kernbench, and the files of the space under the same paths; it refuses a task if any of
these is another one than where the sweep was begun.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, time
from typing import Any

from kernbench.common.user_code import described
from kernbench.runtime_api import RunResult, run_bench
from kernbench.runtime_api.own_code import code_sha
from kernbench.runtime_api.user_files import sha_of
from kernbench.sweep.columns import columns_of
from kernbench.sweep.space import Point, RunOptions, Space

_ONE_AT_A_TIME = threading.Lock()
"""A worker of Dask may have several threads, and benches are loaded for a process."""


@dataclass(frozen=True, slots=True)
class Job:
    """What all points of a sweep have in common, as a worker has to know it.

    ``code`` is the hash of kernbench's own files, ``files`` those of the user: absolute
    paths and SHA-256.
    """

    bench: str
    options: RunOptions
    code: str
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a point: its ``result``, or the ``error`` that ended it.

    ``refused`` says why a worker did not even begin. ``began`` is in seconds since
    1970.
    """

    result: dict[str, Any] | None = None
    error: str | None = None
    refused: str | None = None
    worker: str = ""
    began: float = 0.0
    seconds: float = 0.0


def job_of(space: Space) -> Job:
    """What the workers of a space have to know."""
    options = space.options
    named = [space.bench] if space.bench.endswith(".py") else []
    named += [path for path in (options.topology, options.ccl) if path is not None]
    named += options.plugins
    files = {path: sha_of(Path(path)) for path in named}
    return Job(space.bench, options, code_sha(), files)


def run_point(job: Job, point: Point) -> Outcome:
    """Run a point here; whatever it raises is its error, and ends no worker.

    So what a call of this raises is not about the point, but about the worker.
    """
    worker = f"{socket.gethostname()}:{os.getpid()}"
    refused = _why_refused(job)
    if refused is not None:
        return Outcome(refused=f"worker {worker}: {refused}", worker=worker)
    result = None
    error = None
    with _ONE_AT_A_TIME:
        began = time()
        start = perf_counter()
        try:
            result = columns_of(simulated(job.bench, job.options, point))
        except Exception as ended:
            error = described(ended)
        seconds = perf_counter() - start
    return Outcome(result, error, None, worker, began, seconds)


def simulated(
    bench: str, options: RunOptions, point: Point, trace: Path | None = None
) -> RunResult:
    """Run a point, and record it if a ``trace`` is given; raises as ``run_bench``."""
    return run_bench(
        bench,
        topology=options.topology,
        ccl=options.ccl,
        plugins=options.plugins,
        params=point.params,
        spec=point.spec,
        seed=point.seed,
        verify=options.verify,
        max_ns=options.max_ns,
        max_ops=options.max_ops,
        trace=trace,
    )


def _why_refused(job: Job) -> str | None:
    """What is another one here than where the sweep was begun; None if nothing is."""
    own = code_sha()
    if own != job.code:
        return (
            f"another kernbench ({own[:12]}, the sweep has {job.code[:12]}); install "
            "the same one there"
        )
    for path, sha in job.files.items():
        try:
            is_same = sha_of(Path(path)) == sha
        except OSError as error:
            return f"cannot read {path}: {error.strerror}"
        if not is_same:
            return f"{path} is another file than when the sweep was begun"
    return None
