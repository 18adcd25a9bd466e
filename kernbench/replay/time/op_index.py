"""Which component served each op, in which class and lane, and what was in flight."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kernbench.common.arrays import Array, Floats, Ints, counted
from kernbench.common.progress import (
    Progress,
    beside_if_many,
    computed_beside,
    no_progress,
    parts,
    stage,
)
from kernbench.replay.time.op_classes import (
    CLASS_LETTERS,
    COMPOSITE,
    COMPOSITE_PREFIX,
    TILE_PREFIX,
    op_class,
)
from kernbench.trace import Trace
from kernbench.trace.groups import Groups

_BLOCK = 512  # positions that share one note of the latest end among them
_WINDOWS = 8  # of which it is known what lies in them: a frame asks several times
_NEW = 255  # a class that is still to be looked up


class OpsOfWindow(NamedTuple):
    """Ops by their positions: those ``before`` a window are in service as it begins,
    those from ``low`` up to ``high`` begin in it.
    """

    before: Ints
    low: int
    high: int


class OpIndex:
    """What a screen asks about ops at every key, from tables that are made on opening.

    ``prepare`` makes them all; a loader calls it before it shows anything. From then on
    nothing is written and any thread may ask. A question that comes before makes the
    table that it needs. There are no locks: two threads that do so at the same time
    make equal tables, and it does not matter whose is kept.

    For a million ops preparing takes some 100 ms, and as much again where the trace's
    canonical order is not known yet. The tables hold 5 bytes an op.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._codes: npt.NDArray[np.uint8] | None = None
        # All positions by the component that served the op: those of node n lie in
        # _positions from _first[n] to _first[n + 1].
        self._first: Ints | None = None
        self._components: Ints | None = None
        self._positions: Array | None = None
        self._lanes: dict[int, tuple[int, ...]] | None = None
        self._latest_ends: Floats | None = None
        self._composites: Ints | None = None
        self._composite_by_call: Groups | None = None
        self._window = lru_cache(_WINDOWS)(self._find_window)

    def __len__(self) -> int:
        return len(self._trace.order)

    @property
    def prepared(self) -> bool:
        """Whether ops are sorted by component already: what takes longest."""
        return self._positions is not None

    def prepare(self, progress: Progress = no_progress) -> None:
        """Make all tables; the next questions are answered at once."""
        computed_beside(lambda: self._trace.order, progress, 0.0)
        self._all_codes(stage(progress, 0.1, 0.3))
        self._first_by_component(stage(progress, 0.3, 0.35))
        self._by_component(stage(progress, 0.35, 0.6))
        self._all_lanes(stage(progress, 0.6, 0.8))
        self._all_latest_ends(stage(progress, 0.8, 0.9))
        self._all_composites(stage(progress, 0.9, 1.0))
        self._all_composites_by_call()

    # -- components and their lanes --

    @property
    def components(self) -> Ints:
        """The indices of the nodes that served at least one op, ascending."""
        if self._components is None:
            components = np.flatnonzero(np.diff(self._first_by_component()))
            components.setflags(write=False)
            self._components = components
        return self._components

    def count_of(self, components: Sequence[int] | Ints) -> int:
        """How many ops some components served, together."""
        first = self._first_by_component()
        nodes = np.asarray(components, np.int64)
        return int((first[nodes + 1] - first[nodes]).sum())

    def ops_of(self, component: int) -> Array:
        """The positions of the ops that a component served, ascending."""
        first = self._first_by_component()
        return self._by_component()[first[component] : first[component + 1]]

    def lanes_of(self, component: int) -> tuple[int, ...]:
        """The lanes in which a component served its ops, ascending."""
        return self._all_lanes().get(component, ())

    def _first_by_component(self, progress: Progress = no_progress) -> Ints:
        if self._first is None:
            component = self._trace.op_columns.component
            nodes = len(self._trace.node_ids)
            counts = np.zeros(nodes, np.int64)
            for part in parts(len(component), progress):
                counts += counted(component[part], nodes)
            self._first = np.append(0, np.cumsum(counts))
        return self._first

    def _by_component(self, progress: Progress = no_progress) -> Array:
        if self._positions is None:
            self._positions = _sorted_by_component(self._trace, progress)
        return self._positions

    def _all_lanes(
        self, progress: Progress = no_progress
    ) -> dict[int, tuple[int, ...]]:
        if self._lanes is None:
            self._lanes = _lanes_by_component(self._trace, progress)
        return self._lanes

    # -- classes --

    def class_codes(
        self, rows: Array | slice = slice(None), progress: Progress = no_progress
    ) -> npt.NDArray[np.uint8]:
        """The classes of the ops in some rows of the log, as places in CLASSES."""
        return self._all_codes(progress)[rows]

    @property
    def composites(self) -> Ints:
        """The positions of the composites that have ended, ascending."""
        return self._all_composites()

    def composite_of(self, position: int) -> int | None:
        """The position of the composite that the op there is, or is a tile of.

        None if it is neither, or if that composite never ended.
        """
        columns = self._trace.op_columns
        row = self._trace.order[position]
        name = self._trace.strings[columns.name[row]]
        if not name.startswith((TILE_PREFIX, COMPOSITE_PREFIX)):
            return None
        of_call = self._all_composites_by_call().of(columns.cmd[row])
        return int(self.composites[of_call[0]]) if len(of_call) else None

    def _all_codes(self, progress: Progress = no_progress) -> npt.NDArray[np.uint8]:
        if self._codes is None:
            self._codes = _classes_by_row(self._trace, progress)
        return self._codes

    def _all_composites(self, progress: Progress = no_progress) -> Ints:
        if self._composites is None:
            codes = self._all_codes(stage(progress, 0.0, 0.5))
            order = self._trace.order
            found = [np.empty(0, np.int64)]
            for part in parts(len(order), stage(progress, 0.5, 1.0)):
                mine = np.flatnonzero(codes[order[part]] == COMPOSITE)
                found.append(part.start + mine)
            composites = np.concatenate(found)
            composites.setflags(write=False)
            self._composites = composites
        return self._composites

    def _all_composites_by_call(self) -> Groups:
        """The places in ``composites`` of the composites of each call."""
        if self._composite_by_call is None:
            rows = self._trace.order[self.composites]
            self._composite_by_call = Groups(self._trace.op_columns.cmd[rows])
        return self._composite_by_call

    # -- ops in flight --

    def in_flight(self, position: int, time: float) -> list[int]:
        """Of the ops up to ``position`` those that end after ``time`` ns, ascending."""
        latest = self._all_latest_ends()
        blocks = np.flatnonzero(latest[: position // _BLOCK + 1] > time)
        places = (blocks[:, None] * _BLOCK + np.arange(_BLOCK)).ravel()
        places = places[: np.searchsorted(places, position, side="right")]
        ends = self._trace.op_columns.t_end[self._trace.order[places]]
        return list(places[ends > time].tolist())

    def window(self, t0: float, t1: float) -> OpsOfWindow:
        """The ops of the times [t0, t1) ns."""
        return self._window(t0, t1)

    def started_before(self, t: float) -> int:
        """How many ops have started before ``t`` ns."""
        starts = self._trace.op_columns.t_start
        return bisect_left(self._trace.order, t, key=starts.__getitem__)

    def _find_window(self, t0: float, t1: float) -> OpsOfWindow:
        low = self.started_before(t0)
        high = self.started_before(t1)
        before = np.array(self.in_flight(low - 1, t0), np.int64)
        before.setflags(write=False)
        return OpsOfWindow(before, low, high)

    def _all_latest_ends(self, progress: Progress = no_progress) -> Floats:
        """The latest end in each block of positions, ns."""
        if self._latest_ends is None:
            order = self._trace.order
            t_end = self._trace.op_columns.t_end
            found = [np.empty(0)]
            for part in parts(len(order), progress):
                ends = t_end[order[part]]
                blocks = np.arange(0, len(ends), _BLOCK)
                found.append(np.maximum.reduceat(ends, blocks))
            self._latest_ends = np.concatenate(found)
        return self._latest_ends


def _sorted_by_component(trace: Trace, progress: Progress) -> Array:
    """All positions, sorted by the component that served the op, then ascending."""
    order = trace.order
    component = trace.op_columns.component
    # Numbers of two bytes are sorted by radix, five times as fast.
    small = np.uint16 if len(trace.node_ids) <= 1 << 16 else np.uint32
    keys = np.empty(len(order), small)
    for part in parts(len(order), stage(progress, 0.0, 0.5)):
        keys[part] = component[order[part]]

    def by_key() -> Array:
        return np.argsort(keys, kind="stable").astype(np.uint32)

    positions = beside_if_many(len(keys), by_key, progress, 0.5)
    positions.setflags(write=False)
    return positions


def _lanes_by_component(trace: Trace, progress: Progress) -> dict[int, tuple[int, ...]]:
    columns = trace.op_columns
    found = [np.empty(0, np.int64)]
    for part in parts(len(columns.slot), progress):
        component = columns.component[part].astype(np.int64)
        found.append(np.unique(component << 32 | columns.slot[part]))
    lanes: dict[int, list[int]] = {}
    for pair in np.unique(np.concatenate(found)).tolist():
        lanes.setdefault(pair >> 32, []).append(pair & 0xFFFFFFFF)
    return {component: tuple(mine) for component, mine in lanes.items()}


def _classes_by_row(trace: Trace, progress: Progress) -> npt.NDArray[np.uint8]:
    """The class of every op, as a place in CLASSES."""
    columns = trace.op_columns
    strings = trace.strings
    # The class follows from the name and the kind: it is found once for each pair.
    by_pair = np.full(4 * len(strings), _NEW, np.uint8)
    codes = np.empty(len(columns.name), np.uint8)
    for part in parts(len(codes), progress):
        pairs = columns.name[part].astype(np.int64) * 4 + columns.kind[part]
        for pair in np.unique(pairs[by_pair[pairs] == _NEW]).tolist():
            letter = op_class(strings[pair // 4], pair % 4)
            by_pair[pair] = CLASS_LETTERS.index(letter)
        codes[part] = by_pair[pairs]
    codes.setflags(write=False)
    return codes
