"""What was made beside a chain and read by nobody: often what was due instead.

A kernel that takes a wrong handle, one of the iteration before, or the input of an op
for its output, leaves the right one lying: it is made, and nobody reads it. That is no
fault by itself, so it tells something only of an element that is wrong.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.common.progress import Progress, computed_beside, stage
from kernbench.replay.answers import OpRow
from kernbench.replay.data.blame import Blame
from kernbench.replay.data.history import History
from kernbench.replay.data.touches import RowsOf, rows_in_parts
from kernbench.trace import Trace
from kernbench.trace.hops import rows_of_calls

_FETCHES = ("dma_read", "ipcq_recv")
"""Ops that bring a PE what it is to compute with."""
_LOOKED_AT = 1 << 11
"""Ops beside one chain that are looked at, the latest of them."""
_MOST_BYTES = 1 << 22
"""Bytes that an op wrote of which is followed who reads them."""


class Unread(NamedTuple):
    """An op whose output nobody reads, and who may have been to read it.

    ``instead`` is the next op of the chain on that PE that read as many bytes at once;
    None if there is none.
    """

    op: OpRow
    instead: OpRow | None


class _Output(NamedTuple):
    """Bytes in the TCM that an op wrote."""

    space: str
    addr: int
    nbytes: int


class UnreadIndex:
    """Finds what ops beside a chain made in vain; asked on the lane of "memory"."""

    def __init__(self, trace: Trace, history: History, rows_of: RowsOf) -> None:
        self._trace = trace
        self._history = history
        self._rows_of = rows_of

    def beside(self, chain: Blame, progress: Progress) -> tuple[Unread, ...]:
        """The ops that made something in vain beside a chain, the first op first.

        Those are ops that use what the chain made, and fetches of the PEs that issued
        its ops, in the same launches. That the last value which a loop hands on is read
        by nobody is how loops are written: it is none if the one before, of the same
        line on that PE, was read.
        """
        turns = computed_beside(self._turns, progress, 0.0)
        self._history.prepare(stage(progress, 0.1, 0.3))
        search = stage(progress, 0.3, 1.0)
        links = {link.op.op for link in chain.links}
        wanted = sorted(self._candidates(links, turns, search))[-_LOOKED_AT:]
        found = list[Unread]()
        for count, op in enumerate(wanted):
            search(count / len(wanted))
            if self._is_in_vain(op) and not self._is_last_of_loop(op, turns, search):
                instead = self._instead(op, links, turns)
                rows = self._rows_of([op] if instead is None else [op, instead])
                found.append(Unread(rows[0], None if instead is None else rows[1]))
        return tuple(found)

    def _turns(self) -> Ints:
        """By op the launch and the PE that issued it, as one number; -1: the host."""
        log = self._trace.commands
        row = rows_of_calls(self._trace, self._trace.op_columns.cmd[:])
        launch = log.launch[:].astype(np.int64)
        turn = np.where(launch < 0, -1, launch << 32 | log.pe[:].astype(np.int64))
        turn = np.append(turn, -1)  # row -1: of no command
        found: Ints = turn[row][self._trace.order]
        return found

    def _candidates(
        self, links: set[int], turns: Ints, progress: Progress
    ) -> Iterator[int]:
        """The ops that may have made something in vain beside the ops of a chain."""
        yield from self._branches(links, progress)
        last = dict[int, int]()
        for op in sorted(links):
            last[int(turns[op])] = op
        last.pop(-1, None)
        for turn, end in last.items():
            mine = np.flatnonzero(turns[:end] == turn)[-_LOOKED_AT:]
            rows = rows_in_parts(self._rows_of, mine, progress)
            for op, row in zip(mine.tolist(), rows, strict=True):
                if row.name in _FETCHES and op not in links:
                    yield op

    def _branches(self, links: set[int], progress: Progress) -> Iterator[int]:
        """The ops that use what a chain made, directly or not, the chain left out."""
        todo = sorted(links)
        seen = set(links)
        last = max(links, default=-1)
        while todo and len(seen) < len(links) + _LOOKED_AT:
            progress(0.0)
            for op in self._readers(todo.pop()):
                if op not in seen and op < last:
                    seen.add(op)
                    todo.append(op)
                    yield op

    def _is_in_vain(self, op: int) -> bool:
        """Whether an op wrote to a TCM alone, and nobody reads what it wrote."""
        outputs = self._outputs(op)
        if outputs is None or not outputs:
            return False
        return not self._readers(op)

    def _is_last_of_loop(self, op: int, turns: Ints, progress: Progress) -> bool:
        """Whether an op is the last of its line on its PE, and the one before was read.

        Only so many ops to either side are looked at.
        """
        low = max(op - _LOOKED_AT, 0)
        near = low + np.flatnonzero(turns[low : op + _LOOKED_AT] == turns[op])
        rows = rows_in_parts(self._rows_of, near, progress)
        mine = rows[int(np.searchsorted(near, op))]
        alike = [r.op for r in rows if (r.where, r.name) == (mine.where, mine.name)]
        place = alike.index(op)
        is_last = place == len(alike) - 1
        return is_last and place > 0 and not self._is_in_vain(alike[place - 1])

    def _outputs(self, op: int) -> list[_Output] | None:
        """What an op wrote; None if any of it is followed by nobody here.

        That is what went to HBM, where anybody may read it later, or is very large.
        """
        touched = self._history.touched
        found = list[_Output]()
        for number in self._accesses_of(op, 1):
            space = touched.spaces[touched.space[number]]
            nbytes = int(touched.spans_of(np.array([number]))[0])
            if space != "tcm" or nbytes > _MOST_BYTES:
                return None
            found.append(_Output(space, int(touched.addr[number]), nbytes))
        return found

    def _accesses_of(self, op: int, mode: int) -> list[int]:
        """The numbers of the writes (``mode`` 1) or the reads (0) of an op."""
        touched = self._history.touched
        low = bisect_left(touched.row, op)
        high = bisect_left(touched.row, op + 1)
        return [n for n in range(low, high) if touched.mode[n] == mode]

    def _readers(self, op: int) -> list[int]:
        """The ops that read what an op wrote into a TCM, until it was overwritten."""
        touched = self._history.touched
        found = dict[int, None]()
        for output in self._outputs(op) or ():
            holds = np.ones(output.nbytes, np.bool_)
            near = self._history.accesses.overlapping(*output)
            for number in near[touched.row[near] > op].tolist():
                low = int(touched.addr[number]) - output.addr
                high = low + int(touched.spans_of(np.array([number]))[0])
                part = slice(max(low, 0), high)
                if not touched.mode[number]:
                    if holds[part].any():
                        found[int(touched.row[number])] = None
                elif not touched.is_in_rows(number):
                    holds[part] = False
                    if not holds.any():
                        break
        return list(found)

    def _instead(self, op: int, links: set[int], turns: Ints) -> int | None:
        """The next op of a chain by whom an op's output may have been meant."""
        touched = self._history.touched
        wrote = {output.nbytes for output in self._outputs(op) or ()}
        for later in sorted(link for link in links if link > op):
            if turns[later] != turns[op]:
                continue
            reads = np.array(self._accesses_of(later, 0), np.int64)
            if wrote & set(touched.spans_of(reads).tolist()):
                return later
        return None
