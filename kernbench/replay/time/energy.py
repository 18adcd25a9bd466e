"""Where the energy of a run went: by class of component, kernel line and tensor.

From what is recorded, and the costs of the machine's ``energy:`` section: nothing is
simulated. What is counted where is said in ``kernbench/trace/energy.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Floats
from kernbench.common.energy import CLASSES, PJ
from kernbench.common.progress import (
    Progress,
    computed_beside,
    no_progress,
    parts,
    stage,
)
from kernbench.replay.text import count_text, time_text, wrapped
from kernbench.replay.time.op_classes import COMPOSITE_PREFIX, TILE_PREFIX
from kernbench.replay.time.spans import part_of_run, recorded_between, running_ns
from kernbench.replay.time.tensor_names import OTHER, SCRATCH, TensorNames
from kernbench.sim_engine.access_columns import AccessColumns
from kernbench.trace import Trace
from kernbench.trace.energy import EnergyColumns, Pieces, energy_columns, rates_of
from kernbench.trace.groups import Groups
from kernbench.trace.hops import kernel_lines, named

STATIC = "(static)"
_HOST = "host_"
_ROWS = 200
"""Rows of a table of lines or tensors; what costs less is one row together."""
_SHOWN = 12
_SHORTEST_NAME = 20
_WIDE_NUMBERS = 12 + 10 + 10 + 8
"""Columns of J, W, pJ/op and share."""
_NARROW_NUMBERS = 12 + 8
"""Columns of J and share."""


@dataclass(frozen=True, slots=True)
class EnergyRow:
    """What one class, line or tensor took.

    ``watts`` is over the whole run, ``share`` of all energy. ``pj_op`` is by the
    arithmetic operations of the whole run, so that rows of a table add up; None if
    there was none.
    """

    name: str
    joules: float
    watts: float
    share: float
    pj_op: float | None


@dataclass(frozen=True, slots=True)
class Energy:
    """The energy of a run of ``ns``, told apart in three ways, the most first.

    Where the trace has not all of the run, ``part`` says what it has, and ``ns`` is the
    time of that. Of ``unfinished`` composites there are tiles but not the composite:
    their bytes are counted, and what they compute is not.

    ``arithmetic`` counts arithmetic operations: two a multiply-add, one an element op.
    ``hbm_bytes`` were read from HBM or written to it, ``host_hbm_bytes`` of them by the
    host. ``own_rates`` says whether the trace has an ``energy:`` section; else the
    costs are those of the shipped machine.

    ``static_joules`` are those of ``pes`` PEs and ``cubes`` cubes, busy or not, for all
    of the ``ns``; in ``launch_ns`` of these at least one launch ran, whether or not it
    has ended. ``host_joules`` are those of the host's transfers. What is neither is
    that of kernels.
    """

    ns: float
    joules: float
    watts: float
    pj_op: float | None
    arithmetic: int
    hbm_bytes: int
    host_hbm_bytes: int
    own_rates: bool
    pes: int
    cubes: int
    static_joules: float
    host_joules: float
    launch_ns: float
    part: str
    unfinished: int
    classes: tuple[EnergyRow, ...]
    lines_: tuple[EnergyRow, ...]
    tensors: tuple[EnergyRow, ...]

    def lines(self, width: int) -> list[str]:
        """As text: the sum, what it is of, and three tables."""
        lines = []
        for text in self._heads():
            lines += wrapped(text, width, 2)
        tables = (
            ("component class", self.classes),
            ("line", self.lines_),
            ("tensor", self.tensors),
        )
        columns = _Columns.of(width, tables)
        for title, rows in tables:
            lines.append(columns.head(title))
            lines += [columns.line(row) for row in rows[:_SHOWN]]
            rest = rows[_SHOWN:]
            if rest:
                joules = sum(row.joules for row in rest)
                lines.append(f"({len(rest):,} more, {joules:.4g} J)")
        return lines

    def _heads(self) -> list[str]:
        """The sum, and what it is of."""
        kernels = max(self.joules - self.static_joules - self.host_joules, 0.0)
        static_w = 0.0
        launched = 0.0
        if self.ns > 0:
            static_w = self.static_joules / self.ns * 1e9
            launched = self.launch_ns / self.ns
        heads = [
            f"{self.joules:.4g} J in {time_text(self.ns)}: {self.watts:.4g} W, "
            f"{_pj_text(self.pj_op)} pJ an arithmetic op "
            f"({self.arithmetic:,}; 2 a MAC)",
            f"static: {self.static_joules:.4g} J, {static_w:.4g} W of "
            f"{count_text(self.pes, 'PE')} and {count_text(self.cubes, 'cube')}, busy "
            f"or not; launches take {time_text(self.launch_ns)} of the run "
            f"({launched:.1%})",
            f"transfers of the host: {self.host_joules:.4g} J; launches and their "
            f"kernels: {kernels:.4g} J, {_pj_text(self._pj_op(kernels))} pJ an "
            "arithmetic op",
            f"{self.hbm_bytes:,} bytes to and from HBM, {self.host_hbm_bytes:,} of "
            "them by the host",
        ]
        if self.part:
            heads.append(self.part)
        if self.unfinished:
            heads.append(
                f"of {count_text(self.unfinished, 'composite')} the end is not there: "
                "bytes are counted, arithmetic is not"
            )
        if not self.own_rates:
            heads.append(
                "the trace has no energy: section; costs are those of the shipped "
                "machine"
            )
        return heads

    def _pj_op(self, joules: float) -> float | None:
        """pJ by the arithmetic of the run; None if there was none."""
        if not self.arithmetic:
            return None
        return joules / PJ / self.arithmetic


@dataclass(frozen=True, slots=True)
class _Columns:
    """How the three tables are laid out, alike: ``name`` columns for a name.

    Without ``is_wide`` W and pJ/op are left out.
    """

    name: int
    is_wide: bool

    @classmethod
    def of(
        cls, width: int, tables: Sequence[tuple[str, Sequence[EnergyRow]]]
    ) -> _Columns:
        """As wide as the longest name that is shown, if ``width`` columns suffice."""
        longest = _SHORTEST_NAME
        for title, rows in tables:
            names = [title, *(row.name for row in rows[:_SHOWN])]
            longest = max(longest, *map(len, names))
        is_wide = width >= _SHORTEST_NAME + _WIDE_NUMBERS
        numbers = _WIDE_NUMBERS if is_wide else _NARROW_NUMBERS
        return cls(max(min(longest, width - numbers), _SHORTEST_NAME), is_wide)

    def head(self, title: str) -> str:
        """The heads of the columns."""
        return self._text(title, ("J", "W", "pJ/op", "share"))

    def line(self, row: EnergyRow) -> str:
        """A row; of a name that is too long its end is shown."""
        name = row.name
        if len(name) > self.name:
            name = "…" + name[1 - self.name :]
        numbers = (
            f"{row.joules:.4g}",
            f"{row.watts:.4g}",
            _pj_text(row.pj_op),
            f"{row.share:.1%}",
        )
        return self._text(name, numbers)

    def _text(self, name: str, cells: tuple[str, str, str, str]) -> str:
        joules, watts, pj_op, share = cells
        between = ""
        if self.is_wide:
            between = f"{watts:>10}{pj_op:>10}"
        return f"{name:<{self.name}}{joules:>12}{between}{share:>8}"


def _pj_text(pj: float | None) -> str:
    return "-" if pj is None else f"{pj:.3g}"


class EnergyIndex:
    """Answers about energy, from sums that are made when they are first asked for.

    ``touched`` gives the accesses of all ops, rows being positions. Asked by one
    thread, the worker of lane "columns".
    """

    def __init__(
        self, trace: Trace, touched: Callable[[Progress], AccessColumns]
    ) -> None:
        self._trace = trace
        self._touched = touched
        self._energy: Energy | None = None

    def energy(self, progress: Progress = no_progress) -> Energy:
        """The energy of the whole run; of a million ops it takes a second or two."""
        if self._energy is None:
            self._energy = self._made(progress)
        return self._energy

    def _made(self, progress: Progress) -> Energy:
        trace = self._trace
        rates, own = rates_of(trace.spec)
        positions = self._touched(stage(progress, 0.0, 0.3))
        touched = computed_beside(lambda: _by_row(trace, positions), progress, 0.3)
        columns = energy_columns(trace, touched, rates, stage(progress, 0.35, 0.7))
        nodes = trace.nodes
        pes = sum(kind == "pe_cpu" for kind in nodes.type)
        cubes = sum(kind == "m_cpu" for kind in nodes.type)
        t0, t1 = recorded_between(trace)
        ns = t1 - t0
        static_pj = rates.static_w(pes, cubes) * ns * 1e3  # 1 W is 1e3 pJ/ns
        columns.spent.pj["static"] = static_pj
        by_class = columns.spent.pj
        table = _Table(ns, sum(by_class.values()), columns.arithmetic)
        host = computed_beside(lambda: _host(trace, touched, columns), progress, 0.7)
        by_line = _by_line(trace, columns, stage(progress, 0.72, 0.8))
        by_tensor = _by_tensor(trace, columns, stage(progress, 0.8, 1.0))
        for sums in (by_line, by_tensor):
            sums[STATIC] = static_pj
        total = table.row("", table.total_pj)
        return Energy(
            ns=ns,
            joules=total.joules,
            watts=total.watts,
            pj_op=total.pj_op,
            arithmetic=round(columns.arithmetic),
            hbm_bytes=columns.spent.hbm_bytes,
            host_hbm_bytes=host.hbm_bytes,
            own_rates=own,
            pes=pes,
            cubes=cubes,
            static_joules=static_pj * PJ,
            host_joules=host.pj * PJ,
            launch_ns=running_ns(trace),
            part=part_of_run(trace),
            unfinished=computed_beside(lambda: _unfinished(trace), progress, 1.0),
            classes=table.rows({name: by_class[name] for name in CLASSES}),
            lines_=table.rows(by_line),
            tensors=table.rows(by_tensor),
        )


@dataclass(frozen=True, slots=True)
class _Table:
    """Makes rows of pJ: for a run of ``ns`` with so much energy and arithmetic."""

    ns: float
    total_pj: float
    arithmetic: float

    def row(self, name: str, pj: float) -> EnergyRow:
        watts = 0.0
        if self.ns > 0:
            watts = pj / self.ns * 1e-3
        share = 0.0
        if self.total_pj > 0:
            share = pj / self.total_pj
        pj_op = None
        if self.arithmetic > 0:
            pj_op = pj / self.arithmetic
        return EnergyRow(name, pj * PJ, watts, share, pj_op)

    def rows(self, sums: dict[str, float]) -> tuple[EnergyRow, ...]:
        """The most first; those that took nothing are left out."""
        order = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
        shown = [self.row(name, pj) for name, pj in order[:_ROWS] if pj > 0]
        rest = order[_ROWS:]
        if rest:
            name = f"({len(rest):,} more)"
            shown.append(self.row(name, sum(pj for _, pj in rest)))
        return tuple(shown)


def _unfinished(trace: Trace) -> int:
    """How many composites have tiles in a trace, and are not in it themselves."""
    cmd = trace.op_columns.cmd[:]
    tiles = np.unique(cmd[named(trace, TILE_PREFIX)])
    return len(np.setdiff1d(tiles, cmd[named(trace, COMPOSITE_PREFIX)]))


def _by_row(trace: Trace, touched: AccessColumns) -> AccessColumns:
    """Accesses with rows of the log for positions."""
    return touched._replace(row=trace.order[touched.row])


class _Host(NamedTuple):
    """What the transfers of the host took, and the bytes of HBM that they moved."""

    pj: float
    hbm_bytes: int


def _host(trace: Trace, touched: AccessColumns, columns: EnergyColumns) -> _Host:
    """Those of the ops of the host; ``touched`` is by row of the log."""
    is_host = named(trace, _HOST)
    hbm = [number for number, name in enumerate(touched.spaces) if name == "hbm"]
    moved = is_host[touched.row] & np.isin(touched.space, hbm)
    nbytes = touched.nbytes[moved].astype(np.int64).sum()
    return _Host(float(columns.op_pj[is_host].sum()), int(nbytes))


def _by_line(
    trace: Trace, columns: EnergyColumns, progress: Progress
) -> dict[str, float]:
    """pJ by the line that made the call; what has no known call is "other"."""
    names, which = computed_beside(lambda: kernel_lines(trace), progress, 0.0)
    by_call = computed_beside(lambda: Groups(trace.commands.cmd), progress, 0.3)
    # behind the lines one row for calls that are not known
    lines = np.append(which, len(names))

    def sums_of(cmd: Array, pj: Floats) -> Floats:
        return _sums(lines[by_call.first(cmd)], pj, len(names) + 1)

    sums = np.zeros(len(names) + 1)
    cmd = trace.op_columns.cmd
    for part in parts(len(cmd), stage(progress, 0.5, 0.9)):
        sums += sums_of(cmd[part], columns.op_pj[part])
    sums += sums_of(columns.loose_cmd, columns.loose_pj)
    return _named([*names, OTHER], sums)


def _sums(group: Array, values: Floats, count: int) -> Floats:
    """The sum of the values of each group."""
    return np.bincount(group, values, count).astype(np.float64)


def _by_tensor(
    trace: Trace, columns: EnergyColumns, progress: Progress
) -> dict[str, float]:
    """pJ by the tensor whose bytes an op moves, or whose elements it computes.

    An op that works on several tensors is theirs by their bytes. What only works in the
    TCM is "scratch", what belongs to no op "other".
    """
    tensors = TensorNames(trace, stage(progress, 0.0, 0.3))
    pieces = columns.pieces
    scratch = len(tensors.names)

    weight = np.zeros(len(columns.op_pj))
    for part in parts(len(pieces.row), stage(progress, 0.3, 0.5)):
        np.add.at(weight, pieces.row[part], pieces.weight[part])
    sums = np.zeros(scratch + 2)
    for part in parts(len(weight), stage(progress, 0.5, 0.6)):
        sums[scratch] += columns.op_pj[part][weight[part] == 0].sum()
    for part in parts(len(pieces.row), stage(progress, 0.6, 1.0)):
        row = pieces.row[part]
        tensor = _tensors_of(tensors, pieces, part)
        share = pieces.weight[part] / np.where(weight[row] > 0, weight[row], 1.0)
        sums += _sums(tensor, columns.op_pj[row] * share, len(sums))
    sums[scratch + 1] = columns.loose_pj.sum()
    return _named([*tensors.names, SCRATCH, OTHER], sums)


def _tensors_of(tensors: TensorNames, pieces: Pieces, part: slice) -> Array:
    """The number of the tensor of some pieces; behind the last that of the scratch."""
    space = pieces.space[part]
    addr = pieces.addr[part]
    found = np.full(len(space), len(tensors.names))
    for number, name in enumerate(pieces.spaces):
        mine = np.flatnonzero(space == number)
        known = tensors.of(name, addr[mine])
        found[mine] = np.where(known >= 0, known, len(tensors.names))
    return found


def _named(names: list[str], sums: Floats) -> dict[str, float]:
    """Sums by name; a name that is there twice has both."""
    found: dict[str, float] = {}
    for name, pj in zip(names, sums.tolist(), strict=True):
        found[name] = found.get(name, 0.0) + pj
    return found
