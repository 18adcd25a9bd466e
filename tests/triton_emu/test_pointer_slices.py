"""Slices of pointers against numpy's slices of the same arrays, whatever the shards."""

import random

import numpy as np
import pytest

from kernbench.common.pointers import TensorPtr
from kernbench.errors import AddressError, KernelError
from kernbench.replay import ReplaySession
from kernbench.runtime_api import run_bench
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.accesses import access_columns, accesses
from kernbench.sim_engine.engine import GraphEngine
from kernbench.trace import Trace

POLICIES = ("replicate", "row_wise", "column_wise")


def launched(topology, kernel, *tensors, pe=0):
    """``kernel`` on one PE of a cube that holds some tensors, (array, policy)."""
    engine = GraphEngine(topology)
    torch = Torch(engine)
    made = [
        torch.tensor(array, dp=DPPolicy(pe=policy, num_cubes=1), name="xyzw"[i])
        for i, (array, policy) in enumerate(tensors)
    ]

    def on_one(*args, tl):
        if tl.program_id(0) == pe:
            kernel(*args, tl=tl)

    torch.launch("k", on_one, *made)
    engine.drain()
    return engine, made


def random_index(rng, shape):
    """A slice of an array of that shape with at least one element."""
    items = []
    for extent in shape:
        low = rng.randrange(extent)
        high = rng.randrange(low, extent) + 1
        kind = rng.random()
        if kind < 0.2:
            items.append(low)
        elif kind < 0.4:
            items.append(slice(None))
        elif kind < 0.6:
            items.append(slice(low, high, rng.randrange(1, 4)))
        else:
            items.append(slice(low, high))
    if rng.random() < 0.1:
        items[rng.randrange(len(items))] = Ellipsis
    return tuple(items)


@pytest.mark.parametrize("seed", range(60))
def test_random_slices_are_those_of_numpy(one_cube, seed):
    rng = random.Random(seed)
    shape = tuple(rng.randrange(1, 20) for _ in range(rng.randrange(1, 4)))
    dtype = rng.choice(["f4", "f2", "i1", "i8"])
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    y = np.zeros_like(x)
    policies = [rng.choice(POLICIES) for _ in range(2)]
    picks = [random_index(rng, shape) for _ in range(4)]
    expected = y.copy()
    for index in picks:
        expected[index] = x[index] + 1

    def kernel(x_ptr, y_ptr, tl):
        for index in picks:
            block = tl.load(x_ptr[index])
            assert block.dtype == x_ptr.dtype
            assert np.array_equal(block.numpy(), x[index])
            tl.store(y_ptr[index], block + 1)

    _, (_, found) = launched(one_cube, kernel, (x, policies[0]), (y, policies[1]))
    assert np.array_equal(found.numpy(), expected)


def test_a_slice_over_shards_of_rows_is_a_command_for_each(one_cube):
    x = np.arange(16 * 4, dtype=np.float32).reshape(16, 4)

    def kernel(x_ptr, tl):
        tl.load(x_ptr[1:7, 0:2])

    engine, _ = launched(one_cube, kernel, (x, "row_wise"))
    reads = [op for op in engine.op_log if op.op_name == "dma_read"]
    sizes = {op.params["dst_addr"]: op.params["nbytes"] for op in reads}
    assert [size for _, size in sorted(sizes.items())] == [8, 16, 16, 8]


@pytest.mark.parametrize("step", [1, 2])
def test_a_slice_over_shards_of_columns_is_a_command_for_each(one_cube, step):
    x = np.arange(16 * 32, dtype=np.float32).reshape(16, 32)
    y = np.zeros_like(x)

    def kernel(x_ptr, y_ptr, tl):
        block = tl.load(x_ptr[2:9, 1:11:step])  # columns 0:4, 4:8 and 8:12
        tl.store(y_ptr[2:9, 1:11:step], block)

    engine, (_, found) = launched(
        one_cube, kernel, (x, "column_wise"), (y, "column_wise")
    )
    expected = np.zeros_like(x)
    expected[2:9, 1:11:step] = x[2:9, 1:11:step]
    assert np.array_equal(found.numpy(), expected)
    names = [op.op_name for op in engine.op_log]
    assert names.count("dma_read") == names.count("dma_write") == 3


def test_a_load_over_columns_lands_whole_without_waiting(one_cube):
    x = np.arange(8 * 16, dtype=np.int16).reshape(8, 16)

    def kernel(x_ptr, tl):
        block = tl.load(x_ptr[:, 1:15], wait=False)
        tl.wait(block)
        assert np.array_equal(block.numpy(), x[:, 1:15])

    launched(one_cube, kernel, (x, "column_wise"))


@pytest.mark.parametrize("seed", range(25))
def test_composites_of_slices_are_those_of_numpy(one_cube, seed):
    """Operands, an epilogue's and the output are blocks of larger matrices."""
    rng = random.Random(seed)
    data = np.random.default_rng(seed)
    m, k, n = (rng.randrange(1, 40) for _ in range(3))
    flip = rng.random() < 0.3
    left = (k, m) if flip else (m, k)
    blocks = [left, (k, n), (m, n), (m, n)]
    wholes = []
    places = []
    for rows, cols in blocks:
        whole = (rows * 2 + 5, cols + rng.randrange(4))
        wholes.append(data.integers(-3, 4, whole).astype(np.float32))
        step = rng.randrange(1, 3)
        row = rng.randrange(3)
        col = rng.randrange(whole[1] - cols + 1)
        places.append(
            (slice(row, row + (rows - 1) * step + 1, step), slice(col, col + cols))
        )
    at_a, at_b, at_r, at_c = places
    tile = tuple(rng.choice([8, 16, 64]) for _ in range(3))

    def kernel(a, b, r, c, tl):
        x = tl.ref(a[at_a])
        done = tl.composite(
            a=tl.trans(x) if flip else x,
            b=tl.ref(b[at_b]),
            out_ptr=c[at_c],
            epilogue=["relu", ("bias", tl.ref(r[at_r]))],
            tile=tile,
        )
        tl.wait(done)
        tl.composite("mul", a=done, b=tl.ref(r[at_r]), out_ptr=c[at_c], tile=tile)

    a, b, r, c = wholes
    _, (*_, found) = launched(one_cube, kernel, *((x, "replicate") for x in wholes))
    factor = a[at_a].T if flip else a[at_a]
    expected = c.copy()
    expected[at_c] = (np.maximum(factor @ b[at_b], 0) + r[at_r]) * r[at_r]
    assert np.array_equal(found.numpy(), expected)


STRIDED_BENCH = """
import numpy as np
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def kernel(a, b, c, tl):
    if tl.program_id(0):
        return
    done = tl.composite(a=tl.ref(a[1:17, 3:19]), b=tl.ref(a[20:36:1, 2:18]),
                        out_ptr=c[4:20, 5:21], tile=(8, 8, 8),
                        epilogue=[("bias", tl.ref(a[0:16, 8:24]))])
    tl.wait(done)
    tl.wait(tl.composite("fma", a=done, b=tl.ref(a[0:1, 0:16]), c=tl.ref(c[4:20, 0:1]),
                         out_ptr=c[4:20, 5:21]))
    x = tl.load(b[2:9, 1:11:3])
    tl.store(b[2:9, 2:12:3], 2 * x)

@bench(name="strided", description="rows with gaps")
def run(torch):
    a = torch.rng.integers(-3, 4, (40, 24)).astype("f4")
    b = torch.rng.integers(-3, 4, (16, 32)).astype("f4")
    one = DPPolicy(num_cubes=1)
    ta = torch.tensor(a, dp=one, name="a")
    tb = torch.tensor(b, dp=DPPolicy(pe="column_wise", num_cubes=1), name="b")
    tc = torch.zeros((24, 24), "f32", one, name="c")
    torch.launch("strided", kernel, ta, tb, tc)
    c = np.zeros((24, 24))
    product = a[1:17, 3:19] @ a[20:36, 2:18] + a[0:16, 8:24]
    c[4:20, 5:21] = product * a[0, :16]
    b[2:9, 2:12:3] = 2 * b[2:9, 1:11:3]
    torch.expect(tb, b)
    torch.launch("look", lambda c, tl: None, tc)
"""


@pytest.mark.slow
def test_a_trace_of_slices_says_what_they_touch(tmp_path):
    """Of each op, decoded or not; and what it read is found again."""
    file = tmp_path / "strided.py"
    file.write_text(STRIDED_BENCH)
    run_bench(str(file), trace=tmp_path / "t.msgpack", verify=True)
    trace = Trace.open(tmp_path / "t.msgpack")
    assert trace.check() == []
    touched = access_columns(trace)
    found = {}
    for number, row in enumerate(touched.row.tolist()):
        mode = "w" if touched.mode[number] else "r"
        pieces = touched.pieces(np.array([number]))
        for addr, nbytes in zip(pieces.addr, pieces.nbytes, strict=True):
            found.setdefault(row, []).append((mode, int(addr), int(nbytes)))
    for position, row in enumerate(trace.order.tolist()):
        expected = [(a.mode, a.addr, a.nbytes) for a in accesses(trace.ops[position])]
        assert found.get(row, []) == expected
    session = ReplaySession(trace)
    assert session.verify().ok
    assert "composite_math" in str(session.run_line("blame c[4,5]"))
    assert not session.run_line("hazards").rows


def test_a_pointer_alone_is_the_box_of_each_pe(one_cube):
    x = np.arange(16 * 4, dtype=np.float32).reshape(16, 4)
    engine = GraphEngine(one_cube)
    torch = Torch(engine)
    rows = DPPolicy(pe="row_wise", num_cubes=1)
    held = torch.tensor(x, dp=rows)
    doubled = torch.empty(x.shape, "f32", dp=rows)

    def kernel(x_ptr, y_ptr, tl):
        mine = tl.load(x_ptr)
        assert np.array_equal(mine.numpy(), x[2 * tl.program_id(0) :][:2])
        tl.store(y_ptr, 2 * mine)

    torch.launch("k", kernel, held, doubled)
    assert np.array_equal(doubled.numpy(), 2 * x)


def test_the_dtype_is_that_of_the_pointer(one_cube):
    x = np.arange(8, dtype=np.float32)
    y = np.zeros(8, np.int16)

    def kernel(x_ptr, y_ptr, tl):
        assert tl.load(x_ptr, (8,)).dtype == "f32"
        assert tl.load(x_ptr + 4, (2,)).numpy().tolist() == [1, 2]
        assert tl.load(y_ptr[2:4]).dtype == "i16"

    engine, _ = launched(one_cube, kernel, (x, "replicate"), (y, "replicate"))
    assert not engine.notes


def test_another_dtype_reads_the_bytes_otherwise_and_says_so_once(one_cube):
    x = np.arange(8, dtype=np.float32)

    def kernel(x_ptr, tl):
        for _ in range(3):
            assert tl.load(x_ptr[1:2], dtype="int32").numpy() == [0x3F800000]

    engine, _ = launched(one_cube, kernel, (x, "replicate"))
    (note,) = engine.notes
    assert note.endswith("load takes bytes of f32 for i32; tl.cast converts")


def test_a_composite_writes_what_its_output_holds(one_cube):
    a = np.eye(16, dtype=np.float16)
    c = np.zeros((16, 16), np.float32)

    def kernel(a_ptr, c_ptr, tl):
        done = tl.composite(a=tl.ref(a_ptr), b=tl.ref(a_ptr[:, :]), out_ptr=c_ptr)
        assert done.dtype == "f32"
        tl.wait(done)

    _, (_, found) = launched(one_cube, kernel, (a, "replicate"), (c, "replicate"))
    assert np.array_equal(found.numpy(), a)


MISTAKES = {
    "outside": (lambda x, tl: tl.load(x[0:17]), r"x\[0:17\]: axis 0 of x, f32\[16, 4]"),
    "below": (lambda x, tl: tl.load(x[-1:3]), "-1:3 is not inside it, which is 0:16"),
    "an index": (lambda x, tl: tl.load(x[16, 0]), "16 is not inside it"),
    "empty": (lambda x, tl: tl.load(x[3:3]), "3:3 has no element"),
    "backwards": (lambda x, tl: tl.load(x[::-1]), "a step of -1; a DMA goes upwards"),
    "axes": (lambda x, tl: tl.load(x[0, 0, 0]), "has 2 axes; give an index"),
    "a float": (lambda x, tl: tl.load(x[0.5]), "0.5 is no whole number"),
    "a size": (lambda x, tl: tl.load(x[0:2], dtype="f16"), "f16 has another size"),
    "a shape": (lambda x, tl: tl.load(x[0:2], (2, 4)), "leave out shape="),
    "strides": (lambda x, tl: tl.load(x[0:2], strides=(4, 1)), "steps, as x"),
    "moved": (lambda x, tl: (x + 4)[0:2], "moved by bytes has no slice"),
    "bytes": (lambda x, tl: x[0:2] + 4, "no bytes can be added; add to its indices"),
    "twice": (lambda x, tl: x[0:2][0:1], "is a slice already; take one slice of x"),
    "no shape": (lambda x, tl: tl.load(x + 4), "needs a shape"),
    "another shape": (
        lambda x, tl: tl.store(x[0:2], tl.zeros((4, 2), "f32")),
        r"has shape \[2, 4], and what goes there f32\[4, 2]",
    ),
    "another size": (
        lambda x, tl: tl.store(x[0:2], tl.zeros((2, 4), "f16")),
        "tl.cast it to f32 first",
    ),
    "a step in a row": (lambda x, tl: tl.ref(x[0:2, ::2]), "of a row of x.* step"),
    "five dimensions": (
        lambda x, tl: tl.load(x, (2, 2, 2, 2), strides=(60, 24, 10, 2)),
        "cannot have 5 dimensions",
    ),
    "a store of rows": (
        lambda x, tl: tl.store(x[8:10, 0:2], tl.ref(x[0:2, 0:2])),
        "gaps between them; tl.load it first",
    ),
    "a shape of rows": (
        lambda x, tl: tl.reshape(tl.ref(x[0:2, 0:2]), (4,)),
        "slice the pointer as it is needed",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_remedy(one_cube, name):
    mistake, message = MISTAKES[name]
    x = np.zeros((16, 4), np.float32)
    with pytest.raises(KernelError, match=message):
        launched(one_cube, lambda x_ptr, tl: mistake(x_ptr, tl), (x, "replicate"))


def test_a_ref_over_several_shards_is_refused(one_cube):
    x = np.zeros((16, 4), np.float32)
    with pytest.raises((AddressError, KernelError), match=r"x\[0:4] covers 2 shards"):
        launched(one_cube, lambda x_ptr, tl: tl.ref(x_ptr[0:4]), (x, "row_wise"))


def test_pointers_move_and_are_apart():
    first = TensorPtr(1000, "f32")
    assert first - TensorPtr(992, "f32") == 8
    assert (first - 4).dtype == "f32"
