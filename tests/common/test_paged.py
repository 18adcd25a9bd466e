"""Large tables kept in files."""

import gc
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest

from kernbench.common.paged import paged

MIB = 1 << 20


def written_mib():
    """The memory of this process that is its own and written, in MiB."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"^Private_Dirty: +(\d+)", rollup, re.M)[1]) / 1024


@pytest.mark.parametrize("dtype", ["u1", "i4", "f8"])
def test_the_values_are_the_same_and_cannot_be_written(dtype):
    array = np.arange(120).astype(dtype).reshape(30, 4)
    found = paged(array, large=1)
    assert found is not array
    assert found.dtype == array.dtype
    assert found.tolist() == array.tolist()
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 1


def test_a_small_array_stays_where_it_is():
    array = np.arange(100)
    assert paged(array) is array


@pytest.mark.slow
def test_a_large_array_takes_no_memory_that_the_system_could_not_drop():
    array = np.ones(64 * MIB, np.uint8)
    before = written_mib()
    array = paged(array)
    gc.collect()
    assert array.sum() == 64 * MIB
    assert written_mib() < before - 60


def test_its_file_has_no_name_and_goes_with_the_array(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    array = paged(np.arange(100), large=1)
    assert not [*tmp_path.iterdir()]
    mapped = Path("/proc/self/maps").read_text()
    assert str(tmp_path) in mapped
    del array
    gc.collect()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_without_room_for_a_file_the_array_itself_comes_back(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    array = np.arange(100)
    assert paged(array, large=1) is array
