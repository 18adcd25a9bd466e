"""Benches by name and by path, and the parameters of ``--set``."""

from pathlib import Path

import pytest

import kernbench.benches
from kernbench.benches import FAULTS, SHIPPED, SLOW, TUTORIALS
from kernbench.errors import UsageError
from kernbench.runtime_api import run_bench
from kernbench.runtime_api.registry import (
    BENCHES,
    Bench,
    at_least_one,
    bench,
    bind_params,
    find_bench,
    one_of,
)

BENCH_FILES = Path(kernbench.benches.__file__).parent
ENTRY = Bench(
    "b", "", print, {"m": 4, "f": 0.5, "flag": False, "dtype": "f16", "pes": None}
)

GOOD = """
from kernbench.runtime_api.registry import bench

@bench(name="mine", description="of a file")
def run(torch, m=3):
    pass
"""


@pytest.fixture
def file(tmp_path):
    def file(text):
        path = tmp_path / "my_bench.py"
        path.write_text(text)
        return str(path)

    return file


def test_a_shipped_bench_by_name():
    assert find_bench("matmul").params["m"] == 256


def test_a_bench_that_a_program_registers_is_found_by_its_name_and_runs():
    find_bench("matmul")  # those that ship are registered now
    before = dict(BENCHES)

    def copy(x_ptr, y_ptr, tl):
        tl.store(y_ptr, tl.load(x_ptr, (4,), "f32"))

    @bench(name="ours", description="a copy")
    def run(torch, value=3.0):
        x = torch.full((4,), value, "f32", name="x")
        y = torch.empty((4,), "f32", name="y")
        torch.launch("copy", copy, x, y)
        torch.expect(y, [value] * 4)

    try:
        result = run_bench("ours", params={"value": 5.0})
    finally:
        BENCHES.clear()
        BENCHES.update(before)
    assert result.ok
    assert [row.tensor for row in result.report.by_tensor()] == ["y"]


def test_the_benches_that_ship_are_those_of_the_files():
    folders = ("", "faults/", "slow/", "tutorial/")
    files = [path for each in folders for path in BENCH_FILES.glob(f"{each}*.py")]
    texts = [path.read_text() for path in files]
    registered = sum(text.count("\n@bench(") for text in texts)
    of_kinds = (SHIPPED, TUTORIALS, SLOW, FAULTS)
    assert sum(len(names) for names in of_kinds) == registered
    assert all(name.startswith("tutorial_") for name in TUTORIALS)
    assert all(name.startswith("slow_") for name in SLOW)
    assert all(name.startswith("fault_") for name in FAULTS)


def test_an_unknown_name_lists_the_shipped_ones():
    with pytest.raises(
        UsageError, match=r"unknown bench 'matmull'; did you mean matmul or "
    ):
        find_bench("matmull")


def test_a_bench_of_a_file(file):
    found = find_bench(file(GOOD))
    assert (found.name, dict(found.params)) == ("mine", {"m": 3})


def test_a_bench_of_a_file_does_not_stay_nor_shadow_a_shipped_one(file):
    find_bench("matmul")
    before = dict(BENCHES)
    assert find_bench(file(GOOD.replace("mine", "matmul"))).description == "of a file"
    assert before == BENCHES
    assert find_bench("matmul").description != "of a file"


def test_a_file_can_be_loaded_again(file):
    path = file(GOOD)
    assert find_bench(path).name == find_bench(path).name == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def run(torch:\n", "SyntaxError"),
        (
            "import no_such_module\n",
            "ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("x = 1\n", "must register one @bench, but registers: none"),
        (GOOD + GOOD.replace("mine", "yours"), "but registers: mine, yours"),
        (GOOD.replace("m=3", "m"), "every parameter after torch needs a default"),
    ],
)
def test_a_file_that_is_no_bench_says_why(file, text, message):
    with pytest.raises(UsageError, match=message):
        find_bench(file(text))


def test_a_path_that_is_no_file(tmp_path):
    with pytest.raises(UsageError, match="is not a file"):
        find_bench(str(tmp_path / "none.py"))


def test_text_is_parsed_to_the_type_of_the_default():
    given = {"m": "7", "f": "1e-3", "flag": "true", "dtype": "bf16", "pes": "2"}
    assert bind_params(ENTRY, given) == {
        "m": 7,
        "f": 1e-3,
        "flag": True,
        "dtype": "bf16",
        "pes": 2,
    }


def test_values_pass_and_defaults_stay():
    assert bind_params(ENTRY, {"m": 9, "f": 2, "pes": None}) == dict(ENTRY.params) | {
        "m": 9,
        "f": 2,
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": "1"}, "bench 'b' has no parameter 'x'; valid: m, f, flag, dtype, pes"),
        ({"m": "big"}, "m=big: must be int"),
        ({"m": "1.5"}, "m=1.5: must be int"),
        ({"m": 1.5}, "m=1.5: must be int"),
        ({"m": None}, "m=None: must be int"),
        ({"m": True}, "m=True: must be int"),
        ({"f": False}, "f=False: must be float"),
        ({"f": 10**400}, "f: must be float, and is too large"),
        ({"f": "x"}, "f=x: must be float"),
        ({"flag": "maybe"}, "flag=maybe: must be true or false"),
        ({"dtype": 16}, "dtype=16: must be str"),
        ({"pes": "all"}, "pes=all: must be int"),
    ],
)
def test_a_wrong_setting_says_what_is_valid(given, message):
    with pytest.raises(UsageError, match=message):
        bind_params(ENTRY, given)


def test_sizes_start_at_one():
    at_least_one(m=1, pes=None)
    with pytest.raises(UsageError, match="n=0: must be at least 1"):
        at_least_one(m=1, n=0)


def test_a_choice_is_one_of_the_valid_ones():
    one_of(("ref", "load"), variant="load")
    with pytest.raises(UsageError, match="variant=lod: valid: ref, load"):
        one_of(("ref", "load"), variant="lod")


def test_registering_needs_defaults():
    with pytest.raises(UsageError, match="needs a default"):
        bench(name="z", description="")(lambda torch, m: None)
    assert "z" not in BENCHES


@pytest.mark.parametrize("given", ["float16", "f16"])
def test_a_dtype_is_given_by_any_of_its_names(given):
    assert bind_params(find_bench("softmax"), {"dtype": given})["dtype"] == "f16"
