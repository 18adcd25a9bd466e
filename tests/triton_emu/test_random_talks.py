"""Random programs of sends and recvs: the data of blocking queues, or a deadlock."""

from collections import deque
from dataclasses import dataclass, field

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from ipcq_runs import PES, machine, pair, ring, talk

from kernbench.ccl.install import other_end
from kernbench.errors import DeadlockError
from kernbench.replay import ReplaySession
from kernbench.trace import Trace
from kernbench.trace.writer import TraceWriter

MOST = 10  # messages of a program


def two_levels(rank):
    """Meshes of 2x2 cubes, and the same cube of the other SIP."""
    row, col = divmod(rank % 4, 2)
    other_sip = (rank + 4) % 8
    beside = {"global_E": other_sip, "global_W": other_sip}
    if col == 0:
        beside["E"] = rank + 1
    else:
        beside["W"] = rank - 1
    if row == 0:
        beside["S"] = rank + 2
    else:
        beside["N"] = rank - 2
    return beside


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
            back = other_end(tables, a, d)
            programs[tables[a][d]].append(Step("recv", back, wait=draw(st.booleans())))
        if draw(st.booleans()):
            other = st.builds(
                Step, st.sampled_from(["wait", "add"]), handle=st.integers(0, 9)
            )
            programs[draw(st.integers(0, size - 1))].append(draw(other))
    for _ in range(draw(st.integers(0, 3))):
        program = programs[draw(st.integers(0, size - 1))]
        places = st.integers(0, max(len(program) - 1, 0))
        i = draw(places)
        j = draw(places)
        if program:
            program[i], program[j] = program[j], program[i]
    return name, programs


@dataclass(eq=False)
class Piece:
    """A slot's worth of a payload on its way."""

    value: object


@dataclass(eq=False)
class Payload:
    """What a handle holds once all ``count`` pieces of it have come."""

    count: int
    pieces: list = field(default_factory=list)

    @property
    def complete(self):
        return len(self.pieces) >= self.count

    @property
    def value(self):
        return self.pieces[0]


class BlockingQueues:
    """Ranks that talk over rings of ``slots`` pieces, without any time.

    A payload is of ``pieces``. What is sent waits in ``out`` until there is a slot free
    at the other end of the wire; there it stays until it is wanted.
    """

    def __init__(self, tables, pieces, slots, data):
        self.tables = tables
        self.pieces = pieces
        self.slots = slots
        self.data = data
        self.wires = [(rank, d) for rank, table in enumerate(tables) for d in table]
        self.out = {wire: deque() for wire in self.wires}
        self.rings = {wire: deque() for wire in self.wires}
        self.wanted = {wire: deque() for wire in self.wires}
        self.received = [[] for _ in tables]

    def rank(self, number, program):
        """Run the program of a rank; it yields where it blocks."""
        handles = [Payload(0, [self.data[number]])]
        sent = []
        for step in program:
            handle = handles[step.handle % len(handles)]
            wire = (number, step.direction)
            if step.call in ("send", "add", "wait"):
                while not handle.complete:
                    yield
            if step.call == "send":
                pieces = [Piece(handle.value) for _ in range(self.pieces)]
                self.out[wire].extend(pieces)
                sent.append((self.out[wire], pieces[-1]))
                while step.wait and pieces[-1] in self.out[wire]:
                    yield
            elif step.call == "add":
                handles.append(Payload(0, [handle.value + 1]))
            elif step.call == "recv":
                payload = Payload(self.pieces)
                handles.append(payload)
                self.received[number].append(payload)
                self.wanted[wire].append(payload)
                while step.wait and not payload.complete:
                    yield
        while not all(handle.complete for handle in handles):
            yield
        while any(last in queue for queue, last in sent):
            yield

    def move(self):
        """Move every piece as far as it gets; whether one has moved."""
        moved = False
        for rank, d in self.wires:
            neighbour = self.tables[rank][d]
            out = self.out[rank, d]
            ring = self.rings[neighbour, other_end(self.tables, rank, d)]
            while out and len(ring) < self.slots:
                ring.append(out.popleft())
                moved = True
            ring = self.rings[rank, d]
            wanted = self.wanted[rank, d]
            while wanted and ring:
                wanted[0].pieces.append(ring.popleft().value)
                moved = True
                if wanted[0].complete:
                    wanted.popleft()
        return moved

    def run(self, programs):
        """What each rank receives; None where they wait for ever."""
        living = [self.rank(number, program) for number, program in enumerate(programs)]
        living = still_running(living)
        while self.move():
            living = still_running(living)
        living = still_running(living)
        if living:
            return None
        return [[payload.value for payload in row] for row in self.received]


def still_running(ranks):
    """Let each rank go on as far as it gets; those that have not ended."""
    ended = object()
    return [rank for rank in ranks if next(rank, ended) is not ended]


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
    pieces = -(-4 * n // slot_bytes)
    expected = BlockingQueues(tables, pieces, slots, data).run(programs)
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


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
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


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
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
