"""Servers that many transactions share: what they did between two moments.

A server is a link or a controller. What it gave a transaction is spread evenly over the
time in which it served that, so that streams which were served in turns each count for
what they took.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from kernbench.common.arrays import Floats, Ints

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
        long = np.maximum(until - since, 1e-3)
        since = until - long
        rate = amount / long
        at = np.concatenate([self._place(server, since), self._place(server, until)])
        order = np.argsort(at, kind="stable")
        self._at = at[order]
        level = np.cumsum(np.concatenate([rate, -rate])[order])
        steps = np.diff(self._at, append=self._at[-1:])
        self._level = np.maximum(level, 0.0)
        self._steps = steps
        self._done = np.append(0.0, np.cumsum(self._level * steps)[:-1])

    @classmethod
    def joined(cls, *some: Ramp) -> Ramps:
        """All of some columns."""
        return cls(*(np.concatenate(column) for column in zip(*some, strict=True)))

    def _place(self, server: Ints, times: Floats) -> Floats:
        return np.asarray(server * self._span + (times - self._low))

    def given(self, server: Ints, since: Floats, until: Floats) -> Floats:
        """How much each server gave between two times."""
        if not len(self._at):
            return np.zeros(len(server))
        return self._between(self._done, server, since, until)

    def busy(self, server: Ints, since: Floats, until: Floats) -> Floats:
        """For how long each server gave anything between two times, ns."""
        if not len(self._at):
            return np.zeros(len(server))
        is_busy = self._level > 1e-9
        done = np.append(0.0, np.cumsum(is_busy * self._steps)[:-1])
        return self._between(done, server, since, until)

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
