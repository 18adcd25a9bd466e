"""Phase 2: executes an op log on a memory store (ADR-0020 D6, D10, D11).

Owns the order (op_order.py) and what has run. There is no
pool of threads: two ran f16 gemms of 32^3 to 512^3 at 0.77 to 0.84 times the speed of
one, as BLAS uses both cores by itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.common.arrays import Floats
from kernbench.common.progress import Progress, computed_beside, no_progress
from kernbench.errors import UsageError, VerificationError
from kernbench.sim_engine import verify
from kernbench.sim_engine.expected import (
    NO_TENSORS,
    Expected,
    Tensors,
    expectations,
)
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.sim_engine.op_kinds import Ops
from kernbench.sim_engine.op_log import KIND_RANK, OpRecord, canonical_order
from kernbench.sim_engine.op_order import Log, execution_order
from kernbench.sim_engine.op_params import completed
from kernbench.sim_engine.plans import (
    EXECUTED,
    Plans,
    SnapshotFinding,
    perform,
    perform_next,
    plan_of,
    turns,
)

__all__ = ["DataExecutor", "SnapshotFinding", "execute"]

Bytes: TypeAlias = npt.NDArray[np.uint8]

_TAKEN = 32
"""Records taken from a log between two calls of progress: decoding one takes 30 us, and
up to 130 on a machine that is slow or busy."""

_LOOKED_AT = 4096
"""Records looked at between two calls of progress, once they are there."""


def execute(record: OpRecord, store: MemoryStore, ops: Ops = NUMPY_OPS) -> None:
    """Write into ``store`` what ``record`` makes of its snapshots and of ``store``."""
    whole = completed(record)
    perform([plan_of(whole, ops).turn(whole)], store)


def _unknown_line(rank: int) -> str:
    """Of a log alone it is not known which kernel line has issued an op."""
    return ""


class DataExecutor:
    """Executes ``op_log``, which its dependency_ids index, on ``initial_store`` itself.

    ``position`` counts the records that have run, skipped ones too, of ``total``.
    ``skipped`` counts records of unknown kind by name, TileToken stages aside.
    ``findings`` are the snapshots that differ from what Phase 2 has. An op that failed
    has not run: the next step tries it again.

    Consecutive small gemms and elementwise ops that are alike in all but addresses,
    none of which reads what an earlier one of them writes, run in one numpy call, with
    the same bits. All are read before any is written, and written in order, so other
    overlaps need no care. ``batch=False`` runs them one by one. ``tensors`` says where
    those lie that ``verify`` is asked about by name. ``as_logged=False`` takes ops of
    one instant for logged in canonical order, in which a trace has them: whoever runs
    a simulation gets the same from its log as from its trace. ``issued_at`` gives the
    kernel line of an op by its rank, for its error; "" where that is not known.

    What takes long calls ``progress`` with the share done, at least every 10 ms. It may
    raise ``Cancelled``: then the op that was to run has not run, and one can go on
    later. Raises VerificationError for a log whose dependency_ids lead nowhere or in a
    circle.
    """

    def __init__(
        self,
        op_log: Sequence[OpRecord],
        initial_store: MemoryStore | None = None,
        ops: Ops = NUMPY_OPS,
        batch: bool = True,
        progress: Progress = no_progress,
        tensors: Tensors = NO_TENSORS,
        as_logged: bool = True,
        issued_at: Callable[[int], str] = _unknown_line,
    ) -> None:
        self.store = MemoryStore() if initial_store is None else initial_store
        self.position = 0
        self.skipped: Counter[str] = Counter()
        self.findings: list[SnapshotFinding] = []
        self._initial = self.store.snapshot()
        self._ops = ops
        self._batch = batch
        self._tensors = tensors
        self._as_logged = as_logged
        self._issued_at = issued_at
        # in canonical order; a rank is an index of it
        self._records: list[OpRecord] = []
        # the ranks in the order in which they are executed
        self._order: list[int] = []
        records = self._records
        order = self._order
        plan = Plans(ops).of if batch else partial(plan_of, ops=ops)
        self._turn = turns(lambda at: (order[at], records[order[at]]), plan)
        self.extend(op_log, progress)

    def extend(
        self, records: Sequence[OpRecord], progress: Progress = no_progress
    ) -> None:
        """Append ``records``, none of which starts before one that is already here.

        Their dependency_ids index all records so far, these included. Raises
        VerificationError, and then none of them has been appended.
        """
        base = len(self._records)
        latest = self._records[-1].t_start if base else -math.inf
        added = _taken(records, progress)
        t_start, kind_rank = _checked_columns(added, base, latest, progress)
        rows: list[int] = computed_beside(
            lambda: canonical_order(t_start, kind_rank).tolist(), progress, 1.0
        )
        log = Log(added, rows, t_start, kind_rank, self._records, self.store)
        if not self._as_logged:
            log.forget_rows()
        order = execution_order(log, progress)
        self._records += log.records
        self._order += [base + place for place in order]

    @property
    def upcoming(self) -> tuple[int, OpRecord] | None:
        """The canonical position and the record that runs next; None at the end."""
        if self.position == len(self._order):
            return None
        rank = self._order[self.position]
        return rank, self._records[rank]

    @property
    def total(self) -> int:
        """How many records there are, those that have run and those that have not."""
        return len(self._records)

    def step(self, progress: Progress = no_progress) -> OpRecord | None:
        """Execute the next op, passing over skipped ones; None when all have run."""
        while self.position < len(self._order):
            done = self.position / len(self._order)
            progress(done)
            record = self.run_one(progress, done)
            if record.op_kind in EXECUTED:
                return record
        return None

    def run_one(self, progress: Progress = no_progress, done: float = 0.0) -> OpRecord:
        """Execute the next record alone, or skip it; there must be one.

        While it computes, ``progress(done)`` is called if that takes long.
        """
        return self._run(0, progress, done)

    def run(self, progress: Progress = no_progress) -> None:
        """Execute all that has not run."""
        self.run_until(len(self._records), progress)

    def run_until(self, position: int, progress: Progress = no_progress) -> None:
        """Execute until ``position`` records have run.

        Raises UsageError if that is behind or beyond.
        """
        total = len(self._records)
        if not self.position <= position <= total:
            raise UsageError(
                f"position {position} is not within {self.position} (now) and {total} "
                "(all records); to go back make a new executor"
            )
        limit = position if self._batch else 0
        begun = self.position
        while self.position < position:
            done = (self.position - begun) / (position - begun)
            progress(done)
            self._run(limit, progress, done)

    def _run(self, limit: int, progress: Progress, done: float) -> OpRecord:
        """Run the next op, and those before ``limit`` that can share its call."""
        rank = self._order[self.position]
        record = self._records[rank]
        count = 1
        if record.op_kind in EXECUTED:
            ran, _ = perform_next(
                self._turn,
                self.position,
                limit,
                self.store,
                partial(self._named, rank),
                self.findings,
                progress=progress,
                done=done,
            )
            count = len(ran)
        elif not record.op_name.startswith("TileToken"):
            self.skipped[record.op_name] += 1
        self.position += count
        return record

    def _named(self, rank: int) -> str:
        """An op, as an error begins."""
        record = self._records[rank]
        text = f"op {rank} ({record.op_name} on {record.component_id})"
        line = self._issued_at(rank)
        return f"{text} at {line}" if line else text

    def verify(
        self,
        expected: Expected,
        progress: Progress = no_progress,
    ) -> verify.VerifyReport:
        """Judge each expectation when its ``after`` ops have run, an array at the end.

        ``expected`` is the last output of the log as an array, or a mapping of arrays
        by name or (space, address), and of expectations (ADR-0020 D10). This executor
        goes on until then. If it is already past one, a fresh executor replays the log
        on the initial store instead. ``progress`` begins again at 0 for each
        expectation.
        """
        in_order = [self._records[rank] for rank in self._order]
        stated = expectations(expected, in_order, self._tensors, self._initial)
        ordered = sorted(stated.items(), key=lambda item: item[1].after)
        total = len(self._records)
        executor = self
        if ordered and ordered[0][1].after < self.position:
            executor = DataExecutor(
                (),
                self._initial.snapshot(),
                self._ops,
                self._batch,
                issued_at=self._issued_at,
            )
            executor._records += self._records
            executor._order += self._order
        rows: dict[str, verify.VerifyRow] = {}
        for name, expectation in ordered:
            after = expectation.after
            if 0 <= after <= total:
                executor.run_until(after, progress)
                store = executor.store
                rows[name] = verify.judge(name, expectation, store, progress)
            else:
                note = f"to be judged after {after} ops of a log of {total}"
                rows[name] = verify.missing(name, expectation, note)
        return verify.VerifyReport(tuple(rows[name] for name in stated))


def _taken(records: Sequence[OpRecord], progress: Progress) -> list[OpRecord]:
    """All of ``records``, each asked for once: a trace decodes what it is asked for.

    Those that somebody has made by hand are completed.
    """
    taken: list[OpRecord] = []
    total = len(records)
    rest = iter(records)
    for first in range(0, total, _TAKEN):
        progress(first / total)
        taken += map(completed, islice(rest, _TAKEN))
    return taken


def _checked_columns(
    added: Sequence[OpRecord], base: int, latest: float, progress: Progress
) -> tuple[Floats, Bytes]:
    """The start (ns) and the rank of the kind of each record.

    ``base`` records are before them, the last of which starts at ``latest`` ns. Raises
    VerificationError for a record that does not fit such a log.
    """
    total = base + len(added)
    t_start = np.empty(len(added), np.float64)
    kind_rank = np.empty(len(added), np.uint8)
    unknown = KIND_RANK["unknown"]
    for row, record in enumerate(added):
        if row % _LOOKED_AT == 0:
            progress(1.0)
        too_early = record.t_start < latest
        if too_early or any(not 0 <= d < total for d in record.dependency_ids):
            raise VerificationError(
                f"{record.op_name} at {record.t_start} ns with dependencies "
                f"{record.dependency_ids} does not fit a log of {total} records, of "
                f"which the earlier {base} start by {latest} ns; give the whole log, "
                "in order"
            )
        t_start[row] = record.t_start
        kind_rank[row] = KIND_RANK.get(record.op_kind, unknown)
    return t_start, kind_rank
