"""Two traces beside each other: what the second does otherwise, and what takes longer.

Ops are matched by kernel and which launch of it, PE, call and which one of that name in
the launch, op name and tile: never by time, row or address; equals of one call by their
order. Data are what traces hold: bytes moved, contents of host writes and snapshots,
references and their verdict. All of that is compared by hashes of 64 bits.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Ints
from kernbench.common.progress import Progress, computed_beside, no_progress, stage
from kernbench.errors import TraceFormatError, UsageError
from kernbench.replay.answers import OpRow
from kernbench.replay.index import Index
from kernbench.replay.text import table
from kernbench.replay.time.op_classes import CLASSES
from kernbench.trace import Trace
from kernbench.trace.hops import tile_columns

PERCENT = 5.0
"""By how much the time of an op must differ where no limit is given."""

_NOISE_NS = 1e-6
"""Differences of times that are rounding."""

_KNUTH = np.uint64(0x9E3779B97F4A7C15)
"""2 ** 64 over the golden ratio: Knuth's multiplicative hash."""

_EVERY = 16
"""Digests that are made between two calls of progress."""

_LARGE_BYTES = 1 << 20
"""An array whose digest takes some ms."""


@dataclass(frozen=True, slots=True)
class Beside:
    """One figure or verdict of both."""

    what: str
    a: float | str
    b: float | str
    change: str


@dataclass(frozen=True, slots=True)
class OpChange:
    """An op that differs.

    ``op_a`` and ``op_b`` are its canonical positions, -1 where it is missing; ``row``
    is B's line of the op log, or A's if B has none.
    """

    kind: str
    op_a: int
    op_b: int
    a_ns: float
    b_ns: float
    detail: str
    row: OpRow


@dataclass(frozen=True, slots=True)
class Comparison:
    """B beside A; ``counts`` are of all ops, the lists hold the first of theirs.

    ``kernel_lines`` are ns of PEs' time; ``tensors`` those whose reference or verdict
    differs. ``ok`` is False only where a limit was given and B is over it.
    """

    ok: bool
    verdict: str
    totals: tuple[Beside, ...]
    kernel_lines: tuple[Beside, ...]
    tensors: tuple[Beside, ...]
    counts: dict[str, int]
    changes: tuple[OpChange, ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        lines = [self.verdict]
        for rows in (self.totals, self.kernel_lines, self.tensors):
            if rows:
                lines += table(rows, "a b change what")
        counts = [f"{count:,} {kind}" for kind, count in self.counts.items()]
        lines.append("ops: " + ", ".join(counts))
        if self.changes:
            names = "kind op_a op_b a_ns b_ns name component detail site"
            lines += table(self.changes, names, width=width)
        return lines


class _Sides(NamedTuple):
    """The two traces."""

    a: Index
    b: Index


class _Rows(NamedTuple):
    """Ops of one kind, as rows of either trace, in the order in which to list them.

    Both are as long, and row i of one is row i of the other; or one is empty.
    """

    a: Ints
    b: Ints


class _Judged(NamedTuple):
    """The digest of all references of a tensor, and its verdict."""

    references: bytes
    verdict: str


def parse_percent(text: str) -> float:
    """``5%`` or ``2.5`` to percent; UsageError for what is none."""
    if re.fullmatch(r"\d+(\.\d+)?%?", text, re.ASCII) is None:
        raise UsageError(f"limit {text!r}: give percent, as in 5%")
    return float(text.rstrip("%"))


def compare(
    trace_a: Trace,
    trace_b: Trace,
    percent: float | None = None,
    limit: int = 20,
    progress: Progress = no_progress,
) -> Comparison:
    """B beside A, at most ``limit`` rows a list (of ops: a kind), the largest first.

    With ``percent`` B is not ``ok`` if its launches take more than that longer, if it
    ended in an error where A did not, or if a tensor is wrong that was right; other ops
    or inputs are no error.
    """
    sides = computed_beside(
        lambda: _Sides(Index(trace_a), Index(trace_b)), progress, 0.0
    )
    least = PERCENT if percent is None else percent
    matched, found = _matched(sides, least, progress)
    changes = list[OpChange]()
    for kind, rows in found.items():
        first_a = rows.a[:limit].tolist()
        first_b = rows.b[:limit].tolist()
        for row_a, row_b in zip_longest(first_a, first_b, fillvalue=-1):
            progress(0.9)
            changes.append(_change(sides, kind, row_a, row_b))
    by_line = _by_line(sides, progress)
    totals = _totals(sides, progress)
    tensors = _by_tensor(sides, progress)
    counts = {"matched": matched}
    for kind, rows in found.items():
        counts[kind] = max(len(rows.a), len(rows.b))
    launches = totals[1]
    verdict = f"launches {launches.change or 'none'}"
    wrong = list[str]()
    if percent is not None:
        wrong = _wrong(sides, launches, tensors, percent)
        verdict += ": " + ("; ".join(wrong) or "ok")
    return Comparison(
        ok=not wrong,
        verdict=verdict,
        totals=totals,
        kernel_lines=tuple(by_line[:limit]),
        tensors=tuple(tensors[:limit]),
        counts=counts,
        changes=tuple(changes),
    )


# -- which op is which, and what differs ----------------------------------------------


def _matched(
    sides: _Sides, percent: float, progress: Progress
) -> tuple[int, dict[str, _Rows]]:
    """How many ops are in both; and by kind of change those that have changed.

    An op may be of several kinds at once.
    """
    keys_a = computed_beside(partial(_identities, sides.a), progress, 0.1)
    keys_b = computed_beside(partial(_identities, sides.b), progress, 0.2)
    _, in_a, in_b = computed_beside(
        lambda: np.intersect1d(keys_a, keys_b, assume_unique=True, return_indices=True),
        progress,
        0.4,
    )
    paths_a = computed_beside(partial(_paths, sides.a.trace), progress, 0.5)
    paths_b = computed_beside(partial(_paths, sides.b.trace), progress, 0.5)
    data_a = _data(sides.a.trace, stage(progress, 0.6, 0.7))
    data_b = _data(sides.b.trace, stage(progress, 0.7, 0.8))

    def changed() -> dict[str, _Rows]:
        """Those that one trace lacks, then by what differs, the largest first."""
        before = _durations(sides.a)[in_a]
        longer = _durations(sides.b)[in_b] - before
        beyond = before * percent / 100 + _NOISE_NS
        differ = {
            "slower": longer > beyond,
            "faster": -longer > beyond,
            "rerouted": paths_a[in_a] != paths_b[in_b],
            "data": data_a[in_a] != data_b[in_b],
        }
        none = np.empty(0, np.int64)
        only_a = np.delete(np.arange(len(keys_a)), in_a)
        only_b = np.delete(np.arange(len(keys_b)), in_b)
        found = {"missing": _Rows(only_a, none), "added": _Rows(none, only_b)}
        # the largest difference first, of equal ones A's first row
        order = np.lexsort((in_a, -np.abs(longer).round(6)))
        for kind, which in differ.items():
            mine = order[which[order]]
            found[kind] = _Rows(in_a[mine], in_b[mine])
        return found

    return len(in_a), computed_beside(changed, progress, 0.8)


def _durations(side: Index) -> Array:
    """By row how long each op took, ns."""
    ops = side.trace.op_columns
    return np.asarray(ops.t_end - ops.t_start)


def _identities(side: Index) -> Array:
    """By row a hash of what the op is of the program; those of a trace all differ.

    That is kernel and launch, PE, call and its ordinal, op name, tile; and how many ops
    before have the same.
    """
    trace = side.trace
    text = trace.strings.__getitem__
    ops = trace.op_columns
    calls = trace.commands
    kernels = _launched(trace)
    call = _mixed(
        _hashes(calls.launch[:], kernels.get),
        _hashes(calls.pe[:], trace.node_ids.__getitem__),
    )
    call = _counted(_mixed(call, _hashes(calls.call[:], text)))
    call = np.append(call, np.uint64(0))  # the last: of ops whose call is unknown
    key = _mixed(call[side.ops.calls(trace.position)], _hashes(ops.name[:], text))
    _, tiles = tile_columns(trace)
    return _counted(_mixed(key, tiles))


def _launched(trace: Trace) -> dict[int, tuple[str, int]]:
    """Launch -> its kernel, and which launch of that it is."""
    found: dict[int, tuple[str, int]] = {}
    seen = Counter[str]()
    for launch in sorted(trace.launches):
        seen[launch.kernel] += 1
        found[launch.launch] = (launch.kernel, seen[launch.kernel])
    return found


def _hashes(
    column: Array, what: Callable[[int], Any], progress: Progress = no_progress
) -> Array:
    """By row a hash of what the number in the column stands for."""
    used, which = np.unique(column, return_inverse=True)
    digests = list[bytes]()
    for count, number in enumerate(used.tolist()):
        if count % _EVERY == 0:
            progress(count / len(used))
        digests.append(blake2b(repr(what(number)).encode(), digest_size=8).digest())
    hashes: Array = np.frombuffer(b"".join(digests), np.uint64)
    return hashes[which]


def _mixed(key: Array, column: Array) -> Array:
    """Hashes of pairs of a hash and a number."""
    key = (key ^ column.astype(np.uint64)) * _KNUTH
    return np.asarray(key ^ key >> np.uint64(29))


def _counted(key: Array) -> Array:
    """``key`` mixed with how many rows before have the same."""
    order = np.argsort(key, kind="stable")
    ascending = key[order]
    firsts = np.flatnonzero(np.diff(ascending, prepend=~ascending[:1]))
    sizes = np.diff(firsts, append=len(key))
    nth = np.empty(len(key))
    nth[order] = np.arange(len(key)) - np.repeat(firsts, sizes)
    return _mixed(key, nth)


def _paths(trace: Trace) -> Array:
    """By row a hash of the nodes that its transactions pass, in whatever order.

    It is the sum of a hash for each transaction, modulo 2 ** 64.
    """
    ids = trace.node_ids
    transfers = trace.transfers
    hashes = _hashes(
        transfers.path[:], lambda path: [ids[node] for node in trace.paths[path]]
    )
    rows = transfers.row[:]
    of_ops = np.flatnonzero(rows >= 0)
    order = of_ops[np.argsort(rows[of_ops], kind="stable")]
    total = np.zeros(len(trace.op_columns.cmd), np.uint64)
    if len(order):
        owners = rows[order]
        firsts = np.flatnonzero(np.diff(owners, prepend=-1))
        total[owners[firsts]] = np.add.reduceat(hashes[order], firsts)
    return total


def _data(trace: Trace, progress: Progress) -> Array:
    """By row a hash of how many bytes it moves, and of the contents of its arrays."""

    def contents(number: int) -> Any:
        """What a stored array is; None for one that is damaged."""
        try:
            array = trace.tensor(number)
        except TraceFormatError:
            return None
        return array.dtype, _digest(array, progress)

    found: Array = trace.op_columns.nbytes.astype(np.uint64)
    for block in trace.param_blocks():
        progress(int(block.rows[0]) / len(found))
        for number, (_, letter) in enumerate(block.schema.leaves):
            if letter == "t":
                hashes = _hashes(block.values[f"f{number}"], contents, progress)
                found[block.rows] = _mixed(found[block.rows], hashes)
    return found


def _digest(array: Array, progress: Progress = no_progress) -> bytes:
    """A hash of an array's bytes."""
    if array.nbytes > _LARGE_BYTES:
        return computed_beside(lambda: _digest(array), progress, 0.5)
    return blake2b(array.tobytes()).digest()


# -- what is reported -----------------------------------------------------------------


def _beside(what: str, a: float, b: float) -> Beside:
    """Two figures, and by how much the second is larger, in percent."""
    change = ""
    if a:
        change = f"{b / a - 1:+.1%}"
    elif b:
        change = "new"
    return Beside(what, a, b, change)


def _totals(sides: _Sides, progress: Progress) -> tuple[Beside, ...]:
    """Figures of the whole run; the second is the time of the launches, ns."""
    busy_a = computed_beside(partial(_busy, sides.a), progress, 0.95)
    busy_b = computed_beside(partial(_busy, sides.b), progress, 0.95)
    window_a = computed_beside(lambda: sides.a.launch_window, progress, 0.95)
    window_b = computed_beside(lambda: sides.b.launch_window, progress, 0.95)
    launches_a = float(np.ptp(window_a))
    launches_b = float(np.ptp(window_b))
    rows = [
        _beside("end, ns", sides.a.trace.end_ns, sides.b.trace.end_ns),
        _beside("launches, ns", launches_a, launches_b),
        _beside("ops", len(sides.a.ops), len(sides.b.ops)),
    ]
    for name, a, b in zip(CLASSES.values(), busy_a, busy_b, strict=True):
        if a or b:
            rows.append(_beside(f"busy {name}, ns", a, b))
    return tuple(rows)


def _busy(side: Index) -> list[float]:
    """The summed time of the ops of each class, ns."""
    codes = side.op_index.class_codes()
    found: list[float] = np.bincount(codes, _durations(side), len(CLASSES)).tolist()
    return found


def _by_line(sides: _Sides, progress: Progress) -> list[Beside]:
    """The time of PEs by kernel line, the largest difference first."""
    times_a = _line_times(sides.a, progress)
    times_b = _line_times(sides.b, progress)
    rows = [
        _beside(line, times_a.get(line, 0.0), times_b.get(line, 0.0))
        for line in times_a | times_b
    ]
    rows.sort(key=lambda row: (-abs(float(row.b) - float(row.a)), -float(row.a)))
    return rows


def _line_times(side: Index, progress: Progress) -> dict[str, float]:
    """By file and text of a kernel line, which may have moved, ns of PEs' time."""
    spent = defaultdict[str, float](float)
    with suppress(UsageError):  # no kernel has run
        for row in side.stalls.lines(None, stage(progress, 0.9, 0.95)).rows:
            file = row.site.rpartition(":")[0]
            spent[f"{file}: {row.text}" if row.text else row.site] += row.time
    return spent


def _by_tensor(sides: _Sides, progress: Progress) -> list[Beside]:
    """The tensors whose references or verdicts differ."""
    judged_a = _judged(sides.a.trace, progress)
    judged_b = _judged(sides.b.trace, progress)
    none = _Judged(b"", "not judged")
    rows = list[Beside]()
    for name in judged_a | judged_b:
        a = judged_a.get(name, none)
        b = judged_b.get(name, none)
        if a != b:
            is_other = a.references != b.references
            change = "other reference" if is_other else ""
            rows.append(Beside(name, a.verdict, b.verdict, change))
    return rows


def _judged(trace: Trace, progress: Progress) -> dict[str, _Judged]:
    """By tensor its references, and what the run recorded of it.

    A tensor has a row of the recorded report for each shard; one that is wrong makes it
    wrong. The report is whatever a file holds, so nothing is taken for granted.
    """
    references = defaultdict[str, bytes](bytes)
    for expected in computed_beside(lambda: trace.expects, progress, 0.95):
        progress(0.95)
        digest = _digest(expected.array, progress)
        both = references[expected.tensor] + digest
        references[expected.tensor] = blake2b(both).digest()
    verdicts = dict.fromkeys(references, "not judged")
    rows = (trace.verify_report or {}).get("rows")
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict):
            continue
        name = str(row.get("tensor"))
        is_ok = row.get("ok") and verdicts.get(name) != "wrong"
        verdicts[name] = "ok" if is_ok else "wrong"
    return {
        name: _Judged(references[name], verdict) for name, verdict in verdicts.items()
    }


def _change(sides: _Sides, kind: str, row_a: int, row_b: int) -> OpChange:
    """An op that has changed, by its rows, -1 where it is missing.

    ``detail`` says what has: the bytes it moves or their contents, its hops.
    """
    op_a = int(sides.a.trace.position[row_a]) if row_a >= 0 else -1
    op_b = int(sides.b.trace.position[row_b]) if row_b >= 0 else -1
    a = sides.a.ops.row(op_a) if op_a >= 0 else None
    b = sides.b.ops.row(op_b) if op_b >= 0 else None
    shown = b or a
    assert shown is not None
    detail = ""
    if kind == "data" and a and b:
        detail = f"{a.nbytes:,} -> {b.nbytes:,} bytes"
        if a.nbytes == b.nbytes:
            detail = "contents"
    if kind == "rerouted":
        detail = f"{_hops(sides.a.trace, row_a)} -> {_hops(sides.b.trace, row_b)} hops"
    a_ns = a.t_end - a.t_start if a else 0.0
    b_ns = b.t_end - b.t_start if b else 0.0
    return OpChange(kind, op_a, op_b, a_ns, b_ns, detail, shown)


def _hops(trace: Trace, row: int) -> int:
    """The hops of all transactions of an op."""
    return sum(len(path) - 1 for path, *_ in trace.transfers_of(row))


def _wrong(
    sides: _Sides, launches: Beside, tensors: Sequence[Beside], percent: float
) -> list[str]:
    """Why B fails, if it does: longer, ended in an error, wrong tensors."""
    wrong = list[str]()
    if float(launches.b) > float(launches.a) * (1 + percent / 100) + _NOISE_NS:
        wrong.append(f"more than {percent:g} % longer")
    error = _error(sides.b.trace)
    if error and not _error(sides.a.trace):
        wrong.append(f"B ended with {error}")
    for tensor in tensors:
        if tensor.a == "ok" and tensor.b == "wrong":
            wrong.append(f"{tensor.what} is wrong")
    return wrong


def _error(trace: Trace) -> Any:
    """What a run ended with; its recording may have been cut off."""
    return (trace.end or {"error": "a cut file"}).get("error")
