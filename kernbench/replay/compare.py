"""Two traces beside each other: what the second does otherwise, and what takes it longer.

Ops are matched by kernel and which launch of it, PE, call and which one of that name in the launch,
op name and tile: never by time, row or address; equals of one call by their order. Data are what
traces hold: bytes moved, contents of host writes and snapshots, references and their verdict. All
of that is compared by numbers of 64 bits.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

import numpy as np

from kernbench.common.arrays import Array, Ints
from kernbench.common.progress import Progress, no_progress
from kernbench.errors import TraceFormatError, UsageError
from kernbench.replay.answers import OpRow
from kernbench.replay.index import Index
from kernbench.replay.text import table
from kernbench.replay.time.op_classes import CLASSES
from kernbench.trace import Trace
from kernbench.trace.hops import tile_columns

PERCENT = (
    5.0  # by which an op must differ to be slower or faster, where no limit is given
)
_NOISE_NS = 1e-6  # of differences of times


@dataclass(frozen=True, slots=True)
class Beside:
    """One figure or verdict of both."""

    what: str
    a: float | str
    b: float | str
    change: str


@dataclass(frozen=True, slots=True)
class OpChange:
    """An op that differs; ``op_a``, ``op_b``: its positions (-1: none), ``row``: B's, else A's."""

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

    ``kernel_lines`` are ns of PEs' time; ``tensors`` those whose reference or verdict differs.
    ``ok`` is False only where a limit was given and B is over it.
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
            lines += table(rows, "a b change what") if rows else []
        lines.append(
            "ops: " + ", ".join(f"{n:,} {kind}" for kind, n in self.counts.items())
        )
        names = "kind op_a op_b a_ns b_ns name component detail site"
        return lines + (table(self.changes, names, width=width) if self.changes else [])


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
    """B beside A, at most ``limit`` rows a list (ops: a kind), the largest differences first.

    With ``percent`` B is not ``ok`` if its launches take more than that longer, if it ended in an
    error where A did not, or if a tensor is wrong that was right; other ops or inputs are no error.
    """
    sides = Index(trace_a), Index(trace_b)
    ops, found = _matched(sides, PERCENT if percent is None else percent, progress)
    changes = [
        _change(sides, kind, pair)
        for kind, rows in found.items()
        for pair in zip_longest(*(side[:limit].tolist() for side in rows), fillvalue=-1)
    ]
    progress(0.9)
    times = [_line_times(side) for side in sides]
    by_line = [
        _beside(text, *(t.get(text, 0.0) for t in times))
        for text in times[0] | times[1]
    ]
    by_line.sort(key=lambda line: (-abs(float(line.b) - float(line.a)), -float(line.a)))
    totals, judged = _totals(sides), [_judged(side.trace) for side in sides]
    tensors = []
    for name in dict.fromkeys((*judged[0], *judged[1])):
        (before, a), (after, b) = (side[name] for side in judged)
        if (before, a) != (after, b):
            tensors.append(
                Beside(name, a, b, "" if before == after else "other reference")
            )
    counts = {"matched": ops} | {
        kind: max(map(len, rows)) for kind, rows in found.items()
    }
    verdict, wrong = f"launches {totals[1].change or 'none'}", list[str]()
    if percent is not None:
        wrong = _wrong(sides, totals[1], tensors, percent)
        verdict += f": {'; '.join(wrong) or 'ok'}"
    shown = tuple(by_line[:limit]), tuple(tensors[:limit])
    return Comparison(not wrong, verdict, totals, *shown, counts, tuple(changes))


# -- which op is which, and what differs --------------------------------------


def _matched(
    sides: Sequence[Index], percent: float, progress: Progress
) -> tuple[int, dict[str, tuple[Ints, Ints]]]:
    """How many ops are in both; by kind the rows of A and of B, in the order to be listed."""
    keys = [_identities(side) for side in sides]
    progress(0.4)
    _, ia, ib = np.intersect1d(
        keys[0], keys[1], assume_unique=True, return_indices=True
    )
    progress(0.6)
    a, b = (side.trace.op_columns for side in sides)
    ns = (a.t_end - a.t_start)[ia]
    longer, beyond = (b.t_end - b.t_start)[ib] - ns, ns * percent / 100 + _NOISE_NS
    order = np.lexsort((ia, -np.abs(longer).round(6)))
    differ = {"slower": longer > beyond, "faster": -longer > beyond}
    for kind, what in (("rerouted", _paths), ("data", _data)):
        before, after = (what(side.trace) for side in sides)
        differ[kind] = before[ia] != after[ib]
    only_a, only_b = (
        np.delete(np.arange(len(keys[0])), ia),
        np.delete(np.arange(len(keys[1])), ib),
    )
    found = {"missing": (only_a, only_a[:0]), "added": (only_b[:0], only_b)}
    for kind, which in differ.items():
        mine = order[which[order]]
        found[kind] = ia[mine], ib[mine]
    return len(ia), found


def _identities(side: Index) -> Array:
    """By row a number for what the op is of the program; no two ops of a trace have the same."""
    trace, text = side.trace, side.trace.strings.__getitem__
    ops, calls = trace.op_columns, trace.commands
    named, seen = dict[int, Any](), Counter[str]()
    for launch in sorted(trace.launches):
        seen[launch.kernel] += 1
        named[launch.launch] = launch.kernel, seen[launch.kernel]
    call = _mixed(
        _hashes(calls.launch[:], named.get),
        _hashes(calls.pe[:], trace.node_ids.__getitem__),
    )
    call = np.append(
        _counted(_mixed(call, _hashes(calls.call[:], text))), np.uint64(0)
    )  # 0: unknown
    key = _mixed(call[side.ops.calls(trace.position)], _hashes(ops.name[:], text))
    return _counted(_mixed(key, tile_columns(trace)[1]))


def _hashes(column: Array, name: Callable[[int], Any]) -> Array:
    used, which = np.unique(column, return_inverse=True)
    digests = [
        blake2b(repr(name(n)).encode(), digest_size=8).digest() for n in used.tolist()
    ]
    hashes: Array = np.frombuffer(b"".join(digests), np.uint64)
    return hashes[which]


def _mixed(key: Array, column: Array) -> Array:
    key = (key ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(key ^ key >> np.uint64(29))


def _counted(key: Array) -> Array:
    """``key`` mixed with how many rows before have the same."""
    order = np.argsort(key, kind="stable")
    first, nth = (
        np.flatnonzero(np.diff(key[order], prepend=~key[order[:1]])),
        np.empty(len(key)),
    )
    nth[order] = np.arange(len(key)) - np.repeat(first, np.diff(first, append=len(key)))
    return _mixed(key, nth)


def _paths(trace: Trace) -> Array:
    """By row a number for the nodes that its transactions pass, in whatever order."""
    total, ids = np.zeros(len(trace.op_columns.cmd) + 1, np.uint64), trace.node_ids
    paths = _hashes(
        trace.transfers.path[:], lambda path: [ids[node] for node in trace.paths[path]]
    )
    np.add.at(total, trace.transfers.row, paths)  # those of no op: the last
    return total[:-1]


def _data(trace: Trace) -> Array:
    """By row a number for how many bytes it moves, and the contents of its arrays."""

    def stored(number: int) -> Any:
        try:
            return trace.tensor(number).dtype, _digest(trace.tensor(number))
        except TraceFormatError:
            return None

    found: Array = trace.op_columns.nbytes.astype(np.uint64)
    for block in trace.param_blocks():
        for i in [i for i, leaf in enumerate(block.schema.leaves) if leaf[1] == "t"]:
            found[block.rows] = _mixed(
                found[block.rows], _hashes(block.values[f"f{i}"], stored)
            )
    return found


def _digest(array: Array) -> bytes:
    return blake2b(array.tobytes()).digest()


# -- what is reported ---------------------------------------------------------


def _beside(what: str, a: float, b: float) -> Beside:
    return Beside(what, a, b, f"{b / a - 1:+.1%}" if a else "new" if b else "")


def _totals(sides: Sequence[Index]) -> tuple[Beside, ...]:
    busy = []
    for side in sides:
        ops, codes = (
            side.trace.op_columns,
            side.op_index.class_codes(),
        )
        busy.append(np.bincount(codes, ops.t_end - ops.t_start, len(CLASSES)).tolist())
    by_class = zip(CLASSES.values(), *busy, strict=True)
    return (
        _beside("end, ns", *(side.trace.end_ns for side in sides)),
        _beside("launches, ns", *(float(np.ptp(side.launch_window)) for side in sides)),
        _beside("ops", *(len(side.ops) for side in sides)),
        *(_beside(f"busy {name}, ns", a, b) for name, a, b in by_class if a or b),
    )


def _line_times(side: Index) -> dict[str, float]:
    """By file and text of a kernel line, as it may have moved, the time of PEs in ns."""
    spent = defaultdict[str, float](float)
    with suppress(UsageError):  # no kernel has run
        for row in side.stalls.lines(None, no_progress).rows:
            file = row.site.rpartition(":")[0]
            spent[f"{file}: {row.text}" if row.text else row.site] += row.time
    return spent


def _judged(trace: Trace) -> dict[str, tuple[bytes, str]]:
    """Tensor -> digest of its references, and its verdict."""
    found = defaultdict[str, tuple[bytes, str]](lambda: (b"", "not judged"))
    for expected in trace.expects:
        held = found[expected.tensor]
        found[expected.tensor] = (
            blake2b(held[0] + _digest(expected.array)).digest(),
            held[1],
        )
    rows = (trace.verify_report or {}).get("rows")
    for row in filter(
        lambda row: isinstance(row, dict), rows if isinstance(rows, list) else ()
    ):
        held = found[name := str(row.get("tensor"))]
        found[name] = held[0], "ok" if row.get("ok") and held[1] != "wrong" else "wrong"
    return found


def _change(sides: Sequence[Index], kind: str, rows: Sequence[int]) -> OpChange:
    pairs = list(zip(sides, rows, strict=True))
    op_a, op_b = (
        int(side.trace.position[row]) if row >= 0 else -1 for side, row in pairs
    )
    a, b = (
        side.ops.row(op) if op >= 0 else None
        for side, op in zip(sides, (op_a, op_b), strict=True)
    )
    a_ns, b_ns = (r.t_end - r.t_start if r else 0.0 for r in (a, b))
    detail, shown = "", b or a
    if kind == "data" and a and b:
        detail = (
            "contents"
            if a.nbytes == b.nbytes
            else f"{a.nbytes:,} -> {b.nbytes:,} bytes"
        )
    if kind == "rerouted":
        hops = [
            sum(len(leg[0]) - 1 for leg in s.trace.transfers_of(row))
            for s, row in pairs
        ]
        detail = f"{hops[0]} -> {hops[1]} hops"
    assert shown is not None
    return OpChange(kind, op_a, op_b, a_ns, b_ns, detail, shown)


def _wrong(
    sides: Sequence[Index],
    launches: Beside,
    tensors: Sequence[Beside],
    percent: float,
) -> list[str]:
    a, b = ((side.trace.end or {"error": "a cut file"}).get("error") for side in sides)
    wrong = [f"B ended with {b}"] if b and not a else []
    if float(launches.b) > float(launches.a) * (1 + percent / 100) + _NOISE_NS:
        wrong.insert(0, f"more than {percent:g} % longer")
    return wrong + [
        f"{t.what} is wrong" for t in tensors if (t.a, t.b) == ("ok", "wrong")
    ]
