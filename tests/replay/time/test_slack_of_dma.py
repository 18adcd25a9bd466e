"""Slack of ops that share the slots of a DMA, held against runs with an op delayed."""

from __future__ import annotations

import pytest
from ipcq_runs import machine

from kernbench.components.builtin.pe_dma import PeDma
from kernbench.replay import ReplaySession
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.engine import GraphEngine
from kernbench.trace import Trace, TraceWriter

ONE_PE = DPPolicy(num_cubes=1, num_pes=1)
ROWS = 8
LATE: dict[int, float] = {}
"""ns that a load takes longer, by its number."""


class LateLoads(PeDma):
    """A DMA whose loads end later, as LATE has it."""

    loads = 0

    def run(self, env, msg):
        number = self.loads
        is_load = type(msg).__name__ == "DmaReadCmd"
        self.loads += is_load
        yield from super().run(env, msg)
        if is_load and number in LATE:
            yield env.timeout(LATE[number])


def kernel(x_ptr, y_ptr, tl):
    """The sum of the rows of x. Every second row is loaded long before it is used, so
    that the loads of the others take its slot of the DMA again.
    """
    total = tl.full((64,), 0.0, "f32")
    early = [tl.load(x_ptr, (64,), "f32", wait=False)]
    for row in range(1, ROWS):
        here = tl.load(x_ptr + row * 256, (64,), "f32", wait=row % 2 == 1)
        if row % 2 == 0:
            early.append(here)
            continue
        for _ in range(20):
            total = total + here
    for row in early:
        tl.wait(row)
        total = total + row
    tl.store(y_ptr, total)


@pytest.fixture(scope="module")
def run(layout_cache, tmp_path_factory):
    """run(late) -> a session on the trace of the kernel with these loads late."""
    graph = machine(layout_cache, pe_dma=f"{__name__}:LateLoads")
    path = tmp_path_factory.mktemp("late") / "trace"

    def run(late):
        LATE.clear()
        LATE.update(late)
        writer = TraceWriter(path)
        writer.begin({}, graph)
        engine = GraphEngine(graph, recorder=writer)
        torch = Torch(engine)

        def bench(_):
            x = torch.zeros((ROWS, 64), "f32", ONE_PE, "x")
            y = torch.empty((64,), "f32", ONE_PE, "y")
            torch.launch("sum", kernel, x, y)

        engine.run(bench)
        writer.end(engine.env.now)
        return ReplaySession(Trace.open(path))

    return run


@pytest.mark.slow
@pytest.mark.parametrize("number", range(ROWS))
def test_a_load_may_be_as_late_as_its_slack_and_no_later(run, number):
    usual = run({})
    end = usual.launch_window()[1]
    loads = [op for op in range(len(usual)) if usual.row(op).name == "dma_read"]
    slack = usual.slack(loads[number])
    assert run({number: slack}).launch_window()[1] == pytest.approx(end, abs=1e-3)
    assert run({number: slack + 5.0}).launch_window()[1] > end + 1.0
