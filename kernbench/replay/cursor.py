"""The cursor over the op log in canonical order: where it stands, and every way to move it.

"At op i" means that ops 0..i have run; -1 is before the first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from kernbench.common.arrays import Floats, Ints
from kernbench.errors import UsageError
from kernbench.replay.time.op_index import OpIndex
from kernbench.replay.time.tiles import TileIndex
from kernbench.replay.time.timeline import TimelineIndex
from kernbench.sim_engine.op_log import OpRecord
from kernbench.trace import Trace
from kernbench.trace.groups import Groups

FOCUS_LEVELS = ("component", "pe", "cube", "sip", "machine")
_PE, _MACHINE = FOCUS_LEVELS.index("pe"), FOCUS_LEVELS.index("machine")
_JUMPS = 1000  # remembered


class Cursor:
    """Moves return the new position; what has nowhere to go stays where it is."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.cursor, self.level = trace, -1, 0
        self.op_index = OpIndex(trace)
        self.timelines = TimelineIndex(trace, self.op_index)
        self.composites = TileIndex(trace, self.op_index)
        self.marks: dict[str, int] = {}
        self._left: list[int] = []  # where jumps left from, and what ``back`` came from
        self._returned: list[int] = []
        self._groups: dict[int, tuple[Any, Any]] = {}

    @cached_property
    def starts(self) -> Floats:
        """When each op started, ns."""
        return np.asarray(self.trace.op_columns.t_start[self.trace.order])

    @cached_property
    def components(self) -> Ints:
        """The node that served each op."""
        small = np.uint16 if len(self.trace.node_ids) >> 16 == 0 else np.uint32
        return np.asarray(
            self.trace.op_columns.component.astype(small)[self.trace.order]
        )

    def __len__(self) -> int:
        return len(self.trace.order)

    @property
    def op(self) -> OpRecord | None:
        """The record under the cursor; None before the first."""
        return self.trace.ops[self.cursor] if self.cursor >= 0 else None

    @property
    def time(self) -> float:
        """The time cursor: when the op under the cursor started, ns; 0 before the first."""
        return float(self.starts[self.cursor]) if self.cursor >= 0 else 0.0

    @property
    def component(self) -> int | None:
        """The node index of the op under the cursor."""
        return int(self.components[self.cursor]) if self.cursor >= 0 else None

    def focus(self) -> tuple[tuple[int, ...], str | None]:
        """(sip, cube, pe) that the focus is in, as far as it is in one, and its name; None: all."""
        here, nodes = self.component, self.trace.nodes
        if here is None:
            return (), None
        whole = [int(column[here]) for column in (nodes.sip, nodes.cube, nodes.pe)]
        place = tuple(n for n in whole if n >= 0)[: min(_MACHINE - self.level, 3)]
        name = self.trace.node_ids[here].removesuffix(f".{nodes.engine[here]}")
        return place, ".".join(name.split(".")[: len(place)]) or None

    @cached_property
    def _cubes(self) -> int:
        """How many cubes served ops."""
        nodes, served = self.trace.nodes, self.op_index.components
        pairs = np.stack([nodes.sip, nodes.cube])[:, served[nodes.cube[served] >= 0]]
        return int(np.unique(pairs, axis=1).shape[1])

    def label(self, node: int, depth: int = 3) -> str:
        """Its ``s0c2.pe3``, in the only cube ``pe3``; of ``depth`` 1 the SIP, of 4 the engine."""
        nodes = self.trace.nodes
        whole = [int(column[node]) for column in (nodes.sip, nodes.cube, nodes.pe)]
        sip, cube, pe = whole[:depth] + [-1] * (3 - depth)
        named, engine = self._cubes > 1 or (pe < 0 and depth != 3), nodes.engine[node]
        where = f"s{sip}" * (named and sip >= 0) + f"c{cube}" * (named and cube >= 0)
        return ".".join(
            filter(None, (where, f"pe{pe}" * (pe >= 0), engine * (depth > 3)))
        )

    def in_flight(self) -> list[int]:
        """Ops in service at the time cursor, in canonical order."""
        if self.cursor < 0:
            return []
        started = int(np.searchsorted(self.starts, self.time, side="right")) - 1
        return self.op_index.in_flight(started, self.time)

    def at(self, op: int | None = None) -> int:
        """``op``, or the cursor's; UsageError if that is before the first."""
        op = self.cursor if op is None else op
        if op < 0:
            raise UsageError(
                "the cursor is before the first op; step forward or goto an op first"
            )
        return op

    def leads(self, move: Callable[[], object]) -> int:
        """Where a move but ``back`` would lead to; it is not made."""
        kept = self.cursor, self._left, self._returned
        try:
            move()
            return self.cursor
        finally:
            self.cursor, self._left, self._returned = kept

    # -- jumps: ``back`` undoes them --

    def goto(self, op: int) -> int:
        """Put the cursor on an op; UsageError if there is no such op."""
        if not -1 <= op < len(self):
            known = f"this trace has ops 0 to {len(self) - 1}, -1 is before the first"
            raise UsageError(f"no op {op}; {known}")
        if op != self.cursor:
            self._left, self._returned = [*self._left[-_JUMPS:], self.cursor], []
        self.cursor = op
        return op

    def goto_time(self, t: float) -> int:
        """To the last op that has started by ``t`` ns."""
        return self.goto(int(np.searchsorted(self.starts, t, side="right")) - 1)

    def goto_mark(self, name: str) -> int:
        """To ``start``, ``end`` or a mark; UsageError lists the marks."""
        places = {**self.marks, "start": -1, "end": len(self) - 1}
        if name not in places:
            known = ", ".join(self.marks) or "none is set"
            raise UsageError(
                f"op {name!r}: must be a whole number, start, end or a mark ({known})"
            )
        return self.goto(places[name])

    def mark(self, name: str) -> int:
        """Give the cursor's place a name."""
        if not name.isidentifier() or name in ("start", "end"):
            raise UsageError(f"mark {name!r}: must be a word other than start and end")
        self.marks[name] = self.cursor
        return self.cursor

    def to_start(self) -> int:
        """Before the first op."""
        return self.goto(-1)

    def to_end(self) -> int:
        """To the last op."""
        return self.goto(len(self) - 1)

    def back(self, n: int = 1) -> int:
        """Undo ``n`` jumps; negative: do them again."""
        gone, ahead = (
            (self._left, self._returned) if n > 0 else (self._returned, self._left)
        )
        for _ in range(min(abs(n), len(gone))):
            ahead.append(self.cursor)
            self.cursor = gone.pop()
        return self.cursor

    def to_cause(self) -> int:
        """To the op which this one waited for last, if only the stage before it in its tile."""
        held = self.trace.position[self.trace.deps(int(self.trace.order[self.at()]))]
        found = np.append(held, self._beside(-1)).astype(np.int64)
        return self.goto(
            int(found[self._ends(found).argmax()]) if len(found) else self.cursor
        )

    def to_effect(self) -> int:
        """To the first op that waited for this one; at one time the next stage of its tile."""
        waited = [*self.trace.effects(int(self.trace.order[self.at()]))]
        waiters = np.sort(self.trace.position[np.array(waited, np.int64)])
        found = np.append(self._beside(1), waiters).astype(np.int64)
        return self.goto(
            int(found[self.starts[found].argmin()]) if len(found) else self.cursor
        )

    def to_last(self) -> int:
        """To the last stage of this tile; else to what its component started last by its end."""
        if len(ops := self._tile()) == 1:
            ops = self.op_index.ops_of(int(self.components[self.cursor]))
            ops = ops[
                : np.searchsorted(
                    self.starts[ops], self._ends(self.cursor), side="right"
                )
            ]
        return self.goto(int(ops[-1]))

    def to_first(self) -> int:
        """To the first stage of this op's tile."""
        return self.goto(int(self._tile()[0]))

    # -- steps --

    def step(self, n: int = 1) -> int:
        """Move by ``n`` ops, at most to the ends."""
        self.cursor = min(max(self.cursor + n, -1), len(self) - 1)
        return self.cursor

    def step_component(self, n: int = 1) -> int:
        """Move by ``n`` ops within the focus, at most to its ends."""
        if self.cursor < 0:
            return self.step(1) if n > 0 else self.cursor
        if self.level == _MACHINE:
            return self.step(max(n, -self.cursor))
        return self._nth(self._group(self.level), n)

    def widen(self, by: int = 1) -> str:
        """Widen (or with -1 narrow) the focus: component, pe, cube, sip, machine."""
        self.level = min(max(self.level + by, 0), _MACHINE)
        return FOCUS_LEVELS[self.level]

    def step_lane(self, n: int = 1) -> int:
        """Move by ``n`` ops in the lane of this op's component."""
        slots, order = self.trace.op_columns.slot, self.trace.order
        return self._seek(
            0, n, lambda ops: slots[order[ops]] == slots[order[self.cursor]]
        )

    def step_line(self, n: int = 1) -> int:
        """Move by ``n`` changes of the kernel line that this PE's ops are of."""
        return self._seek(
            _PE, n, lambda ops: self.sites(ops) != self.sites(np.array([self.cursor]))
        )

    def step_to_line(self, line: int) -> int:
        """To the next op of a line of this op's kernel on this PE, else to the first of it."""
        site = int(self.sites(np.array([self.at()]))[0]) >> 32 << 32 | line
        mine = self._group(_PE)
        mine = mine[self.sites(mine) == site]
        if not len(mine):
            raise UsageError(
                f"line {line}: no op of this PE comes from it; :lines shows which do"
            )
        return self.goto(
            int(mine[np.searchsorted(mine, self.cursor, side="right") % len(mine)])
        )

    def step_stage(self, n: int = 1) -> int:
        """Move by ``n`` stages of this op's tile."""
        return self._nth(self._tile(), n)

    def step_tile(self, n: int = 1) -> int:
        """Move by ``n`` tiles of the composite here, to the first stage of one."""
        tiles = self.composites.tiles_of(self.at())
        here = (-1 if n > 0 else 0) if tiles.current is None else tiles.current
        if tiles.rows:
            self.cursor = (
                tiles.rows[min(max(here + n, 0), len(tiles.rows) - 1)].spans[0].op
            )
        return self.cursor

    def _tile(self) -> Ints:
        """The ops of this op's tile, ascending; of any other op itself."""
        if not self.trace.ops[self.at()].op_name.startswith("TileToken/"):
            return np.array([self.cursor])
        tiles = self.composites.tiles_of(self.cursor)
        spans = () if tiles.current is None else tiles.rows[tiles.current].spans
        return np.array(sorted(span.op for span in spans) or [self.cursor])

    def _ends(self, ops: Any) -> Any:
        return self.trace.op_columns.t_end[self.trace.order[ops]]

    def _beside(self, by: int) -> Any:
        """The stage of this tile before (-1) or after the one here, in an array; none: empty."""
        ops, here = self._tile(), self.cursor
        before = ops[(self._ends(ops) <= self.starts[here]) & (ops < here)][-1:]
        return (
            before
            if by < 0
            else ops[(self.starts[ops] >= self._ends(here)) & (ops > here)][:1]
        )

    def _group(self, level: int) -> Any:
        """The positions within a level of focus of the cursor's op, ascending."""
        here, nodes = int(self.components[self.at()]), self.trace.nodes
        if level not in self._groups or not self._groups[level][0][here]:
            columns = (np.arange(len(nodes.pe)), nodes.pe, nodes.cube, nodes.sip)[
                level:
            ]
            near = np.all([column == column[here] for column in columns], axis=0)
            served = self.op_index.components
            parts = [
                self.op_index.ops_of(node) for node in served[near[served]].tolist()
            ]
            ops = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
            self._groups[level] = near, ops
        return self._groups[level][1]

    def _nth(self, mine: Any, n: int) -> int:
        """The ``n``-th of ascending positions from the cursor's, at most to their ends."""
        at = int(np.searchsorted(mine, mine.dtype.type(self.cursor))) + n
        self.cursor = int(mine[min(max(at, 0), len(mine) - 1)])
        return self.cursor

    def _seek(self, level: int, n: int, fits: Callable[[Any], Any]) -> int:
        """``n`` times to the next of a group that fits, as far as there is one."""
        mine = self._group(level)
        at = int(np.searchsorted(mine, mine.dtype.type(self.cursor)))
        mine, at = (mine, at) if n > 0 else (mine[::-1], len(mine) - 1 - at)
        for _ in range(abs(n)):
            at, size = at + 1, 64
            while (
                at < len(mine)
                and not (found := np.flatnonzero(fits(mine[at : at + size]))).size
            ):
                at, size = at + size, size * 2
            if at >= len(mine):
                break
            at += int(found[0])
            self.cursor = int(mine[at])
        return self.cursor

    # -- calls --

    @cached_property
    def _by_cmd(self) -> Groups:
        return Groups(self.trace.commands.cmd)

    def calls(self, ops: Ints) -> Ints:
        """The row of ``trace.commands`` that caused each op; -1 where it was not recorded."""
        return self._by_cmd.first(self.trace.op_columns.cmd[self.trace.order[ops]])

    def sites(self, ops: Ints) -> Ints:
        """The kernel line of each op: its file's string << 32 | line; -1 where it is unknown."""
        calls, log = self.calls(ops), self.trace.commands
        known, sites = calls >= 0, np.full(len(calls), -1, np.int64)
        file, line = log.file[calls[known]], log.line[calls[known]]
        sites[known] = file.astype(np.int64) << 32 | line
        return sites
