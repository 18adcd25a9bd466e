"""Phase 2: executes an op log on a memory store (ADR-0020 D6, D10, D11).

Owns the order (canonical, held back by dependency_ids) and what has run. There is no pool of
threads: two ran f16 gemms of 32^3 to 512^3 at 0.77 to 0.84 times the speed of one, as BLAS uses
both cores by itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush

from kernbench.errors import UsageError, VerificationError
from kernbench.sim_engine import verify
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.sim_engine.op_log import OpRecord, canonical_rows
from kernbench.sim_engine.plans import (
    EXECUTED,
    Ops,
    Plans,
    SnapshotFinding,
    perform,
    perform_next,
    plan_of,
    turns,
)

__all__ = ["DataExecutor", "SnapshotFinding", "execute"]


def execute(record: OpRecord, store: MemoryStore, ops: Ops = NUMPY_OPS) -> None:
    """Patch what ``record``, if it writes, makes of its snapshots and ``store`` into ``store``."""
    perform([plan_of(record, ops).turn(record)], store)


class DataExecutor:
    """Executes ``op_log``, which its dependency_ids index, on ``initial_store`` itself.

    ``position`` counts the records that have run, skipped ones too; ``skipped`` counts records of
    unknown kind by name, TileToken stages aside. An op that failed has not run: the next step tries
    it again. VerificationError for a log whose dependency_ids lead nowhere or in a circle.

    Consecutive small gemms and elementwise ops that are alike in all but addresses, none of which
    reads what an earlier one of them writes, run in one numpy call, with the same bits. All are
    read before any is written, in order, so other overlaps need no care. ``batch=False``: one by
    one.
    """

    def __init__(
        self,
        op_log: Sequence[OpRecord],
        initial_store: MemoryStore | None = None,
        ops: Ops = NUMPY_OPS,
        batch: bool = True,
    ) -> None:
        self.store = MemoryStore() if initial_store is None else initial_store
        self.position = 0
        self.skipped: Counter[str] = Counter()
        self.findings: list[SnapshotFinding] = []
        self._initial, self._ops, self._batch = self.store.snapshot(), ops, batch
        self._records: list[
            OpRecord
        ] = []  # in canonical order; a rank is an index of it
        self._order: list[int] = []  # ranks as they are executed
        records, order = self._records, self._order
        plan = Plans(ops).of if batch else partial(plan_of, ops=ops)
        self._turn = turns(lambda at: (order[at], records[order[at]]), plan)
        self.extend(op_log)

    def extend(self, records: Sequence[OpRecord]) -> None:
        """Append ``records``, none of which starts before one that is already here.

        Their dependency_ids index all records so far, these included.
        """
        base, total = len(self._records), len(self._records) + len(records)
        latest = self._records[-1].t_start if base else -math.inf
        for record in records:
            if record.t_start < latest or any(
                not 0 <= d < total for d in record.dependency_ids
            ):
                raise VerificationError(
                    f"{record.op_name} at {record.t_start} ns with dependencies "
                    f"{record.dependency_ids} does not fit a log of {total} records, of which the "
                    f"earlier {base} start by {latest} ns; give the whole log, in order"
                )
        rows = canonical_rows(records)
        ranks = {base + row: rank for rank, row in enumerate(rows, base)}
        self._order += _execution_order(
            {
                rank: {ranks[d] for d in records[row].dependency_ids if d >= base}
                for rank, row in enumerate(rows, base)
            }
        )
        self._records += [records[row] for row in rows]

    def upcoming(self) -> Iterator[tuple[int, OpRecord]]:
        """(canonical position, record) of all that has not run, in the order in which it will."""
        return ((rank, self._records[rank]) for rank in self._order[self.position :])

    def step(self) -> OpRecord | None:
        """Execute the next op, passing over skipped ones; None when all have run."""
        while self.position < len(self._order):
            record = self._run()
            if record.op_kind in EXECUTED:
                return record
        return None

    def run(self) -> None:
        """Execute all that has not run."""
        self.run_until(len(self._records))

    def run_until(self, position: int) -> None:
        """Execute until ``position`` records have run; UsageError if that is behind or beyond."""
        if not self.position <= position <= len(self._records):
            raise UsageError(
                f"position {position} is not within {self.position} (now) and "
                f"{len(self._records)} (all records); to go back make a new executor"
            )
        while self.position < position:
            self._run(position if self._batch else 0)

    def _run(self, limit: int = 0) -> OpRecord:
        """Run the next op, and those before ``limit`` that can go into one numpy call with it."""
        rank, count = self._order[self.position], 1
        record = self._records[rank]
        if record.op_kind in EXECUTED:
            where = partial(
                "op {} ({} on {})".format, rank, record.op_name, record.component_id
            )
            step = self._turn, self.position, limit, self.store, where, self.findings
            count = len(perform_next(*step)[0])
        elif not record.op_name.startswith("TileToken"):
            self.skipped[record.op_name] += 1
        self.position += count
        return record

    def verify(self, expected: Mapping[str, verify.Expectation]) -> verify.VerifyReport:
        """Judge each expectation when its ``after`` ops have run; this executor goes on until then.

        If it is already past one, a fresh executor replays the log on the initial store instead.
        """
        ordered = sorted(expected.items(), key=lambda item: item[1].after)
        executor, total = self, len(self._records)
        if ordered and ordered[0][1].after < self.position:
            executor = DataExecutor(
                (), self._initial.snapshot(), self._ops, self._batch
            )
            executor._records += self._records
            executor._order += self._order
        rows: dict[str, verify.VerifyRow] = {}
        for name, e in ordered:
            if 0 <= e.after <= total:
                executor.run_until(e.after)
                rows[name] = verify.judge(name, e, executor.store)
            else:
                note = f"to be judged after {e.after} ops of a log of {total}"
                rows[name] = verify.missing(name, e, note)
        return verify.VerifyReport(tuple(rows[name] for name in expected))


def _execution_order(dependencies: Mapping[int, set[int]]) -> Iterable[int]:
    """The ranks, in turn the lowest of those whose dependencies have run."""
    if all(d < rank for rank, held in dependencies.items() for d in held):
        return dependencies
    sorter, ready, order = TopologicalSorter(dependencies), list[int](), list[int]()
    try:
        sorter.prepare()
    except CycleError as error:
        raise VerificationError(
            f"ops {sorted(set(error.args[1]))} wait for one another and can never run; "
            "their dependency_ids form a cycle"
        ) from None
    while sorter.is_active():
        for rank in sorter.get_ready():
            heappush(ready, rank)
        order.append(heappop(ready))
        sorter.done(order[-1])
    return order
