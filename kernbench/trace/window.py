"""The window of a part of a trace: the time and the components that were cut out."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Any, NamedTuple

from kernbench.common.arrays import Bools, Floats
from kernbench.errors import TraceFormatError


class Window(NamedTuple):
    """From ``t0`` to before ``t1`` ns, on components like ``glob``."""

    t0: float
    t1: float
    glob: str

    @property
    def text(self) -> str:
        """In words, as ``7900 to 8100 ns``."""
        what = f"{self.t0:g} to {self.t1:g} ns"
        return what if self.glob == "*" else f"{what}, {self.glob}"

    def overlaps(self, begins: Floats, ends: Floats) -> Bools:
        """Which of some intervals lie in it, with a part of them at least."""
        return (begins < self.t1) & ((ends > self.t0) | (begins >= self.t0))


def window_of(header: Mapping[str, Any]) -> Window | None:
    """The window of a trace that was cut out of another; None if it is a whole one.

    Of a part of a part it is what both have. TraceFormatError if the header says
    something else.
    """
    stated = header.get("cut")
    found: Window | None = None
    while stated is not None:
        try:
            window = Window(_ns(stated["from"]), _ns(stated["to"]), _glob(stated))
            stated = stated.get("of")
        except (KeyError, TypeError, ValueError, AttributeError) as why:
            raise TraceFormatError(
                f"what was cut out is told otherwise: {why!r}"
            ) from None
        if found is None:
            found = window
        found = found._replace(t0=max(found.t0, window.t0), t1=min(found.t1, window.t1))
    return found


def _ns(stated: Any) -> float:
    """A time; ValueError if it is none."""
    is_number = isinstance(stated, int | float) and not isinstance(stated, bool)
    if not is_number or isnan(stated):
        raise ValueError(f"{stated!r} is no time")
    return float(stated)


def _glob(stated: Mapping[str, Any]) -> str:
    glob = stated["components"]
    if not isinstance(glob, str):
        raise ValueError(f"{glob!r} is no pattern")
    return glob
