"""Busy time as a curve: of each class of some ops how long it was busy until any time.

The curve is linear between the instants at which another number of ops is in service,
and only these are kept. So the busy time of any window is read off at its two ends, at
a cost that does not depend on how many ops the window has.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Floats
from kernbench.common.progress import Progress
from kernbench.replay.time.steps import in_one_call
from kernbench.trace import Trace


class Track(NamedTuple):
    """The busy time of one class, by its place in CLASSES.

    ``busy[i]`` is how many ns its ops were in service until ``times[i]`` ns, where two
    at a time count twice. ``moments`` are when ops happened that took no time, by time.
    """

    code: int
    times: Floats
    busy: Floats
    moments: Floats


class Tracks(NamedTuple):
    """The tracks of some ops, by class; ``exact`` where no bend was left out."""

    tracks: tuple[Track, ...]
    exact: bool

    @property
    def bends(self) -> int:
        """How many instants are kept, in all: what takes the memory."""
        return sum(len(track.times) for track in self.tracks)


class Ops(NamedTuple):
    """Some ops by their start: their rows of the log, their classes as in CLASSES."""

    rows: Array
    codes: Array


def tracks_of(trace: Trace, ops: Ops, most: int | None, progress: Progress) -> Tracks:
    """The tracks of some ops.

    Of a class at most ``most`` bends are kept (None: all), evenly chosen. Between those
    the curve is then no more than nearly right.
    """
    tracks = []
    exact = True
    done = 0
    for code, mine in enumerate(_by_class(ops, progress)):
        if not len(mine):
            continue
        share = done / len(ops.rows)
        track = in_one_call(
            partial(_track, trace, code, mine), progress, share, len(mine)
        )
        if most is not None and len(track.times) > most:
            kept = np.linspace(0, len(track.times) - 1, most).astype(np.int64)
            track = track._replace(times=track.times[kept], busy=track.busy[kept])
            exact = False
        tracks.append(track)
        done += len(mine)
    return Tracks(tuple(tracks), exact)


def _by_class(ops: Ops, progress: Progress) -> list[Array]:
    """The rows of each class, in their order."""
    classes = int(ops.codes.max(initial=0)) + 1

    def rows() -> list[Array]:
        return [ops.rows[ops.codes == code] for code in range(classes)]

    return in_one_call(rows, progress, 0.0, len(ops.rows))


def _track(trace: Trace, code: int, rows: Array) -> Track:
    """The track of one class from the rows of its ops, which are by their start."""
    starts = trace.op_columns.t_start[rows]
    ends = trace.op_columns.t_end[rows]
    times = np.concatenate([starts, ends])
    # Stable: at one time the starts come first, so that the level is never negative.
    order = np.argsort(times, kind="stable")
    times = times[order]
    level = np.cumsum(np.where(order < len(starts), 1, -1))
    busy = np.append(0.0, np.cumsum(level[:-1] * np.diff(times)))
    last_of_its_time = np.flatnonzero(np.append(np.diff(times) > 0, True))
    level_changes = np.append(True, np.diff(level[last_of_its_time]) != 0)
    bends = last_of_its_time[level_changes]
    return Track(code, times[bends], busy[bends], starts[starts == ends])
