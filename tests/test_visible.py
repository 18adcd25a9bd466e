"""What is hidden in a text is written out, and nothing else is changed."""

import sys
import unicodedata

import pytest

from kernbench.visible import visible, visible_text

ALL = "".join(map(chr, range(sys.maxunicode + 1)))
TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
MARKS = {"\u061c", "\u200e", "\u200f"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("abc\u202edef", r"abc\u202edef"),
        ("a\u200bb\ufeff", r"a\u200bb\ufeff"),
        ("a\rb\tc\x7f", r"a\rb\tc\x7f"),
        ("\U000e0041", r"\U000e0041"),
        ("\ud800", r"\ud800"),
        ("two\nlines", r"two\nlines"),
    ],
)
def test_what_is_hidden_is_written_out(text, shown) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize("text", ["", "c[3,17]", "größer", "表 ─│▁█", "e\u0301", "🙂"])
def test_text_of_every_language_is_as_it_was(text) -> None:
    assert visible(text) == text


def test_lines_of_a_text_stay_lines() -> None:
    assert visible_text("a\n\x1bb\n") == "a\n\\x1bb\n"


def test_nothing_is_written_out_twice() -> None:
    once = visible(ALL[:512])
    assert visible(once) == once


@pytest.mark.slow
def test_no_character_that_unicode_calls_a_control_is_left() -> None:
    left = [
        char
        for char in visible(ALL)
        if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(char) in TURNING
    ]
    assert left == []
    assert not MARKS & set(visible(ALL))
