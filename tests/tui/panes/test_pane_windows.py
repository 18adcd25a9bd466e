"""From when to when the timeline shows a run at first."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import TRACES
from live_runs import LiveRun

from kernbench.replay.index import Index
from kernbench.trace import Trace
from tui.__main__ import open_session
from tui.panes.windows import Window, Windows, kernel_window

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


# -- there and back -------------------------------------------------------------------


@pytest.fixture(params=["matmul", "ccl_allreduce"])
def index(request: pytest.FixtureRequest) -> Index:
    """A bundled trace."""
    return Index(Trace.open(TRACES / f"{request.param}.msgpack"))


def windows_of(index: Index) -> Windows:
    """The windows of a run."""
    return Windows(index.trace.end_ns, index.ops)


def test_zooming_out_of_what_was_zoomed_into_leads_to_the_very_same(
    index: Index,
) -> None:
    """Seven of ten were 1e-10 ns beside it, and nothing known of it was found again."""
    windows = windows_of(index)
    for op in range(len(index.ops)):
        window = windows.fitted(*kernel_window(index))
        while length(window) > 0.5:
            closer = windows.zoomed(window, 0.5, op)
            assert windows.zoomed(closer, 2.0, op) == window
            window = closer


def test_panning_back_leads_to_the_very_same(index: Index) -> None:
    windows = windows_of(index)
    for op in range(0, len(index.ops), 10):
        window = windows.fitted(*kernel_window(index))
        for _ in range(10):
            window = windows.zoomed(window, 0.6, op)
            there = windows.panned(window, -1)
            assert windows.panned(there, 1) == window


def test_a_window_is_moved_by_less_than_can_be_seen(index: Index) -> None:
    """A cell of the widest screen is a thousandth of it, its parts eighths."""
    windows = windows_of(index)
    t0, t1 = kernel_window(index)
    edge = (t1 - t0) / 50
    begin, end = windows.fitted(t0, t1)
    assert begin == pytest.approx(t0 - edge, abs=length((begin, end)) / 100_000)
    assert end == pytest.approx(t1 + edge, abs=length((begin, end)) / 100_000)


def length(window: Window) -> float:
    """How long a window is, ns."""
    return window[1] - window[0]
