"""What ``hazards`` answers: one finding for a pair of kernel lines and a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Ints, distinct, numbered
from kernbench.common.progress import (
    Cancelled,
    Progress,
    computed_beside,
    no_progress,
    stage,
)
from kernbench.errors import KernbenchError
from kernbench.replay.answers import OpRow, Touch, op_lines
from kernbench.replay.data.hazards import (
    CONFLICTS,
    NEVER_WRITTEN,
    OUTSIDE,
    SNAPSHOT,
    Hazard,
    Lonely,
    conflict,
    outside,
    unwritten,
)
from kernbench.replay.data.history import History
from kernbench.replay.data.places import PlaceIndex
from kernbench.replay.data.spread import Spread, spread_of_rows
from kernbench.replay.data.touches import RowsOf, rows_in_parts, touch_of
from kernbench.replay.ops import OpFacts
from kernbench.replay.races.search import Races, races_of
from kernbench.replay.text import time_text, wrapped
from kernbench.sim_engine.accesses import regions
from kernbench.sim_engine.data_executor import SnapshotFinding
from kernbench.trace import Trace
from kernbench.trace.groups import Groups

TOGETHER = "in flight together"
UNORDERED = "not ordered; did not meet this time"

WORST_FIRST = (TOGETHER, UNORDERED, OUTSIDE, NEVER_WRITTEN, SNAPSHOT)
"""The kinds of findings."""

_UNORDERED_AS = {
    (1, 0): "a read that nothing orders behind the write",
    (1, 1): "two writes that nothing orders",
    (0, 1): "a write that nothing orders behind the read",
}
"""What a race is that did not meet, by the modes of the earlier and the later."""

MOST_EXECUTED = 1 << 17
"""Ops that are executed to compare what Phase 1 saw, at most; some 20 us each."""

_ADDRESS_BITS = 52

_PLACES_NAMED = 1 << 12
"""Addresses of which the tensor is looked up; one takes some 50 us."""

_PAIRS = 4
"""Pairs of ops that a race is tried out with: the first, and others up to the last."""

HARMFUL = "harmful"
BENIGN = "benign in this run"
NOT_FLIPPED = "cannot be flipped"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What re-runs said of a race.

    ``kind`` is HARMFUL or BENIGN where the order was flipped, or NOT_FLIPPED.
    ``detail`` says more of it, as the first element that comes out otherwise. Op ``op``
    was held back by ``delay_ns`` in the last of so many ``runs``. ``no_delay`` is there
    if no re-run flipped the order, and says why: then the recorded ops were executed in
    the other order.
    """

    kind: str
    detail: str
    op: int
    delay_ns: float
    runs: int
    no_delay: str = ""

    @property
    def text(self) -> str:
        """The verdict in a line."""
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


@dataclass(frozen=True, slots=True)
class Finding(Touch):
    """Bytes that are used as they should not be, ``count`` times by the same lines.

    ``op`` and ``other``, the earlier one, are those of the first time, as are the
    bytes; ``what`` says more of them than the ``kind``. ``tensor`` is the name of what
    they belong to: of scratch the line that made it, "" where nothing is known.
    ``pairs`` are the earlier and the later op of some of the times that ops race, the
    first among them. ``proof`` is there once it was tried out.
    """

    tensor: str = ""
    count: int = 1
    what: str = ""
    pairs: tuple[tuple[int, int], ...] = ()
    proof: Verdict | None = None

    @property
    def is_race(self) -> bool:
        """Whether it is a matter of the order of two ops."""
        return self.kind in (TOGETHER, UNORDERED)

    @property
    def sites(self) -> tuple[str, ...]:
        """The kernel lines, that of the earlier op first."""
        if self.other is None:
            return (self.op.site,)
        return (self.other.site, self.op.site)


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings, the worst first; ``ok`` if there are none.

    ``note`` says what could not be looked at, ``unchecked`` what is never looked at in
    a run like this one.
    """

    rows: tuple[Finding, ...]
    note: str = ""
    ok: bool = True
    unchecked: str = ""

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        lines = []
        for found in self.rows:
            lines += wrapped(headline(found), width, 2)
            for row in (found.other, found.op):
                if row is not None:
                    lines += op_lines(row)
            if found.proof is not None:
                lines += wrapped(_proof_line(found.proof), width, 2)
        lines = lines or ["none found"]
        if self.note:
            lines += wrapped(self.note, width)
        if self.unchecked:
            lines += wrapped(f"not checked: {self.unchecked}", width, 2)
        return lines


def race_near(found: Findings, position: int | None = None) -> str | None:
    """The first race, or of all the one that has the op nearest to a position, as one
    would type it to prove it: "race 2" is the second finding. None: none is a race.
    """
    races = [i for i, row in enumerate(found.rows) if row.is_race]
    if not races:
        return None
    nearest = races[0]
    if position is not None:
        nearest = min(races, key=lambda i: _distance(found.rows[i], position))
    return f"race {nearest + 1}"


def _distance(found: Finding, position: int) -> int:
    """How many ops a position is from the nearer op of a finding."""
    ops = {found.op.op, *(op for pair in found.pairs for op in pair)}
    if found.other is not None:
        ops.add(found.other.op)
    return min(abs(op - position) for op in ops)


def headline(found: Finding) -> str:
    """A finding in one line."""
    times = "" if found.count == 1 else f", {found.count:,} times"
    of = f" ({found.tensor})" if found.tensor else ""
    what = f" {found.what}:" if found.what else ""
    return f"{found.kind}{times}:{what} {found.place}{of}"


def _proof_line(proof: Verdict) -> str:
    """What came of a race that was tried out."""
    held = f"op {proof.op:,} held back by {time_text(proof.delay_ns)}"
    if not proof.no_delay:
        return f"  {proof.text} (re-run with {held})"
    if proof.kind == NOT_FLIPPED:
        return f"  {proof.text}: {proof.no_delay} (re-run with {held})"
    return (
        f"  {proof.text} (the same ops executed in the other order, which nothing "
        f"forbids; a re-run with {held} does not bring it: {proof.no_delay})"
    )


class Hazards:
    """Finds the hazards of a trace, once.

    The races are found from the columns; what Phase 1 saw is compared by executing.
    """

    def __init__(
        self, trace: Trace, history: History, places: PlaceIndex, ops: OpFacts
    ) -> None:
        self._trace = trace
        self._history = history
        self._places = places
        self._ops = ops
        self._races: Races | None = None
        self._outside: Lonely | None = None
        self._unwritten: Lonely | None = None

    @cached_property
    def _by_cmd(self) -> Groups:
        return Groups(self._trace.commands.cmd)

    def prepare(self, progress: Progress = no_progress) -> None:
        """Find all that the columns tell."""
        if self._unwritten is not None:
            return
        history = self._history
        history.prepare(stage(progress, 0.0, 0.2))
        touched = history.touched
        self._races = races_of(
            self._trace, touched, history.allocs, stage(progress, 0.2, 0.7)
        )
        self._outside = computed_beside(
            lambda: outside(touched, history.allocs), progress, 0.7
        )
        if self._trace.cut:
            # what a cut reads may have been written before it
            none = np.empty(0, np.int64)
            self._unwritten = Lonely(none, self._outside.hazard)
        else:
            self._unwritten = unwritten(touched, stage(progress, 0.7, 1.0))

    def ops(self, progress: Progress = no_progress, both: bool = False) -> Ints:
        """The positions of ops with a hazard, ascending; of two that race that of the
        second, or of both.

        Executes every op.
        """
        self.prepare(stage(progress, 0.0, 0.4))
        assert self._races is not None
        assert self._outside is not None
        assert self._unwritten is not None
        snapshots, _ = self._snapshots(stage(progress, 0.4, 1.0))
        positions = self._history.touched.row
        earlier = positions[self._races.earlier]
        later = positions[self._races.later]
        races = [earlier, later] if both else [np.maximum(earlier, later)]
        found = [
            *races,
            positions[self._outside.numbers],
            positions[self._unwritten.numbers],
            np.array([hazard.op for hazard in snapshots], np.int64),
        ]
        return distinct(np.concatenate(found).astype(np.int64))

    def findings(self, progress: Progress = no_progress) -> Findings:
        """All of them, grouped. Executes every op, for what Phase 1 saw."""
        self.prepare(stage(progress, 0.0, 0.4))
        assert self._races is not None
        assert self._outside is not None
        assert self._unwritten is not None
        snapshots, note = self._snapshots(stage(progress, 0.4, 0.8))
        groups = self._grouped_races(self._races, stage(progress, 0.8, 0.9))
        for lonely, kind in (
            (self._outside, OUTSIDE),
            (self._unwritten, NEVER_WRITTEN),
        ):
            groups += self._grouped(lonely, kind, progress)
        groups += self._grouped_snapshots(snapshots)
        groups.sort(key=lambda group: group.rank)
        rows = self._described(groups, stage(progress, 0.9, 1.0))
        notes = [*self._races.notes, note]
        text = "; ".join(each for each in notes if each)
        return Findings(
            tuple(rows),
            text,
            ok=not rows,
            unchecked="; ".join(self._races.unchecked),
        )

    def _snapshots(self, progress: Progress) -> tuple[list[Hazard], str]:
        """Snapshots that Phase 2 does not confirm, or why that is not known.

        To know that every op has to be executed.
        """
        ops = len(self._trace.order)
        if ops > MOST_EXECUTED:
            return [], (
                f"what Phase 1 saw was not compared with Phase 2: {ops:,} ops would be "
                f"executed, and more than {MOST_EXECUTED:,} take long"
            )
        try:
            found = self._history.findings(progress)
        except Cancelled:
            raise
        except KernbenchError as why:
            return [], f"Phase 1 was not compared with Phase 2: {why}"
        return snapshot_hazards(self._trace, found), ""

    def _grouped_races(self, races: Races, progress: Progress) -> list[_Group]:
        """Races by the lines of both ops and the tensor."""
        touched = self._history.touched
        if not len(races.earlier):
            return []
        keys = computed_beside(partial(self._race_keys, races), progress, 0.0)
        alike = computed_beside(partial(_alike, keys), progress, 0.3)
        rows = touched.row[races.later].astype(np.int64) << 32
        rows += touched.row[races.earlier]
        groups = []
        for mine in alike:
            progress(0.5)
            met = mine[races.met[mine]]
            kind = TOGETHER if len(met) else UNORDERED
            pair = _first(races, met if len(met) else mine)
            earlier = int(races.earlier[pair])
            later = int(races.later[pair])
            hazard = conflict(touched, earlier, later)
            modes = (int(touched.mode[earlier]), int(touched.mode[later]))
            what = CONFLICTS[modes[0]][modes[1]] if len(met) else _UNORDERED_AS[modes]
            tensor = self._tensor(hazard)
            every = distinct(rows[mine])
            pairs = _some_pairs(every, int(rows[pair]))
            groups.append(_Group(kind, what, hazard, len(every), tensor, pairs))
        return groups

    def _race_keys(self, races: Races) -> Ints:
        """By pair its two lines, the lower first, and its tensor, as three columns."""
        touched = self._history.touched
        a = self._ops.sites(touched.row[races.earlier])
        b = self._ops.sites(touched.row[races.later])
        # the bytes that both have begin where one of them does, if they are contiguous
        later = touched.addr[races.earlier] > touched.addr[races.later]
        beginning = np.where(later, races.earlier, races.later)
        tensors = self._tensors(beginning)
        return np.stack([np.minimum(a, b), np.maximum(a, b), tensors], axis=1)

    def _grouped(self, lonely: Lonely, kind: str, progress: Progress) -> list[_Group]:
        """Accesses that are wrong by themselves, by line and tensor."""
        if not len(lonely.numbers):
            return []
        rows = self._history.touched.row

        def by_line_and_tensor() -> list[Ints]:
            sites = self._ops.sites(rows[lonely.numbers])
            return _alike(np.stack([sites, self._tensors(lonely.numbers)], axis=1))

        groups = []
        for mine in computed_beside(by_line_and_tensor, progress, 0.9):
            progress(0.9)
            hazard = lonely.hazard(int(lonely.numbers[mine[0]]))
            tensor = self._tensor(hazard)
            groups.append(_Group(kind, "", hazard, len(mine), tensor))
        return groups

    def _grouped_snapshots(self, hazards: list[Hazard]) -> list[_Group]:
        """Snapshots that Phase 2 does not confirm, by line and tensor."""
        alike: dict[tuple[int, str], list[Hazard]] = {}
        sites = self._ops.sites(np.array([hazard.op for hazard in hazards], np.int64))
        for site, hazard in zip(sites.tolist(), hazards, strict=True):
            alike.setdefault((site, self._tensor(hazard)), []).append(hazard)
        return [
            _Group(SNAPSHOT, "", mine[0], len(mine), tensor)
            for (_, tensor), mine in alike.items()
        ]

    def _tensors(self, numbers: Ints) -> Ints:
        """A number for what each access touches first: alike for the same tensor.

        Scratch that one line has made is alike, as is all of a memory of which nothing
        is known. Of many addresses the first are looked up.
        """
        touched = self._history.touched
        space = touched.space[numbers].astype(np.int64)
        places = (space << _ADDRESS_BITS) + touched.addr[numbers].astype(np.int64)
        used, which = numbered(places)
        found = -1 - space
        order = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[order], np.arange(len(used)), side="right")
        begin = 0
        places_and_ends = zip(
            used[:_PLACES_NAMED].tolist(), ends.tolist(), strict=False
        )
        for place, end in places_and_ends:
            mine = order[begin:end]
            begin = end
            name = touched.spaces[place >> _ADDRESS_BITS]
            addr = place & ((1 << _ADDRESS_BITS) - 1)
            allocs = self._places.allocs_at(name, addr, touched.row[numbers[mine]])
            known = allocs >= 0
            found[mine[known]] = self._owner_numbers(allocs[known])
        return found

    def _owner_numbers(self, allocs: Ints) -> Ints:
        """A number for the owner of each allocation: as ``_owner``, without texts."""
        log = self._trace.alloc_columns
        tensors = log.tensor[allocs].astype(np.int64)
        calls = self._by_cmd.first(log.cmd[allocs])
        commands = self._trace.commands
        is_scratch = np.array([space == "tcm" for space in log.spaces], np.bool_)
        of_kernel = np.flatnonzero((calls >= 0) & is_scratch[log.space[allocs]])
        of_kernel = of_kernel[commands.launch[calls[of_kernel]] >= 0]
        mine = calls[of_kernel]
        file = commands.file[mine].astype(np.int64) + 1
        tensors[of_kernel] = (file << 32) + commands.line[mine]
        return tensors

    def _tensor(self, hazard: Hazard) -> str:
        """The name of what the first of some bytes belong to."""
        row = self._places.alloc_at(hazard.space, hazard.addr, hazard.op)
        return self._owner(row)

    def _owner(self, row: int) -> str:
        """An allocation in words; "" of none."""
        if row < 0:
            return ""
        (shard,) = self._places.shards([row])
        call = self._trace.command(shard.cmd)
        if shard.space != "tcm" or call is None or call.launch < 0:
            return shard.tensor
        return f"scratch of {call.site.file}:{call.site.line}"

    def _described(self, groups: Sequence[_Group], progress: Progress) -> list[Finding]:
        """Groups with the lines of their ops."""
        ops = {group.hazard.op for group in groups}
        ops |= {group.hazard.other for group in groups}
        known = sorted(ops - {-1})
        rows_of: RowsOf = self._ops.rows_of
        lines = rows_in_parts(rows_of, known, progress)
        row_of = dict(zip(known, lines, strict=True))
        return [_finding(group, row_of) for group in groups]


class _Group(NamedTuple):
    """Hazards of the same lines and tensor: the first, and how many there are.

    Of races also the ops of some of them.
    """

    kind: str
    what: str
    hazard: Hazard
    times: int
    tensor: str
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def rank(self) -> tuple[int, int, int, str]:
        """What sorts them, the worst first."""
        hazard = self.hazard
        return WORST_FIRST.index(self.kind), -self.times, hazard.op, str(hazard[2:6])


def _finding(group: _Group, row_of: dict[int, OpRow]) -> Finding:
    """A group with the lines of its ops."""
    hazard = group.hazard
    spread = hazard.spread
    if spread is None:
        nbytes = hazard.end - hazard.addr
        spread = Spread(hazard.addr, hazard.end, nbytes, 1, nbytes, 0)
    touch = touch_of(
        group.kind,
        hazard.space,
        spread,
        row_of[hazard.op],
        row_of.get(hazard.other),
    )
    fields = {name: getattr(touch, name) for name in Touch.__slots__}
    return Finding(
        **fields,
        tensor=group.tensor,
        count=group.times,
        what=group.what,
        pairs=group.pairs,
    )


def _alike(keys: Ints) -> list[Ints]:
    """The rows that are equal, together, each group in ascending order."""
    _, which = np.unique(keys, axis=0, return_inverse=True)
    which = which.reshape(-1)
    order = np.argsort(which, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(which[order])) + 1)


def _first(races: Races, mine: Ints) -> int:
    """The pair whose later op is the first; of these the one of the first op."""
    at = np.lexsort((races.earlier[mine], races.later[mine]))[0]
    return int(mine[at])


def _some_pairs(every: Ints, first: int) -> tuple[tuple[int, int], ...]:
    """The earlier and the later op of the first pair and of some others.

    A pair is a number: the later op, then the earlier one, of 32 bits each. The others
    are spread over all, up to the last.
    """
    at = np.linspace(0, len(every) - 1, _PAIRS).astype(np.int64)
    numbers = [first, *every[at].tolist()]
    chosen = list(dict.fromkeys(numbers))[:_PAIRS]
    return tuple((number & 0xFFFFFFFF, number >> 32) for number in chosen)


def snapshot_hazards(trace: Trace, findings: Sequence[SnapshotFinding]) -> list[Hazard]:
    """What the executor found of ``trace.executable`` while it ran.

    The bytes are those of the whole operand.
    """
    found = list[Hazard]()
    for finding in findings:
        read = regions(trace.executable[finding.position]).reads[finding.which]
        op = int(trace.executable_positions[finding.position])
        end = read.addr + read.where.span
        spread = None if read.strided is None else spread_of_rows(read.strided)
        found.append(Hazard(SNAPSHOT, op, -1, read.space, read.addr, end, spread))
    return found
