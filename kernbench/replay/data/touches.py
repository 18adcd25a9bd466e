"""Who reads and writes the bytes of a place: all of them, the last, the next.

From the accesses of the op log alone; where those come from is said in ``accesses``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.common.progress import Progress, beside_if_many, no_progress
from kernbench.replay.answers import OpRow, Touch, Touches
from kernbench.replay.data.arrays import Pace
from kernbench.replay.data.history import History, is_in_rows
from kernbench.replay.data.places import Place, addresses
from kernbench.replay.data.spread import Spread, spread_of_addresses, spread_of_rows
from kernbench.replay.text import unwritten_text
from kernbench.sim_engine.access_columns import AccessColumns

RowsOf: TypeAlias = Callable[[Sequence[int] | Ints], list[OpRow]]
"""Lines of the op log by canonical positions; many at a time cost some us each."""

_MOST_READS = 1000
_ROWS_AT_ONCE = 512
"""Lines of the op log that are made between two calls of progress."""


class TouchIndex:
    """Answers who reads and writes bytes, from the accesses of a History.

    It keeps nothing and executes nothing, so any thread may ask once the history is
    prepared.
    """

    def __init__(self, history: History, rows_of: RowsOf) -> None:
        self._history = history
        self._rows_of = rows_of

    def numbered(
        self, numbers: Ints, progress: Progress = no_progress
    ) -> tuple[Touch, ...]:
        """Some accesses by their numbers in the history, each with its op.

        An access is there once, with its own address and size.
        """
        self._history.prepare(progress)
        rows = list[Touch]()
        for first in range(0, len(numbers), _ROWS_AT_ONCE):
            progress(first / len(numbers))
            some = numbers[first : first + _ROWS_AT_ONCE]
            touched = self._history.touched.take(some)
            ops = self._rows_of(touched.row)
            for i, op in enumerate(ops):
                kind = "write" if touched.mode[i] else "read"
                space = touched.spaces[touched.space[i]]
                spread = spread_of_rows(touched.rows_of(i))
                rows.append(touch_of(kind, space, spread, op))
        return tuple(rows)

    def writers(
        self, place: Place, op: int, progress: Progress = no_progress
    ) -> Touches:
        """The last write into each byte of a place by op ``op``, the earliest first.

        A row has how many of the bytes it wrote last, and the first of them. ``note``
        says how many nobody had written, and which op then is the first to. UsageError
        for a place of more than 4 MiB.
        """
        space = place.ranges[0][0]
        self._history.prepare(progress)
        wanted = addresses(place, progress)
        found = self._history.last_writers(space, wanted, op, progress)
        found.reverse()
        note = ""
        if found[0].op < 0:
            nobody = found.pop(0).addresses
            later = self._history.next_writer(space, nobody, op, progress)
            verb = "were" if later is None else "are"
            note = f"{len(nobody):,} bytes from {space} {int(nobody[0]):#x} on "
            note += f"{verb} {unwritten_text(later)}"
        ops = rows_in_parts(self._rows_of, [last.op for last in found], progress)
        rows = list[Touch]()
        for last, row in zip(found, ops, strict=True):
            spread = beside_if_many(
                len(last.addresses),
                partial(spread_of_addresses, last.addresses),
                progress,
                len(rows) / len(found),
            )
            rows.append(touch_of("write", space, spread, row))
        return Touches(tuple(rows), note)

    def readers(
        self, place: Place, op: int, progress: Progress = no_progress
    ) -> Touches:
        """The reads after op ``op`` of what a place holds then, until overwritten.

        A read counts if any byte that it takes is still as it was at ``op``. At most
        1,000. UsageError for a place of more than 4 MiB.
        """
        self._history.prepare(progress)
        touched = self._history.touched
        space = place.ranges[0][0]
        wanted = addresses(place, progress)
        near, lows, highs = beside_if_many(
            len(touched.row),
            lambda: self._later_accesses(space, wanted, op),
            progress,
            0.0,
        )
        holds = np.ones(len(wanted), np.bool_)  # what it held at op ``op``

        def takes(i: int) -> bool:
            """Whether access i reads some of that; if it writes, that is gone."""
            part = slice(lows[i], highs[i])
            mine = np.ones(highs[i] - lows[i], np.bool_)
            if near.is_in_rows(i):
                mine = is_in_rows(near.rows_of(i), wanted[part])
            if near.mode[i]:
                holds[part] &= ~mine
                return False
            return bool((holds[part] & mine).any())

        reads = list[int]()
        pace = Pace(progress)
        for i in np.flatnonzero(lows < highs).tolist():
            if pace.turn(int(highs[i] - lows[i]), partial(takes, i), i / len(lows)):
                reads.append(i)
            if len(reads) == _MOST_READS or not holds.any():
                break
        ops = rows_in_parts(self._rows_of, near.row[reads], progress)
        rows = list[Touch]()
        for i, row in zip(reads, ops, strict=True):
            spread = spread_of_rows(near.rows_of(i))
            rows.append(touch_of("read", space, spread, row))
        return Touches(tuple(rows))

    def _later_accesses(
        self, space: str, wanted: Ints, op: int
    ) -> tuple[AccessColumns, Ints, Ints]:
        """The accesses after op ``op`` to the range of ``wanted``, and what they hit.

        Access i is to ``wanted[lows[i] : highs[i]]``, of rows to some of that.
        """
        touched = self._history.touched
        span = int(wanted[-1] - wanted[0]) + 1
        numbers = self._history.accesses.overlapping(space, int(wanted[0]), span)
        later = np.searchsorted(touched.row[numbers], op, side="right")
        near = touched.take(numbers[later:])
        lows = np.searchsorted(wanted, near.addr)
        highs = np.searchsorted(wanted, near.addr + near.spans)
        return near, lows, highs


def touch_of(
    kind: str, space: str, spread: Spread, op: OpRow, other: OpRow | None = None
) -> Touch:
    """A line about bytes that lie so."""
    return Touch(
        kind,
        space,
        spread.addr,
        spread.nbytes,
        op,
        other,
        spread.rows,
        spread.row_bytes,
        spread.pitch,
    )


def rows_in_parts(
    rows_of: RowsOf, ops: Sequence[int] | Ints, progress: Progress
) -> list[OpRow]:
    """Lines of the op log, made some at a time.

    Every part looks up the calls, names and sites of all of its ops in one go.
    """
    rows = list[OpRow]()
    for first in range(0, len(ops), _ROWS_AT_ONCE):
        progress(first / len(ops))
        rows += rows_of(ops[first : first + _ROWS_AT_ONCE])
    return rows
