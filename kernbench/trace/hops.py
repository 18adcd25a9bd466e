"""Columns made of a trace's logs: hops, tiles, what links carried. Knows no screen."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kernbench.common.arrays import (
    Array,
    Bools,
    Floats,
    Ints,
    counted,
    numbered,
    repeated,
)
from kernbench.common.exact_time import exact_times
from kernbench.trace.groups import Groups
from kernbench.trace.mapped import Column
from kernbench.trace.params import ParamBlock
from kernbench.trace.reader import Trace
from kernbench.trace.spec_values import spec_number


class Hops(NamedTuple):
    """The hops of transactions: the way over one link, a row each.

    They ascend by ``transfer``, a row of ``Trace.transfers``, then by ``hop``, which
    counts the links of its path from 0. ``src`` and ``dst`` are nodes, ``edge`` is a
    row of ``Trace.edges`` (-1: no such link). The first burst enters the link at
    ``start`` ns and the last one at ``last``.
    """

    transfer: Ints
    hop: Ints
    src: Ints
    dst: Ints
    edge: Ints
    start: Floats
    last: Floats


class Paths(NamedTuple):
    """The nodes of all paths, one path after the other.

    Path i has the ``sizes[i]`` nodes from ``firsts[i]`` on; none if it is lost.
    """

    nodes: Ints
    firsts: Ints
    sizes: Ints


def flat_paths(trace: Trace) -> Paths:
    """The nodes of all of ``Trace.paths``."""
    paths = trace.paths[:]
    nodes = np.fromiter(chain.from_iterable(paths), np.int64)
    sizes = np.fromiter(map(len, paths), np.int64, len(paths))
    return Paths(nodes, np.cumsum(sizes) - sizes, sizes)


def path_ends(trace: Trace) -> Ints:
    """By path the node that it ends at; -1 if it is lost."""
    paths = flat_paths(trace)
    ends = np.full(len(paths.sizes), -1)
    known = paths.sizes > 0
    ends[known] = paths.nodes[(paths.firsts + paths.sizes - 1)[known]]
    return ends


def are_of_types(trace: Trace, types: Collection[str]) -> Bools:
    """By node whether it is of one of some types; behind all, for -1, that none is."""
    return np.array([*(kind in types for kind in trace.nodes.type), False])


def edges_between(trace: Trace, src: Ints, dst: Ints) -> Ints:
    """By pair of nodes the row of ``Trace.edges`` that leads there; -1: none does."""
    node_count = len(trace.node_ids)
    keys = trace.edges.src.astype(np.int64) * node_count + trace.edges.dst
    return Groups(keys).first(src * node_count + dst)


def speeds_of(trace: Trace, edge: Ints) -> Floats:
    """By row of ``Trace.edges`` the bytes a ns; 0 where they are not known, or -1."""
    speed = np.append(trace.edges.bandwidth_gbs, 0.0)[edge]
    return np.where((speed > 0) & np.isfinite(speed), speed, 0.0)


def header_times(trace: Trace) -> Floats:
    """By row of ``Trace.edges`` the ns of a header from the link to behind its node.

    That is over the wire and past the node that the link leads to.
    """
    edges = trace.edges
    wire_ns = edges.distance_mm[:] * spec_number(trace.spec, "system.ns_per_mm")
    return exact_times(wire_ns + trace.nodes.overhead_ns[edges.dst[:]])


def hop_columns(trace: Trace) -> Hops:
    """The hops of all transfers, as far as their paths and starts are there."""
    transfers = trace.transfers
    nodes, path_firsts, path_sizes = flat_paths(trace)
    path = transfers.path[:]
    pointers = transfers.start_ptr[:]
    start_counts = np.diff(pointers)
    hop_counts = np.minimum(np.maximum(path_sizes - 1, 0)[path], start_counts)
    transfer = repeated(np.arange(len(hop_counts)), hop_counts)
    hops_before = np.cumsum(hop_counts) - hop_counts
    hop = np.arange(len(transfer)) - hops_before[transfer]
    at = path_firsts[path][transfer] + hop
    start = pointers[:-1][transfer] + hop
    # Of several bursts the starts of the last follow those of the first.
    last_offset = np.where(start_counts == 2 * hop_counts, hop_counts, 0)
    last = start + last_offset[transfer]
    # Many transfers take one path: its links are looked up once.
    edges = edges_between(trace, nodes[:-1], nodes[1:])
    return Hops(
        transfer=transfer,
        hop=hop,
        src=nodes[at],
        dst=nodes[at + 1],
        edge=edges[at],
        start=transfers.start[start],
        last=transfers.start[last],
    )


def rows_of_calls(trace: Trace, cmd: Column) -> Ints:
    """By row of a column ``cmd`` of any log the row of that call in ``trace.commands``;
    -1 where it is not recorded.
    """
    return Groups(trace.commands.cmd).first(cmd)


def named(trace: Trace, prefix: str, rows: Ints | slice = slice(None)) -> Bools:
    """By row whether the op's name begins with ``prefix``; of all rows, or of some."""
    names = trace.op_columns.name[rows]
    used = np.flatnonzero(counted(names, len(trace.strings))).tolist()
    wanted = [name for name in used if trace.strings[name].startswith(prefix)]
    return np.isin(names, wanted)


def has_text(trace: Trace, column: Column, *texts: str) -> Bools:
    """Which rows of a column of strings hold one of some texts."""
    used, which = numbered(column[:])
    fits = np.array([trace.strings[i] in texts for i in used.tolist()], np.bool_)
    return fits[which] if len(which) else np.zeros(0, np.bool_)


def integers(block: ParamBlock) -> dict[str, Array]:
    """The whole numbers among the params of a block, by path."""
    return block.columns("i")


def tile_composites(trace: Trace) -> Ints:
    """By row the row of the composite that the op is a tile of; -1 if it is no tile."""
    cmd = trace.op_columns.cmd[:]
    composites = np.flatnonzero(named(trace, "composite_"))
    parent = np.append(composites, -1)[Groups(cmd[composites]).first(cmd)]
    return np.where(named(trace, "TileToken/"), parent, -1)


def tile_numbers(trace: Trace) -> Ints:
    """By row a number for the tile_index of an op; -1 if it is no tile.

    They ascend by row, column and step of the tile.
    """
    tile = np.full(len(trace.order), -1)
    for block in trace.param_blocks():
        if is_of_tiles(block):
            tile[block.rows] = tile_numbers_of(block)
    return tile


def is_of_tiles(block: ParamBlock) -> bool:
    """Whether the ops of a block are tiles of composites."""
    return len(_tile_fields(block)) == 3


def tile_numbers_of(block: ParamBlock) -> Ints:
    """As ``tile_numbers``, of the tiles of one block."""
    row, column, step = [
        block.values[field].astype(np.int64) for field in _tile_fields(block)
    ]
    return np.asarray((row << 40) + (column << 20) + step)


def _tile_fields(block: ParamBlock) -> list[str]:
    """The fields of a block that hold the row, the column and the step of a tile."""
    return [
        f"f{number}"
        for number, (path, letter) in enumerate(block.schema.leaves)
        if letter == "i" and path.startswith("tile_index.")
    ]


def tile_columns(trace: Trace) -> tuple[Ints, Ints]:
    """By row ``tile_composites`` and ``tile_numbers``."""
    return tile_composites(trace), tile_numbers(trace)


def kernel_lines(trace: Trace) -> tuple[list[str], Ints]:
    """Every "file:line" that made calls; by row of ``Trace.commands`` its number there.

    They ascend by the number of the file's string, then by line.
    """
    log = trace.commands
    texts = trace.strings
    keys = log.file.astype(np.int64) << 32 | log.line[:]
    used, which = numbered(keys)
    lines = [f"{texts[key >> 32]}:{key % (1 << 32)}" for key in used.tolist()]
    return lines, which.astype(np.int32)


class Levels:
    """The sum of the rates of all that goes on at a time, by group.

    Row i of the arguments adds ``rates[i]`` to the level of ``group[i]`` from
    ``begins[i]`` to ``ends[i]`` ns. ``level`` has the sum after each of these events,
    ordered by group and time.

    The times of a group are put behind those of the group before, so that one sorted
    column holds the events of all.
    """

    def __init__(
        self,
        group: npt.NDArray[np.integer[Any]],
        begins: Floats,
        ends: Floats,
        rates: Array,
    ) -> None:
        self._span = float(ends.max(initial=0.0)) + 2.0
        times = np.concatenate([begins, ends])
        at = np.tile(group * self._span, 2)
        at += times
        order = np.argsort(at)
        self._at = at[order]
        times = times[order]
        self.level = np.concatenate([rates, -rates])[order]
        np.cumsum(self.level, out=self.level)
        self._ns = np.diff(times, append=times[-1:])

    def _places(self, groups: Array, times: Any) -> Floats:
        """Where the times of groups are in the sorted column."""
        within = np.clip(times, 0.0, self._span - 1.0)
        return np.asarray(groups * self._span + within)

    def integral(self, level: Array, groups: Array, times: Any) -> Floats:
        """The integral of ``level`` between each two of ``times``: a row a group.

        ``level`` has one value for each event, as ``self.level``.
        """
        if not len(level):
            return np.zeros((len(groups), len(times) - 1))
        done = np.append(0.0, np.cumsum(level * self._ns)[:-1])
        places = self._places(groups[:, None], times)
        return np.diff(np.interp(places, self._at, done))

    def most(self, groups: Array, t0: float, t1: float) -> Array:
        """The highest level in [t0, t1), by group."""
        low = np.searchsorted(self._at, self._places(groups, t0), side="right")
        high = np.searchsorted(self._at, self._places(groups, t1)) + 1
        level = np.concatenate([[0], self.level, [0]])
        bounds = np.stack([low, high], 1).ravel()
        return np.asarray(np.maximum.reduceat(level, bounds)[::2])
