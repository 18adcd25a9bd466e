"""Kernel lines that ran otherwise often than one would think: on one PE, or in one
iteration.

PEs that run one kernel mostly do the same, and so do the iterations of a loop. That a
line is left out on one of them is what nothing else tells: no op is wrong by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Bools, Ints, running_count
from kernbench.common.progress import Progress, computed_beside, stage
from kernbench.common.room import make_room
from kernbench.replay.diagnosis.findings import Finding, command
from kernbench.replay.diagnosis.loops import Loops
from kernbench.replay.text import count_text
from kernbench.replay.time.kernel_calls import pe_label
from kernbench.replay.time.spans import recorded_between
from kernbench.trace import Trace

FEWEST_PES = 4
"""PEs of a launch of which one can be said to be unlike the others."""
_ALIKE = 0.75
"""The share of the PEs that has to agree on how often a line runs."""
_LEFT_OUT = 1 / 3
"""The largest share of iterations that can be said to leave a line out."""
_SHOWN = 8
"""Calls whose ops a finding has."""


class _Calls(NamedTuple):
    """The calls of kernels, by launch and PE, in the order of issue.

    ``row`` is that of ``Trace.commands``, ``line`` a number of the lines; a ``turn`` is
    a launch on a PE, numbered from 0.
    """

    row: Ints
    line: Ints
    turn: Ints

    @property
    def firsts(self) -> Ints:
        """Where the calls of each turn begin."""
        return np.flatnonzero(np.diff(self.turn, prepend=-1))


def odd_calls(
    trace: Trace, lines: list[str], which: Ints, progress: Progress
) -> list[Finding]:
    """The lines that ran otherwise often on some PEs, or are left out at times.

    ``lines`` and ``which`` are the ``telling_lines`` of the trace.
    """
    calls = computed_beside(lambda: _calls(trace, which), progress, 0.2)
    if not len(calls.row):
        return []
    left_out = computed_beside(
        lambda: list(_left_out(trace, calls, lines)), progress, 0.4
    )
    unlike = _unlike(trace, calls, lines, stage(progress, 0.6, 1.0))
    return [*left_out, *unlike]


def _calls(trace: Trace, which: Ints) -> _Calls:
    """All calls of kernels; ``which`` is the line of each row."""
    log = trace.commands
    launch = log.launch[:].astype(np.int64)
    rows = np.flatnonzero(launch >= 0)
    pe = log.pe[:].astype(np.int64)
    rows = rows[np.lexsort((rows, log.t_issue[:][rows], pe[rows], launch[rows]))]
    new = (np.diff(launch[rows]) != 0) | (np.diff(pe[rows]) != 0)
    turn = running_count(np.append(0, new))[: len(rows)]
    return _Calls(rows, which[rows], turn)


# -- between iterations -------------------------------------------------------


def _left_out(trace: Trace, calls: _Calls, lines: list[str]) -> Iterator[Finding]:
    """Lines of loops that some iterations go past.

    A line is mostly between two others, and at times these follow each other. That the
    first or the last iterations are others is how loops are written, and is not told.
    """
    loops = Loops(trace)
    line = calls.line.astype(np.int64)
    count = len(lines)
    at_pair = np.flatnonzero(np.diff(calls.turn) == 0)
    pairs = line[at_pair] * count + line[at_pair + 1]
    used, times = np.unique(pairs, return_counts=True)
    often = dict(zip(used.tolist(), times.tolist(), strict=True))
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    for pair in used[np.argsort(-times, kind="stable")].tolist():
        before.setdefault(pair % count, pair // count)
        after.setdefault(pair // count, pair % count)
    for number in sorted(before.keys() & after.keys()):
        first = before[number]
        last = after[number]
        if number in (first, last):
            continue
        there = often[first * count + number]
        past = often.get(first * count + last, 0)
        if not 0 < past <= _LEFT_OUT * (past + there):
            continue
        where = at_pair[pairs == first * count + last]
        around = loops.around(lines[number], lines)
        where = where[_is_inside(calls, where, number, around)]
        if not len(where):
            continue
        ran = int((line == number).sum())
        neighbours = f"{_short(lines[first])} and {_short(lines[last])}"
        yield Finding(
            "odd",
            f"{lines[number]} ran {count_text(ran, 'time')}, and "
            f"{count_text(len(where), 'time')} it was left out between {neighbours}",
            _ops_of(trace, calls.row[where + 1]),
            (lines[number],),
            (_who(trace, calls.row[where]),),
            command(trace, "lines"),
        )


def _is_inside(calls: _Calls, where: Ints, line: int, around: Bools) -> Bools:
    """Which gaps behind the calls ``where`` a line runs before and after.

    Both in one go through its loop: a call of a line ``around`` the loop ends that.
    What only the first or the last iterations leave out fills or drains a pipeline.
    """
    ends = around[calls.line]
    ends[calls.firsts] = True
    go = running_count(ends)
    mine = np.flatnonzero(calls.line == line)
    at = np.searchsorted(mine, where, side="right")
    before = mine[np.maximum(at - 1, 0)]
    after = mine[np.minimum(at, len(mine) - 1)]
    inside: Bools = (before <= where) & (after > where)
    inside &= (go[before] == go[where + 1]) & (go[after] == go[where + 1])
    return inside


# -- between PEs --------------------------------------------------------------


def _unlike(
    trace: Trace, calls: _Calls, lines: list[str], progress: Progress
) -> list[Finding]:
    """Lines that ran otherwise often on some PEs of a launch than on most.

    Of a launch of which the trace has not all nobody can say that: where it breaks off
    each PE is somewhere else.
    """
    found: dict[int, Finding] = {}
    whole = _whole_launches(trace)
    launch = trace.commands.launch[:][calls.row]
    starts = np.flatnonzero(np.diff(launch, prepend=-1))
    ends = np.append(starts[1:], len(launch))
    for step, (low, high) in enumerate(zip(starts, ends, strict=True)):
        progress(step / len(starts))
        turns = np.unique(calls.turn[low:high])
        if len(turns) < FEWEST_PES or launch[low] not in whole:
            continue
        used, which = np.unique(calls.line[low:high], return_inverse=True)
        make_room(8 * len(turns) * len(used), "calls by PE and line")
        counts = np.zeros((len(turns), len(used)), np.int64)
        np.add.at(counts, (calls.turn[low:high] - turns[0], which), 1)
        for place, number in enumerate(used.tolist()):
            if number in found:
                continue
            on_pes = counts[:, place]
            finding = _unlike_line(trace, calls, turns, on_pes, lines, number)
            if finding is not None:
                found[number] = finding
    return list(found.values())


def _whole_launches(trace: Trace) -> set[int]:
    """The launches that ended, from their first call on in what the trace knows.

    In a deadlock all PEs have come to rest, so those that it ended count as well.
    """
    begin, end = recorded_between(trace)
    ended = {
        one.launch
        for one in trace.launches
        if begin <= one.t_start and one.t_end <= end
    }
    error = str((trace.end or {}).get("error") or "")
    if error.startswith("DeadlockError"):
        known = {one.launch for one in trace.launches}
        ended |= set(trace.commands.launch[:].tolist()) - known
    return ended


def _unlike_line(
    trace: Trace,
    calls: _Calls,
    turns: Ints,
    counts: Ints,
    lines: list[str],
    number: int,
) -> Finding | None:
    """One line on the PEs of a launch; None if they are alike, or all differ."""
    values, times = np.unique(counts, return_counts=True)
    usual = int(values[times.argmax()])
    if len(values) == 1 or times.max() < _ALIKE * len(turns):
        return None
    firsts = calls.firsts
    other = np.flatnonzero(counts != usual)
    row = int(calls.row[firsts[turns[other[0]]]])
    log = trace.commands
    pe = pe_label(trace, int(log.pe[row]))
    line = lines[number]
    ran = int(counts[other[0]])
    rest = len(turns) - len(other)
    title = (
        f"{line} ran {count_text(ran, 'time')} on {pe}, and "
        f"{count_text(usual, 'time')} on {rest:,} other PEs of launch "
        f"{int(log.launch[row]):,}"
    )
    evidence: tuple[str, ...] = ()
    if len(other) > 1:
        evidence = (f"{len(other):,} PEs differ from the others",)
    mine = calls.row[np.isin(calls.turn, turns[other]) & (calls.line == number)]
    return Finding(
        "odd",
        title,
        _ops_of(trace, mine),
        (line,),
        evidence,
        command(trace, "lines", pe),
    )


def _who(trace: Trace, rows: Ints) -> str:
    """On which PEs some calls were made."""
    pes = np.unique(trace.commands.pe[:][rows]).tolist()
    name = pe_label(trace, pes[0])
    return f"on {name}" if len(pes) == 1 else f"on {len(pes):,} PEs, one is {name}"


def _short(line: str) -> str:
    """A kernel line without its folder."""
    return line.rpartition("/")[2]


def _ops_of(trace: Trace, rows: Ints) -> tuple[int, ...]:
    """The ops that some calls issued, as positions in the log; the first few calls'."""
    cmds = trace.commands.cmd[:][rows[:_SHOWN]]
    logged = np.flatnonzero(np.isin(trace.op_columns.cmd[:], cmds))
    return tuple(np.sort(trace.position[logged]).tolist())
