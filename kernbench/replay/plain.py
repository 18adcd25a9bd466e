"""Answers as lists, maps, numbers and text: what ``--json`` prints. Knows no answer."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from kernbench.common.arrays import as_f64
from kernbench.common.room import make_room

_LISTED_BYTES = 128
"""A number in a list of its own: the innermost axis may have one element."""


def as_data(answer: Any) -> Any:
    """An answer as lists, maps, numbers and text, ready for JSON; NaN and infinities
    are text. An array without elements is an empty list, whatever its other extents.
    """
    if is_dataclass(answer) and not isinstance(answer, type):
        shown = [f.name for f in fields(answer) if f.metadata.get("shown", True)]
        return {name: as_data(getattr(answer, name)) for name in shown}
    if isinstance(answer, dict):
        return {str(key): as_data(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [as_data(value) for value in answer]
    if isinstance(answer, np.ndarray | np.generic):
        if answer.size == 0:
            return []
        make_room(_LISTED_BYTES * answer.size, f"{answer.size:,} numbers as data")
        numeric = answer.dtype.kind in "biuf"
        plain = answer if numeric else as_f64(np.asarray(answer))
        listed = plain.tolist()
        return listed if np.isfinite(plain).all() else as_data(listed)
    if isinstance(answer, float) and not np.isfinite(answer):
        return str(answer)
    return answer
