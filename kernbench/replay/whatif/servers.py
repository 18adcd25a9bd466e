"""Servers that many transactions share: what they did between two moments.

A server is a link or a controller. What it gave a transaction is spread evenly over the
time in which it served that, so that streams which were served in turns each count for
what they took.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from kernbench.common.arrays import Bools, Floats, Ints

Ramp: TypeAlias = tuple[Ints, Floats, Floats, Floats]
"""Columns: servers, from when and until when (ns) each gave something, and how much."""


class Ramps:
    """Amounts that some servers gave, each evenly over its time.

    Row i of the arguments is ``amount[i]`` of ``server[i]``, from ``since[i]`` to
    ``until[i]`` ns.
    """

    def __init__(
        self, server: Ints, since: Floats, until: Floats, amount: Floats
    ) -> None:
        # The times of a server are put behind those of the server before, so that one
        # sorted column holds the events of all.
        self._low = float(since.min(initial=0.0))
        self._span = float(until.max(initial=0.0)) - self._low + 2.0
        long = until - since
        np.maximum(long, 1e-3, out=long)
        rates = np.empty(2 * len(server))
        np.divide(amount, long, out=rates[: len(server)])
        np.negative(rates[: len(server)], out=rates[len(server) :])
        at = np.empty(2 * len(server))
        self._place(server, until - long, at[: len(server)])
        self._place(server, until, at[len(server) :])
        order = np.argsort(at, kind="stable")
        self._at = at[order]
        level = rates[order]
        np.cumsum(level, out=level)
        np.maximum(level, 0.0, out=level)
        self._level = level
        self._steps = np.diff(self._at, append=self._at[-1:])
        self._done = self._sums(level)

    @classmethod
    def joined(cls, *some: Ramp) -> Ramps:
        """All of some columns."""
        return cls(*(np.concatenate(column) for column in zip(*some, strict=True)))

    def _place(
        self, server: Ints, times: Floats, found: Floats | None = None
    ) -> Floats:
        """Where times of servers are in the one column, in ``found`` if it is given."""
        places = np.subtract(times, self._low, out=found)
        places += server * self._span
        return np.asarray(places)

    def _sums(self, level: Floats | Bools) -> Floats:
        """By event what was given until then if between two the ``level`` was so."""
        sums = np.empty(len(self._at))
        np.multiply(level[:-1], self._steps[:-1], out=sums[1:])
        sums[:1] = 0.0
        return np.cumsum(sums, out=sums)

    def given(self, server: Ints, since: Floats, until: Floats) -> Floats:
        """How much each server gave between two times."""
        if not len(self._at):
            return np.zeros(len(server))
        return self._between(self._done, server, since, until)

    def busy(self, server: Ints, since: Floats, until: Floats) -> Floats:
        """For how long each server gave anything between two times, ns."""
        if not len(self._at):
            return np.zeros(len(server))
        return self._between(self._sums(self._level > 1e-9), server, since, until)

    def _between(
        self, done: Floats, server: Ints, since: Floats, until: Floats
    ) -> Floats:
        high = np.interp(self._place(server, until), self._at, done)
        low = np.interp(self._place(server, since), self._at, done)
        return np.asarray(high - low)


def carried(server: Ints, amount: Floats, most: Floats) -> Floats:
    """Amounts of which what is more than ``most`` counts with the next ones.

    Those of one server follow each other.
    """
    more = np.cumsum(amount - most)
    span = float(np.abs(more).max(initial=0.0)) * 2.0 + 1.0
    begins = np.append(True, np.diff(server) != 0)[: len(server)]
    number = np.cumsum(begins)
    before = np.append(0.0, more[:-1])[: len(more)]
    # The servers are put one below the other, so that each begins with nothing left.
    least = np.minimum.accumulate(
        np.minimum(more, np.where(begins, before, more)) - number * span
    )
    left = np.maximum(more - (least + number * span), 0.0)
    left_before = np.where(begins, 0.0, np.append(0.0, left[:-1])[: len(left)])
    return np.asarray(amount + left_before - left)
