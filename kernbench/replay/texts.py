"""What kernels printed and asserted, what was warned of, and what ended the run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernbench.common.arrays import Array, Ints, distinct
from kernbench.common.progress import Progress, computed_beside, no_progress, parts
from kernbench.replay.text import count_text, wrapped
from kernbench.replay.time.kernel_calls import pe_label
from kernbench.trace import Trace
from kernbench.trace.hops import rows_of_calls

NO_TEXTS = "no kernel printed anything, and nothing was warned of"
"""What is said of a trace without texts."""

_AT_ONCE = 200
"""Rows that are made between two calls of progress."""

_PREFIX = {
    "print": "",
    "assert": "device_assert failed: ",
    "warning": "warning: ",
    "error": "error: ",
}
"""What a text begins with, by its level."""


@dataclass(frozen=True, slots=True)
class TextRow:
    """What a call said at ``t``, in ns.

    ``level`` is print, assert, warning or error. ``pe`` is "" and ``launch`` -1 where
    no kernel said it, as of the error that ended a run. ``site`` is the kernel line, ""
    where it is unknown. ``op`` is the op after which
    the kernel said it: the first of its last call that caused any; -1 if there was
    none.
    """

    t: float
    level: str
    pe: str
    launch: int
    site: str
    op: int
    message: str

    @property
    def said(self) -> str:
        """The message; of what was not printed on purpose also what it is."""
        return (_PREFIX.get(self.level, "") + self.message).removesuffix(": ")

    @property
    def line(self) -> str:
        """All of it in one line."""
        where = [f"{self.t:,.3f} ns"]
        if self.pe:
            where.append(self.pe)
            where.append(f"launch {self.launch}")
        if self.op >= 0:
            where.append(f"after op {self.op:,}")
        if self.site:
            where.append(self.site)
        return f"{', '.join(where)}: {self.said}"


@dataclass(frozen=True, slots=True)
class TextList:
    """Texts as they were said; ``total`` is how many there are in all."""

    rows: tuple[TextRow, ...]
    total: int

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns: a line each, if it fits."""
        if not self.total:
            return [NO_TEXTS]
        count = count_text(self.total, "text")
        if len(self.rows) < self.total:
            count = f"{len(self.rows):,} of {count}"
        lines = [count]
        for row in self.rows:
            lines += wrapped(row.line, width, 4)
        return lines


class TextIndex:
    """The texts of a trace. It may be filled twice: all of it is made of the file."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __len__(self) -> int:
        return len(self._trace.text_columns.cmd)

    def prepare(self, progress: Progress = no_progress) -> None:
        """Find out after which ops the texts were said; nothing if there are none."""
        if len(self):
            computed_beside(lambda: self._ops_before, progress, 0.0)

    def numbers(
        self, pes: list[int] | None = None, progress: Progress = no_progress
    ) -> Ints:
        """Which texts the kernels on some PEs said, by their nodes; None: all texts."""
        if pes is None or not len(self):
            return np.arange(len(self))
        calls = computed_beside(lambda: self._calls, progress, 0.0)
        node = np.append(self._trace.commands.pe[:].astype(np.int64), -1)[calls]
        return np.flatnonzero(np.isin(node, pes))

    def rows(
        self, numbers: Ints, progress: Progress = no_progress
    ) -> tuple[TextRow, ...]:
        """Some texts."""
        self.prepare(progress)
        found: list[TextRow] = []
        for part in parts(len(numbers), progress, _AT_ONCE):
            found += self._rows(numbers[part])
        return tuple(found)

    def of_call(self, cmd: int) -> tuple[TextRow, ...]:
        """What a kernel said after one of its calls, and before its next that caused an
        op.
        """
        if not len(self):
            return ()
        _, calls_before = self._ops_before
        return tuple(self._rows(np.flatnonzero(calls_before == cmd)))

    def _rows(self, numbers: Ints) -> list[TextRow]:
        trace = self._trace
        calls = self._calls[numbers]
        known = calls[calls >= 0].tolist()
        callers = iter(trace.rows_as_recorded("commands", known))
        ops, _ = self._ops_before
        texts = trace.rows_as_recorded("text", numbers)
        found = []
        for text, call, op in zip(texts, calls, ops[numbers].tolist(), strict=True):
            t, _, level, message = text
            if call < 0:
                found.append(TextRow(t, level, "", -1, "", op, message))
                continue
            _, node, launch, _, file, line, *_ = next(callers)
            pe = ""
            if launch >= 0:
                pe = pe_label(trace, trace.node_index[node])
            site = f"{file}:{line}"
            found.append(TextRow(t, level, pe, launch, site, op, message))
        return found

    @cached_property
    def _calls(self) -> Ints:
        """By text the row of the call that said it, -1 where none did."""
        return rows_of_calls(self._trace, self._trace.text_columns.cmd[:])

    @cached_property
    def _ops_before(self) -> tuple[Ints, Ints]:
        """By text the op after which it was said, and the call that caused that op.

        Both are -1 where the kernel on that PE had caused none before.
        """
        log = self._trace.commands
        causes = np.isin(
            log.cmd[:], distinct(self._trace.op_columns.cmd.astype(np.int64))
        )
        rows = np.flatnonzero(causes)
        keys = _keys(log.pe[rows], log.cmd[rows])
        order = np.argsort(keys, kind="stable")
        rows = rows[order]
        calls = self._calls
        said = np.flatnonzero(calls >= 0)
        said_at = _keys(log.pe[calls[said]], log.cmd[calls[said]])
        nearest = np.append(rows, -1)[np.searchsorted(keys[order], said_at) - 1]
        is_one = nearest >= 0
        is_one &= log.pe[nearest] == log.pe[calls[said]]
        is_one &= log.launch[nearest] == log.launch[calls[said]]
        cmds = np.full(len(self), -1)
        cmds[said[is_one]] = log.cmd[nearest[is_one]]
        return self._first_ops(cmds), cmds

    def _first_ops(self, cmds: Ints) -> Ints:
        """By call the position of the first op that it caused; -1 for none."""
        trace = self._trace
        by_position = trace.op_columns.cmd[trace.order].astype(np.int64)
        wanted = distinct(cmds[cmds >= 0])
        positions = np.flatnonzero(np.isin(by_position, wanted))
        found, first = np.unique(by_position[positions], return_index=True)
        places = np.searchsorted(found, cmds)
        is_found = np.append(found, -2)[places] == cmds
        ops = np.full(len(cmds), -1)
        ops[is_found] = positions[first][places[is_found]]
        return ops


def _keys(pe: Array, cmd: Array) -> Ints:
    """A number that sorts calls by PE, and those of one as they were made."""
    return np.asarray(pe.astype(np.int64) << 32 | cmd.astype(np.int64))
