"""The expression grammar beside a plain evaluation op by op, and its errors."""

from __future__ import annotations

import operator
import re
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pace import for_all

from kernbench.errors import UsageError
from kernbench.replay import ReplaySession
from kernbench.replay.expr import FIELDS, compile, parse_count, parse_time
from kernbench.sim_engine.accesses import accesses
from kernbench.trace import Trace

SHIPPED = Path(__file__).parents[2] / "traces" / "matmul.msgpack"
SIGNS = {
    **{"=": operator.eq, "==": operator.eq, "!=": operator.ne, "<": operator.lt},
    **{"<=": operator.le, ">": operator.gt, ">=": operator.ge},
}
SESSION = ReplaySession(Trace.open(SHIPPED))
TRACE = SESSION.trace
RECORDS = list(TRACE.ops)


def hits(text: str, trace: Trace = TRACE) -> list[int]:
    return np.flatnonzero(compile(text).mask(trace)).tolist()


def those(condition) -> list[int]:
    return [op for op, record in enumerate(RECORDS) if condition(op, record)]


def shapes(record) -> list[tuple[int, ...]]:
    found = []
    for key, value in record.params.items():
        if "shape" in key and isinstance(value, list):
            found += value
        elif "shape" in key:
            found.append(value)
    return found


def node(record, level: str) -> int | None:
    number = int(getattr(TRACE.nodes, level)[TRACE.node_index[record.component_id]])
    return number if number >= 0 else None


def launch_of(op: int) -> int | None:
    launch = SESSION.details(op).launch
    return launch if launch >= 0 else None


NUMBERS = {
    "op": lambda op, r: op,
    "t": lambda op, r: r.t_start,
    "dur": lambda op, r: r.t_end - r.t_start,
    "bytes": lambda op, r: SESSION.row(op).nbytes,
    "pe": lambda op, r: node(r, "pe"),
    "cube": lambda op, r: node(r, "cube"),
    "sip": lambda op, r: node(r, "sip"),
    "line": lambda op, r: SESSION.source(op).line,
    "launch": lambda op, r: launch_of(op),
    "cmd": lambda op, r: SESSION.details(op).cmd,
}
TEXTS = {
    "name": lambda op, r: [r.op_name],
    "kind": lambda op, r: [r.op_kind],
    "comp": lambda op, r: [r.component_id],
    "stage": lambda op, r: [str(r.params.get("stage_type", ""))],
    "space": lambda op, r: [a.space for a in accesses(r)],
    "shape": lambda op, r: ["x".join(map(str, s)) for s in shapes(r)],
}
VALUES = {
    name: sorted({read(op, r) for op, r in enumerate(RECORDS)} - {None})
    for name, read in NUMBERS.items()
}
WORDS = {
    name: sorted({v for op, r in enumerate(RECORDS) for v in read(op, r)} - {""})
    for name, read in TEXTS.items()
}


def text_comparison(draw, name):
    """(text, plain evaluation) of a comparison of strings, or of shapes."""
    sign = draw(st.sampled_from(["=", "!=", "~", "!~"]))
    word = draw(st.sampled_from(WORDS[name]))
    if name == "shape":  # of which there are no globs
        sign = sign.replace("~", "=")
    is_glob = "~" in sign
    if is_glob:
        word = f"*{word[1:-1]}?"
    read = TEXTS[name]

    def plain(op, record):
        if is_glob:
            fits = any(fnmatchcase(value, word) for value in read(op, record))
        else:
            fits = word in read(op, record)
        return fits != ("!" in sign)

    return f'{name} {sign} "{word}"', plain


def number_comparison(draw, name):
    """(text, plain evaluation) of a comparison of numbers, or of times."""
    sign = draw(st.sampled_from([*SIGNS]))
    value = draw(st.sampled_from(VALUES[name]))
    text = str(value)
    if name in ("t", "dur"):
        text = f"{value!r}ns"
    read = NUMBERS[name]

    def plain(op, record):
        number = read(op, record)
        if number is None:
            return sign == "!="
        return SIGNS[sign](number, value)

    return f"{name}{sign}{text}", plain


@st.composite
def comparisons(draw):
    """(text, plain evaluation) of one comparison."""
    name = draw(st.sampled_from([*NUMBERS, *TEXTS]))
    if name in TEXTS:
        return text_comparison(draw, name)
    return number_comparison(draw, name)


def both(pair):
    (left, fits_left), (right, fits_right) = pair
    return f"({left} and {right})", lambda *row: fits_left(*row) and fits_right(*row)


def either(pair):
    (left, fits_left), (right, fits_right) = pair
    text = f"(({left}) or {right})"
    return text, lambda *row: fits_left(*row) or fits_right(*row)


def neither(part):
    text, fits = part
    return f"not ({text})", lambda *row: not fits(*row)


def joined(parts):
    """(text, plain evaluation) of larger expressions of ``parts``."""
    pairs = st.tuples(parts, parts)
    return st.one_of(pairs.map(both), pairs.map(either), parts.map(neither))


@for_all(st.recursive(comparisons(), joined, max_leaves=5), fast=20, whole=100)
def test_the_mask_is_what_every_op_says_by_itself(pair):
    text, plain = pair
    assert hits(text) == those(plain)


def test_and_binds_tighter_than_or_and_not_tightest():
    expected = those(lambda op, r: op == 1 or (op < 9 and op != 3))
    assert hits("op=1 or op<9 and not op=3") == expected


@pytest.mark.parametrize(
    "text",
    [
        "addr = {0}",
        "addr = {1}:64",
        "addr >= {0}",
        "addr < {0}",
        "addr <= {0}",
        "addr > {0}",
    ],
)
def test_addr_is_any_byte_that_the_op_touches(text):
    everything = sorted(access for r in RECORDS for access in accesses(r))
    touched = everything[len(everything) // 2]
    at = touched.addr + touched.nbytes - 1
    sign = text.split()[1]
    end = at + 1
    if ":" in text:
        end = at + 64

    def fits(access):
        first = access.addr
        last = access.addr + access.nbytes - 1
        if sign == "=":
            return first < end and last >= at
        if "<" in sign:
            return SIGNS[sign](first, at)
        return SIGNS[sign](last, at)

    found = hits(text.format(at, hex(at)))
    assert found == those(lambda op, r: any(fits(access) for access in accesses(r)))
    assert found


def test_a_range_that_ends_where_an_access_begins_does_not_touch_it():
    touched = ((op, accesses(r)) for op, r in enumerate(RECORDS))
    op, first = next((op, a[0]) for op, a in touched if len(a) == 1 and a[0].addr >= 64)
    assert op not in hits(f"addr = {first.addr - 64}:64 and op = {op}")
    assert hits(f"addr = {first.addr - 64}:65 and op = {op}") == [op]


def test_what_is_on_no_pe_and_of_no_launch_fits_only_what_it_is_not():
    of_host = those(lambda op, r: r.op_name.startswith("host_"))
    kernels = those(lambda op, r: not r.op_name.startswith("host_"))
    assert of_host
    for text in ("pe < 8", "pe >= -1", "cube <= 0", "launch < 1"):
        assert hits(text) == kernels
    assert hits("pe = -1") == []
    assert hits("not pe >= 0") == of_host
    assert set(of_host) <= {*hits("pe != 3")}


def test_a_shape_may_leave_an_extent_open():
    expected = those(lambda op, r: any(len(s) == 2 and s[1] == 16 for s in shapes(r)))
    assert hits("shape=*x16") == expected != []


def test_a_line_is_a_number_of_any_file_or_a_file_and_a_number():
    site = SESSION.source(60)
    assert SESSION.source(60).file.endswith("/matmul.py")
    assert 60 in hits(f"line = matmul.py:{site.line}")
    assert hits(f"line = matmul.py:{site.line}") == hits(f"line = {site.line}")
    assert hits("line ~ matm*.py:*") == hits("line > 0")
    assert hits("line = tmul.py:1") == []


def test_every_field_answers_for_a_trace_without_ops(empty):
    for name in FIELDS:
        value = "gemm" if name == "kind" else 1
        for text in (f"{name} = {value}", f"{name} != {value}"):
            assert compile(text).mask(empty).shape == (0,)


@pytest.fixture
def empty(tmp_path, shipped):
    from replay_logs import Log

    return Log(tmp_path / "empty", shipped).session().trace


@pytest.mark.parametrize(
    ("text", "column", "why"),
    [
        ("", 1, "it ends, expected not, ( or a field (op name kind"),
        ("colour = red", 1, "'colour', expected not, ( or a field (op name kind"),
        ("name", 5, "it ends, expected one of = != < <= > >= ~ !~"),
        ("name dma", 6, "'dma', expected one of ="),
        ("name = and op = 1", 12, "'op', expected and, or, or the end"),
        ("op = = 1", 6, "'=', expected a value"),
        ("op ! 1", 4, "'!', expected = !="),
        ("(op = 1", 8, "it ends, expected and, or, or )"),
        ("op = 1)", 7, "')', expected and, or, or the end"),
        ("name = 'x", 8, "expected a quote that ends"),
        ("name < x", 8, "name: text is compared by = != ~ !~"),
        ("bytes ~ 3", 9, "bytes: numbers are compared by = != <"),
        ("bytes > 3.5", 9, "bytes: '3.5': must be a whole number"),
        ("t > 3parsec", 5, "t: time '3parsec': give a number with ns, us"),
        ("shape < 3x4", 9, "shape: shapes, as 64x64"),
        ("addr < 3:4", 8, "addr: addresses are compared"),
        ("not " * 60 + "op=1", 201, "expected at most 50 levels"),
        ("(" * 60 + "op=1", 51, "expected at most 50 levels"),
    ],
)
def test_an_error_points_at_the_column(text, column, why):
    with pytest.raises(UsageError, match=f"column {column}: .*{re.escape(why)}"):
        compile(text)


_PIECES = st.sampled_from(
    [*FIELDS, *SIGNS, "~", "!~", "and", "or", "not", "(", ")", "'", '"', "3us"]
)


@for_all(
    st.one_of(
        st.text(max_size=40),
        st.lists(st.one_of(_PIECES, st.text(max_size=3))).map(" ".join),
    ),
    fast=30,
    whole=150,
)
def test_any_text_is_an_expression_or_a_usage_error_of_one_line(text):
    try:
        found = compile(text)
        said = str(len(found.mask(TRACE)))
    except UsageError as error:
        said = str(error)
    assert said == str(len(RECORDS)) or said.startswith("expression ")
    assert len(said.splitlines()) == 1


def test_a_long_chain_needs_no_recursion():
    assert hits(" or ".join(f"op={op % 7}" for op in range(5000))) == list(range(7))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("12", 12),
        ("0x1F", 31),
        ("1_000", 1000),
        ("1,000", 1000),
        ("-1", -1),
        ("4KiB", 4096),
    ],
)
def test_counts_may_be_hex_grouped_or_sizes(text, count):
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "x", "0x", "1.5", "4kb", "9" * 31, "１"])
def test_what_is_no_count_is_refused(text):
    with pytest.raises(UsageError, match="must be a whole number"):
        parse_count(text)


@given(st.floats(0, 1e15))
def test_a_time_keeps_every_digit(value):
    assert parse_time(f"{value!r}ns") == value


@pytest.mark.parametrize(("unit", "ns"), [("us", 10**3), ("ms", 10**6), ("s", 10**9)])
def test_a_time_in_a_larger_unit_is_the_same_number_of_ns(unit, ns):
    digits = len(str(ns)) - 1
    for wanted in (1001, 1005, 4_035, 16_343, 1_000_001):
        whole, rest = divmod(wanted, ns)
        assert parse_time(f"{whole}.{rest:0{digits}}{unit}") == wanted


@pytest.mark.parametrize(
    ("text", "ns"),
    [("1e3", 1e3), (".5us", 500), ("5.e-1us", 500), ("1.005e3us", 1005e3)],
)
def test_a_time_may_have_an_exponent(text, ns):
    assert parse_time(text) == ns
