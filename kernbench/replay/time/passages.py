"""Where transactions passed, and in what spans of time they kept that place busy.

A place is a component of the machine: a node by its index, or a link by its row in
``Trace.edges`` behind all nodes. Which transactions pass a place follows from the paths
that lead through it, so any places can be looked at without all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Floats, Ints, repeated
from kernbench.common.paged import paged
from kernbench.common.progress import Progress, computed_beside, stage
from kernbench.trace import Trace
from kernbench.trace.bursts import BurstBytes, burst_bytes, usual_burst
from kernbench.trace.groups import Groups
from kernbench.trace.hops import edges_between, flat_paths, speeds_of
from kernbench.trace.spec_values import spec_number, spec_value

LINK = 0
SOURCE = 1
PASSED = 2
END = 3
"""What a place is to a path that leads through it; a number of ``Stops.role``."""


class Spans(NamedTuple):
    """Spans of time of some places, a row each, from ``low`` to ``high`` ns.

    Each adds to what its place does meanwhile: ``busy`` and ``waiting`` as shares (1:
    all of it), ``rate`` in bytes a ns. ``begins`` is 1 where an op, a call or a
    transaction begins at the place with this span, else 0.
    """

    place: Array
    low: Array
    high: Array
    busy: Array
    waiting: Array
    rate: Array
    begins: Array


def spans_of(
    place: Ints,
    low: Floats,
    high: Floats,
    busy: float | Floats = 0.0,
    waiting: float = 0.0,
    rate: float | Floats = 0.0,
    begins: int | Ints = 0,
) -> Spans:
    """Spans, of which a number stands for all; none ends before it begins."""
    count = len(place)
    return Spans(
        np.asarray(place, np.int64),
        low,
        np.maximum(low, high),
        np.broadcast_to(np.asarray(busy, np.float64), count),
        np.broadcast_to(np.float64(waiting), count),
        np.broadcast_to(np.asarray(rate, np.float64), count),
        np.broadcast_to(np.asarray(begins, np.int64), count),
    )


class Stops(NamedTuple):
    """The places that each path leads through, a row a place and path; by place.

    The bytes of a transaction are seen at a place as its link ``link`` carries them,
    which is the one behind it, or at the end the last one: ``later_ns`` after they
    entered that link. ``hops`` are the links of the path, ``speed`` is of that link
    (bytes a ns; 0: not known), ``header_ns`` what a header pays at the place, which
    comes ``wire_ns`` after it entered the link before. ``landing_ns`` and
    ``ns_per_byte`` say when the last burst is all there: at the end of a path only.
    """

    place: Array
    path: Array
    role: Array
    link: Array
    hops: Array
    speed: Array
    later_ns: Array
    wire_ns: Array
    header_ns: Array
    landing_ns: Array
    ns_per_byte: Array

    def take(self, rows: Array | slice) -> Stops:
        """Some rows."""
        return Stops(*(column[rows] for column in self))


def stops_of(trace: Trace) -> Stops:
    """All places of all paths that are known."""
    nodes = trace.nodes
    edges = trace.edges
    node_count = len(trace.node_ids)
    visited, firsts, sizes = flat_paths(trace)
    path = repeated(np.arange(len(sizes)), sizes)
    at = np.arange(len(visited)) - firsts[path]
    hops = sizes[path] - 1

    # By visit the link that the path takes from there on; -1: it ends, or no such link.
    is_last = at == hops
    edge = edges_between(trace, visited, np.append(visited[1:], -1))
    edge[is_last] = -1
    speed = speeds_of(trace, edge)
    ns_per_mm = spec_number(trace.spec, "system.ns_per_mm")
    wire_ns = np.append(edges.distance_mm, 0.0)[edge] * ns_per_mm
    wire_before = np.append(0.0, wire_ns[:-1])
    slowest = np.full(len(sizes), np.inf)
    known = speed > 0
    np.minimum.at(slowest, path[known], speed[known])

    # At the end of a path its last link is the one before.
    link = np.where(is_last, at - 1, at)
    last_speed = np.append(0.0, speed[:-1])
    overhead = nodes.overhead_ns[visited]
    role = np.where(is_last, END, np.where(at == 0, SOURCE, PASSED))
    zeros = np.zeros(len(visited))
    of_nodes = Stops(
        place=visited,
        path=path,
        role=role,
        link=link,
        hops=hops,
        speed=np.where(is_last, last_speed, speed),
        later_ns=np.where(is_last, wire_before, 0.0),
        wire_ns=wire_before,
        header_ns=overhead,
        landing_ns=overhead + _access_ns(trace)[visited],
        ns_per_byte=1.0 / slowest[path],
    )
    of_links = of_nodes._replace(
        place=node_count + edge,
        role=np.full(len(visited), LINK),
        link=at,
        speed=speed,
        later_ns=zeros,
    )
    of_nodes = of_nodes.take(hops > 0)
    of_links = of_links.take(edge >= 0)
    stops = Stops(*map(np.concatenate, zip(of_nodes, of_links, strict=True)))
    return stops.take(np.argsort(stops.place, kind="stable"))


def _access_ns(trace: Trace) -> Floats:
    """By node how long it takes at least to write to it, if it is a memory, ns.

    Of HBM with banks that is a write to an open row.
    """
    spec = trace.spec
    hbm = spec_number(spec, "cube.hbm.access_ns")
    if spec_value(spec, "cube.hbm.model") == "banked":
        hbm = spec_number(spec, "cube.hbm.controller_ns")
        hbm += spec_number(spec, "cube.hbm.cwl_ns")
    access = {"hbm_ctrl": hbm, "sram": spec_number(spec, "cube.sram.access_ns")}
    return np.array([access.get(type_, 0.0) for type_ in trace.nodes.type])


class _Passages(NamedTuple):
    """Transactions at places that their paths lead through, a row each; times in ns.

    ``stop`` is the place, ``first`` and ``last`` are when the first and the last burst
    are seen there, which have ``first_bytes`` and ``last_bytes``. Between these are
    ``between_bytes``. ``came`` and ``last_came`` are when their headers entered the
    link before: of no meaning where a path begins, and of a link. With one burst, not
    ``several``, the last is the first.
    """

    stop: Stops
    several: Array
    sent: Array
    first: Array
    last: Array
    came: Array
    last_came: Array
    first_bytes: Array
    last_bytes: Array
    between_bytes: Array
    ns_per_byte: Array

    def take(self, rows: Array) -> _Passages:
        """Some rows."""
        return _Passages(self.stop.take(rows), *(column[rows] for column in self[1:]))


class Transactions(NamedTuple):
    """The rows of ``Trace.transfers`` by path; where the starts of each begin.

    ``pointers`` is ``Trace.transfers.start_ptr``, which is summed up whenever it is
    asked for. ``sizes`` are the bytes of their bursts.
    """

    by_path: Groups
    pointers: Ints
    sizes: BurstBytes


def transactions_of(trace: Trace, progress: Progress) -> Transactions:
    """All transactions of a trace."""
    usual = usual_burst(trace)
    sizes = burst_bytes(trace, usual, stage(progress, 0.0, 0.5))

    def grouped() -> Transactions:
        """Them by their paths, in files as far as they are many."""
        log = trace.transfers
        by_path = Groups.kept(log.path)
        in_files = BurstBytes(*map(paged, sizes))
        return Transactions(by_path, paged(log.start_ptr[:]), in_files)

    return computed_beside(grouped, progress, 0.5)


def times_of_transactions(
    trace: Trace, transactions: Transactions, rest_ns: float, rows: slice | Array
) -> tuple[Floats, Floats]:
    """Of some rows of ``Trace.transfers`` since when and until when (ns) any place is
    concerned, at most: ``rest_ns`` is as ``longest_rest`` has it.
    """
    log = trace.transfers
    if isinstance(rows, slice):
        numbers = np.arange(rows.start, rows.stop)
    else:
        numbers = rows
    since = log.t0[rows]
    until = since.copy()
    end = transactions.pointers[numbers + 1]
    has_starts = np.flatnonzero(end > transactions.pointers[numbers])
    until[has_starts] = log.start[end[has_starts] - 1]
    return since, until + rest_ns


def longest_rest(stops: Stops, sizes: BurstBytes) -> float:
    """The longest that anything takes after its last burst has entered a link, ns."""
    after = stops.later_ns + stops.wire_ns + stops.header_ns + stops.landing_ns
    is_known = stops.speed > 0
    byte_ns = max(
        float((1.0 / stops.speed[is_known]).max(initial=0.0)),
        float(stops.ns_per_byte.max(initial=0.0)),
    )
    nbytes = max(
        float(sizes.first.max(initial=0.0)), float(sizes.last.max(initial=0.0))
    )
    return float(after.max(initial=0.0)) + nbytes * byte_ns


def transaction_spans(
    trace: Trace, stops: Stops, transactions: Transactions
) -> list[Spans]:
    """What all transactions do at some stops.

    A node that sends one is busy with it until its last byte has left, and one that it
    ends at from when the header comes until it has landed. A node that it passes is
    busy while a header pays its overhead and while bytes leave; a link while it carries
    bytes.

    Of several bursts the first and the last are recorded. Those in between are taken as
    evenly spread from the end of the first to the start of the last.
    """
    passages = _passages(trace, stops, transactions)
    role = passages.stop.role
    forwards = (role == LINK) | (role == PASSED)
    return [
        *_moving_bytes(passages.take(forwards), 1),
        *_moving_bytes(passages.take(~forwards), 0),
        _sent(passages.take(role == SOURCE)),
        _landed(passages.take(role == END)),
        *_headers(passages.take(role == PASSED)),
    ]


def _passages(trace: Trace, stops: Stops, transactions: Transactions) -> _Passages:
    """All transactions at some stops, but for those whose starts are lost."""
    log = trace.transfers
    stop, rows = transactions.by_path.join(stops.path)
    low = transactions.pointers[rows]
    recorded = transactions.pointers[rows.astype(np.int64) + 1] - low
    whole = recorded >= stops.hops[stop]
    here = stops.take(stop[whole])
    rows = rows[whole]
    low = low[whole]
    recorded = recorded[whole]

    entered = low + here.link
    to_last = np.where(recorded == 2 * here.hops, here.hops, 0)
    before = np.maximum(entered - 1, 0)
    start = log.start
    nbytes = log.nbytes[rows].astype(np.float64)
    bursts = log.bursts[rows].astype(np.int64)
    first_bytes = transactions.sizes.first[rows]
    last_bytes = transactions.sizes.last[rows]
    ns_per_byte = np.zeros(len(rows))
    np.divide(1.0, here.speed, out=ns_per_byte, where=here.speed > 0)
    return _Passages(
        stop=here,
        several=bursts > 1,
        sent=log.t0[rows],
        first=start[entered] + here.later_ns,
        last=start[entered + to_last] + here.later_ns,
        came=start[before] + here.wire_ns,
        last_came=start[np.maximum(before + to_last, 0)] + here.wire_ns,
        first_bytes=first_bytes,
        last_bytes=last_bytes,
        between_bytes=np.where(bursts > 2, nbytes - first_bytes - last_bytes, 0.0),
        ns_per_byte=ns_per_byte,
    )


def _moving_bytes(some: _Passages, busy: int) -> Iterator[Spans]:
    """Bytes on a link, or leaving a node for it.

    ``busy`` is 1 where they are what keeps the place busy, 0 where other spans say so.
    """
    place = some.stop.place
    speed = some.stop.speed
    first_end = some.first + some.first_bytes * some.ns_per_byte
    last_end = some.last + some.last_bytes * some.ns_per_byte
    yield spans_of(place, some.first, first_end, busy, rate=speed, begins=busy)
    later = some.several
    yield spans_of(
        place[later], some.last[later], last_end[later], busy, rate=speed[later]
    )
    between = (some.between_bytes > 0) & (speed > 0) & (some.last > first_end)
    since = first_end[between]
    until = some.last[between]
    rate = some.between_bytes[between] / (until - since)
    share = busy * rate / speed[between]
    yield spans_of(place[between], since, until, share, rate=rate)


def _sent(some: _Passages) -> Spans:
    """What is sent, from when it was asked for until its last byte has left."""
    last_end = some.last + some.last_bytes * some.ns_per_byte
    return spans_of(some.stop.place, some.sent, last_end, 1.0, begins=1)


def _landed(some: _Passages) -> Spans:
    """What ends at a node, from its header's coming until its last byte has landed."""
    stop = some.stop
    landed = some.last + stop.landing_ns + some.last_bytes * stop.ns_per_byte
    return spans_of(stop.place, some.first, landed, 1.0, begins=1)


def _headers(some: _Passages) -> Iterator[Spans]:
    """The headers of the first and the last burst that pass a node."""
    stop = some.stop
    yield spans_of(stop.place, some.came, some.came + stop.header_ns, 1.0)
    later = some.several
    since = some.last_came[later]
    yield spans_of(stop.place[later], since, since + stop.header_ns[later], 1.0)
