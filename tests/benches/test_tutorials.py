"""The kernels that Triton's tutorials have: right, without a race, and as short."""

import ast
import importlib
import inspect
from types import FunctionType

import pytest

from kernbench.benches import TUTORIALS
from kernbench.errors import KernbenchError
from kernbench.replay import ReplaySession
from kernbench.runtime_api import run_bench
from kernbench.runtime_api.registry import BENCHES
from kernbench.trace import Trace

ORIGINALS = {
    "tutorial_add": {"add_kernel": 10},
    "tutorial_softmax": {"softmax_kernel": 17},
    "tutorial_matmul": {"matmul_kernel": 31},
    "tutorial_layer_norm": {"layer_norm_kernel": 31},
    "tutorial_split_k": {},
    "tutorial_attention": {"attention_kernel": 75},
}
"""Lines of the kernel of Triton's tutorial of that name, its signature counted as one.

Comments, blank lines and docstrings are left out; of attention both of its functions
are counted. Split-K is in no tutorial.
"""

SIZES = {
    "tutorial_add": [
        {"n": 1, "block": 1},
        {"n": 1003, "block": 100, "pes": 3},
        {"n": 800, "block": 512, "dtype": "f16"},
    ],
    "tutorial_softmax": [
        {"m": 1, "n": 1},
        {"m": 37, "n": 50, "rows": 3, "pes": 5},
        {"m": 16, "n": 33, "rows": 16, "dtype": "f16"},
    ],
    "tutorial_matmul": [
        {"m": 1, "k": 1, "n": 1},
        {"m": 37, "k": 20, "n": 50, "block": 16, "group": 3, "pes": 5},
        {"m": 65, "k": 33, "n": 64, "block": 32, "activation": "none"},
        {"m": 40, "k": 40, "n": 40, "block": 16, "group": 8, "dtype": "f32"},
    ],
    "tutorial_layer_norm": [
        {"m": 1, "n": 2},
        {"m": 37, "n": 50, "rows": 3, "pes": 5},
        {"m": 24, "n": 64, "rows": 4, "dtype": "f32"},
    ],
    "tutorial_split_k": [
        {"m": 1, "k": 1, "n": 1, "pes": 1},
        {"m": 11, "k": 130, "n": 9, "pes": 5},
        {"m": 70, "k": 64, "n": 70, "dtype": "f32"},
        {"m": 8, "k": 3, "n": 8},
    ],
    "tutorial_attention": [
        {"heads": 1, "seq": 1, "d": 1, "block": 1},
        {"heads": 3, "seq": 37, "d": 12, "block": 8, "pes": 2},
        {"heads": 2, "seq": 40, "d": 16, "block": 16, "causal": False},
        {"heads": 1, "seq": 33, "d": 8, "block": 64, "dtype": "f32"},
    ],
}
CASES = [(name, params) for name in SIZES for params in SIZES[name]]


def test_every_tutorial_is_tested_here():
    assert sorted(TUTORIALS) == sorted(SIZES) == sorted(ORIGINALS)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "params"), CASES)
def test_it_is_right_and_nothing_in_it_is_left_to_chance(tmp_path, name, params):
    path = tmp_path / "t.msgpack"
    result = run_bench(name, params=params, trace=path, verify=True)
    assert result.report.ok, result.report.as_text()
    assert not result.notes
    found = ReplaySession(Trace.open(path)).hazards()
    assert (found.rows, found.note) == ((), "")


@pytest.mark.parametrize("name", TUTORIALS)
@pytest.mark.slow
def test_it_is_right_by_default(name):
    assert run_bench(name, verify=True).report.ok


@pytest.mark.parametrize("name", TUTORIALS)
def test_it_is_hardly_longer_than_its_original(name):
    module = importlib.import_module(BENCHES[name].run.__module__)
    for kernel, lines in ORIGINALS[name].items():
        assert lines_of(getattr(module, kernel)) <= 1.5 * lines


@pytest.mark.parametrize("name", TUTORIALS)
def test_its_host_hands_over_operands_as_they_are(name):
    module = importlib.import_module(BENCHES[name].run.__module__)
    text = inspect.getsource(module.run)
    before = text[: text.index("torch.launch")]
    for word in (".T", "transpose", "swapaxes", "ascontiguous"):
        assert word not in before


def lines_of(function: FunctionType) -> int:
    """Lines that hold something of a function's body, and one for its signature."""
    source = inspect.getsource(function)
    (tree,) = ast.parse(source).body
    body = tree.body
    if ast.get_docstring(tree) is not None:
        body = body[1:]
    first = body[0].lineno - 1
    lines = [line.strip() for line in source.splitlines()[first:]]
    return 1 + sum(bool(line) and not line.startswith("#") for line in lines)


@pytest.mark.slow
def test_a_size_that_is_none_is_refused():
    with pytest.raises(KernbenchError, match="block=0"):
        run_bench("tutorial_add", params={"block": 0})
