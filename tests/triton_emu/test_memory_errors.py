"""Memory errors of kernels: one line with PE, kernel line, address and what is near.

With warn-memory each is a warning, and the run goes on.
"""

import inspect

import numpy as np
import pytest

from kernbench.errors import KernelError
from kernbench.runtime_api import DPPolicy

X = np.arange(64, dtype=np.float32).reshape(8, 8)
LAST = 4 * 56  # offset of the last row


def unwritten_load(x, y, empty, tl):
    tl.load(empty, (8, 8), "f32")


def unwritten_ref_in_a_composite(x, y, empty, tl):
    tl.composite(a=tl.ref(empty, (8, 8), "f32"), b=tl.ref(x, (8, 8), "f32"), out_ptr=y)


def unwritten_store_of_a_ref(x, y, empty, tl):
    tl.store(x, tl.ref(empty, (8, 8), "f32"))


def partly_unwritten_load(x, y, empty, tl):
    tl.store(empty, tl.load(x, (4, 8), "f32"))
    tl.load(empty, (8, 8), "f32")


def unwritten_beside_pending(x, y, empty, tl):
    tl.store(empty, tl.load(x, (4, 8), "f32") + 1)
    tl.load(empty, (8, 8), "f32")


def load_past_the_end(x, y, empty, tl):
    tl.load(x + LAST, (2, 8), "f32")


def store_past_the_end(x, y, empty, tl):
    tl.store(x + LAST, tl.load(x, (2, 8), "f32"))


def misaligned_load(x, y, empty, tl):
    tl.load(x + 2, (4,), "f32")


def misaligned_store(x, y, empty, tl):
    tl.store(x + 2, tl.load(x, (4,), "f32"))


def overlapping_store(x, y, empty, tl):
    tl.store(x + 32, tl.ref(x, (4, 8), "f32"))


def overlapping_composite(x, y, empty, tl):
    half = tl.ref(x, (4, 4), "f32")
    tl.composite(a=half, b=half, out_ptr=x + 32)


def overlapping_out(x, y, empty, tl):
    h = tl.load(x, (4, 8), "f32")
    tl.sum(h, axis=1, out=tl.slice(tl.reshape(h, (32,)), (0,), (4,)))


def overlapping_accumulator(x, y, empty, tl):
    h = tl.load(x, (8, 8), "f32")
    tl.dot(h, h, acc=h)


CASES = {
    unwritten_load: (
        "MemoryStoreError: load reads f32[8, 8] at 0x",
        "was never written (in empty [0x",
        "write it first, with torch.tensor, torch.zeros or tl.store",
    ),
    unwritten_ref_in_a_composite: ("composite reads f32[8, 8]", "in empty [0x"),
    unwritten_store_of_a_ref: ("store reads f32[8, 8]", "in empty [0x"),
    partly_unwritten_load: ("load reads f32[8, 8]", "was never written (in empty [0x"),
    unwritten_beside_pending: (
        "load reads f32[8, 8]",
        "was never written (in empty [0x",
    ),
    load_past_the_end: (
        "AddressError: load of f32[2, 8] at 0x",
        "byte 32 of 64, is in no tensor; nearest: t0 [0x",
    ),
    store_past_the_end: ("AddressError: store of f32[2, 8] at 0x", "nearest: t0 [0x"),
    misaligned_load: (
        "AddressError: load of f32[4] at 0x",
        "(in t0 [0x",
        "is not aligned to its 4-byte elements; address whole elements",
    ),
    misaligned_store: (
        "store of f32[4] at 0x",
        "is not aligned to its 4-byte elements",
    ),
    overlapping_store: (
        "store: the output at 0x",
        "overlaps an operand at 0x",
        "(in t0 [0x",
    ),
    overlapping_composite: (
        "composite: the output at 0x",
        "use another tensor for the output",
    ),
    overlapping_out: ("sum: the output at 0x", "overlaps an operand", "(in h0.1 [0x"),
    overlapping_accumulator: (
        "dot: the output at 0x",
        "overlaps an operand",
        "(in h0.1 [0x",
    ),
}


def line_of_last(kernel):
    lines, first = inspect.getsourcelines(kernel)
    return first + len(lines) - 1


def empty(torch):
    return [torch.empty((8, 8), "f32", name="empty")]


@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.__name__)
def test_a_memory_error_is_one_line_with_pe_line_and_allocation(run_kernel, kernel):
    with pytest.raises(KernelError) as raised:
        run_kernel(kernel, X, X + 100, before=empty)
    text = str(raised.value)
    where = f"tests/triton_emu/test_memory_errors.py:{line_of_last(kernel)}: "
    assert text.startswith(f"sip0.cube0.pe0.pe_cpu: kernel k at {where}")
    assert "\n" not in text
    for part in CASES[kernel]:
        assert part in text


@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.__name__)
def test_with_warn_memory_it_is_a_warning_and_the_run_goes_on(
    run_kernel, events, kernel
):
    run_kernel(kernel, X, X + 100, before=empty, warn_memory=True, recorder=events)
    t, cmd, level, text = events.of("text")[0]
    assert level == "warning"
    assert t > 0
    line = line_of_last(kernel)
    assert text.startswith(
        f"sip0.cube0.pe0.pe_cpu: tests/triton_emu/test_memory_errors.py:{line}: "
    )
    for part in CASES[kernel]:
        assert (
            part.removeprefix("MemoryStoreError: ").removeprefix("AddressError: ")
            in text
        )
    calls = {args[0]: args[3] for args in events.of("command")}
    assert calls[cmd] in kernel.__name__ or calls[cmd] in text


def test_unwritten_bytes_read_as_ff_in_both_phases(run_kernel):
    def kernel(x, y, empty, tl):
        tl.store(empty, tl.load(x, (4, 8), "f32"))
        h = tl.load(empty, (8, 8), "f32")
        assert h.ready
        assert np.array_equal(h.data[:4], X[:4])
        tl.store(x, h)
        tl.store(x, h * 1)
        assert np.isnan(h.data[4:]).all()
        return h

    run = run_kernel(kernel, X, X + 100, before=empty, warn_memory=True)
    assert run.executor.findings == []
    written = run.engine.op_log[-1].params["dst_addr"]
    found = run.store.view("hbm", written, (8, 8), "f32")
    assert np.array_equal(found[:4], X[:4])
    assert np.isnan(found[4:]).all()


def test_a_load_past_the_end_reads_the_physical_bytes_behind_the_last_shard(run_kernel):
    def kernel(x, y, tl):
        return np.array(tl.load(x + LAST, (128,), "f32"))

    run = run_kernel(kernel, X, X + 100, warn_memory=True)
    assert run.made[:8].tolist() == X[7].tolist()
    behind = run.engine.store.view(
        "hbm", run.engine.op_log[-1].params["src_addr"], (128,), "u32"
    )
    assert behind.view(np.float32).tobytes() == run.made.tobytes()
    assert (X + 100)[0, 0] in run.made  # the next tensor lies there


def test_a_store_past_the_end_writes_the_bytes_behind_it(run_kernel):
    def kernel(x, y, tl):
        before = np.array(tl.load(y, (8, 8), "f32"))
        tl.store(x, tl.load(x, (1, 128), "f32"))
        for _ in range(8):
            tl.store(x + LAST, tl.load(x, (128,), "f32"))
        return before, np.array(tl.load(y, (8, 8), "f32"))

    run = run_kernel(kernel, X, X + 100, warn_memory=True)
    before, after = run.made
    assert not np.array_equal(before, after)


def test_a_load_across_shards_may_split_elements_with_warn_memory(simulate):
    seen = []

    def kernel(x_ptr, tl):
        if tl.program_id(0) == 0:
            seen.append(np.array(tl.load(x_ptr + 2, (63,), "f32")))

    def bench(torch):
        dp = DPPolicy(pe="row_wise", num_cubes=1, num_pes=2)
        torch.launch("k", kernel, torch.tensor(X, dp=dp))

    simulate(bench, warn_memory=True)
    assert seen[0].tobytes() == X.tobytes()[2:-2]


def test_an_address_below_every_tensor_is_an_error_even_then(run_kernel):
    def kernel(x, tl):
        tl.load(4096, (8, 8), "f32")

    with pytest.raises(KernelError, match="not a virtual address"):
        run_kernel(kernel, X, warn_memory=True)


def test_a_copy_of_a_replicated_tensor_is_named_by_its_physical_address(simulate):
    def kernel(x_ptr, tl):
        if tl.program_id(0) == 3:
            tl.load(x_ptr, (8, 8), "f32")

    def bench(torch):
        dp = DPPolicy(pe="replicate", num_cubes=1, num_pes=4)
        torch.launch("k", kernel, torch.empty((8, 8), "f32", dp, name="copies"))

    with pytest.raises(KernelError, match=r"pe3.*never written \(in copies \[0x"):
        simulate(bench)
