"""Random kernels: Phase 2 gives what their calls mean in program order.

That holds whatever is in flight. Where every call is awaited, no hazard is found.
"""

from dataclasses import dataclass

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

from kernbench.replay import ReplaySession
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine
from kernbench.trace import Trace
from kernbench.trace.writer import TraceWriter

ROWS = 4  # tiles of the one tensor that a program works on
CALLS = (
    "load",
    "passing load",
    "store",
    "copy",
    "add",
    "scale",
    "dot",
    "composite",
    "wait",
)


@dataclass(frozen=True)
class Step:
    """One call; ``tile`` is what it writes, or loads.

    Handles and tiles are counted modulo how many there are.
    """

    call: str
    tile: int = 0
    source: int = 0
    handle: int = 0
    wait: bool = False


OVER_A_LOAD = [  # the store over what it reads shares its channels
    Step("load", 1, wait=True),
    Step("load", 2),
    Step("store", 2, handle=1),
    Step("wait", handle=2),
    Step("store", 3, handle=2),
]
steps = st.builds(
    Step,
    st.sampled_from(CALLS),
    st.integers(0, ROWS - 1),
    st.integers(0, ROWS - 1),
    st.integers(0, 9),
    st.booleans(),
)


def meaning(program, tiles, turn):
    """The tiles after ``program``, by numpy.

    ``turn`` is the right operand of its products.
    """
    tiles = list(tiles)
    handles = [tiles[0]]
    for s in program:
        at = s.handle % len(handles)
        if s.call == "load":
            handles.append(tiles[s.tile])
        elif s.call == "store":
            tiles[s.tile] = handles[at]
        elif s.call == "copy" and s.tile != s.source:
            tiles[s.tile] = tiles[s.source]
        elif s.call == "add":
            handles.append(
                np.clip(handles[at] + handles[s.source % len(handles)], -8, 8)
            )
        elif s.call == "scale":
            handles[at] = -handles[at]
        elif s.call == "dot":
            handles.append(handles[at] @ turn)
        elif s.call == "composite" and s.tile != s.source:
            tiles[s.tile] = tiles[s.source] @ turn
    return np.stack(tiles)


def kernel(x, turn_ptr, n, program, await_all, tl):
    """``program`` by tl calls; ``await_all`` overrules each step's own ``wait``."""
    size = n * n * 4
    shape = (n, n)
    turn = tl.load(turn_ptr, shape, "f32")
    handles = [tl.load(x, shape, "f32")]
    for s in program:
        at = s.handle % len(handles)
        wait = s.wait or await_all
        target = x + s.tile * size
        source = x + s.source * size
        if s.call == "load":
            handles.append(tl.load(target, shape, "f32", wait=wait))
        elif s.call == "passing load":
            with tl.scope():
                tl.load(target, shape, "f32", wait=wait)
        elif s.call == "store":
            tl.store(target, handles[at], wait=wait)
        elif s.call == "copy" and s.tile != s.source:
            tl.store(target, tl.ref(source, shape, "f32"), wait=wait)
        elif s.call == "add":
            added = handles[at] + handles[s.source % len(handles)]
            handles.append(tl.clamp(added, -8.0, 8.0))
        elif s.call == "scale":
            tl.mul(handles[at], -1.0, out=handles[at])
        elif s.call == "dot":
            handles.append(tl.dot(handles[at], turn))
        elif s.call == "composite" and s.tile != s.source:
            tl.composite(
                a=tl.ref(source, shape, "f32"), b=turn, out_ptr=target, wait=wait
            )
        elif s.call == "wait":
            tl.wait(handles[at])


def execute(graph, n, program, await_all=False, recorder=None):
    """Run ``program`` on one PE, and judge what Phase 2 makes of it."""
    engine = GraphEngine(graph, recorder=recorder)
    torch = Torch(engine)
    data = torch.rng.integers(-1, 2, (ROWS, n, n)).astype("f4")
    turn = np.roll(np.eye(n, dtype="f4"), 1, axis=1)

    def bench(_):
        x = torch.tensor(data, name="x")
        e = torch.tensor(turn, name="turn")
        torch.launch("random", kernel, x, e, n, program, await_all)
        torch.expect(x, meaning(program, data, turn))

    engine.run(bench)
    executor = DataExecutor(engine.op_log)
    report = executor.verify(torch.expectations)
    assert report.ok, report.as_text()
    return engine, executor


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(n=st.sampled_from([4, 64]), program=st.lists(steps, max_size=30))
@example(n=64, program=OVER_A_LOAD)
def test_phase_2_gives_what_program_order_means(one_cube, n, program):
    engine, executor = execute(one_cube, n, program)
    assert executor.findings == []
    for position, record in enumerate(engine.op_log):
        assert all(held < position for held in record.dependency_ids)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(n=st.sampled_from([4, 64]), program=st.lists(steps, max_size=20))
def test_no_hazard_is_found_where_every_call_is_awaited(
    one_cube, tmp_path_factory, n, program
):
    path = tmp_path_factory.mktemp("random") / "trace"
    writer = TraceWriter(path)
    writer.begin({}, one_cube)
    engine, _ = execute(one_cube, n, program, await_all=True, recorder=writer)
    writer.end(engine.env.now)
    found = ReplaySession(Trace.open(path)).hazards()
    assert (found.rows, found.note) == ((), "")
