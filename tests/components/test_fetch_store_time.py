"""FETCH and STORE: bytes / TCM bandwidth, one channel each (docs/machine.md,
"Composites and tiles").
"""

import pytest

from kernbench.common.messages import MsgBase, Stage, StageType, TileToken
from kernbench.sim_engine.engine import GraphEngine

PE = (0, 0, 0)
READ_BW = 512
WRITE_BW = 512
NBYTES = 8192


def serve(graph, events, *stages):
    """(record, waits) of tiles that reach FETCH or STORE at once, in order of
    completion.
    """
    engine = GraphEngine(graph, recorder=events)
    node = graph.at(*PE, "pe_fetch_store")
    for stage_type in stages:
        stage = Stage(StageType(stage_type), node, {"nbytes": NBYTES})
        token = TileToken(composite=MsgBase(), index=(0, 0, 0), stages=(stage,))
        engine.env.process(engine.sim.component(node)._forward_txn(engine.env, token))
    engine.env.run()
    return [(record, waits) for _, record, _, _, waits, _ in events.of("op")]


@pytest.mark.parametrize(
    ("stage", "bandwidth"), [("FETCH", READ_BW), ("STORE", WRITE_BW)]
)
def test_bytes_of_one_channel_pass_one_after_the_other(small, events, stage, bandwidth):
    (first, none), (second, waits) = serve(small, events, stage, stage)
    each = NBYTES / bandwidth
    assert (first.t_end, second.t_start, second.t_end) == (each, each, 2 * each)
    assert none == []
    assert waits == [(small.at(*PE, "pe_fetch_store"), "engine", 0, each, 0)]


def test_fetch_and_store_do_not_wait_for_each_other(small, events):
    (fetch, a), (store, b) = serve(small, events, "FETCH", "STORE")
    assert (fetch.t_start, store.t_start) == (0, 0)
    assert (fetch.t_end, store.t_end) == (NBYTES / READ_BW, NBYTES / WRITE_BW)
    assert (a, b) == ([], [])
