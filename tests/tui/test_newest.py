"""What was made last is kept."""

from __future__ import annotations

import pytest

from tui.newest import Newest


def test_a_value_is_made_once_as_long_as_it_is_among_the_newest() -> None:
    made: list[str] = []

    def doubled(text: str) -> str:
        def make() -> str:
            made.append(text)
            return 2 * text

        return newest.get(text, make)

    newest = Newest[str, str](2)
    assert [doubled(text) for text in "abab"] == ["aa", "bb", "aa", "bb"]
    assert made == ["a", "b"]
    assert [doubled(text) for text in "cba"] == ["cc", "bb", "aa"]
    assert made == ["a", "b", "c", "a"]


def test_an_error_of_who_makes_it_is_kept_by_nobody() -> None:
    newest = Newest[str, str](2)
    with pytest.raises(KeyError):
        newest.get("a", lambda: {}["a"])
    assert newest.get("a", lambda: "made") == "made"
