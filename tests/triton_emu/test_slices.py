"""Loads and stores of slices, by strides, against numpy's slices of the same matrix."""

import numpy as np
import pytest

from kernbench.errors import (
    AddressError,
    KernelError,
    MemoryStoreError,
    PendingDataError,
)

X = np.arange(24 * 40, dtype=np.float32).reshape(24, 40)
BOX = np.arange(3 * 4 * 5 * 6, dtype=np.float32).reshape(3, 4, 5, 6)

SLICES = {
    "a block": ((slice(3, 11), slice(8, 24)), (40, 1)),
    "whole rows": ((slice(2, 5), slice(0, 40)), (40, 1)),
    "a column": ((slice(0, 24), slice(7, 8)), (40, 1)),
    "every third row": ((slice(1, 24, 3), slice(0, 9)), (120, 1)),
    "every second column": ((slice(4, 6), slice(0, 40, 2)), (40, 2)),
}


def first_of(array, index):
    """How many elements of ``array`` are before a slice of it."""
    picked = np.arange(array.size).reshape(array.shape)[index]
    return int(picked.reshape(-1)[0])


@pytest.mark.parametrize("name", SLICES)
def test_a_slice_is_loaded_by_one_command(run_kernel, name):
    index, strides = SLICES[name]
    expected = X[index]

    def kernel(x, y, tl):
        at = x + 4 * first_of(X, index)
        block = tl.load(at, expected.shape, "f32", strides=strides)
        assert np.array_equal(block.numpy(), expected)
        tl.store(y, block)
        return block

    run = run_kernel(kernel, X, np.zeros_like(X))
    reads = [r for r in run.engine.op_log if r.op_name == "dma_read"]
    assert len(reads) == 1
    assert reads[0].params["nbytes"] == expected.nbytes
    (write,) = [r for r in run.engine.op_log if r.op_name == "dma_write"]
    found = run.store.view("hbm", write.params["dst_addr"], expected.shape, "f32")
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("name", SLICES)
def test_a_store_to_a_slice_leaves_the_rest_as_it_was(run_kernel, name, pending):
    index, strides = SLICES[name]
    shape = X[index].shape
    new = -1 - np.arange(X[index].size, dtype=np.float32).reshape(shape)

    def kernel(x, values, tl):
        block = tl.load(values, shape, "f32")
        if pending:
            block = block * 1
        tl.store(x + 4 * first_of(X, index), block, strides=strides)

    run = run_kernel(kernel, X, new)
    base = run.engine.op_log[0].params["dst_addr"]
    expected = X.copy()
    expected[index] = new
    found = run.store.view("hbm", base, X.shape, "f32")
    assert np.array_equal(found, expected)


def test_three_and_four_dimensions_are_one_descriptor(run_kernel):
    index = (slice(1, 3), slice(0, 4, 3), slice(2, 4), slice(1, 5))
    expected = BOX[index]

    def kernel(x, y, tl):
        strides = (120, 90, 6, 1)
        at = x + 4 * first_of(BOX, index)
        block = tl.load(at, expected.shape, "f32", strides=strides)
        assert np.array_equal(block.numpy(), expected)
        doubled = block * 2
        tl.store(x + 4 * first_of(BOX, index), doubled, strides=strides)

    run = run_kernel(kernel, BOX, np.zeros_like(BOX))
    (read,) = [r for r in run.engine.op_log if r.op_name == "dma_read"]
    assert read.params["planes"] == ((2, 480), (2, 360))
    assert [read.params[name] for name in ("rows", "row_bytes", "pitch")] == [2, 16, 24]
    base = run.engine.op_log[0].params["dst_addr"]
    changed = BOX.copy()
    changed[index] *= 2
    assert np.array_equal(run.store.view("hbm", base, BOX.shape, "f32"), changed)


def test_strides_of_what_is_contiguous_are_a_plain_load(run_kernel):
    def kernel(x, y, tl):
        tl.load(x, (24, 40), "f32", strides=(40, 1))

    run = run_kernel(kernel, X, X)
    (read,) = [r for r in run.engine.op_log if r.op_name == "dma_read"]
    assert not {"rows", "row_bytes", "pitch", "planes"} & read.params.keys()


def test_a_slice_across_shards_is_a_command_for_the_rows_of_each(run_kernel):
    from kernbench.runtime_api import DPPolicy

    def before(torch):
        policy = DPPolicy(cube="replicate", pe="row_wise", num_pes=3)
        return [torch.tensor(X, "f32", policy, name="x")]

    def kernel(x, tl):
        # shards have 8 rows of 40: rows 6 to 17 are in three of them
        block = tl.load(x + 4 * (6 * 40 + 10), (12, 20), "f32", strides=(40, 1))
        assert np.array_equal(block.numpy(), X[6:18, 10:30])
        return block

    run = run_kernel(kernel, before=before)
    pe0 = [
        r
        for r in run.engine.op_log
        if r.op_name == "dma_read" and ".pe0." in r.component_id
    ]
    assert [r.params["rows"] for r in pe0] == [2, 8, 2]


def test_what_lies_between_the_rows_may_be_pending_or_never_written(run_kernel):
    def before(torch):
        return [torch.empty((8, 16), "f32", name="e")]

    def kernel(x, e, tl):
        even = tl.load(x, (4, 16), "f32")
        tl.store(e, even, strides=(32, 1))
        tl.store(e + 4 * 16, even * 2, strides=(32, 1))
        again = tl.load(e, (4, 16), "f32", strides=(32, 1))
        assert np.array_equal(again.numpy(), X.reshape(-1)[:64].reshape(4, 16))
        odd = tl.load(e + 4 * 16, (4, 16), "f32", strides=(32, 1))
        assert not odd.ready
        return odd

    run = run_kernel(kernel, X, before=before)
    (odd,) = [run.made]
    expected = 2 * X.reshape(-1)[:64].reshape(4, 16)
    region = odd.region
    found = run.store.view("tcm", region.addr, region.shape, "f32")
    assert np.array_equal(found, expected)


def test_rows_that_nobody_wrote_are_an_error(run_kernel):
    def before(torch):
        return [torch.empty((8, 16), "f32", name="e")]

    def kernel(x, e, tl):
        tl.store(e, tl.load(x, (4, 16), "f32"), strides=(32, 1))
        tl.load(e, (5, 16), "f32", strides=(16, 1))

    with pytest.raises(KernelError, match="was never written") as caught:
        run_kernel(kernel, X, before=before)
    assert isinstance(caught.value.__cause__, MemoryStoreError)


def test_stores_into_each_others_gaps_do_not_wait_for_each_other(run_kernel):
    def kernel(x, y, tl):
        block = tl.load(x, (4, 8), "f32")
        tl.store(y, block, wait=False, strides=(16, 1))
        tl.store(y + 4 * 8, block, wait=False, strides=(16, 1))
        tl.store(y + 4 * 4, block, wait=False, strides=(16, 1))

    run = run_kernel(kernel, X, np.zeros(128, np.float32))
    writes = [r for r in run.engine.op_log if r.op_name == "dma_write"]
    starts = sorted(r.t_start for r in writes)
    one_issue = 1.0
    assert starts[1] - starts[0] == pytest.approx(one_issue)


REFUSED = {
    "a pitch below a row": ((4, 8), (6, 1), "its rows overlap"),
    "a stride of zero": ((4, 8), (0, 1), "a stride below 1"),
    "a negative stride": ((4, 8), (-40, 1), "a stride below 1"),
    "half an element": ((4, 8), (40.5, 1), "have to be whole numbers"),
    "one stride too few": ((4, 8), (40,), "one stride for each of its 2 axes"),
    "five dimensions": ((2, 2, 2, 2, 2), (99, 40, 18, 6, 2), "6 dimensions, at most 4"),
}


@pytest.mark.parametrize("which", ["load", "store"])
@pytest.mark.parametrize("name", REFUSED)
def test_strides_that_make_no_descriptor_are_refused(run_kernel, name, which):
    shape, strides, why = REFUSED[name]

    def kernel(x, tl):
        if which == "load":
            tl.load(x, shape, "f32", strides=strides)
        else:
            tl.store(x, tl.zeros(shape, "f32"), strides=strides)

    with pytest.raises(KernelError, match=why) as caught:
        run_kernel(kernel, X)
    assert f"{which} of f32{list(shape)}" in str(caught.value)
    assert str(list(strides)) in str(caught.value)


def test_a_number_for_strides_is_refused_with_what_would_do(run_kernel):
    def kernel(x, tl):
        tl.load(x, (4, 8), "f32", strides=40)

    why = r"load of f32\[4, 8\] with strides 40: .* one for each of its 2 axes"
    with pytest.raises(KernelError, match=why):
        run_kernel(kernel, X)


def test_a_slice_that_reaches_out_of_its_tensor_is_an_address_error(run_kernel):
    def kernel(x, tl):
        tl.load(x + 4 * 30, (24, 20), "f32", strides=(40, 1))

    with pytest.raises(KernelError, match="whose rows span 3760 bytes") as caught:
        run_kernel(kernel, X)
    assert isinstance(caught.value.__cause__, AddressError)


def test_a_slice_of_a_pending_matrix_is_pending(run_kernel):
    def kernel(x, y, tl):
        tl.store(y, tl.load(x, (4, 8), "f32") + 1)
        block = tl.load(y, (2, 4), "f32", strides=(8, 1))
        with pytest.raises(PendingDataError):
            block.numpy()

    run_kernel(kernel, X, np.zeros(64, np.float32))
