"""Texts that somebody else has written: a kernel, or whoever made a trace."""

from __future__ import annotations

LONGEST = 1 << 16
"""No text of a trace has more characters: it is cut when it is written, and again when
it is read, as the file may be a stranger's."""


def cut_text(text: str) -> str:
    """A text, or its beginning and how much is left out."""
    if len(text) <= LONGEST:
        return text
    end = f" … ({len(text):,} characters)"
    return text[: LONGEST - len(end)] + end
