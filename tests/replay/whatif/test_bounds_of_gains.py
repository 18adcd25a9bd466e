"""What cannot save much is not walked: nothing that is told may get lost by that."""

from __future__ import annotations

from pathlib import Path

import pytest
from pace import some_in_ci

from kernbench.common.progress import no_progress
from kernbench.replay.index import Index
from kernbench.replay.whatif.answers import Gain
from kernbench.replay.whatif.bounds import longest_path
from kernbench.replay.whatif.graph import build_graph
from kernbench.replay.whatif.links import recorded_links
from kernbench.replay.whatif.machine import Machine, ways_of
from kernbench.topology import recorded_spec
from kernbench.trace import Trace

TRACES = sorted(
    (Path(__file__).parents[3] / "traces").glob("*.msgpack"),
    key=lambda path: (path.stem != "fault_wrong_root", path),
)
"""The first is of a small machine."""
NAMES = [path.stem for path in TRACES]


def gains(path: Path, least_ns: float) -> list[Gain]:
    """What is told of a trace if only what can save so much is looked at."""
    return list(Index(Trace.open(path)).whatif.profile(least_ns=least_ns).gains)


@pytest.mark.parametrize("path", some_in_ci(TRACES, 2), ids=NAMES)
@pytest.mark.slow
def test_all_that_saves_much_is_told_and_told_the_same(path: Path) -> None:
    every = gains(path, 0.0)  # all are walked
    much = every[len(every) // 3].saved_ns
    few = gains(path, much)
    names = {gain.what for gain in every if gain.saved_ns >= much}
    assert {gain.what for gain in few} >= names
    assert len(few) < len(every)
    assert all(gain in every for gain in few)
    assert gains(path, 0.5) == every


def test_the_longest_path_saves_nothing_on_the_machine_that_recorded_it() -> None:
    trace = Trace.open(TRACES[-1])
    machine = Machine(ways_of(trace), recorded_links(trace), recorded_spec(trace.spec))
    graph = build_graph(trace, machine, no_progress)
    weight = graph.table.on(machine)
    path = longest_path(graph, weight, no_progress)
    assert len(path.took) > 10
    assert path.most_saved(weight, -1, 1.0) == pytest.approx(0.0, abs=0.01)
    all_free = path.most_saved(0.0 * weight, -1, 1.0)
    assert all_free == pytest.approx(float(path.took.sum()), abs=0.01)
