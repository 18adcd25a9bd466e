"""The parser of command lines and of words of a shell: the same readers for both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.errors import UsageError
from kernbench.replay.commands import listed, parse
from kernbench.replay.parsing import (
    NoArguments,
    Reader,
    TypedLine,
    Words,
    one_of,
    parse_arguments,
    usage_of,
)


@dataclass(frozen=True)
class Example:
    """One argument of every kind."""

    size: Annotated[int, Reader("SIZE", int)]
    place: Annotated[str, Reader("PLACE", extent="place")] = ""
    where: Annotated[str, Reader("EXPR", extent="expression", option="where")] = ""
    limit: Annotated[int, Reader("N", int, option="limit")] = 0
    delays: Annotated[tuple[str, ...], Reader("OP", option="delay", repeated=True)] = ()
    force: Annotated[bool, Reader("", option="force", flag=True)] = False


@dataclass(frozen=True)
class Nested:
    """A second argument that makes no sense without the first."""

    low: Annotated[int, Reader("FROM", int)] = 0
    high: Annotated[int, Reader("TO", int, nested=True)] = 0
    mode: Annotated[str, Reader("a|b", one_of("a", "b"))] = "a"


def test_the_usage_says_what_is_parsed():
    assert usage_of(Example) == (
        "SIZE [PLACE] [where EXPR] [limit N] [delay OP] [force]"
    )
    assert usage_of(Nested) == "[FROM [TO]] [a|b]"
    assert usage_of(NoArguments) == ""


LINES = {
    "4": Example(4),
    "4 c[3,17]": Example(4, "c[3,17]"),
    "4 c[0:2, :]": Example(4, "c[0:2, :]"),
    "4 hbm 0x40:8 limit 3": Example(4, "hbm 0x40:8", limit=3),
    "4 c --limit 3": Example(4, "c", limit=3),
    "limit 3 4 c": Example(4, "c", limit=3),
    "4 c where kind=gemm and op>17 limit 3": Example(4, "c", "kind=gemm and op>17", 3),
    '4 c where name ~ "a b" --limit 3': Example(4, "c", 'name ~ "a b"', 3),
    "4 c where 'kind=gemm and op>17'": Example(4, "c", "kind=gemm and op>17"),
    "4 c delay 3 delay 5": Example(4, "c", delays=("3", "5")),
    "4 c --force": Example(4, "c", force=True),
    "--size 4 c": Example(4, "c"),
}


@pytest.mark.parametrize("line", LINES)
def test_a_typed_line_becomes_typed_arguments(line):
    assert parse_arguments(Example, TypedLine(line)) == LINES[line]


WORDS = {
    ("4", "c[0:2, :]"): Example(4, "c[0:2, :]"),
    ("4", "c[0:2,", ":]"): Example(4, "c[0:2, :]"),
    ("4", "hbm 0x40:8"): Example(4, "hbm 0x40:8"),
    ("4", "hbm", "0x40:8", "--limit=3"): Example(4, "hbm 0x40:8", limit=3),
    ("4", "--where", "kind=gemm and op>17", "--limit", "3"): Example(
        4, "", "kind=gemm and op>17", 3
    ),
    ("4", "--where", "kind=gemm", "and", "op>17", "--force"): Example(
        4, "", "kind=gemm and op>17", force=True
    ),
    ("4", "--where", """name ~ "it's" """): Example(4, "", """name ~ "it's" """),
}


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_words_of_a_shell_become_the_same_arguments(words):
    assert parse_arguments(Example, Words(words)) == WORDS[words]


@pytest.mark.parametrize("line", ["", "4 c d e", "4 limit", "4 c force force"])
def test_what_does_not_fit_the_usage_is_none(line):
    assert parse_arguments(Example, TypedLine(line)) is None
    assert parse_arguments(Example, Words(line.split())) is None


def test_a_quote_left_open_is_an_error():
    with pytest.raises(UsageError, match="No closing quotation"):
        parse_arguments(Example, TypedLine("'4"))


def test_a_word_that_is_no_choice_is_an_error_that_names_them():
    with pytest.raises(UsageError, match="'c': must be a or b"):
        parse_arguments(Nested, TypedLine("1 2 c"))


PLAIN = st.text("abcxyz01", min_size=1, max_size=4)


@given(st.integers(0, 99), PLAIN, st.integers(0, 99), st.booleans())
def test_a_line_and_its_words_mean_the_same(size, place, limit, force):
    words = [str(size), place, "--limit", str(limit)]
    if force:
        words.append("--force")
    by_words = parse_arguments(Example, Words(words))
    assert by_words == parse_arguments(Example, TypedLine(" ".join(words)))
    assert by_words == Example(size, place, limit=limit, force=force)


@pytest.mark.parametrize("command", listed(), ids=lambda command: command.name)
def test_the_examples_of_a_command_are_calls_of_it_as_lines_and_as_words(command):
    for example in command.example.splitlines():
        assert parse(example).command in (command, command.proof)
        assert parse(example.split()) == parse(example)
