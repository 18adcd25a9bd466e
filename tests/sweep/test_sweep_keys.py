"""A key is another one just where the result could be."""

import pytest

from kernbench.sweep import keys as keys_module
from kernbench.sweep.keys import Keys
from kernbench.sweep.space import Point, read_space

BENCH = """
from kernbench.benches import bench
@bench(name='b', description='')
def run(torch, n=64, scale=0.5): pass
"""


@pytest.fixture
def key(space_file, tmp_path):
    """The key of a point of a space whose bench is in a file."""
    (tmp_path / "b.py").write_text(BENCH)

    def key(params=None, spec=None, seed=0, more=""):
        space = read_space(space_file(f"bench: b.py\n{more}"))
        return Keys(space).of(Point(params or {}, spec or {}, seed))

    return key


def test_the_same_run_has_the_same_key(key):
    assert key() == key()
    assert key({"n": 64}) == key()
    assert key({"scale": 1}) == key({"scale": 1.0}) != key()
    assert key(spec={"clock_ghz": 2}) == key(spec={"pe.clock_ghz": 2.0}) != key()
    assert len(key()) == 64


def test_another_run_has_another_key(key, tmp_path):
    (tmp_path / "plugin_of_keys.py").write_text("x = 1\n")
    (tmp_path / "fast.yaml").write_text("pe: {clock_ghz: 3}\n")
    found = [
        key(),
        key({"n": 32}),
        key(spec={"pe.clock_ghz": 2}),
        key(seed=1),
        key(more="topology: fast.yaml"),
        key(more="verify: false"),
        key(more="max_ns: 10"),
        key(more="max_ops: 10"),
        key(more="plugins: plugin_of_keys.py"),
    ]
    assert len(set(found)) == len(found)


def test_files_count_by_what_is_in_them(key, tmp_path, monkeypatch):
    first = key()
    (tmp_path / "b.py").write_text(f"{BENCH}# another\n")
    assert key() != first
    (tmp_path / "b.py").write_text(BENCH)
    assert key() == first
    monkeypatch.setattr(keys_module, "code_sha", lambda: "another kernbench")
    assert key() != first


def test_a_machine_that_cannot_be_has_a_key_too(key):
    wrong = key(spec={"pe.clock_ghz": -1})
    assert wrong == key(spec={"pe.clock_ghz": -1})
    assert wrong != key(spec={"pe.clock_ghz": -2})
