"""Ops of one PE whose bytes conflict start in program order, at least a cycle apart."""

from itertools import pairwise

import numpy as np
import pytest

CYCLE = 1.0
X = np.arange(64, dtype=np.float32).reshape(8, 8)


@pytest.fixture
def records(simulate, events):
    """records(kernel): ops of one launch of kernel(x_ptr, y_ptr, z_ptr) by t_start.

    z is empty.
    """

    def records(kernel):
        def bench(torch):
            x = torch.tensor(X)
            y = torch.tensor(X + 1)
            torch.launch("k", kernel, x, y, torch.empty((8, 8), "f32"))

        return [
            r for r in simulate(bench, recorder=events).log if r.op_name != "host_write"
        ]

    return records


def busy_writes(tl, x, ptr):
    """Fill the slots of the write channel, so that what comes next queues there."""
    for _ in range(8):
        tl.store(ptr, x, wait=False)


def test_a_load_after_a_queued_store_of_its_bytes_starts_after_it(records):
    def kernel(x_ptr, y_ptr, z_ptr, tl):
        x = tl.load(x_ptr, (8, 8), "f32")
        busy_writes(tl, x, z_ptr)
        tl.store(y_ptr, x, wait=False)
        tl.load(y_ptr, (8, 8), "f32")

    *_, store, load = records(kernel)
    assert (store.op_name, load.op_name) == ("dma_write", "dma_read")
    assert store.params["dst_addr"] == load.params["src_addr"]
    assert load.t_start >= store.t_start + CYCLE - 1e-6


def test_the_wait_for_program_order_is_recorded(records, events):
    def kernel(x_ptr, y_ptr, z_ptr, tl):
        x = tl.load(x_ptr, (8, 8), "f32")
        busy_writes(tl, x, z_ptr)
        tl.store(y_ptr, x, wait=False)
        tl.load(y_ptr, (8, 8), "f32")

    *_, load = records(kernel)
    (waits,) = (
        waits for _, record, _, _, waits, _ in events.of("op") if record is load
    )
    ((node, reason, t0, t1, _),) = [w for w in waits if w[1] == "operand"]
    assert node.endswith("pe_cpu")
    assert t0 < t1 <= load.t_start
    assert reason == "operand"


def test_without_a_conflict_nothing_is_held(records):
    def kernel(x_ptr, y_ptr, z_ptr, tl):
        x = tl.load(x_ptr, (8, 8), "f32")
        busy_writes(tl, x, z_ptr)
        tl.store(z_ptr, x, wait=False)  # queues for a slot
        tl.load(y_ptr, (8, 8), "f32")

    log = records(kernel)
    assert [r.op_name for r in log[-2:]] == ["dma_read", "dma_write"]


def test_stores_to_the_same_bytes_start_a_cycle_apart_in_order(records):
    def kernel(x_ptr, y_ptr, z_ptr, tl):
        x = tl.load(x_ptr, (8, 8), "f32")
        y = tl.load(y_ptr, (8, 8), "f32")
        for i in range(4):
            tl.store(z_ptr, (x, y)[i % 2], wait=False)

    writes = [r for r in records(kernel) if r.op_name == "dma_write"]
    ids = [r.params["handle_id"] for r in writes]
    assert ids == [ids[0], ids[1]] * 2
    assert all(b.t_start - a.t_start >= CYCLE - 1e-6 for a, b in pairwise(writes))


def test_a_composite_whose_operand_is_still_to_be_stored_starts_after_it(records):
    def kernel(x_ptr, y_ptr, z_ptr, tl):
        x = tl.load(x_ptr, (8, 8), "f32")
        busy_writes(tl, x, y_ptr)
        tl.store(y_ptr, x, wait=False)
        y = tl.ref(y_ptr, (8, 8), "f32")
        tl.wait(tl.composite(a=y, b=y, out_ptr=z_ptr))

    log = records(kernel)
    stores = [r for r in log if r.op_name == "dma_write"]
    (composite,) = (r for r in log if r.op_name == "composite_gemm")
    assert composite.t_start >= max(s.t_start for s in stores) + CYCLE - 1e-6


def test_a_composite_over_what_another_still_reads_starts_after_it(records):
    def kernel(x_ptr, y_ptr, z_ptr, tl):
        x = tl.ref(x_ptr, (8, 8), "f32")
        y = tl.ref(y_ptr, (8, 8), "f32")
        tl.composite(a=x, b=x, out_ptr=z_ptr)
        tl.composite(a=y, b=y, out_ptr=x_ptr)

    first, second = (r for r in records(kernel) if r.op_name == "composite_gemm")
    assert second.params["out_addr"] == first.params["src_a_addr"]
    assert second.t_start > first.t_start


def test_data_follow_program_order_whatever_the_queues_do(simulate, phase2):
    def kernel(x_ptr, y_ptr, z_ptr, tl):
        x = tl.load(x_ptr, (8, 8), "f32")
        y = tl.load(y_ptr, (8, 8), "f32")
        for _ in range(9):
            tl.store(z_ptr, x, wait=False)
        tl.store(z_ptr, y * 3, wait=False)
        z = tl.ref(z_ptr, (8, 8), "f32")
        tl.store(x_ptr, z)
        tl.store(z_ptr, x, wait=False)

    def bench(torch):
        x = torch.tensor(X)
        y = torch.tensor(X + 1)
        z = torch.empty((8, 8), "f32")
        torch.launch("k", kernel, x, y, z)
        torch.expect(x, (X + 1) * 3)
        torch.expect(z, X)

    report = phase2(simulate(bench))
    assert report.ok, report.as_text()
