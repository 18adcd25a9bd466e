"""Every job of the table of commands calls progress at least every 10 ms.

That is how long Esc waits at most. The cases are made from the table, so that a new job
is asked too: one that takes arguments needs a row in ``job_questions.py``.
"""

from functools import cache
from pathlib import Path

import pytest
from gaps import job, least_gap, limit_s, opened
from job_questions import JOBS, asked, without_arguments
from pace import some_in_ci

from kernbench.perf.make_trace import make_trace

TRACES = Path(__file__).parents[2] / "traces"
ROUNDS = 5
LARGE_OPS = 100_000

NAMES = [command.name for command in JOBS]


described = cache(opened)
"""The index of a trace, to know what can be asked about it."""


def late(path, command):
    """The questions of a job that go without progress for too long, with the ms."""
    found = {}
    for query in asked(command, described(path)):
        limit = limit_s()
        gap = least_gap(lambda query=query: job(path, query), ROUNDS, enough=limit)
        if gap > limit:
            found[str(query)] = gap * 1e3
    return found


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """The path of a trace of 100,000 ops of all cubes."""
    path = tmp_path_factory.mktemp("contract") / "large.msgpack"
    make_trace(path, LARGE_OPS)
    return path


def test_every_job_is_asked():
    assert without_arguments() == []


@pytest.mark.parametrize("command", JOBS, ids=NAMES)
@pytest.mark.parametrize("name", ["matmul", "mlp_tp"])
@pytest.mark.slow
def test_a_job_calls_progress_every_10_ms(name, command):
    assert late(TRACES / f"{name}.msgpack", command) == {}


@pytest.mark.slow
@pytest.mark.parametrize("command", some_in_ci(JOBS, 5), ids=NAMES)
def test_a_job_of_100000_ops_calls_progress_every_10_ms(large, command):
    assert late(large, command) == {}
