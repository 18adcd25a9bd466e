"""Slots, waits, hooks: what every component gets from its base class (ADR-0020 D2)."""

from typing import ClassVar

import pytest

from kernbench.common.exact_time import TICK_NS
from kernbench.common.messages import MsgBase
from kernbench.common.rows import Rows
from kernbench.components.base import ComponentBase, MemoryEndpoint
from kernbench.errors import KernbenchError
from kernbench.sim_engine.engine import GraphEngine


class Job(MsgBase):
    data_op: ClassVar[bool] = True

    def __init__(self, name="job", work=10.0):
        super().__init__()
        self.name = name
        self.work = work


class Message(Job):
    data_op: ClassVar[bool] = False


class Worker(ComponentBase):
    def run(self, env, msg):
        yield env.timeout(msg.work)


class TwoSlots(Worker):
    slots = 2


class TwoChannels(Worker):
    channels: ClassVar[int] = 2

    def channel(self, msg):
        return int(msg.name == "other")


@pytest.fixture
def serve(small, events):
    """serve(class, jobs…): all given at once; the engine and the component."""

    def serve(kind, *jobs, **options):
        engine = GraphEngine(small, recorder=events, **options)
        worker = kind(small.nodes["sip0.cube0.pe0.pe_math"], engine.sim)
        for job in jobs:
            engine.env.process(worker._forward_txn(engine.env, job))
        engine.env.run()
        return engine

    return serve


def test_one_slot_serves_in_order_of_arrival(serve):
    log = serve(Worker, Job(), Job(work=5.0), Job()).op_log
    assert [(r.t_start, r.t_end) for r in log] == [(0, 10), (10, 15), (15, 25)]


def test_waiting_for_a_slot_is_a_wait_behind_its_holder(serve, events):
    serve(Worker, Job(), Job())
    (_, _, _, _, none, _), (_, record, _, _, waits, _) = events.of("op")
    assert none == []
    assert waits == [("sip0.cube0.pe0.pe_math", "engine", 0, 10, 0)]
    assert record.dependency_ids == [0]


def test_service_starts_after_the_wait_and_the_record_says_so(serve):
    first = Job()
    second = Job()
    serve(Worker, first, second)
    assert (first.t_start, second.t_start) == (0, 10)


def test_slots_serve_side_by_side_and_are_numbered(serve, events):
    serve(TwoSlots, Job(), Job(work=4.0), Job())
    assert [(r.t_start, slot) for _, r, _, slot, _, _ in events.of("op")] == [
        (0, 1),
        (0, 0),
        (4, 1),
    ]


def test_channels_have_slots_of_their_own(serve, events):
    serve(TwoChannels, Job(), Job("other"), Job())
    assert [(r.t_start, slot) for _, r, _, slot, _, _ in events.of("op")] == [
        (0, 0),
        (0, 1),
        (10, 0),
    ]


def test_a_data_op_that_takes_no_time_lasts_a_tick(serve):
    log = serve(Worker, Job(work=0.0), Job(work=0.0)).op_log
    assert [(r.t_start, r.t_end) for r in log] == [
        (0.0, TICK_NS),
        (TICK_NS, 2 * TICK_NS),
    ]


def test_a_message_that_is_no_data_op_may_take_no_time_and_is_not_logged(serve, events):
    assert serve(Worker, Message(work=0.0), Message()).op_log == []
    assert events == []


def test_without_a_logger_all_runs_and_takes_as_long(serve, events):
    engine = serve(Worker, Job(), Job(), op_logger=None)
    assert (engine.env.now, engine.op_log, events) == (20, [], [])


def test_who_listens_hears_when_service_starts(small):
    engine = GraphEngine(small)
    worker = Worker(small.nodes["sip0.cube0.pe0.pe_math"], engine.sim)
    heard = []
    late = Job()
    late.started = engine.env.event()
    late.started.callbacks.append(lambda _: heard.append(engine.env.now))
    for job in (Job(), late):
        engine.env.process(worker._forward_txn(engine.env, job))
    engine.env.run()
    assert heard == [10]


def test_a_base_component_serves_nothing_and_models_no_bursts(small):
    engine = GraphEngine(small)
    node = small.nodes["sip0.cube0.pe0.pe_math"]
    with pytest.raises(KernbenchError, match=r"pe_math.*serves no Job"):
        next(ComponentBase(node, engine.sim)._forward_txn(engine.env, Job()))
    with pytest.raises(KernbenchError, match="models no bursts"):
        MemoryEndpoint(node, engine.sim).burst(0.0, Rows.one(0, 1), Job())
