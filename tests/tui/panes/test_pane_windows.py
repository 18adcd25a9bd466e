"""From when to when the timeline shows a run at first."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import TRACES
from live_runs import LiveRun

from kernbench.replay.index import Index
from kernbench.trace import Trace
from tui.__main__ import open_session
from tui.panes.windows import kernel_window

HOST = 16  # ops with which the host loads the operands


@pytest.fixture
def killed(tmp_path: Path) -> LiveRun:
    """A run that ends while its first launch goes on."""
    return LiveRun(tmp_path / "killed.msgpack")


def test_it_is_the_window_of_the_launches() -> None:
    index = Index(Trace.open(TRACES / "matmul.msgpack"))
    assert kernel_window(index) == index.launch_window


def test_of_a_launch_that_has_not_ended_it_is_from_the_first_op_of_a_pe(
    killed: LiveRun,
) -> None:
    """It was the whole run: nearly all of it is the host's, and no slice was seen."""
    killed.record(HOST + 60)
    killed.be_killed()
    index = Index(Trace.open(killed.partial))
    served = [index.ops.row(op).component for op in range(len(index.ops))]
    first = next(op for op, component in enumerate(served) if ".pe" in component)
    t0, t1 = kernel_window(index)
    assert t0 == index.ops.time(first) > index.launch_window[0]
    assert t1 == index.launch_window[1]
    assert open_session(killed.partial, None).cursor == first


def test_of_what_the_host_does_alone_it_is_all(killed: LiveRun) -> None:
    killed.record(HOST)
    killed.be_killed()
    index = Index(Trace.open(killed.partial))
    assert kernel_window(index) == index.launch_window
