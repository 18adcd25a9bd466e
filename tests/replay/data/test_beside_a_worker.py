"""What the screen asks at once is right while a worker executes ops beside it."""

import random
from pathlib import Path
from threading import Event, Thread

import pytest

from kernbench.replay import ReplaySession
from kernbench.replay.plain import as_data
from kernbench.trace import Trace

PATH = Path(__file__).parents[3] / "traces" / "matmul.msgpack"
PLACES = ("c[3,17]", "a", "b[0:2, :]", "hbm 0x40:64")


def asked_at_once(session, op):
    """All that the screen's thread asks about an op, without the lane of memory."""
    return {
        "names": session.index.places.names,
        "places": [session.index.places.place(text).ranges for text in PLACES],
        "shown": session.index.memory.shown(op),
        "touches": session.index.memory.touches(op),
        "memory": as_data(session.memory(op, 20)),
        "wrote": as_data(
            session.index.touches.writers(session.index.places.place("c[3,17]"), op)
        ),
        "executed": session.index.history.executed(op),
    }


@pytest.fixture
def worker():
    """worker(compute): calls it again and again on a thread until the test ends."""
    stopped = Event()
    threads = []
    errors = []

    def start(compute):
        def run():
            try:
                while not stopped.is_set():
                    compute()
            except Exception as why:
                errors.append(why)

        threads.append(Thread(target=run))
        threads[0].start()

    yield start
    stopped.set()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.slow
def test_answers_beside_a_worker_are_those_of_one_thread(worker):
    plain = ReplaySession(Trace.open(PATH))
    ops = range(0, len(plain), 7)
    expected = [asked_at_once(plain, op) for op in ops]
    session = ReplaySession(Trace.open(PATH))
    session.index.memory.index()
    draw = random.Random(1)

    def compute():
        op = draw.randrange(len(session))
        session.tensor("c", op)
        session.outputs(op)
        session.diff(op)

    worker(compute)
    for op, answer in zip(ops, expected, strict=True):
        assert asked_at_once(session, op) == answer
