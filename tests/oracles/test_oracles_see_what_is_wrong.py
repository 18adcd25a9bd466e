"""A debugger that answers about another run is found out, whatever is asked."""

from pathlib import Path

import pytest
import random_kernels
from check import CHECKS, Case

from kernbench.errors import KernbenchError
from kernbench.runtime_api import run_bench

SEED = 4  # which has a composite
ALIKE = {
    "check_roofline",  # other numbers are computed and moved, but as many
    "check_fetches",  # in all of them the same is loaded, as often
    "check_divergence",  # no op is wrong in any of them
    "check_stale_blame",  # no operand is stale
    "check_released_scratch",  # what is refused for one is refused for all
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """recorded(name, change, machine) -> the trace of a program that was changed."""
    folder = tmp_path_factory.mktemp("runs")

    def recorded(name, change=str, machine=None):
        bench = folder / f"random_{SEED}.py"
        bench.write_text(change(random_kernels.program(SEED)))
        trace = folder / name / "trace.msgpack"
        trace.parent.mkdir()
        run_bench(str(bench), trace=trace, spec=machine)
        return trace

    return recorded


@pytest.fixture(scope="module")
def true(recorded):
    return recorded("true")


@pytest.fixture(scope="module")
def others(recorded):
    """One with other data on another machine, and one that stores all things twice."""
    slow = {"pe.clock_ghz": 0.5, "cube.hbm.access_ns": 55.0}
    seeded = f"default_rng({SEED})"

    def with_other_data(text):
        return text.replace(seeded, "default_rng(99)")

    return (
        recorded("data", with_other_data, slow),
        recorded("twice", stored_twice),
    )


def stored_twice(text):
    lines = []
    for line in text.splitlines():
        lines += [line] * (2 if "tl.store(" in line else 1)
    return "\n".join(lines)


@pytest.mark.parametrize(
    "check",
    [check for check in CHECKS if check.__name__ not in ALIKE],
    ids=lambda check: check.__name__,
)
@pytest.mark.slow
def test_answers_about_another_run_are_found_wrong(check, true, others, tmp_path):
    found = [found_by(check, true, other, tmp_path) for other in others]
    assert any(found)


def found_by(check, true, other, folder):
    """What is wrong if the debugger has another trace; it may end with an error."""
    copied = Path(folder) / f"{other.parent.name}.msgpack"
    copied.write_bytes(true.read_bytes())
    case = Case(copied, SEED)
    case.session = case.opened(other)
    try:
        check(case)
    except (KernbenchError, ValueError, LookupError) as error:
        return [repr(error)]
    return case.tally.found
