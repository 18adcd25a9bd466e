"""send and recv between kernels: handles, errors, and where nothing can go on."""

import re

import numpy as np
import pytest
from ipcq_runs import machine, named, pair, ring, talk

from kernbench.errors import DeadlockError, KernelError, PendingDataError
from kernbench.replay import ReplaySession
from kernbench.trace import Trace
from kernbench.trace.writer import TraceWriter

N = 8


@pytest.fixture(scope="module")
def graph(layout_cache):
    return machine(layout_cache)


def test_what_was_ready_when_sent_is_ready_when_received(graph):
    seen = []

    def program(rank, mine, out, tl):
        if rank == 0:
            tl.send("E", tl.load(mine, (N,), "f32"))
        else:
            x = tl.recv("W", (N,), "f32")
            seen.append((x.ready, float(x[3])))
            tl.store(out, x if x[3] == 3 else tl.full((N,), -1.0, "f32"))

    run = talk(graph, program, N)
    assert seen == [(True, 3.0)]
    np.testing.assert_array_equal(run.out[1], run.data[0])


def test_what_was_pending_when_sent_is_pending_when_received_and_right_in_phase_2(
    graph,
):
    seen = []

    def program(rank, mine, out, tl):
        if rank == 0:
            tl.send("E", tl.add(tl.load(mine, (N,), "f32"), 5.0))
        else:
            x = tl.recv("W", (N,), "f32")
            seen.append(x.ready)
            tl.store(out, tl.mul(x, 2.0))

    run = talk(graph, program, N)
    assert seen == [False]
    np.testing.assert_array_equal(run.out[1], (run.data[0] + 5) * 2)
    assert [r.params["snapshot"] for r in named(run, "ipcq_copy")] == [None]


def test_a_pending_payload_says_what_will_compute_it(graph):
    def program(rank, mine, out, tl):
        if rank == 0:
            tl.send("E", tl.exp(tl.load(mine, (N,), "f32")))
        else:
            float(tl.recv("W", (N,), "f32")[0])

    with pytest.raises(
        PendingDataError, match=r"pending: exp at tests/.*test_send_recv.py"
    ):
        talk(graph, program, N)


def test_a_ready_overwrite_after_the_read_does_not_make_a_pending_payload_ready(graph):
    def program(rank, mine, out, tl):
        if rank == 0:
            with tl.scope():
                tl.send("E", tl.add(tl.load(mine, (N,), "f32"), 1.0))
            tl.load(mine, (N,), "f32")
            tl.load(mine, (N,), "f32")
        else:
            tl.store(out, tl.recv("W", (N,), "f32"))

    run = talk(graph, program, N, places=[(0, 0, 0), (1, 3, 0)])
    np.testing.assert_array_equal(run.out[1], run.data[0] + 1)


def test_recv_async_goes_on_at_once_and_wait_makes_it_ready(graph):
    times = {}

    def program(rank, mine, out, tl):
        if rank == 1:
            x = tl.recv_async("W", (N,), "f32")
            with pytest.raises(PendingDataError, match="not awaited yet"):
                float(x[0])
            times["work"] = tl.exp(tl.zeros((N,), "f32")).call
            tl.wait(x)
            assert float(x[1]) == 1.0
            tl.store(out, x)
        else:
            tl.send("E", tl.load(mine, (N,), "f32"))

    run = talk(graph, program, N)
    (work,) = named(run, "exp")
    (taken,) = named(run, "ipcq_recv")
    assert work.t_end < taken.t_start
    np.testing.assert_array_equal(run.out[1], run.data[0])


def test_recvs_that_were_asked_for_first_get_their_payload_first(graph):
    def program(rank, mine, out, tl):
        x = tl.load(mine, (N,), "f32")
        if rank == 0:
            tl.send("E", x, wait=False)
            tl.send("E", tl.add(x, 10.0), wait=False)
        else:
            first, second = (tl.recv_async("W", (N,), "f32") for _ in range(2))
            tl.wait(second)
            tl.store(out, first)
            tl.store(out + 4 * N, second)

    run = talk(graph, program, 2 * N)
    np.testing.assert_array_equal(run.out[1][:N], run.data[0][:N])
    np.testing.assert_array_equal(run.out[1][N:], run.data[0][:N] + 10)


def test_a_ready_payload_in_the_slot_of_a_pending_one_is_ready(graph):
    seen = []

    def program(rank, mine, out, tl):
        if rank == 0:
            x = tl.load(mine, (N,), "f32")
            tl.send("E", tl.add(x, 1.0))
            tl.send("E", x)
        else:
            seen.extend(tl.recv("W", (N,), "f32").ready for _ in range(2))

    talk(graph, program, N, slots=1)
    assert seen == [False, True]


def test_a_recv_into_released_scratch_leaves_what_lies_there_now_alone(graph):
    def program(rank, mine, out, tl):
        if rank == 0:
            tl.send("E", tl.load(mine, (1024,), "f32"))
        else:
            with tl.scope():
                tl.recv_async("W", (1024,), "f32")
            assert float(tl.load(mine, (1024,), "f32")[1]) == 1001.0

    run = talk(graph, program, 1024)
    (taken,) = named(run, "ipcq_recv")
    load = named(run, "dma_read")[-1]
    assert load.params["dst_addr"] == taken.params["dst_addr"]
    assert taken.t_start < load.t_start


def test_what_comes_after_a_recv_depends_on_its_last_copy(graph, events):
    def program(rank, mine, out, tl):
        if rank == 0:
            tl.send("E", tl.load(mine, (2048,), "f32"))
        else:
            tl.store(out, tl.recv("W", (2048,), "f32"))

    talk(graph, program, 2048, recorder=events)
    rows = {row: record for row, record, *_ in events.of("op")}
    (store,) = [record for record in rows.values() if record.op_name == "dma_write"]
    last = max(row for row in rows if rows[row].op_name == "ipcq_recv")
    assert store.dependency_ids == [last]


def test_writing_the_source_after_it_was_read_is_no_hazard_while_the_payload_flies(
    graph, tmp_path
):
    def program(rank, mine, out, tl):
        if rank == 0:
            x = tl.load(mine, (1024,), "f32")
            tl.send("E", x)
            tl.mul(x, 2.0, out=x)
        else:
            tl.recv("W", (1024,), "f32")

    writer = TraceWriter(tmp_path / "t")
    writer.begin({}, graph)
    run = talk(graph, program, 1024, places=[(0, 0, 0), (1, 3, 0)], recorder=writer)
    writer.end(run.engine.env.now)
    (copy,) = named(run, "ipcq_copy")
    (math,) = named(run, "mul")
    assert copy.t_start < math.t_start < copy.t_end
    assert ReplaySession(Trace.open(tmp_path / "t")).hazards().rows == ()


def test_a_transposed_handle_is_sent_as_it_looks(graph):
    def program(rank, mine, out, tl):
        if rank == 0:
            tl.send("E", tl.transpose(tl.load(mine, (2, 4), "f32")))
        else:
            tl.store(out, tl.recv("W", (4, 2), "f32"))

    run = talk(graph, program, N)
    np.testing.assert_array_equal(run.out[1], run.data[0].reshape(2, 4).T.reshape(-1))


@pytest.mark.parametrize("call", ["send", "recv", "recv_async"])
def test_a_direction_that_is_not_wired_is_an_error_that_lists_the_wired_ones(
    graph, call
):
    def program(rank, mine, out, tl):
        given = tl.load(mine, (N,), "f32") if call == "send" else (N,)
        getattr(tl, call)("global_N", given)

    name = call.partition("_")[0]
    with pytest.raises(
        KernelError, match=rf"{name}: direction 'global_N' .*; wired: E, W"
    ):
        talk(graph, program, N)


def test_without_wiring_the_error_says_what_wires(run_kernel):
    with pytest.raises(
        KernelError, match=r"'E' is not wired .*: none; init_process_group or"
    ):
        run_kernel(
            lambda x, tl: tl.send("E", tl.load(x, (2,))), np.zeros(2, np.float16)
        )


def test_a_released_handle_cannot_be_sent(graph):
    def program(rank, mine, out, tl):
        with tl.scope():
            x = tl.load(mine, (N,), "f32")
        tl.send("E", x)

    with pytest.raises(KernelError, match="released"):
        talk(graph, program, N)


def test_a_deadlock_names_who_waits_where_since_when_and_the_cycle(graph):
    def all_recv_first(rank, mine, out, tl):
        tl.send("E", tl.recv("W", (N,), "f32"))

    with pytest.raises(DeadlockError) as caught:
        talk(graph, all_recv_first, N, size=3, neighbors=ring(3))
    line = all_recv_first.__code__.co_firstlineno + 1
    text, _, cycle = str(caught.value).partition("; cycle: ")
    waiters = text.partition("still waiting: ")[2].split("; ")
    assert len(waiters) == 4  # the launch is the last
    for cube, waiter in enumerate(waiters[:3]):
        where, _, since = waiter.partition(", as ")[0].partition(" since ")
        assert where.startswith(f"sip0.cube{cube}.pe0.pe_cpu: recv W at tests/")
        site, _, caller = where.partition(", called at ")
        assert site.endswith(f"test_send_recv.py:{line}")
        assert "test_send_recv.py:" in caller  # the kernel that calls all_recv_first
        assert float(since.removesuffix(" ns")) > 0
    pes = [f"sip0.cube{cube}.pe0.pe_cpu" for cube in (0, 2, 1, 0)]
    assert cycle == " -> ".join(pes)


@pytest.mark.parametrize("wait", [True, False])
def test_all_sending_more_than_the_ring_first_is_a_deadlock_only_if_they_wait(
    graph, wait
):
    def program(rank, mine, out, tl):
        tl.send("E", tl.load(mine, (2048,), "f32"), wait=wait)
        tl.store(out, tl.recv("W", (2048,), "f32"))

    if not wait:
        run = talk(graph, program, 2048, slots=1)
        np.testing.assert_array_equal(run.out[1], run.data[0])
        return
    with pytest.raises(
        DeadlockError, match=r"send E at .*cycle: (\S+) -> (\S+) -> \1;"
    ):
        talk(graph, program, 2048, slots=1)


def test_a_deadlock_of_full_rings_says_which_are_full_and_what_to_do(graph):
    def program(rank, mine, out, tl):
        x = tl.load(mine, (N,), "f32")
        for _ in range(9):
            tl.send("E", x)
        for _ in range(9):
            tl.recv("W", (N,), "f32")

    with pytest.raises(DeadlockError) as caught:
        talk(graph, program, N, slots=3)
    text = str(caught.value)
    line = program.__code__.co_firstlineno + 3
    for mine, other in ((0, 1), (1, 0)):
        assert re.search(
            rf"sip0\.cube{mine}\.pe0\.pe_cpu: send E at tests/\S+:{line}[^;]*, as its "
            rf"ring to sip0\.cube{other}\.pe0\.pe_cpu is full \(3 of 3 slots\);",
            text,
        )
    assert text.endswith("and sooner, or send with wait=False")


def test_who_waits_for_a_message_says_from_whom_and_speaks_of_no_full_ring(graph):
    def program(rank, mine, out, tl):
        tl.recv("W", (N,), "f32")

    with pytest.raises(DeadlockError) as caught:
        talk(graph, program, N, size=3, neighbors=ring(3))
    text = str(caught.value)
    assert "as nothing more has come from sip0.cube2.pe0.pe_cpu;" in text
    assert "full" not in text
    assert "wait=False" not in text


def test_kernels_are_listed_before_the_launch_that_waits_for_them(graph):
    def program(rank, mine, out, tl):
        tl.recv("W", (N,), "f32")

    with pytest.raises(DeadlockError) as caught:
        talk(graph, program, N)
    waiters = str(caught.value).partition("still waiting: ")[2].split("; ")
    starts = [waiter.split()[0] for waiter in waiters[:3]]
    assert starts == ["sip0.cube0.pe0.pe_cpu:", "sip0.cube1.pe0.pe_cpu:", "launch"]


def test_those_of_the_circle_are_listed_before_those_that_wait_for_them_longer(graph):
    def program(rank, mine, out, tl):
        if rank == 0:
            tl.recv("W", (N,), "f32")
        x = tl.load(mine, (N,), "f32")
        for _ in range(9):
            tl.send("E", x)

    def neighbors(rank):
        return {0: {"W": 1}, 1: {"W": 0, "E": 2}, 2: {"E": 1}}[rank]

    with pytest.raises(DeadlockError) as caught:
        talk(graph, program, N, size=3, neighbors=neighbors)
    waiters = str(caught.value).partition("still waiting: ")[2].split("; ")
    cubes = [re.match(r"sip0\.cube(\d)", waiter)[1] for waiter in waiters[:3]]
    assert cubes == ["1", "2", "0"]


def test_waiting_at_tl_wait_or_at_the_end_of_the_kernel_counts_too(graph):
    def program(rank, mine, out, tl):
        x = tl.recv_async("W", (N,), "f32")
        if rank == 0:
            tl.wait(x)

    with pytest.raises(DeadlockError, match=r"wait W at .*exit W at .*cycle: "):
        talk(graph, program, N)


def test_waiting_to_overwrite_what_nobody_takes_counts_too(graph):
    def program(rank, mine, out, tl):
        x = tl.load(mine, (2048,), "f32")
        tl.send("E", x, wait=False)
        tl.mul(x, 0.0, out=x)
        tl.recv("W", (2048,), "f32")

    with pytest.raises(
        DeadlockError, match=r"mul at .*mul at .*cycle: (\S+) -> \S+ -> \1;"
    ):
        talk(graph, program, 2048, slots=1)


def test_waiting_for_a_kernel_that_has_ended_names_it(graph):
    def program(rank, mine, out, tl):
        if rank == 0:
            tl.recv("W", (N,), "f32")

    with pytest.raises(DeadlockError) as caught:
        talk(graph, program, N)
    waits = (
        "sip0.cube0.pe0.pe_cpu waits for sip0.cube1.pe0.pe_cpu, which waits for none"
    )
    assert str(caught.value).endswith(waits)


def test_the_trace_of_a_deadlock_opens_and_shows_who_waited(graph, tmp_path):
    def program(rank, mine, out, tl):
        tl.send("E", tl.load(mine, (N,), "f32"))
        tl.recv("W", (N,), "f32")
        tl.recv("W", (N,), "f32")

    writer = TraceWriter(tmp_path / "t")
    writer.begin({}, graph)
    with pytest.raises(DeadlockError) as caught:
        talk(graph, program, N, recorder=writer, neighbors=pair)
    writer.end(1.0, error=str(caught.value))
    trace = Trace.open(tmp_path / "t")
    names = [op.op_name for op in trace.ops]
    assert (names.count("ipcq_copy"), names.count("ipcq_recv")) == (2, 2)
    errors = [text.message for text in trace.texts if text.level == "error"]
    assert [message.partition(" at ")[0] for message in errors[1:]] == [
        "never ended: sip0.cube0.pe0.pe_cpu: recv W",
        "never ended: sip0.cube1.pe0.pe_cpu: recv W",
    ]
    assert ReplaySession(trace).hazards().rows == ()
