"""Random programs of sends and recvs: the data of blocking queues, or a deadlock."""

from collections import deque
from dataclasses import dataclass

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from ipcq_runs import PES, machine, pair, ring, talk

from kernbench.ccl.install import _back
from kernbench.errors import DeadlockError
from kernbench.replay import ReplaySession
from kernbench.trace import Trace
from kernbench.trace.writer import TraceWriter

MOST = 10  # messages of a program


def two_levels(rank):
    """Meshes of 2x2 cubes, and the same cube of the other SIP."""
    row, col = divmod(rank % 4, 2)
    beside = {
        "W" if col else "E": rank + 1 - 2 * col,
        "N" if row else "S": rank + 2 - 4 * row,
    }
    return beside | {"global_E": (rank + 4) % 8, "global_W": (rank + 4) % 8}


GRAPHS = {"pair": (2, pair), "ring": (3, ring(3)), "two levels": (8, two_levels)}


@dataclass(frozen=True)
class Step:
    """One call; ``handle`` counts the handles of its rank so far, modulo.

    ``wait`` of a recv says that it is no recv_async.
    """

    call: str
    direction: str = ""
    handle: int = 0
    wait: bool = True


@st.composite
def talks(draw):
    """A graph and a program a rank: messages in order, then some calls swapped."""
    name = draw(st.sampled_from(sorted(GRAPHS)))
    size, neighbors = GRAPHS[name]
    tables = [neighbors(rank) for rank in range(size)]
    programs = [[] for _ in range(size)]
    for _ in range(draw(st.integers(1, MOST))):
        a = draw(st.integers(0, size - 1))
        d = draw(st.sampled_from(sorted(tables[a])))
        send = Step("send", d, draw(st.integers(0, 9)), draw(st.booleans()))
        programs[a].append(send)
        if draw(st.integers(0, 19)):  # else nobody takes it
            back = _back(tables, a, d)
            programs[tables[a][d]].append(Step("recv", back, wait=draw(st.booleans())))
        if draw(st.booleans()):
            other = st.builds(
                Step, st.sampled_from(["wait", "add"]), handle=st.integers(0, 9)
            )
            programs[draw(st.integers(0, size - 1))].append(draw(other))
    for _ in range(draw(st.integers(0, 3))):
        program = programs[draw(st.integers(0, size - 1))]
        i, j = (draw(st.integers(0, max(len(program) - 1, 0))) for _ in range(2))
        if program:
            program[i], program[j] = program[j], program[i]
    return name, programs


def untimed(tables, programs, pieces, slots, data):
    """What each rank receives, by blocking queues of ``slots`` pieces.

    None where that is a deadlock.
    """
    wires = [(a, d) for a, table in enumerate(tables) for d in table]
    rings, out, wanted = ({wire: deque() for wire in wires} for _ in range(3))
    received = [[] for _ in programs]

    def run(rank, program):
        # what came (pieces), how many are to come
        handles = [([data[rank]], 0)]
        mine = []
        for s in program:
            came, count = handles[s.handle % len(handles)]
            if s.call in ("send", "add"):
                while len(came) < count:
                    yield
            if s.call == "send":
                queue = out[rank, s.direction]
                mine.append((queue, last := [came[0]]))
                queue.extend([[came[0]] for _ in range(pieces - 1)] + [last])
                while s.wait and any(piece is last for piece in queue):
                    yield
            elif s.call == "add":
                handles.append(([came[0] + 1], 0))
            elif s.call == "recv":
                handles.append(([], pieces))
                received[rank].append(handles[-1][0])
                wanted[rank, s.direction].append(handles[-1])
            if s.call in ("wait", "recv"):
                came, count = (
                    handles[s.handle % len(handles)]
                    if s.call == "wait"
                    else handles[-1]
                )
                while (s.wait or s.call == "wait") and len(came) < count:
                    yield
        while any(len(came) < count for came, count in handles) or any(
            piece is last for queue, last in mine for piece in queue
        ):
            yield

    def pump():
        moved = False
        for a, d in wires:
            there = rings[tables[a][d], _back(tables, a, d)]
            while out[a, d] and len(there) < slots:
                there.append(out[a, d].popleft())
                moved = True
            while wanted[a, d] and rings[a, d]:
                came, count = wanted[a, d][0]
                came.append(rings[a, d].popleft()[0])
                moved = True
                if len(came) == count:
                    wanted[a, d].popleft()
        return moved

    living = [run(rank, program) for rank, program in enumerate(programs)]
    for rank in living:
        next(rank, None)
    while pump():
        living = [r for r in living if next(r, living) is not living]
    living = [r for r in living if next(r, living) is not living]
    return None if living else [[came[0] for came in row] for row in received]


def kernel(programs, n, await_all):
    def kernel(rank, mine, out, tl):
        handles = [tl.load(mine, (n,), "f32")]
        received = []
        for s in programs[rank]:
            handle = handles[s.handle % len(handles)]
            if s.call == "send":
                tl.send(s.direction, handle, wait=s.wait or await_all)
            elif s.call == "add":
                handles.append(tl.add(handle, 1.0))
            elif s.call == "wait":
                tl.wait(handle)
            else:
                recv = tl.recv if s.wait or await_all else tl.recv_async
                handles.append(recv(s.direction, (n,), "f32"))
                received.append(handles[-1])
        for k, handle in enumerate(received):
            tl.wait(handle)
            tl.store(out + 4 * n * k, handle)

    return kernel


def compare(graph, talked, n, slots, kind, slot_bytes, await_all=False, **options):
    """Run it both ways; whether it ended."""
    name, programs = talked
    size, neighbors = GRAPHS[name]
    tables = [neighbors(rank) for rank in range(size)]
    if await_all:
        programs = [[Step(s.call, s.direction, s.handle) for s in p] for p in programs]
    data = [np.arange(n) + 1000 * row for row in range(size)]
    expected = untimed(tables, programs, -(-4 * n // slot_bytes), slots, data)
    queues = {"slots": slots, "slot_bytes": slot_bytes, "buffer_kind": kind}
    program = kernel(programs, n, await_all)
    whole = n * (2 * MOST + 1)
    arguments = (graph, program, whole, size, neighbors)
    if expected is None:
        with pytest.raises(DeadlockError):
            talk(*arguments, **queues, **options)
        return False
    run = talk(*arguments, **queues, **options)
    assert not run.findings
    for position, record in enumerate(run.log):
        assert all(held < position for held in record.dependency_ids)
    for got, want in zip(run.out, expected, strict=True):
        flat = np.concatenate([*want, np.empty(0)])
        np.testing.assert_array_equal(got[: flat.size], flat)
    return True


sizes = {
    "n": st.integers(1, 40),
    "slots": st.integers(1, 8),
    "kind": st.sampled_from(["tcm", "sram", "hbm"]),
    "slot_bytes": st.sampled_from([16, 30, 64, 4096]),
}


@pytest.fixture(scope="module")
def graph(layout_cache):
    assert len(PES) == 8
    return machine(layout_cache)


@settings(max_examples=100, deadline=None)
@given(talked=talks(), **sizes)
def test_it_ends_with_the_data_of_blocking_queues_or_deadlocks_as_they_do(
    graph, talked, **sizes
):
    event("ended" if compare(graph, talked, **sizes) else "deadlock")


@pytest.mark.soak
@settings(max_examples=1000, deadline=None)
@given(talked=talks(), **sizes)
def test_a_thousand_of_them(graph, talked, **sizes):
    compare(graph, talked, **sizes)


@settings(max_examples=15, deadline=None)
@given(talked=talks(), **sizes)
def test_no_hazard_is_found_where_every_call_is_awaited(
    graph, tmp_path_factory, talked, **sizes
):
    path = tmp_path_factory.mktemp("talk") / "trace"
    writer = TraceWriter(path)
    writer.begin({}, graph)
    ended = compare(graph, talked, **sizes, await_all=True, recorder=writer)
    writer.end(1e6)
    assume(ended)
    found = ReplaySession(Trace.open(path)).hazards()
    assert (found.rows, found.note) == ((), "")
