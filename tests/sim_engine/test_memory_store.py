import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from pace import for_all

from kernbench.common.dtypes import DTYPES, np_dtype
from kernbench.errors import MemoryStoreError
from kernbench.sim_engine.memory_store import MemoryStore


def counting(count, dtype="u8"):
    return np.arange(count).astype(np_dtype(dtype))


def test_a_new_store_has_one_empty_field():
    assert vars(MemoryStore()) == {"_storage": {}}


def test_write_keeps_the_reference_under_space_and_address():
    store = MemoryStore()
    data = counting(4, "f32")
    store.write("hbm", 64, data)
    assert store._storage["hbm"][64] is data
    assert store.read("hbm", 64) is data


def test_a_caller_who_mutates_its_array_changes_what_is_stored():
    store = MemoryStore()
    data = counting(4)
    store.write("hbm", 0, data)
    data[2] = 99
    assert store.read("hbm", 0)[2] == 99


def test_read_reinterprets_dtype_and_shape_without_a_copy():
    store = MemoryStore()
    data = counting(6, "f32")
    store.write("reg", 0, data)
    as_bytes = store.read("reg", 0, (4, 6), "u8")
    assert as_bytes.shape == (4, 6)
    assert np.shares_memory(as_bytes, data)
    assert store.read("reg", 0, (2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert store.read("reg", 0, dtype="u16").shape == (12,)


def test_read_of_another_size_is_a_value_error_with_both_sizes():
    store = MemoryStore()
    store.write("hbm", 0, counting(4, "f32"))
    with pytest.raises(ValueError, match=r"16 bytes.*is 12 bytes") as caught:
        store.read("hbm", 0, (3,), "f32")
    assert isinstance(caught.value, MemoryStoreError)


def test_read_inside_an_extent_is_refused_and_names_it():
    store = MemoryStore()
    store.write("hbm", 0, counting(16))
    with pytest.raises(MemoryStoreError, match=r"no array begins.*\[0x0, 0x10\).*view"):
        store.read("hbm", 4)


def test_has_knows_exact_keys_only():
    store = MemoryStore()
    store.write("hbm", 8, counting(8))
    assert store.has("hbm", 8)
    assert not store.has("hbm", 9)
    assert not store.has("tcm", 8)


def test_a_snapshot_shares_arrays_and_nothing_else():
    store = MemoryStore()
    data = counting(8)
    store.write("hbm", 0, data)
    fork = store.snapshot()
    assert fork.read("hbm", 0) is data
    fork.write("hbm", 0, counting(4) + 50)
    store.write("tcm", 0, data)
    assert store.view("hbm", 0, (8,), "u8").tolist() == list(range(8))
    assert fork.spaces() == ["hbm"]


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_comes_back_from_bytes(name):
    store = MemoryStore()
    data = np.array([0, 1, 1], np_dtype(name))
    store.write("hbm", 32, data.view(np.uint8))
    found = store.view("hbm", 32, (3,), name)
    assert found.dtype == data.dtype
    assert found.tolist() == data.tolist()


def test_a_scalar_array_is_one_element():
    store = MemoryStore()
    store.write("tcm", 4, np.array(2.5, np.float32))
    assert store.read("tcm", 4) == 2.5
    assert store.view("tcm", 4, (1,), "f32").tolist() == [2.5]
    assert store.view("tcm", 4, (), "f32").shape == ()
    assert store.read("tcm", 4, dtype="u8").shape == (4,)


def test_an_array_of_no_bytes_is_not_stored_and_can_be_viewed_anywhere():
    store = MemoryStore()
    store.write("hbm", 0, np.empty((0, 4), np.float32))
    assert not store.has("hbm", 0)
    assert store.spaces() == []
    assert store.view("hbm", 123, (0, 4), "f32").shape == (0, 4)


@pytest.mark.parametrize(
    "bad", [np.eye(4)[:, 1], np.eye(3).T[:2, ::2], np.array([{}], object)]
)
def test_what_is_not_contiguous_plain_data_is_refused(bad):
    store = MemoryStore()
    with pytest.raises(MemoryStoreError, match="C-contiguous"):
        store.patch("hbm", 0, bad)
    assert store.spaces() == []


def test_a_patch_inside_an_extent_copies_nothing():
    store = MemoryStore()
    old = counting(64, "f32")
    new = counting(4, "f32")
    store.write("hbm", 0, old)
    store.patch("hbm", 32, new)
    pieces = dict(store.extents("hbm"))
    assert list(pieces) == [0, 32, 48]
    assert pieces[32] is new
    assert np.shares_memory(pieces[0], old)
    assert np.shares_memory(pieces[48], old)
    assert old.tolist() == list(range(64))


def test_a_view_of_one_extent_copies_nothing_and_is_read_only():
    store = MemoryStore()
    data = counting(64, "f32")
    store.write("hbm", 0, data)
    for addr in (0, 16):
        found = store.view("hbm", addr, (2, 4), "f32")
        assert np.shares_memory(found, data)
        assert not found.flags.writeable
    assert data.flags.writeable


def test_elements_that_a_carve_has_split_are_gathered():
    store = MemoryStore()
    store.write("hbm", 0, counting(8, "f32"))
    store.patch("hbm", 5, np.array([7], np.uint8))  # splits the element at 4
    expected = counting(8, "f32").view(np.uint8).copy()
    expected[5] = 7
    assert store.view("hbm", 0, (32,), "u8").tolist() == expected.tolist()
    assert store.view("hbm", 4, (1,), "f32").tobytes() == expected[4:8].tobytes()


def test_a_misaligned_view_is_an_aligned_copy():
    store = MemoryStore()
    store.write("hbm", 0, counting(9))
    found = store.view("hbm", 1, (4,), "bf16")
    assert found.flags.aligned
    assert found.tobytes() == bytes(range(1, 9))
    assert found.dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("addr", "count", "gap"),
    [(0, 4, "0x0"), (12, 8, "0x10"), (16, 2, "0x10"), (60, 1, "0x3c")],
)
def test_bytes_never_written_are_named_with_the_nearest_extents(addr, count, gap):
    store = MemoryStore()
    store.write("hbm", 8, counting(8))
    store.write("hbm", 32, counting(8))
    with pytest.raises(
        MemoryStoreError, match=f"byte {gap} was never written"
    ) as caught:
        store.view("hbm", addr, (count,), "u8")
    assert ("[0x8, 0x10)" in str(caught.value)) == (addr < 32)
    assert ("[0x20, 0x28)" in str(caught.value)) == (addr > 8)


def test_an_absurd_size_is_an_error_and_not_an_allocation():
    store = MemoryStore()
    store.write("hbm", 0, counting(8))
    with pytest.raises(MemoryStoreError, match="never written"):
        store.view("hbm", 0, (1 << 50,), "f64")


def test_what_is_left_of_extents_whose_bytes_are_dropped_keeps_its_place():
    store = MemoryStore()
    store.write("hbm", 0, counting(16))
    store.write("hbm", 20, counting(4) + 100)
    store.drop("hbm", 8, 14)
    left = [(addr, data.tolist()) for addr, data in store.extents("hbm")]
    assert left == [(0, list(range(8))), (22, [102, 103])]


def test_a_drop_where_nothing_is_drops_nothing():
    store = MemoryStore()
    store.drop("hbm", 0, 10)
    assert store.spaces() == []
    store.write("hbm", 16, counting(4))
    store.drop("hbm", 0, 16)
    store.drop("hbm", 17, 0)
    assert store.read("hbm", 16).tolist() == [0, 1, 2, 3]


SIZE = 48
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "patch", "drop", "fork", "view"]),
        st.integers(0, SIZE - 1),
        st.integers(0, 12),
        st.sampled_from(["u8", "f16", "f32"]),
    ),
    max_size=25,
)


def check(store, model):
    extents = store.extents("m")
    held = {addr + i for addr, data in extents for i in range(data.nbytes)}
    assert sum(data.nbytes for _, data in extents) == len(held), "extents overlap"
    assert held == set(model)
    for addr, data in extents:
        assert data.tobytes() == bytes(model[addr + i] for i in range(data.nbytes))


@for_all(STEPS, fast=40, whole=300)
def test_a_store_behaves_as_a_dict_of_bytes(steps):
    store = MemoryStore()
    model = {}
    forks = []
    written = []
    for number, (what, addr, count, dtype) in enumerate(steps):
        nbytes = count * np_dtype(dtype).itemsize
        span = range(addr, addr + nbytes)
        if what in ("write", "patch"):
            raw = bytes((number * 37 + i) % 251 for i in range(nbytes))
            data = np.frombuffer(bytearray(raw), np_dtype(dtype))
            getattr(store, what)("m", addr, data)
            written.append((data, raw))
            model.update(zip(span, raw, strict=True))
        elif what == "drop":
            store.drop("m", addr, nbytes)
            for i in span:
                model.pop(i, None)
        elif what == "fork":
            forks.append((store.snapshot(), dict(model)))
        elif all(i in model for i in span):
            found = store.view("m", addr, (count,), dtype)
            assert found.dtype == np_dtype(dtype)
            assert found.tobytes() == bytes(model[i] for i in span)
        else:
            with pytest.raises(MemoryStoreError):
                store.view("m", addr, (count,), dtype)
        check(store, model)
    for fork, then in forks:
        check(fork, then)
    for data, raw in written:
        assert data.tobytes() == raw, "a stored array was mutated"


def test_with_a_fill_bytes_never_written_are_that_byte():
    store = MemoryStore(fill=0xFF)
    store.write("hbm", 8, counting(4))
    assert store.view("hbm", 6, (8,), "u8").tolist() == [255, 255, 0, 1, 2, 3, 255, 255]
    assert np.isnan(store.view("tcm", 0, (2, 2), "f16")).all()
    fork = store.snapshot()
    assert fork.view("hbm", 0, (1,), "u16").tolist() == [65535]
    assert store.extents("hbm")[0][0] == 8


@pytest.mark.parametrize(
    ("addr", "count", "gap"),
    [(8, 8, None), (8, 9, 16), (7, 2, 7), (12, 24, 16), (40, 0, None)],
)
def test_the_first_byte_never_written_is_found(addr, count, gap):
    store = MemoryStore(fill=0xFF)
    store.write("hbm", 8, counting(4))
    store.write("hbm", 12, counting(4))
    store.write("hbm", 32, counting(8))
    assert store.gap("hbm", addr, count) == gap
