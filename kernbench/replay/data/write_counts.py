"""How many writes into each of many places had been made after any number of steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.common.progress import Progress, no_progress
from kernbench.replay.data.history import History
from kernbench.replay.data.places import Range

_EVERY = 8  # places that are looked up between two reports of progress


class WriteCounts:
    """Counts the writes into all of some places at once.

    A place holds the same bytes after two numbers of steps if as many writes into it
    had been made.
    """

    def __init__(
        self,
        history: History,
        places: Sequence[Range],
        progress: Progress = no_progress,
    ) -> None:
        found = [np.empty(0, np.int64)]
        for number, place in enumerate(places):
            if number % _EVERY == 0:
                progress(number / len(places))
            found.append(history.write_steps(*place))
        lengths = np.array([len(steps) for steps in found], np.int64)
        # The steps of a place are put behind those of the place before, so that one
        # ascending column holds the writes of all.
        self._begins = np.arange(len(places)) * (history.steps + 1)
        self._before = np.cumsum(lengths)[:-1]
        self._writes = np.concatenate(found) + np.repeat(self._begins, lengths[1:])

    def after(self, steps: int) -> Ints:
        """By place how many writes into it the first ``steps`` steps have made."""
        until = np.searchsorted(self._writes, self._begins + steps)
        return np.asarray(until - self._before)
