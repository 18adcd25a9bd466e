"""What a mistyped name may have been meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST = 3
_ALIKE = 0.7
_LISTED = 16
"""So many valid names are listed."""


def near(word: str, known: Iterable[str]) -> list[str]:
    """The known names that a word is like, the most alike first."""
    by_lower = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), by_lower, _MOST, _ALIKE)
    return [by_lower[name] for name in found]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean matmul or matmul_ref?``; "" where none is near."""
    names = near(word, known)
    return f"did you mean {' or '.join(names)}?" if names else ""


def instead_of(word: str, known: Iterable[str]) -> str:
    """What to write instead: which names there are, unless they are many and some are
    near; and these.
    """
    names = list(known)
    asked = did_you_mean(word, names)
    if asked and len(names) > _LISTED:
        return asked
    listed = f"valid: {', '.join(names[:_LISTED]) or 'none'}"
    if len(names) > _LISTED:
        listed += f" and {len(names) - _LISTED} more"
    return f"{listed}; {asked}" if asked else listed
