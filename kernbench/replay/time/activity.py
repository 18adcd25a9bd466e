"""What every component of the machine was busy with: engines, memories, CPUs, routers,
ports, and the links between them.

A component is a node, or a link of ``Trace.edges``. Each has curves over time: how long
it was busy until then, how long something waited there, and how many bytes it had
carried. So any window, and each cell of one, is read off at its two ends.

A component is busy while at least one of these holds:

- it serves an op;
- it carries bytes (a link), or a header pays its overhead there or bytes leave it (a
  node that a transaction passes);
- it sends a transaction: from when that was asked for (of a memory: the request has
  come) until its last byte has left;
- a transaction ends there: from its header's coming until it has landed;
- something waits for one of its channels (HBM);
- it issues a call of a kernel (PE_CPU).

Something waits at a node where a wait is recorded there, and at a PE_CPU while a call
blocks its kernel. A curve of a component is made when it is first asked for, of a batch
of components at once; those used longest ago are dropped where they become many. Of a
run so long that they would be, a short window has curves of its own, made of no more
than what goes on in it. What is being made when whoever asked is cancelled goes on, and
whoever asks next finds it: a screen asks anew with every key.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from kernbench.common.arrays import (
    Array,
    Floats,
    Ints,
    counted,
    repeated,
    running_count,
)
from kernbench.common.messages import WAIT_REASONS
from kernbench.common.progress import (
    Progress,
    computed_beside,
    no_progress,
    parts,
    stage,
)
from kernbench.common.resumable import Resumable, Steps, beside, within
from kernbench.errors import UsageError
from kernbench.replay.text import count_text, table, time_text, wrapped
from kernbench.replay.time.kernel_calls import ends_of_calls, kernel_calls
from kernbench.replay.time.mapped_logs import map_logs
from kernbench.replay.time.op_index import OpIndex
from kernbench.replay.time.passages import (
    Spans,
    Stops,
    Transactions,
    longest_rest,
    spans_of,
    stops_of,
    times_of_transactions,
    transaction_spans,
    transactions_of,
)
from kernbench.replay.time.rows_in_window import (
    BLOCK,
    RowsInWindow,
    Times,
    rows_in_window,
)
from kernbench.replay.time.spans import cut_off
from kernbench.trace import Trace
from kernbench.trace.groups import Groups, ranges
from kernbench.trace.mapped import Column
from kernbench.trace.spec_values import issue_ns

T = TypeVar("T")
Window: TypeAlias = tuple[float, float]
"""[t0, t1) ns."""

_AT_WORK = (WAIT_REASONS.index("hbm_channel"), WAIT_REASONS.index("sram_port"))
"""Reasons of waits while which the memory is at work for others."""
_BATCH = 1 << 13
"""Ops, calls, waits and transactions whose curves are made in one go, or of one
component if it alone has more."""
_KEPT = 1 << 22
"""Instants that are kept of all curves together; each takes 36 bytes."""
_SHORT = 8
"""A window has curves of its own if its rows are at most one in so many of all that is
recorded of components: most transactions are of several."""
_WINDOWS = 4
"""Windows of which it is kept what goes on in them."""
_EPS = 1e-6  # bytes: what is less is nothing
_AT_ONCE = 64  # curves that are read between two reports of progress
_NAMES = 1 << 10  # names that are matched between two
_SHOWN = 40  # components in the text
_BEGUN = 4
"""Tables and batches that are being made at once: that which is asked for, and what was
asked for before and cancelled."""
_RUN = (-np.inf, np.inf)
"""The window of tables of all rows."""
_COLUMNS = "busy waiting nbytes begun kind name"


@dataclass(frozen=True, slots=True)
class ComponentActivity:
    """What one component did in a window.

    ``busy`` is the share of the window in which it was, ``waiting`` that in which
    something waited there (None: not known of a link; ``links`` says how long its queue
    was). ``nbytes`` are what transactions carried over it, or into it where they end;
    of a window that begins or ends while they move, so many as moved in it. ``begun``
    counts the ops, calls and transactions that began there. ``kind`` is the type of the
    node, or the kind of the link. ``component`` is its number: the index of the node,
    or behind all nodes the row of the link.
    """

    component: int
    name: str
    kind: str
    busy: float
    waiting: float | None
    nbytes: float
    begun: int


@dataclass(frozen=True, slots=True)
class Activity:
    """The components that did something in [t0, t1) ns, the busiest first.

    ``idle`` counts the others among those that were asked for. Where the recording was
    cut off, ``part`` says so.
    """

    t0: float
    t1: float
    components: tuple[ComponentActivity, ...]
    idle: int
    part: str = ""

    def lines(self, width: int) -> list[str]:
        """As text: a table of the busiest."""
        count = len(self.components)
        span = f"{time_text(self.t0)} to {time_text(self.t1)}"
        asked = count_text(count + self.idle, "component")
        lines = [f"{count:,} of {asked} busy, {span}"]
        if count:
            lines += table(self.components[:_SHOWN], _COLUMNS, width=width)
        if count > _SHOWN:
            lines.append(f"({count - _SHOWN:,} less busy)")
        if self.part:
            lines += wrapped(self.part, width, 2)
        return lines


@dataclass(frozen=True, slots=True)
class ActivityCells:
    """Some components over [t0, t1) ns in equal cells.

    ``busy`` and ``waiting`` are the shares of each cell, a row a component in the order
    of ``components`` (their numbers), a column a cell. Both are read-only. Of a link
    nothing is known to wait: its shares are 0.
    """

    t0: float
    t1: float
    components: tuple[int, ...]
    busy: Floats
    waiting: Floats


class _Curves(NamedTuple):
    """What some components had done until each of some instants.

    The instants of component i are ``times[first[i]:first[i + 1]]`` (ns), ascending.
    ``busy`` and ``waiting`` are in ns and ``nbytes`` in bytes: sums from any start, of
    which only differences within a component mean something, and linear in between.
    ``begun`` counts what had begun by each instant, as ``begun[first[i]]`` the first.
    """

    first: Array
    times: Array
    busy: Array
    waiting: Array
    nbytes: Array
    begun: Array


class _Tables(NamedTuple):
    """What leads from a component to what it did, of all rows of the logs or of some.

    ``calls`` are those of kernels by PE, of which each is over at ``ends`` (by row of
    ``Trace.commands``). ``ops`` are by component; None: all, which ``OpIndex`` has.
    ``used`` are the components that anything is recorded of, ascending, and
    ``batch_of`` says of each in which batch its curve is made. A batch holds some of
    one kind: a row of the timeline asks for many of one kind from all over the machine.
    """

    stops: Stops
    transactions: Transactions
    waits: Groups
    calls: Groups
    ends: Floats
    ops: Groups | None
    used: Ints
    batch_of: Ints
    window: Window = _RUN


class _Rows(NamedTuple):
    """The rows of each log that count."""

    transfers: Array | slice
    waits: Array | slice
    calls: Array
    ops: Array | slice


class _GoingOn(NamedTuple):
    """What finds the rows of each log that go on in a window."""

    transfers: RowsInWindow
    waits: RowsInWindow
    calls: RowsInWindow
    ops: RowsInWindow


class ActivityIndex:
    """Answers about the activity of components over any window.

    Its tables are filled by one thread, the worker of lane "traffic", when they are
    first asked for. A computation that is cancelled leaves what was there, and what it
    was making goes on to be made. Of a transaction and of a wait they hold 16 and 8
    bytes, where these are many in files. ``block`` is as of ``RowsInWindow``.
    """

    def __init__(
        self,
        trace: Trace,
        ops: OpIndex,
        batch: int = _BATCH,
        kept: int = _KEPT,
        block: int = BLOCK,
    ) -> None:
        self._trace = trace
        self._ops = ops
        self._batch = batch
        self._kept = kept
        self._block = block
        self._whole: _Tables | None = None
        self._count = 0
        self._going_on = Resumable(self._finding_what_goes_on)
        self._windows: OrderedDict[Window, _Tables] = OrderedDict()
        self._curves: OrderedDict[tuple[Window, int], _Curves] = OrderedDict()
        self._begun: OrderedDict[object, Resumable[Any]] = OrderedDict()

    @property
    def count(self) -> int:
        """How many components there are: nodes, then links."""
        return len(self._trace.node_ids) + len(self._trace.edges.src)

    def name(self, component: int) -> str:
        """The id of a node; of a link those of its two ends."""
        ids = self._trace.node_ids
        if component < len(ids):
            return ids[component]
        edges = self._trace.edges
        edge = component - len(ids)
        return f"{ids[edges.src[edge]]} -> {ids[edges.dst[edge]]}"

    def kind(self, component: int) -> str:
        """The type of a node, the kind of a link."""
        types = self._trace.nodes.type
        if component < len(types):
            return types[component]
        return self._trace.edges.kind[component - len(types)]

    def matching(self, glob: str, progress: Progress = no_progress) -> Ints:
        """The components whose name a pattern fits, ascending; of "" all.

        A pattern with "->" is about links, any other about nodes.
        """
        if not glob:
            return np.arange(self.count)
        first = 0
        end = len(self._trace.node_ids)
        if "->" in glob:
            first = end
            end = self.count
        found = []
        for part in parts(end - first, progress, _NAMES):
            for component in range(first + part.start, first + part.stop):
                if fnmatchcase(self.name(component), glob):
                    found.append(component)
        return np.array(found, np.int64)

    def used(self, progress: Progress = no_progress) -> Ints:
        """The components that anything is recorded of, ascending."""
        return self._whole_tables(progress).used

    def activity(
        self, t0: float, t1: float, glob: str = "", progress: Progress = no_progress
    ) -> Activity:
        """What each component that a pattern fits did in [t0, t1) ns; see ``matching``.

        A window that goes on after the end of the run has what the run has.
        UsageError for a pattern that no component fits.
        """
        asked = self.matching(glob, stage(progress, 0.0, 0.05))
        if glob and self.count and not len(asked):
            raise UsageError(
                f"components {glob!r}: no component is called so; names are as "
                f"{self.name(0)}, links as '* -> {self.name(0)}'"
            )
        tables = self._tables_of(asked, t0, t1, stage(progress, 0.05, 0.3))
        edges = np.array([t0, t1])
        rows = []
        wanted = asked[np.isin(asked, tables.used)]
        part = stage(progress, 0.3, 0.95)
        for component, curve in self._curves_of(tables, wanted, part):
            done = _read(curve, edges)
            row = ComponentActivity(
                component,
                self.name(component),
                self.kind(component),
                busy=_share(float(done.busy[0]), t1 - t0),
                waiting=self._waiting(component, float(done.waiting[0]), t1 - t0),
                nbytes=float(done.nbytes[0]),
                begun=_begun(curve, t0, t1),
            )
            if row.busy or row.waiting or row.begun or row.nbytes > _EPS:
                rows.append(row)
        rows.sort(key=lambda row: (-row.busy, row.component))
        idle = len(asked) - len(rows)
        return Activity(t0, t1, tuple(rows), idle, cut_off(self._trace))

    def cells(
        self,
        components: Sequence[int],
        t0: float,
        t1: float,
        columns: int,
        progress: Progress = no_progress,
    ) -> ActivityCells:
        """Some components, by number, in ``columns`` equal cells of [t0, t1) ns.

        UsageError for a number that no component has.
        """
        for component in components:
            if not 0 <= component < self.count:
                raise UsageError(
                    f"component {component}: must be 0 to {self.count - 1}, the nodes "
                    "of the trace and then its links"
                )
        asked = np.array(components, np.int64)
        tables = self._tables_of(asked, t0, t1, stage(progress, 0.0, 0.3))
        edges = np.linspace(t0, t1, columns + 1)
        width = np.maximum(np.diff(edges), 1e-12)
        busy = np.zeros((len(components), columns))
        waiting = np.zeros((len(components), columns))
        wanted = np.unique(asked[np.isin(asked, tables.used)])
        part = stage(progress, 0.3, 1.0)
        for members, curves in self._batches_of(tables, wanted, part):
            shares = (_read_all(curves.busy, curves, edges) / width).clip(max=1.0)
            waits = (_read_all(curves.waiting, curves, edges) / width).clip(max=1.0)
            place = np.minimum(np.searchsorted(members, asked), len(members) - 1)
            here = members[place] == asked
            busy[here] = shares[place[here]]
            waiting[here] = waits[place[here]]
        busy.setflags(write=False)
        waiting.setflags(write=False)
        return ActivityCells(t0, t1, tuple(components), busy, waiting)

    def _waiting(self, component: int, ns: float, of_ns: float) -> float | None:
        """The share of time in which something waited; None of a link."""
        if component < len(self._trace.node_ids):
            return _share(ns, of_ns)
        return None

    # -- curves --

    def _curves_of(
        self, tables: _Tables, wanted: Ints, progress: Progress
    ) -> Iterator[tuple[int, _Curves]]:
        """Each of some components that are used, with its own curves; by batch."""
        done = 0
        for members, curves in self._batches_of(tables, wanted, progress):
            for place in np.flatnonzero(np.isin(members, wanted)).tolist():
                if done % _AT_ONCE == 0:
                    progress(done / len(wanted))
                done += 1
                yield int(members[place]), _one(curves, place)

    def _batches_of(
        self, tables: _Tables, wanted: Ints, progress: Progress
    ) -> Iterator[tuple[Ints, _Curves]]:
        """The batches that some components which are used are in: all components of
        each, ascending, and their curves.
        """
        places = np.searchsorted(tables.used, wanted)
        batches = np.unique(tables.batch_of[places]).tolist()
        for number, batch in enumerate(batches):
            progress(number / len(batches))
            members = tables.used[tables.batch_of == batch]
            share = stage(progress, number / len(batches), 1.0)
            yield members, self._batch_curves(tables, batch, members, share)

    def _batch_curves(
        self, tables: _Tables, batch: int, components: Ints, progress: Progress
    ) -> _Curves:
        """The curves of the components of a batch, made if they are not kept."""
        nodes = len(self._trace.node_ids)

        def made() -> _Curves:
            return _curves(components, nodes, self._spans(tables, components))

        key = tables.window, batch
        curves = self._curves.get(key)
        if curves is None:
            curves = self._made(key, made, progress)
            self._curves[key] = curves
        self._curves.move_to_end(key)
        kept = sum(len(some.times) for some in self._curves.values())
        while kept > self._kept and len(self._curves) > 1:
            _, dropped = self._curves.popitem(last=False)
            kept -= len(dropped.times)
        return curves

    def _made(self, key: object, make: Callable[[], T], progress: Progress) -> T:
        """What ``make`` returns, which goes on if ``progress`` raises, for whoever asks
        for the same ``key`` next.
        """
        if progress is no_progress:
            return make()
        begun = self._begun.pop(key, None)
        if begun is None:
            begun = Resumable(lambda: beside(make, 0.0))
        self._begun[key] = begun
        if len(self._begun) > _BEGUN:
            self._begun.popitem(last=False)
        made: T = begun.result(progress)
        del self._begun[key]
        return made

    def _spans(self, tables: _Tables, components: Ints) -> list[Spans]:
        """All that some components do; they ascend."""
        low = np.searchsorted(tables.stops.place, components)
        high = np.searchsorted(tables.stops.place, components, side="right")
        stops = tables.stops.take(ranges(low, high - low))
        nodes = components[components < len(self._trace.node_ids)]
        return [
            *transaction_spans(self._trace, stops, tables.transactions),
            self._service_spans(tables.ops, nodes),
            *self._wait_spans(tables.waits, nodes),
            *self._call_spans(tables, nodes),
        ]

    def _service_spans(self, ops: Groups | None, nodes: Ints) -> Spans:
        """The ops that some nodes serve."""
        if ops is None:
            positions = [self._ops.ops_of(node) for node in nodes.tolist()]
            place = np.repeat(np.arange(len(nodes)), [len(some) for some in positions])
            none = np.empty(0, np.int64)
            rows = self._trace.order[np.concatenate([none, *positions])]
        else:
            place, rows = ops.join(nodes)
        log = self._trace.op_columns
        return spans_of(nodes[place], log.t_start[rows], log.t_end[rows], 1.0, begins=1)

    def _wait_spans(self, waits: Groups, nodes: Ints) -> Iterator[Spans]:
        """What waits at some nodes; a memory that lets wait is busy meanwhile."""
        place, rows = waits.join(nodes)
        place = nodes[place]
        log = self._trace.waits
        since = log.t0[rows]
        until = log.t1[rows]
        yield spans_of(place, since, until, waiting=1.0)
        held = np.isin(log.reason[rows], _AT_WORK)
        yield spans_of(place[held], since[held], until[held], 1.0)

    def _call_spans(self, tables: _Tables, nodes: Ints) -> Iterator[Spans]:
        """The calls of kernels on those of some nodes that ran any."""
        place, rows = tables.calls.join(nodes)
        place = nodes[place]
        issued = self._trace.commands.t_issue[rows]
        until = tables.ends[rows]
        issuing = np.minimum(issued + issue_ns(self._trace.spec), until)
        yield spans_of(place, issued, issuing, 1.0, begins=1)
        yield spans_of(place, issuing, until, waiting=1.0)

    # -- tables --

    def _tables_of(
        self, asked: Ints, t0: float, t1: float, progress: Progress
    ) -> _Tables:
        """What some components did in a window: the tables of the run, or those of the
        window alone where that is less.
        """
        whole = self._whole_tables(stage(progress, 0.0, 0.7))
        batches = np.unique(whole.batch_of[np.isin(whole.used, asked)]).tolist()
        if self._count <= self._kept or all((_RUN, b) in self._curves for b in batches):
            return whole
        window = (t0, t1)
        tables = self._windows.get(window)
        if tables is None:
            going_on = self._going_on.result(stage(progress, 0.7, 0.9))
            most = sum(log.most(t0, t1) for log in going_on)
            if most * _SHORT > self._count:
                return whole
            tables = self._made(
                window,
                lambda: self._window_tables(whole, going_on, t0, t1),
                stage(progress, 0.9, 1.0),
            )
            self._windows[window] = tables
            if len(self._windows) > _WINDOWS:
                self._windows.popitem(last=False)
        return tables

    def _whole_tables(self, progress: Progress) -> _Tables:
        """What leads from a component to all that it did."""
        if self._whole is None:
            trace = self._trace
            map_logs(
                trace, progress, "transfers", "waits", "commands", "edges", "nodes"
            )
            stops = computed_beside(lambda: stops_of(trace), progress, 0.1)
            transactions = transactions_of(trace, stage(progress, 0.2, 0.5))
            of_waits = partial(Groups.kept, trace.waits.node)
            waits = computed_beside(of_waits, progress, 0.5)
            calls = computed_beside(lambda: kernel_calls(trace).by_pe, progress, 0.7)
            ends = computed_beside(lambda: ends_of_calls(trace, calls), progress, 0.8)
            all_rows = slice(None)
            rows = _Rows(all_rows, all_rows, calls.order, all_rows)
            counts = computed_beside(lambda: self._counts(stops, rows), progress, 0.9)
            used = np.flatnonzero(counts)
            batch_of = computed_beside(
                lambda: self._batches(used, counts[used]), progress, 0.95
            )
            self._count = int(counts.sum())
            self._whole = _Tables(
                stops, transactions, waits, calls, ends, None, used, batch_of
            )
        return self._whole

    def _finding_what_goes_on(self) -> Steps[_GoingOn]:
        """What finds the rows of all logs that go on in a window."""
        whole = self._whole_tables(no_progress)
        trace = self._trace
        waits = trace.waits
        calls = trace.commands
        ops = trace.op_columns
        rest_ns = yield from beside(
            lambda: longest_rest(whole.stops, whole.transactions.sizes), 0.0
        )
        sent = partial(times_of_transactions, trace, whole.transactions, rest_ns)
        times_of: tuple[tuple[Column, Times], ...] = (
            (trace.transfers.t0, sent),
            (waits.t0, lambda rows: (waits.t0[rows], waits.t1[rows])),
            (calls.t_issue, lambda rows: (calls.t_issue[rows], whole.ends[rows])),
            (ops.t_start, lambda rows: (ops.t_start[rows], ops.t_end[rows])),
        )
        found = []
        for number, (column, times) in enumerate(times_of):
            steps = rows_in_window(len(column), times, self._block)
            found.append((yield from within(steps, number / 4, (number + 1) / 4)))
        return _GoingOn(*found)

    def _window_tables(
        self, whole: _Tables, going_on: _GoingOn, t0: float, t1: float
    ) -> _Tables:
        """What leads from a component to what it did from t0 to t1 ns."""
        trace = self._trace
        transfers, waits, calls, ops = (log.of(t0, t1) for log in going_on)
        counts = self._counts(whole.stops, _Rows(transfers, waits, calls, ops))
        used = np.flatnonzero(counts)
        by_path = Groups(trace.transfers.path[transfers], transfers)
        return whole._replace(
            transactions=whole.transactions._replace(by_path=by_path),
            waits=Groups(trace.waits.node[waits], waits),
            calls=Groups(trace.commands.pe[calls], calls),
            ops=Groups(trace.op_columns.component[ops], ops),
            used=used,
            batch_of=self._batches(used, counts[used]),
            window=(t0, t1),
        )

    def _batches(self, used: Ints, counts: Ints) -> Ints:
        """The batch of each of some components, by how much is recorded of each."""
        trace = self._trace
        number: dict[str, int] = {}
        kinds = chain(trace.nodes.type, trace.edges.kind)
        kind = np.array([number.setdefault(kind, len(number)) for kind in kinds])[used]
        turn = np.argsort(kind, kind="stable")
        before = np.cumsum(counts[turn]) - counts[turn]
        is_first = np.diff(kind[turn], prepend=-1) > 0
        since = before - before[is_first][np.cumsum(is_first) - 1]
        begins = is_first | (np.diff(since // self._batch, prepend=-1) != 0)
        found = np.empty(len(used), np.int64)
        found[turn] = np.cumsum(begins) - 1
        return found

    def _counts(self, stops: Stops, rows: _Rows) -> Ints:
        """By component how much is recorded of it in some rows of the logs."""
        trace = self._trace
        count = self.count
        path = trace.transfers.path[rows.transfers]
        on_path = counted(path, len(trace.paths[:]))
        found = np.bincount(stops.place, on_path[stops.path], count).astype(np.int64)
        found += counted(trace.waits.node[rows.waits], count)
        found += counted(trace.op_columns.component[rows.ops], count)
        found += counted(trace.commands.pe[rows.calls], count)
        return found


def _curves(components: Ints, nodes: int, spans: Sequence[Spans]) -> _Curves:
    """The curves of some components, which ascend, from all that they do.

    Those from number ``nodes`` on are links. What a node does at once counts once. A
    link carries one burst at a time: what it does at once is there because the bursts
    between first and last were spread, and is as long as all of it.
    """
    every = Spans(*map(np.concatenate, zip(*spans, strict=True)))
    counted = (every.high > every.low) | (every.begins > 0)
    every = Spans(*(column[counted] for column in every))
    place = np.searchsorted(components, every.place)
    times = np.concatenate([every.low, every.high])
    owner = np.concatenate([place, place])
    order = np.lexsort((times, owner))
    times = times[order]
    owner = owner[order]
    next_is_other = np.diff(owner, append=-1) != 0
    ns = np.diff(times, append=0.0)
    ns[next_is_other] = 0.0

    def until(change: Floats, most: float | Floats) -> Floats:
        """The integral of a level until each instant, of which ``most`` counts."""
        level = np.cumsum(np.concatenate([change, -change])[order])
        return np.append(0.0, np.cumsum(np.clip(level, 0.0, most) * ns)[:-1])

    most_busy = np.where(components >= nodes, np.inf, 1.0)[owner]
    no_begins = np.zeros_like(every.begins)
    begun = running_count(np.concatenate([every.begins, no_begins])[order])
    kept = np.flatnonzero(next_is_other | (ns > 0))
    first = np.searchsorted(owner[kept], np.arange(len(components) + 1))
    begun_before = np.append(0, begun[kept])[first[:-1]]
    return _Curves(
        first,
        times[kept],
        until(every.busy, most_busy)[kept],
        until(every.waiting, 1.0)[kept],
        until(every.rate, np.inf)[kept],
        (begun[kept] - repeated(begun_before, np.diff(first))).astype(np.int32),
    )


def _one(curves: _Curves, place: int) -> _Curves:
    """The curves of one component of several."""
    mine = slice(int(curves.first[place]), int(curves.first[place + 1]))
    return _Curves(curves.first[:0], *(column[mine] for column in curves[1:]))


def _share(ns: float, of_ns: float) -> float:
    """A share of time, rounded so that those which differ by rounding only are ties."""
    return round(min(ns / of_ns, 1.0), 9)


class _Done(NamedTuple):
    """What a component did between each two instants: ns, ns and bytes."""

    busy: Floats
    waiting: Floats
    nbytes: Floats


def _read(curve: _Curves, edges: Floats) -> _Done:
    """What one component did between each two of ``edges`` (ns)."""
    if not len(curve.times):
        zeros = np.zeros(len(edges) - 1)
        return _Done(zeros, zeros, zeros)
    return _Done(
        np.diff(np.interp(edges, curve.times, curve.busy)),
        np.diff(np.interp(edges, curve.times, curve.waiting)),
        np.diff(np.interp(edges, curve.times, curve.nbytes)),
    )


def _read_all(done: Array, curves: _Curves, edges: Floats) -> Floats:
    """How much of ``done``, a column of ``curves``, came between each two of ``edges``
    (ns): a row a component.

    The times of a component are put behind those of the component before, so that one
    sorted column holds the instants of all.
    """
    found = np.zeros((len(curves.first) - 1, len(edges) - 1))
    counts = np.diff(curves.first)
    has_any = np.flatnonzero(counts)
    if not len(has_any):
        return found
    lows = curves.times[curves.first[:-1][has_any]]
    highs = curves.times[curves.first[1:][has_any] - 1]
    lengths = highs - lows + 1.0
    shift = np.cumsum(lengths) - lengths - lows
    column = curves.times + repeated(shift, counts[has_any])
    places = np.clip(edges, lows[:, None], highs[:, None]) + shift[:, None]
    found[has_any] = np.diff(np.interp(places, column, done), axis=1)
    return found


def _begun(curve: _Curves, t0: float, t1: float) -> int:
    """How many ops, calls and transactions began in [t0, t1) ns."""
    before = np.searchsorted(curve.times, [t0, t1])
    begun = np.append(0, curve.begun)[before]
    return int(begun[1] - begun[0])
