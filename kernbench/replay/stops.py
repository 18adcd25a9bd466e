"""Stops: where ``run`` halts. Each is a sorted array of ops, so that the next one is a search."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.errors import UsageError
from kernbench.replay.data.history import History
from kernbench.replay.text import count_text

Range: TypeAlias = tuple[str, int, int]  # space, addr, nbytes


@dataclass(frozen=True, slots=True)
class Stop:
    """One stop: a ``break`` on an expression, a ``watch`` of bytes or a ``catch`` of findings."""

    number: int
    kind: str
    what: str
    ops: int

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        return [
            f"stop {self.number}: {self.kind} {self.what}, at {count_text(self.ops, 'op')}"
        ]


class Stops:
    """The stops of a session by number, from 1."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._stops: dict[int, tuple[Stop, Ints]] = {}
        self._made = 0

    def add(self, kind: str, what: str, ops: Ints) -> Stop:
        """A stop at ``ops``, which ascend."""
        self._made += 1
        stop = Stop(self._made, kind, what, len(ops))
        self._stops[stop.number] = stop, ops
        return stop

    def watch(self, what: str, ranges: Iterable[Range], mode: str) -> Stop:
        """A stop at what reads (r), writes (w) or touches (rw) bytes of any range; UsageError."""
        if mode not in ("r", "w", "rw"):
            raise UsageError(f"watch mode {mode!r}: must be r, w or rw")
        touched, found = self._history.touched, [np.empty(0, np.int64)]
        found += [self._history.accesses.overlapping(*place) for place in ranges]
        rows = np.concatenate(found)
        if mode != "rw":
            rows = rows[touched.mode[rows] == (mode == "w")]
        return self.add("watch", f"{what} {mode}", np.unique(touched.row[rows]))

    def delete(self, number: int) -> None:
        """Forget a stop; UsageError lists those there are."""
        if self._stops.pop(number, None) is None:
            known = ", ".join(map(str, self._stops)) or "none"
            raise UsageError(f"no stop {number}; there is: {known}")

    @property
    def all(self) -> tuple[Stop, ...]:
        """By number."""
        return tuple(stop for stop, _ in self._stops.values())

    def next(
        self, op: int, forward: bool, number: int | None = None
    ) -> tuple[int | None, tuple[Stop, ...]]:
        """The nearest op after (or before) ``op`` of any stop, or of one, and which are there."""
        found: dict[int, list[Stop]] = {}
        for stop, ops in (s for n, s in self._stops.items() if number in (None, n)):
            at = (
                np.searchsorted(ops, op, "right")
                if forward
                else np.searchsorted(ops, op) - 1
            )
            if 0 <= at < len(ops):
                found.setdefault(int(ops[at]), []).append(stop)
        near = (min if forward else max)(found, default=None)
        return near, () if near is None else tuple(found[near])
