"""Columns made of a trace's logs: hops, tiles, what links carried. Knows no screen."""

from __future__ import annotations

from itertools import chain
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from kernbench.common.arrays import Array
from kernbench.trace.groups import Groups
from kernbench.trace.params import ParamBlock
from kernbench.trace.reader import Trace
from kernbench.trace.schema import LOGS


class Hops(NamedTuple):
    """By ascending ``transfer`` (row of ``Trace.transfers``), then ``hop`` (0, 1 … of its path).

    ``src``, ``dst`` are nodes, ``edge`` a row of ``Trace.edges`` (-1: no such link); the first
    burst enters the link at ``start`` ns, the last one at ``last``.
    """

    transfer: Array
    hop: Array
    src: Array
    dst: Array
    edge: Array
    start: Array
    last: Array


def hop_columns(trace: Trace) -> Hops:
    """The hops of all transfers, as far as their paths and starts are there."""
    transfers, edges, paths = trace.transfers, trace.edges, trace.paths[:]
    nodes = np.fromiter(chain.from_iterable(paths), np.int64)
    sizes = np.fromiter(map(len, paths), np.int64, len(paths))
    firsts, counts = (
        (np.cumsum(sizes) - sizes)[transfers.path],
        np.diff(transfers.start_ptr),
    )
    hops = np.minimum(np.maximum(sizes - 1, 0)[transfers.path], counts)
    transfer = np.repeat(np.arange(len(hops)), hops)
    hop = np.arange(len(transfer)) - (np.cumsum(hops) - hops)[transfer]
    at, start = firsts[transfer] + hop, transfers.start_ptr[:-1][transfer] + hop
    last = (
        start + np.where(counts == 2 * hops, hops, 0)[transfer]
    )  # several bursts: two lists
    src, dst, n = nodes[at], nodes[at + 1], len(trace.node_ids)
    edge = Groups(edges.src.astype(np.int64) * n + edges.dst).first(src * n + dst)
    return Hops(
        transfer, hop, src, dst, edge, transfers.start[start], transfers.start[last]
    )


def machine_rows(trace: Trace, tag: str, rows: Array) -> list[SimpleNamespace]:
    """Some ``nodes`` or ``edges`` as objects; ``id`` is the row, edges join rows of nodes."""
    table, names = getattr(trace, tag), ["id", *LOGS[tag]]
    columns = (
        np.array(getattr(table, name), object)[rows].tolist() for name in LOGS[tag]
    )
    cells = zip(rows.tolist(), *columns, strict=True)
    return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in cells]


def named(trace: Trace, prefix: str) -> Array:
    """By row whether the op's name begins with ``prefix``."""
    names = trace.op_columns.name
    used = np.flatnonzero(np.bincount(names)).tolist()
    return np.isin(names, [n for n in used if trace.strings[n].startswith(prefix)])


def integers(block: ParamBlock) -> dict[str, Array]:
    """The whole numbers among the params of a block, by path."""
    leaves = enumerate(block.schema.leaves)
    return {
        path: block.values[f"f{i}"] for i, (path, letter) in leaves if letter == "i"
    }


def tile_columns(trace: Trace) -> tuple[Array, Array]:
    """By row that of the composite which it is a tile of, and a number for its tile_index; or -1.

    Numbers ascend by row, column, step of the tile.
    """
    cmd, tile = trace.op_columns.cmd, np.full(len(trace.op_columns.cmd), -1)
    for block in trace.param_blocks():
        index = [
            n.astype(np.int64)
            for p, n in integers(block).items()
            if p[:11] == "tile_index."
        ]
        if len(index) == 3:
            tile[block.rows] = (index[0] << 40) + (index[1] << 20) + index[2]
    whole = np.flatnonzero(named(trace, "composite_"))
    parent = np.append(whole, -1)[Groups(cmd[whole]).first(cmd)]
    return np.where(named(trace, "TileToken/"), parent, -1), tile


def kernel_lines(trace: Trace) -> tuple[list[str], Array]:
    """Every "file:line" that made calls; by row of ``Trace.commands`` its number among them."""
    log, texts = trace.commands, trace.strings
    used, which = np.unique(
        log.file.astype(np.int64) << 32 | log.line, return_inverse=True
    )
    return [f"{texts[n >> 32]}:{n % (1 << 32)}" for n in used.tolist()], which


class Levels:
    """The sum of the ``rates`` of what lasts from ``begins`` to ``ends`` ns, by group.

    The times of a group are put behind those of the one before, so that one sorted column has all.
    """

    def __init__(self, group: Array, begins: Array, ends: Array, rates: Array) -> None:
        self._span = float(ends.max(initial=0.0)) + 2.0
        times = np.concatenate([begins, ends])
        at = np.concatenate([group, group]) * self._span + times
        order = np.argsort(at)
        self._at, times = at[order], times[order]
        self.level = np.cumsum(np.concatenate([rates, -rates])[order])
        self._ns = np.diff(times, append=times[-1:])

    def _places(self, groups: Array, times: Any) -> Array:
        return np.asarray(groups * self._span + np.clip(times, 0.0, self._span - 1.0))

    def integral(self, level: Array, groups: Array, times: Any) -> Array:
        """Of ``level`` (one value an event) between each two of ``times``: a row a group."""
        if not len(level):
            return np.zeros((len(groups), len(times) - 1))
        done = np.append(0.0, np.cumsum(level * self._ns)[:-1])
        return np.diff(np.interp(self._places(groups[:, None], times), self._at, done))

    def most(self, groups: Array, t0: float, t1: float) -> Array:
        """The highest level in [t0, t1), by group."""
        low = np.searchsorted(self._at, self._places(groups, t0), side="right")
        high = np.searchsorted(self._at, self._places(groups, t1)) + 1
        level = np.concatenate([[0], self.level, [0]])
        return np.asarray(
            np.maximum.reduceat(level, np.stack([low, high], 1).ravel())[::2]
        )
