"""What is slow: what would end the run sooner, and what it waits for, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kernbench.common.arrays import Bools, Floats, Ints, counted, numbered
from kernbench.common.progress import Cancelled, Progress, computed_beside, stage
from kernbench.errors import KernbenchError
from kernbench.replay.diagnosis.calls import FEWEST_PES
from kernbench.replay.diagnosis.findings import Finding, command
from kernbench.replay.index import Index
from kernbench.replay.text import count_text, time_text
from kernbench.replay.time.critical_edges import ISSUE, OPERAND, UNEXPLAINED
from kernbench.replay.time.kernel_calls import pe_label
from kernbench.replay.time.op_classes import CLASS_LETTERS
from kernbench.replay.time.spans import launches_not_ended
from kernbench.replay.whatif.answers import Gain
from kernbench.replay.whatif.fields import all_fields
from kernbench.trace import Trace
from kernbench.trace.hops import are_of_types, flat_paths

_WORTH = 0.02
"""The least share of the run that is worth a finding."""
_GAINS = 5
"""Things to make faster that are told."""
_CROWDED = 0.2
"""The share of the critical path from which on a memory is told."""
_SERIAL = 0.1
"""Of the shorter of loads and compute so much may overlap, and it is still said that
they do not."""
_SLOW_PE = 1.2
"""How many times as long as the median a PE works that is told."""
_AGAIN = 1.5
"""How often a tensor is fetched, at least, that is told."""
_SHOWN = 4
"""Ops, or tensors, that are named."""
_MEMORIES = ("hbm_ctrl", "sram", "tcm")
_MOVES_NOTHING = (ISSUE, OPERAND, UNEXPLAINED)
"""Pieces of the critical path, by WHATS, in which their op moves no bytes yet."""

_LOADS = CLASS_LETTERS.index("R")
_COMPUTES = tuple(CLASS_LETTERS.index(letter) for letter in "GM")


def waits(index: Index, progress: Progress) -> list[Finding]:
    """What the run waits for, in words."""
    if not len(index.ops):
        return []
    found = _crowded_memories(index, stage(progress, 0.0, 0.5))
    work = computed_beside(lambda: _work_of_pes(index), progress, 0.5)
    found += _serial_loads(index.trace, work)
    found += _uneven(index.trace, work)
    found += _refetched(index, stage(progress, 0.75, 1.0))
    return found


# -- what would end the run sooner --------------------------------------------


def gains(index: Index, progress: Progress) -> list[Finding]:
    """The first rows of the causal profile, what is twice as fast before what is free.

    Lines of kernels are before the machine's numbers, which their author does not have
    in his hand: in a small run most of these are of the host.

    Of a part of a run there is none, and that is unchecked. A run that took no time
    cannot end sooner, and of one that an error ended nobody wants that.
    """
    trace = index.trace
    if trace.end_ns <= 0 or not len(index.ops) or launches_not_ended(trace):
        return []
    try:
        profile = index.whatif.profile(progress, least_ns=_WORTH * trace.end_ns)
    except Cancelled:
        raise
    except KernbenchError as why:
        title = f"what would end the run sooner was not worked out: {why}"
        return [Finding("unchecked", title, (), (), (), command(trace, "whatif"))]
    told: dict[str, Gain] = {}
    for gain in profile.gains:
        known = told.get(gain.what)
        if known is None or (known.how == "free" and gain.how == "2x"):
            told[gain.what] = gain
    gains = sorted(told.values(), key=lambda gain: -gain.saved_ns)
    worth = [gain for gain in gains if gain.saved_ns >= _WORTH * profile.end_ns]
    first = sorted(worth[:_GAINS], key=lambda gain: gain.kind != "line")
    return [_of_gain(trace, gain) for gain in first]


def _faster(gain: Gain) -> str:
    """What is assumed of a thing, as the verb of a sentence."""
    if gain.how != "2x":
        return "takes no time"
    if gain.kind == "line":
        return "is twice as fast"
    return "is doubled" if all_fields()[gain.what].is_rate else "is halved"


def _of_gain(trace: Trace, gain: Gain) -> Finding:
    """What one thing alone would gain."""
    share = gain.saved_ns / gain.end_ns
    saved = time_text(gain.saved_ns)
    title = f"{share:.1%} sooner if {gain.what} {_faster(gain)} ({saved})"
    certain = "this is sure" if gain.sure else f"unsure: {gain.why}"
    lines = (gain.what,) if gain.kind == "line" else ()
    words = [gain.change, "--prove"] if gain.change else []
    return Finding(
        "slow", title, (), lines, (certain,), command(trace, "whatif", *words)
    )


# -- memories -----------------------------------------------------------------


def _crowded_memories(index: Index, progress: Progress) -> list[Finding]:
    """The memories that much of the critical path moves bytes of, and who does so."""
    trace = index.trace
    path = index.critical.path(0, stage(progress, 0.0, 0.8))
    if not len(path.ops):
        return []
    memory = computed_beside(lambda: _memory_of_ops(trace), progress, 0.8)
    of_kernels, calls = computed_beside(lambda: _rows_of_kernels(index), progress, 0.9)
    pes = np.unique(trace.commands.pe[:][calls])
    ns = np.diff(path.times)
    moves = (path.ops >= 0) & ~np.isin(path.whats, _MOVES_NOTHING)
    rows = np.where(moves, trace.order[path.ops], 0)
    at = np.where(moves, memory[rows], -1)
    whole = path.t1 - path.t0
    found = []
    for node in np.unique(at[at >= 0]).tolist():
        mine = at == node
        share = float(ns[mine].sum()) / whole
        if share < _CROWDED:
            continue
        users = np.unique(trace.commands.pe[:][calls[memory[of_kernels] == node]])
        ops = path.ops[mine]
        longest = ops[np.argsort(-ns[mine], kind="stable")]
        first = tuple(dict.fromkeys(longest[:_SHOWN].tolist()))
        lines = dict.fromkeys(row.site for row in index.ops.rows_of(first))
        who = "the host alone"
        if len(users):
            who = f"{len(users):,} of {count_text(len(pes), 'PE')}"
        title = (
            f"{share:.0%} of the critical path moves bytes of {trace.node_ids[node]}, "
            f"which {who} used"
        )
        check = command(trace, "critical")
        found.append(Finding("slow", title, first, tuple(lines), (), check))
    return sorted(found, key=lambda finding: finding.title, reverse=True)


def _memory_of_ops(trace: Trace) -> Ints:
    """By row of the log the memory that its last transfer began or ended at; -1:
    none.
    """
    nodes, firsts, sizes = flat_paths(trace)
    is_memory = are_of_types(trace, _MEMORIES)
    ends = np.full((len(firsts), 2), -1)
    some = np.flatnonzero(sizes)
    ends[some, 0] = nodes[firsts[some]]
    ends[some, 1] = nodes[firsts[some] + sizes[some] - 1]
    of_path = np.where(is_memory[ends[:, 0]], ends[:, 0], -1)
    of_path = np.where(is_memory[ends[:, 1]], ends[:, 1], of_path)
    log = trace.transfers
    row = log.row[:].astype(np.int64)
    mine = np.flatnonzero(row >= 0)
    found = np.full(len(trace.order), -1)
    found[row[mine]] = of_path[log.path[:][mine]]
    return found


# -- loads, compute, and how even they are ------------------------------------


class _Work(NamedTuple):
    """How long each PE, by its pe_cpu node, loaded and computed in a launch, ns.

    ``either`` is the time in which it did one of them at least, ``of_all`` in which any
    op of it was in service, and ``span`` from its first op to its last. ``times`` is
    how often it loaded, ``line`` the longest load, a row of the log.
    """

    pe: Ints
    launch: Ints
    times: Ints
    loads: Floats
    compute: Floats
    either: Floats
    of_all: Floats
    span: Floats
    line: Ints


def _work_of_pes(index: Index) -> _Work:
    """The work of every PE in every launch."""
    trace = index.trace
    log = trace.op_columns
    calls = trace.commands
    rows, call = _rows_of_kernels(index)
    launch = calls.launch[:][call].astype(np.int64)
    pe = calls.pe[:][call].astype(np.int64)
    keys, turn = numbered(launch << 32 | pe)
    start = log.t_start[:][rows]
    end = log.t_end[:][rows]
    codes = index.op_index.class_codes(rows)
    is_load = codes == _LOADS
    is_compute = np.isin(codes, _COMPUTES)

    def lasting(mine: Bools) -> Floats:
        return _covered(turn[mine], start[mine], end[mine], len(keys))

    first = np.full(len(keys), np.inf)
    last = np.full(len(keys), -np.inf)
    np.minimum.at(first, turn, start)
    np.maximum.at(last, turn, end)
    longest = np.full(len(keys), -1)
    load_rows = np.flatnonzero(is_load)
    by_length = load_rows[np.argsort(end[load_rows] - start[load_rows], kind="stable")]
    longest[turn[by_length]] = rows[by_length]
    return _Work(
        keys & 0xFFFFFFFF,
        keys >> 32,
        counted(turn[is_load], len(keys)),
        lasting(is_load),
        lasting(is_compute),
        lasting(is_load | is_compute),
        lasting(np.ones(len(rows), np.bool_)),
        last - first,
        longest,
    )


def _rows_of_kernels(index: Index) -> tuple[Ints, Ints]:
    """The rows of ops that kernels issued, and the row of the call of each."""
    calls = index.trace.commands
    if not len(calls.cmd):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    call = index.ops.calls(index.trace.position)
    rows = np.flatnonzero((call >= 0) & (calls.launch[:][call] >= 0))
    return rows, call[rows]


def _covered(turn: Ints, start: Floats, end: Floats, turns: int) -> Floats:
    """How much of the time at least one of the spans of each turn covers, ns."""
    found = np.zeros(turns)
    order = np.lexsort((start, turn))
    turn = turn[order]
    # Turns follow each other on one axis, so that one running maximum does for all.
    apart = float(end.max(initial=0.0) - start.min(initial=0.0)) + 1.0
    low = start[order] + turn * apart
    high = end[order] + turn * apart
    reached = np.maximum.accumulate(np.append(-np.inf, high))[:-1]
    np.add.at(found, turn, np.maximum(high - np.maximum(low, reached), 0.0))
    return found


def _serial_loads(trace: Trace, work: _Work) -> Iterator[Finding]:
    """That loads and compute take turns: of the PE that would gain most.

    A PE that loads once has nothing to load ahead. Of several loads the first cannot be
    hidden, so that of n at most n - 1 parts of what is shorter are saved.
    """
    shorter = np.minimum(work.loads, work.compute)
    overlap = work.loads + work.compute - work.either
    hidden = shorter * (1.0 - 1.0 / np.maximum(work.times, 1))
    saved = np.where(overlap <= _SERIAL * shorter, hidden - overlap, 0.0)
    share = saved / np.maximum(work.span, 1e-12)
    if not len(share) or share.max() < _WORTH:
        return
    best = int(share.argmax())
    serial = int((share >= _WORTH).sum())
    pe = pe_label(trace, int(work.pe[best]))
    title = (
        f"loads hardly overlap compute: double-buffering saves up to {share[best]:.0%} "
        f"of what {pe} takes"
    )
    evidence = (
        f"it loads for {time_text(work.loads[best])}, computes for "
        f"{time_text(work.compute[best])}, and does both at once for "
        f"{time_text(overlap[best])}",
        f"of {len(share):,} runs of a kernel on a PE {serial:,} could save at least "
        f"{_WORTH:.0%}",
    )
    op, line = _op_and_line(trace, int(work.line[best]))
    yield Finding("slow", title, op, line, evidence, command(trace, "stalls", pe))


def _uneven(trace: Trace, work: _Work) -> Iterator[Finding]:
    """The PE that works longest beside the median, in the launch where that is most."""
    found = None
    for launch in np.unique(work.launch).tolist():
        mine = np.flatnonzero(work.launch == launch)
        busy = work.of_all[mine]
        middle = float(np.median(busy))
        if len(mine) < FEWEST_PES or middle <= 0.0:
            continue
        times = float(busy.max()) / middle
        if times >= _SLOW_PE and (found is None or times > found[0]):
            found = (times, int(mine[busy.argmax()]), middle)
    if found is None:
        return
    times, row, middle = found
    pe = pe_label(trace, int(work.pe[row]))
    title = f"{pe} works {times:.2g}x the median in launch {int(work.launch[row]):,}"
    evidence = (f"{time_text(work.of_all[row])} beside {time_text(middle)}",)
    yield Finding("slow", title, (), (), evidence, command(trace, "stalls", pe))


def _op_and_line(trace: Trace, row: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The position of a row of the log, and its kernel line."""
    if row < 0:
        return (), ()
    op = int(trace.position[row])
    call = trace.command(int(trace.op_columns.cmd[row]))
    line = () if call is None else (f"{call.site.file}:{call.site.line}",)
    return (op,), line


# -- fetches ------------------------------------------------------------------


def _refetched(index: Index, progress: Progress) -> list[Finding]:
    """The tensors that the PEs fetched again, each with the first op that did so."""
    fetched = index.fetches.fetches(progress).tensors
    again = [tensor for tensor in fetched if tensor.times >= _AGAIN]
    check = command(index.trace, "fetches")
    found = []
    for tensor in again[:_SHOWN]:
        ops: tuple[int, ...] = ()
        lines: tuple[str, ...] = ()
        if tensor.again is not None:
            ops = (tensor.again,)
            site = index.ops.row(tensor.again).site
            lines = (site,) if site else ()
        found.append(Finding("slow", tensor.as_text(), ops, lines, (), check))
    return found
