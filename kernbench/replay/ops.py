"""The op log by position: what is known of single ops and of the groups that they are
in.

A position counts ops in canonical order, the executor's own; -1 is before the first.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from kernbench.common.arrays import Array, Floats, Ints
from kernbench.common.exact_time import SAME_NS
from kernbench.common.messages import NO_CMD, WAIT_REASONS, Wait
from kernbench.common.progress import Progress, computed_beside, no_progress
from kernbench.errors import UsageError
from kernbench.replay.answers import NOT_RECORDED, Info, OpDetails, OpRow, Source
from kernbench.replay.program_order import HELD, ProgramOrder, longest_hold
from kernbench.replay.query import FOCUS_LEVELS
from kernbench.replay.time.op_classes import CLASS_LETTERS
from kernbench.replay.time.op_index import OpIndex
from kernbench.sim_engine.event_log import Site
from kernbench.trace import Trace
from kernbench.trace.changed import changed_of
from kernbench.trace.frames import later_recording
from kernbench.trace.groups import Groups
from kernbench.trace.rows import Command as Call

_MACHINE = FOCUS_LEVELS.index("machine")
_NO_SITE = -1
_NO_OP = -1
_OP_NAMED = re.compile(r"\bop (\d{1,18}) \(([^\s()]{1,200}) on ([^\s()]{1,200})\)")
"""An op that an error of Phase 2 names, as ``DataExecutor`` does."""
_PE_NAMED = re.compile(r"\bsip\d+\.cube\d+\.pe\d+\b")
"""A PE that an error names, by itself or by one of its components."""
_KEPT = 256
"""Ops of which the call and those in service are kept: each picture of one asks several
times.
"""


class OpFacts:
    """Answers at once, from mapped columns, on the thread that asks.

    ``prepare`` makes what is needed for that. What is kept later are the last group of
    each level of focus, which moves ask for, so only the thread that moves; and what
    was in flight at the last ops, and their calls, in caches with locks of their own.
    """

    def __init__(self, trace: Trace, op_index: OpIndex) -> None:
        self._trace = trace
        self._op_index = op_index
        self._groups: dict[int, tuple[Array, Array]] = {}
        self._in_flight = lru_cache(_KEPT)(self._find_in_flight)
        self._call = lru_cache(_KEPT)(self._find_call)

    def __len__(self) -> int:
        return len(self._trace.order)

    @cached_property
    def last(self) -> int:
        """The position of the last op; -1 if there is none."""
        return len(self) - 1

    @cached_property
    def components(self) -> Ints:
        """The node that served each op."""
        narrow = len(self._trace.node_ids) <= np.iinfo(np.uint16).max
        dtype = np.uint16 if narrow else np.uint32
        served = self._trace.op_columns.component.astype(dtype)
        return np.asarray(served[self._trace.order])

    def prepare(self, progress: Progress = no_progress) -> None:
        """Make what the answers need, so that each takes some ms at most."""
        computed_beside(lambda: self.components, progress, 0.0)
        computed_beside(lambda: self._by_cmd, progress, 0.5)

    def checked(self, op: int) -> int:
        """``op``; UsageError where the cursor is before the first."""
        if not len(self):
            raise UsageError("this trace has no ops; info has more")
        if op < 0:
            raise UsageError(
                "the cursor is before the first op; step forward or goto an op first"
            )
        return op

    def row_of(self, op: int) -> int:
        """The row of the log at a position."""
        return int(self._trace.order[op])

    # -- time ---------------------------------------------------------------------

    def time(self, op: int) -> float:
        """The time cursor: when an op started, ns; 0 before the first."""
        return float(self.starts(op)) if op >= 0 else 0.0

    def starts(self, ops: Any) -> Any:
        """When ops started, ns."""
        return self._trace.op_columns.t_start[self._trace.order[ops]]

    def ends(self, ops: Any) -> Any:
        """When ops ended, ns."""
        return self._trace.op_columns.t_end[self._trace.order[ops]]

    def at_time(self, t: float) -> int:
        """The last op that has started by ``t`` ns."""
        starts = self._trace.op_columns.t_start
        return bisect_right(self._trace.order, t, key=starts.__getitem__) - 1

    def started_before(self, t: float) -> int:
        """How many ops have started before ``t`` ns."""
        return self._op_index.started_before(t)

    def in_flight(self, op: int) -> tuple[int, ...]:
        """Ops in service when an op started, in canonical order."""
        return self._in_flight(op)

    def _find_in_flight(self, op: int) -> tuple[int, ...]:
        if not 0 <= op < len(self):
            return ()
        time = self.time(op)
        return tuple(self._op_index.in_flight(self.at_time(time), time))

    # -- components ---------------------------------------------------------------

    def component(self, op: int) -> int | None:
        """The node index that served an op; None before the first."""
        return int(self.components[op]) if op >= 0 else None

    def focus(self, op: int, level: int) -> tuple[tuple[int, ...], str | None]:
        """(sip, cube, pe) that the focus is in, as far as it is in one, and its name.

        The name is None where the focus is the whole machine.
        """
        return self._focus_of(self.component(op), level)

    def caller_focus(self, op: int, level: int) -> tuple[tuple[int, ...], str | None]:
        """``focus``, but of the PE whose kernel made the op's call.

        A PE's DMA also writes what another PE sends to it.
        """
        node = self.component(op)
        call = None if node is None else self.call(op)
        if call is not None and call.launch >= 0:
            node = self._trace.node_index[call.pe]
        return self._focus_of(node, level)

    def _focus_of(
        self, node: int | None, level: int
    ) -> tuple[tuple[int, ...], str | None]:
        if node is None:
            return (), None
        nodes = self._trace.nodes
        whole = [int(column[node]) for column in (nodes.sip, nodes.cube, nodes.pe)]
        depth = min(_MACHINE - level, 3)
        place = tuple(n for n in whole if n >= 0)[:depth]
        id = self._trace.node_ids[node].removesuffix(f".{nodes.engine[node]}")
        return place, ".".join(id.split(".")[: len(place)]) or None

    @cached_property
    def _cubes(self) -> int:
        """How many cubes served ops."""
        nodes = self._trace.nodes
        served = self._op_index.components
        inside = served[nodes.cube[served] >= 0]
        pairs = np.stack([nodes.sip[inside], nodes.cube[inside]])
        return int(np.unique(pairs, axis=1).shape[1])

    def label(self, node: int, depth: int = 3) -> str:
        """A short name: ``s0c2.pe3``, in the only cube that served ops ``pe3``.

        ``depth`` 1 stops at the SIP, 2 at the cube, 3 at the PE; 4 adds the engine.
        """
        nodes = self._trace.nodes
        numbers = [int(column[node]) for column in (nodes.sip, nodes.cube, nodes.pe)]
        sip, cube, pe = numbers[:depth] + [-1] * (3 - depth)
        engine = nodes.engine[node]
        parts = []
        needs_cube = self._cubes > 1 or (pe < 0 and depth != 3)
        if needs_cube:
            where = f"s{sip}" if sip >= 0 else ""
            parts.append(where + (f"c{cube}" if cube >= 0 else ""))
        if pe >= 0:
            parts.append(f"pe{pe}")
        if depth > 3:
            parts.append(engine)
        return ".".join(part for part in parts if part)

    def group(self, op: int, level: int) -> Array:
        """The positions of the ops that a level of focus around an op holds,
        ascending.
        """
        node = int(self.components[self.checked(op)])
        if level in self._groups and self._groups[level][0][node]:
            return self._groups[level][1]
        nodes = self._trace.nodes
        columns = (np.arange(len(nodes.pe)), nodes.pe, nodes.cube, nodes.sip)
        near = np.ones(len(nodes.pe), np.bool_)
        for column in columns[level:]:
            near &= column == column[node]
        served = self._op_index.components
        parts = [self._op_index.ops_of(n) for n in served[near[served]].tolist()]
        if len(parts) == 1:
            ops = parts[0]
        else:
            ops = np.sort(np.concatenate(parts))
        self._groups[level] = near, ops
        return ops

    # -- calls --------------------------------------------------------------------

    @cached_property
    def _by_cmd(self) -> Groups:
        return Groups.kept(self._trace.commands.cmd)

    def calls(self, ops: Ints) -> Ints:
        """The row of ``trace.commands`` that caused each op; -1 where it was not
        recorded.
        """
        return self._by_cmd.first(self._trace.op_columns.cmd[self._trace.order[ops]])

    def sites(self, ops: Ints) -> Ints:
        """The kernel line of each op: its file's string << 32 | line; -1 where
        unknown.
        """
        calls = self.calls(ops)
        known = calls >= 0
        sites = np.full(len(calls), _NO_SITE, np.int64)
        log = self._trace.commands
        file = log.file[calls[known]].astype(np.int64)
        sites[known] = file << 32 | log.line[calls[known]]
        return sites

    @cached_property
    def _callers(self) -> Groups:
        return Groups.kept(self._trace.callers.cmd)

    def callers(self, ops: Ints) -> Ints:
        """Where the function was called that issued each op, as ``sites``; -1 of a
        kernel, and where it is unknown.
        """
        cmds = self._trace.op_columns.cmd[self._trace.order[ops]]
        rows = self._callers.first(cmds)
        known = rows >= 0
        found = np.full(len(rows), _NO_SITE, np.int64)
        log = self._trace.callers
        file = log.file[rows[known]].astype(np.int64)
        found[known] = file << 32 | log.line[rows[known]]
        return found

    def call(self, op: int) -> Call:
        """The tl call that issued an op; one of no line if it was not recorded."""
        return self._call(op)

    def _find_call(self, op: int) -> Call:
        cmd = int(self._trace.op_columns.cmd[self._trace.order[op]])
        known = self._trace.command(cmd)
        if known is not None:
            return known
        start = float(self.starts(op))
        nowhere = Site(NOT_RECORDED, 0, NOT_RECORDED)
        return Call(cmd, NOT_RECORDED, -1, NOT_RECORDED, nowhere, cmd, start, start)

    # -- ops as answers -----------------------------------------------------------

    def row(self, op: int) -> OpRow:
        """One line of the op log."""
        return self.rows_of([op])[0]

    def rows(self, first: int, count: int) -> list[OpRow]:
        """Lines ``first`` to ``first + count`` of the op log, as far as there
        are any.
        """
        return self.rows_of(range(max(first, 0), min(first + count, len(self))))

    def rows_of(self, positions: Sequence[int] | Ints) -> list[OpRow]:
        """Lines of the op log; many at a time cost some us each."""
        trace = self._trace
        log = trace.op_columns
        ops = np.array(positions, np.int64)
        rows = trace.order[ops]
        call = self.calls(ops)
        known = call >= 0
        issued = log.t_start[rows]
        issued[known] = trace.commands.t_issue[call[known]]
        schemas = [trace.schemas[n] for n in log.schema[rows].tolist()]
        return list(
            map(
                OpRow,
                ops.tolist(),
                issued.tolist(),
                log.t_start[rows].tolist(),
                log.t_end[rows].tolist(),
                [trace.node_ids[n] for n in log.component[rows].tolist()],
                [trace.strings[n] for n in log.name[rows].tolist()],
                [schema.kind if schema else "unknown" for schema in schemas],
                [CLASS_LETTERS[n] for n in self._op_index.class_codes(rows).tolist()],
                log.nbytes[rows].tolist(),
                self._site_texts(self.sites(ops), "?"),
                self._site_texts(self.callers(ops), ""),
            )
        )

    def _site_texts(self, sites: Ints, unknown: str) -> list[str]:
        """Kernel lines as ``file:line``, or the file alone where the line is
        unknown; ``unknown`` where nothing is.
        """
        texts = {_NO_SITE: unknown}
        for site in set(sites.tolist()) - {_NO_SITE}:
            file = self._trace.strings[site >> 32]
            line = site & NO_CMD
            texts[site] = f"{file}:{line}" if line else file
        return [texts[site] for site in sites.tolist()]

    def details(self, op: int) -> OpDetails:
        """Everything recorded about an op."""
        row = self.row_of(self.checked(op))
        record = self._trace.ops[op]
        call = self.call(op)
        return OpDetails(
            row=self.row(op),
            cmd=call.cmd,
            call=call.call,
            launch=call.launch,
            slot=int(self._trace.op_columns.slot[row]),
            params=record.params,
            dependencies=tuple(record.dependency_ids),
            waits=self.waits(op),
        )

    def waits(self, op: int) -> tuple[Wait, ...]:
        """What an op waited for; the holder is a position, -1 where it is unknown."""
        found = []
        for node, reason, t0, t1, holder in self._trace.waits_of(self.row_of(op)):
            behind = int(self._trace.position[holder]) if holder >= 0 else _NO_OP
            if holder < 0 and reason == WAIT_REASONS[HELD]:
                behind = self._held_behind(op, t1)
            found.append((node, reason, t0, t1, behind))
        return tuple(found)

    def _held_behind(self, op: int, until: float) -> int:
        """Behind which op one was held in program order, up to a time (ns).

        Of those that begin in the time before: a trace does not name one that ended
        later than the op it held.
        """
        trace = self._trace
        log = trace.commands
        since = self.started_before(until - self._longest_hold - SAME_NS)
        begun = np.arange(since, self.started_before(until + SAME_NS))
        near = np.append(begun[begun != op], op)
        calls = self.calls(near)
        if calls[-1] < 0:  # its call is damaged in the file
            return _NO_OP
        mine = (calls >= 0) & (log.launch[calls] >= 0)
        for column in (log.pe, log.launch):
            mine &= column[calls] == column[calls[-1]]
        rows = trace.order[near[mine]].astype(np.int64)
        order = ProgramOrder(trace, rows, calls[mine])
        (holder,) = order.holders(np.array([self.row_of(op)]), np.array([until]))
        return int(trace.position[holder]) if holder >= 0 else _NO_OP

    def held_by(self, op: int) -> Ints:
        """The ops that were held in program order until this one had begun."""
        start = self.time(op)
        rows, until = self._holds
        low = np.searchsorted(until, start - SAME_NS)
        high = np.searchsorted(until, start + self._longest_hold + SAME_NS, "right")
        if low == high:
            return np.zeros(0, np.int64)
        held = self._trace.position[np.unique(rows[low:high])].astype(np.int64)
        log = self._trace.commands
        calls = self.calls(np.append(held, op))
        if calls[-1] < 0:  # its call is damaged in the file
            return np.zeros(0, np.int64)
        mine = calls >= 0
        for column in (log.pe, log.launch):
            mine &= column[calls] == column[calls[-1]]
        behind = [
            each
            for each in held[mine[:-1]].tolist()
            if any(
                reason == WAIT_REASONS[HELD] and holder == op
                for _, reason, _, _, holder in self.waits(each)
            )
        ]
        return np.array(behind, np.int64)

    @cached_property
    def _holds(self) -> tuple[Ints, Floats]:
        """The rows of the ops that were held in program order, and until when (ns), by
        that time.
        """
        waits = self._trace.waits
        held = np.flatnonzero((waits.reason[:] == HELD) & (waits.row[:] >= 0))
        until = waits.t1[held]
        order = np.argsort(until, kind="stable")
        return waits.row[held[order]].astype(np.int64), until[order]

    @cached_property
    def _longest_hold(self) -> float:
        return longest_hold(self._trace)

    def source(self, op: int) -> Source:
        """The kernel line that issued an op, and its file."""
        site = self.call(self.checked(op)).site
        file = self._trace.sources.get(site.file)
        text = tuple(file.text.splitlines()) if file is not None else ()
        return Source(op, *site, text)

    def info(self) -> Info:
        """What the trace holds."""
        trace = self._trace
        names, counts = np.unique(trace.op_columns.name, return_counts=True)
        by_name = zip(names.tolist(), counts.tolist(), strict=True)
        allocs = trace.alloc_columns
        tensors = dict.fromkeys(allocs.tensor[allocs.va > 0].tolist())
        report = trace.verify_report
        changed = changed_of(trace.header)
        return Info(
            bench=str(trace.header.get("bench", "?")),
            arguments=dict(trace.header.get("arguments", {})),
            plugins={
                plugin["name"]: plugin["sha"]
                for plugin in trace.header.get("plugins", [])
            },
            ops=len(self),
            by_name={trace.strings[name]: count for name, count in by_name},
            end_ns=trace.end_ns,
            complete=trace.complete,
            damaged=len(trace.damaged),
            error=self.error,
            nodes=len(trace.node_ids),
            launches=len(trace.launches),
            tensors=tuple(trace.strings[n] for n in tensors),
            verified=None if report is None else bool(report.get("ok")),
            compared=len(trace.recorded_verdicts),
            changed=changed.lines() if changed else (),
            part="" if trace.window is None else trace.window.text,
            later=str(later_recording(trace.path) or ""),
        )

    @property
    def error(self) -> str:
        """What the run ended with; empty where it ended well, or its end is not
        there.
        """
        return str((self._trace.end or {}).get("error") or "")

    @property
    def error_op(self) -> int:
        """The op that ``error`` names, else the last one on the first PE that it names,
        else the last of all; -1 if there is none.
        """
        for number, name, component in _OP_NAMED.findall(self.error):
            op = int(number)
            if op < len(self):
                row = self.row(op)
                if (row.name, row.component) == (name, component):
                    return op
        pe = _PE_NAMED.search(self.error)
        if pe is not None:
            ids = self._trace.node_ids
            nodes = [n for n, name in enumerate(ids) if name.startswith(f"{pe[0]}.")]
            there = np.flatnonzero(np.isin(self.components, nodes))
            if len(there):
                return int(there[-1])
        return self.last

    # -- searching ----------------------------------------------------------------

    def nth(self, mine: Array, op: int, n: int) -> int:
        """The ``n``-th of ascending positions from ``op`` on, at most to their ends."""
        at = int(np.searchsorted(mine, mine.dtype.type(op))) + n
        return int(mine[min(max(at, 0), len(mine) - 1)])

    def seek(
        self, mine: Array, op: int, n: int, fits: Callable[[int, Array], Array]
    ) -> int:
        """``n`` times to the next of ascending positions that ``fits`` one, as far as
        there is one; negative: backwards. ``fits(op, positions)`` is a mask.
        """
        at = int(np.searchsorted(mine, mine.dtype.type(op)))
        if n < 0:
            mine = mine[::-1]
            at = len(mine) - 1 - at
        for _ in range(abs(n)):
            found = _first_fitting(mine, at + 1, op, fits)
            if found is None:
                break
            at = found
            op = int(mine[at])
        return op


def _first_fitting(
    mine: Array, start: int, op: int, fits: Callable[[int, Array], Array]
) -> int | None:
    """The first place from ``start`` on that fits ``op``; looked for in growing
    blocks.
    """
    size = 64
    while start < len(mine):
        found = np.flatnonzero(fits(op, mine[start : start + size]))
        if len(found):
            return start + int(found[0])
        start += size
        size *= 2
    return None
