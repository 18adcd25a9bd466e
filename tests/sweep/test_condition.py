"""Conditions say what Python would say of them, and run nothing."""

import itertools

import pytest

from kernbench.errors import UsageError
from kernbench.sweep.condition import MOST_CHARACTERS, parse_condition

SAME_AS_PYTHON = [
    "tile <= m",
    "64 <= tile < m or dtype == 'f16'",
    "not tile > m and dtype in ('f16', 'f32')",
    "m % tile == 0",
    "m // tile * 2 - 1 >= +m / 64",
    "-tile < 0",
    "dtype not in ['f32']",
    "m == tile == 64",
    "m != tile",
    "(m + tile) * 2 == 256 and True",
]


@pytest.mark.parametrize("text", SAME_AS_PYTHON)
def test_a_condition_holds_where_python_says_so(text):
    condition = parse_condition(text)
    seen = set()
    for m, tile, dtype in itertools.product((32, 64, 100), (32, 64), ("f16", "f32")):
        values = {"m": m, "tile": tile, "dtype": dtype}
        assert condition.holds(values) == bool(eval(text, {}, values))
        seen.add(condition.holds(values))
    assert seen


def test_a_name_may_be_the_path_of_a_field():
    condition = parse_condition("pe.clock_ghz * 2 <= cube.hbm.channels")
    assert condition.names == {"pe.clock_ghz", "cube.hbm.channels"}
    assert condition.holds({"pe.clock_ghz": 1, "cube.hbm.channels": 2})
    assert not condition.holds({"pe.clock_ghz": 1.5, "cube.hbm.channels": 2})


RUNS_CODE = [
    "__import__('os').system('touch ran')",
    "open('ran', 'w')",
    "[c for c in ().__class__.__mro__]",
    "(lambda: 1)()",
    "(m := 2)",
    "f'{m}'",
    "m[0]",
    "().__class__",
    "{'a': 1}",
    "m if m else 2",
    "m is None",
    "2 ** 2",
    "1 << 2",
    "m @ m",
    "~m",
    "b'a' == m",
    "1j == m",
    "None == m",
    "*m",
]


@pytest.mark.parametrize("text", RUNS_CODE)
def test_what_is_no_condition_is_refused_unread(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="where: "):
        parse_condition(text)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m <",
        "m; m",
        "\0",
        "(" * 900 + "m" + ")" * 900,
        "-" * (MOST_CHARACTERS - 1) + "m",
        "not " * 499 + "m",
        "not " * 51 + "m",
        "m " * MOST_CHARACTERS,
    ],
)
def test_a_text_that_is_broken_or_too_deep_is_one_error(text):
    with pytest.raises(UsageError, match="where: "):
        parse_condition(text)


def test_a_condition_may_be_fifty_deep():
    assert parse_condition("not " * 50 + "m").holds({"m": 1})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("m / zero == 1", "division by zero"),
        ("m % zero == 1", "modulo by zero"),
        ("dtype < m", "not supported"),
        ("dtype * 1000000000 == m", "'f16' is no number"),
        ("m in m", "not iterable"),
    ],
)
def test_what_cannot_be_worked_out_names_the_values(text, why):
    with pytest.raises(UsageError) as caught:
        parse_condition(text).holds({"m": 64, "zero": 0, "dtype": "f16"})
    assert why in str(caught.value)
    assert "m=64" in str(caught.value)
