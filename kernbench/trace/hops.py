"""Every hop of every recorded transaction as columns; knows no op and no screen."""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from kernbench.sim_engine.memory_store import Array
from kernbench.trace.reader import Trace


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


def match(keys: Any, wanted: Any) -> Array:
    """The place in ``keys`` (no negative ones) of each of ``wanted``; -1 where there is none."""
    order = np.argsort(keys, kind="stable")
    known = np.append(keys[order].astype(np.int64), -1)
    place = np.searchsorted(known[:-1], wanted)
    return np.where(known[place] == wanted, np.append(order, -1)[place], -1)


def hop_columns(trace: Trace) -> Hops:
    """The hops of all transfers, as far as their paths and starts are there."""
    transfers, edges, paths = trace.transfers, trace.edges, trace.paths[:]
    nodes = np.fromiter(chain.from_iterable(paths), np.int64)
    sizes = np.fromiter(map(len, paths), np.int64, len(paths))
    firsts, counts = (np.cumsum(sizes) - sizes)[transfers.path], np.diff(transfers.start_ptr)
    hops = np.minimum(np.maximum(sizes - 1, 0)[transfers.path], counts)
    transfer = np.repeat(np.arange(len(hops)), hops)
    hop = np.arange(len(transfer)) - (np.cumsum(hops) - hops)[transfer]
    at, start = firsts[transfer] + hop, transfers.start_ptr[:-1][transfer] + hop
    last = start + np.where(counts == 2 * hops, hops, 0)[transfer]  # several bursts: two lists
    src, dst, n = nodes[at], nodes[at + 1], len(trace.node_ids)
    edge = match(edges.src.astype(np.int64) * n + edges.dst, src * n + dst)
    return Hops(transfer, hop, src, dst, edge, transfers.start[start], transfers.start[last])
