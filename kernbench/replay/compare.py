"""Two traces beside each other: what the second does otherwise, and what takes longer.

Ops are matched PE by PE in the order of the program, by their kernel line and what they
do: never by time, row or address. Of those that are matched params, data, ways and
times are compared. Both traces are executed, and all tensors of the end are compared
element by element. What could not be compared is said; "ok" means that all was and
nothing differs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import zip_longest
from math import prod
from typing import Any, NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Ints
from kernbench.common.progress import Progress, computed_beside, no_progress, stage
from kernbench.errors import UsageError
from kernbench.replay.alignment import mixed
from kernbench.replay.answers import OpRow
from kernbench.replay.index import Index
from kernbench.replay.ops_beside import (
    NOISE_NS,
    Matched,
    Programs,
    Rows,
    Sides,
    durations,
    match,
)
from kernbench.replay.outputs_beside import OutputPair, differing, execute, same_tensors
from kernbench.replay.program import (
    OneOp,
    digest,
    hashes_of,
    params_apart,
    program,
)
from kernbench.replay.runs_beside import (
    SAID,
    Beside,
    differing_ends,
    error_of,
    is_whole,
    lost,
    other_benches,
    other_runs,
    rerun_of,
    same_sources,
    was_cut_off,
)
from kernbench.replay.text import count_text, table, wrapped
from kernbench.replay.time.op_classes import CLASSES
from kernbench.replay.time.spans import launched_ns
from kernbench.sim_engine.verify import Expectation
from kernbench.trace import Trace
from kernbench.trace.hops import named

PERCENT = 5.0
"""By how much the time of an op must differ to be listed where no limit is given."""

_WORDS = {
    "missing": "only in A",
    "added": "only in B",
    "params": "with other params",
    "data": "on other data",
    "rerouted": "on another way",
}
"""What is said of ops that differ, by kind; times are said by themselves."""


@dataclass(frozen=True, slots=True)
class Saving:
    """How much sooner the ops of one name and line end in B, added up, ns.

    A negative one is a loss. ``ops`` are those of B, or of A where B has none.
    """

    saved_ns: float
    a_ns: float
    b_ns: float
    ops: int
    name: str
    site: str


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

    ``runs`` is what was run otherwise: what a re-run changed, bench, parameters,
    machine, seed, source.
    ``unknown`` says what could not be compared, and why. ``same``: all was compared,
    and nothing differs. ``ok`` is that, too, or with a limit that B is within it and
    no worse. ``outputs`` are tensors whose bytes differ at the end, ``tensors`` those
    whose reference or verdict does. ``savings`` are added up over ops, ``kernel_lines``
    are ns of PEs' time.
    """

    ok: bool
    same: bool
    verdict: str
    runs: tuple[Beside, ...]
    unknown: tuple[str, ...]
    outputs: tuple[OutputPair, ...]
    tensors: tuple[Beside, ...]
    totals: tuple[Beside, ...]
    savings: tuple[Saving, ...]
    kernel_lines: tuple[Beside, ...]
    counts: dict[str, int]
    changes: tuple[OpChange, ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns: what the verdict says, a line each; tables."""
        lines = []
        for said in self.verdict.split("; "):
            lines += wrapped(said, width, 2)
        for why in self.unknown:
            lines += wrapped(f"not compared: {why}", width, 2)
        if self.runs:
            lines += table(self.runs, "what a b")
        if self.outputs:
            names = "tensor differ beyond elements dtype first a b note"
            lines += table(self.outputs, names)
            commands = [pair.blame for pair in self.outputs if pair.blame]
            for command in commands[:SAID]:
                lines += wrapped(command, width, 2)
        for rows in (self.tensors, self.totals):
            if rows:
                lines += table(rows, "a b change what")
        if self.savings:
            names = "saved_ns a_ns b_ns ops name site"
            lines += table(self.savings, names, width=width)
        if self.kernel_lines:
            lines += table(self.kernel_lines, "a b change what")
        counts = [f"{count:,} {kind}" for kind, count in self.counts.items()]
        lines += wrapped("ops: " + ", ".join(counts), width, 2)
        if self.changes:
            names = "kind op_a op_b a_ns b_ns name component site"
            if any(change.detail for change in self.changes):
                names = "kind op_a op_b a_ns b_ns name component detail site"
            lines += table(self.changes, names, width=width)
        return lines


class _Judged(NamedTuple):
    """The digest of all references of a tensor, and its verdict."""

    references: bytes
    verdict: str


class _Data(NamedTuple):
    """What differs in the tensors of the end, or why that is not known."""

    outputs: list[OutputPair]
    unknown: list[str]


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

    Without ``percent`` B is ``ok`` if all was compared and nothing differs. With it B
    may be another program that takes other times: it is not ``ok`` if its launches take
    more than that longer, if launches ended in one of both only, if it ended in an
    error where A did not, if a tensor is wrong that was right, or if from the same
    inputs one has become another by more than its dtype's tolerance. Nor is it where
    one was cut off. UsageError with a limit for two benches.
    """
    _refuse_other_bench(trace_a, trace_b, percent)
    sides = computed_beside(
        lambda: Sides(Index(trace_a), Index(trace_b)), progress, 0.0
    )
    traces = (trace_a, trace_b)
    least = PERCENT
    if percent is not None:
        least = percent
    programs = Programs(
        program(sides.a, stage(progress, 0.0, 0.1)),
        program(sides.b, stage(progress, 0.1, 0.2)),
    )
    matched = match(sides, programs, least, stage(progress, 0.2, 0.4))
    changes = list[OpChange]()
    for kind, rows in matched.kinds.items():
        first_a = rows.a[:limit].tolist()
        first_b = rows.b[:limit].tolist()
        for row_a, row_b in zip_longest(first_a, first_b, fillvalue=-1):
            progress(0.4)
            changes.append(_change(sides, programs, matched, kind, row_a, row_b))
    data = _data(sides, programs, stage(progress, 0.4, 0.9))
    files = computed_beside(lambda: same_sources(*traces), progress, 0.9)
    runs = computed_beside(lambda: other_runs(*traces, files), progress, 0.9)
    by_line = _by_line(sides, files, progress)
    totals = _totals(sides, progress)
    tensors = _by_tensor(sides, progress)
    savings = computed_beside(lambda: _savings(sides, matched, files), progress, 0.95)
    counts = {"matched": len(matched.pairs.a)}
    for kind, rows in matched.kinds.items():
        counts[kind] = max(len(rows.a), len(rows.b))
    unknown = [*data.unknown, *lost(*traces)]
    differs = _differing_ops(traces, counts)
    differs += _differing_data(data.outputs, tensors)
    issued = (programs.a.calls, programs.b.calls)
    differs += computed_beside(
        lambda: differing_ends(*traces, *issued, files), progress, 0.95
    )
    if matched.any_time or any(row.a != row.b for row in totals):
        differs.append(_differing_times(traces, totals[1], counts, least))
    same = not (differs or runs or unknown)
    ok = same
    said = list[str]()
    changed = computed_beside(lambda: rerun_of(*traces), progress, 0.95)
    if changed:
        said.append(changed)
    others = [row for row in runs if not changed or row.what != "changed"]
    if others:
        said.append(_other_run(others))
    if percent is not None:
        wrong = _wrong(traces, totals[1], tensors, percent)
        has_same_inputs = _same_inputs(sides, matched)
        if has_same_inputs:
            wrong += _not_as_before(data.outputs)
        ok = not wrong
        said += wrong or [_within(traces, percent)]
        if not has_same_inputs:
            said.append("other inputs, so outputs were not held against A's")
    if unknown:
        said.append("not all could be compared")
    if same:
        said.append("ok: nothing differs")
    elif not (differs or unknown):
        said.append("nothing else differs")
    return Comparison(
        ok=ok,
        same=same,
        verdict="; ".join([*said, *differs]),
        runs=tuple(runs),
        unknown=tuple(unknown),
        outputs=tuple(data.outputs[:limit]),
        tensors=tuple(tensors[:limit]),
        totals=totals,
        savings=tuple(savings[:limit]),
        kernel_lines=tuple(by_line[:limit]),
        counts=counts,
        changes=tuple(changes),
    )


def _refuse_other_bench(a: Trace, b: Trace, percent: float | None) -> None:
    """UsageError where two benches are to be held to a limit: it would say nothing."""
    benches = other_benches(a, b)
    if benches is not None and percent is not None:
        raise UsageError(
            f"{a.path} is of bench {benches[0]}, {b.path} of bench {benches[1]}: a "
            "limit is for two runs of one bench; compare without one shows what differs"
        )


# -- data ------------------------------------------------------------------------------


def _data(sides: Sides, programs: Programs, progress: Progress) -> _Data:
    """The tensors that differ when all ops have run, or why that is not known.

    Nothing is executed where both traces do the same on the same data, in the same
    order: what comes of that is the same.
    """
    do_same = computed_beside(lambda: _do_same(sides, programs), progress, 0.0)
    if do_same and same_tensors(*sides, progress):
        return _Data([], [])
    unknown = list[str]()
    for which, side, low in (("A", sides.a, 0.0), ("B", sides.b, 0.4)):
        if was_cut_off(side.trace):
            unknown.append(f"tensors, as {which} was cut off before its end")
            continue
        why = execute(side, stage(progress, low, low + 0.4))
        if why:
            unknown.append(f"tensors, as {which} cannot be executed: {why}")
    if unknown:
        return _Data([], unknown)
    return _Data(differing(*sides, stage(progress, 0.8, 1.0)), [])


def _do_same(sides: Sides, programs: Programs) -> bool:
    """Whether both traces hold data, and execute the same in the same order."""
    executed = list[Array]()
    for side, mine in zip(sides, programs, strict=True):
        trace = side.trace
        if trace.cut or trace.header.get("data") is False:
            return False
        rows = trace.order[trace.executable_positions]
        executed.append(mixed(mine.absolute[rows], mine.contents[rows]))
    warns = [side.trace.header.get("warn_memory") for side in sides]
    return warns[0] == warns[1] and np.array_equal(executed[0], executed[1])


# -- what is reported -----------------------------------------------------------------


def _other_run(runs: Sequence[Beside]) -> str:
    """What was run otherwise, in a few words."""
    named = [f"{row.what} {row.a} -> {row.b}" for row in runs[:SAID]]
    more = len(runs) - len(named)
    if more:
        named.append(f"{more} more")
    return f"other runs ({', '.join(named)})"


def _differing_ops(traces: tuple[Trace, Trace], counts: Mapping[str, int]) -> list[str]:
    """How many ops differ, by kind; those that may be lost are said to be."""
    a, b = traces
    words = dict(_WORDS)
    if not is_whole(b):
        words["missing"] = "not in what there is of B"
    if not is_whole(a):
        words["added"] = "not in what there is of A"
    return [
        f"{count_text(counts[kind], 'op')} {said}"
        for kind, said in words.items()
        if counts[kind]
    ]


def _differing_data(
    outputs: Sequence[OutputPair], tensors: Sequence[Beside]
) -> list[str]:
    """Which tensors differ, the first of them in full."""
    found = list[str]()
    for pair in outputs[:SAID]:
        if pair.note:
            found.append(f"{pair.tensor}: {pair.note}")
            continue
        found.append(
            f"{pair.tensor} differs in {pair.differ:,} of {pair.elements:,} elements, "
            f"{pair.beyond:,} beyond tolerance; {pair.first}: {pair.a} -> {pair.b}"
        )
    if len(outputs) > SAID:
        found.append(f"{len(outputs) - SAID} more tensors differ")
    if tensors:
        names = ", ".join(row.what for row in tensors[:SAID])
        found.append(f"other references or verdicts of {names}")
    return found


def _differing_times(
    traces: tuple[Trace, Trace],
    launches: Beside,
    counts: Mapping[str, int],
    percent: float,
) -> str:
    """By how much times differ, of launches where some ended in both."""
    said = _without_launches(traces)
    if not said:
        said = f"launches take {launches.change or 'no time'}"
        if not all(is_whole(trace) for trace in traces):
            said = f"the launches that are there take {launches.change or 'no time'}"
    listed = counts["slower"] + counts["faster"]
    return f"{said}, {count_text(listed, 'op')} by more than {percent:g} %"


def _without_launches(traces: tuple[Trace, Trace]) -> str:
    """In which of A and B no launch ended, in words; nothing if some did in both."""
    has_a, has_b = (bool(trace.launches) for trace in traces)
    if has_a and has_b:
        return ""
    if has_a:
        return "no launch ended in B"
    if has_b:
        return "no launch ended in A"
    return "no launch ended"


def _savings(sides: Sides, matched: Matched, files: Mapping[str, str]) -> list[Saving]:
    """By op name and kernel line how much sooner B's ops end, the largest first."""
    pairs = matched.pairs
    groups_a = _name_and_line(sides.a, files)
    groups_b = _name_and_line(sides.b, {})
    own = matched.kinds["missing"].a
    new = matched.kinds["added"].b
    keys = np.concatenate([groups_b[pairs.b], groups_a[own], groups_b[new]])
    a_ns = np.zeros(len(keys))
    b_ns = np.zeros(len(keys))
    both = len(pairs.a)
    a_ns[:both] = durations(sides.a)[pairs.a]
    b_ns[:both] = durations(sides.b)[pairs.b]
    a_ns[both : both + len(own)] = durations(sides.a)[own]
    b_ns[both + len(own) :] = durations(sides.b)[new]
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    counts = np.bincount(which, minlength=len(first))
    sum_a = np.bincount(which, a_ns, len(first))
    sum_b = np.bincount(which, b_ns, len(first))
    found = list[Saving]()
    order = np.argsort(sum_b - sum_a, kind="stable")
    for group in order[np.abs(sum_b - sum_a)[order] > NOISE_NS].tolist():
        place = int(first[group])
        row = _shown(sides, pairs, own, new, place)
        a = float(sum_a[group])
        b = float(sum_b[group])
        found.append(Saving(a - b, a, b, int(counts[group]), row.name, row.site))
    return found


def _shown(sides: Sides, pairs: Rows, own: Ints, new: Ints, place: int) -> OpRow:
    """The op at a place of those that are in both, only in A, only in B."""
    if place < len(pairs.b):
        return sides.b.ops.row(int(sides.b.trace.position[pairs.b[place]]))
    place -= len(pairs.b)
    if place < len(own):
        return sides.a.ops.row(int(sides.a.trace.position[own[place]]))
    return sides.b.ops.row(int(sides.b.trace.position[new[place - len(own)]]))


def _name_and_line(side: Index, files: Mapping[str, str]) -> Array:
    """By row a hash of an op's name and its kernel line, in a file of ``files``."""
    trace = side.trace
    text = trace.strings.__getitem__

    def place(site: int) -> Any:
        if site < 0:
            return site
        file = text(site >> 32)
        return files.get(file, file), site & 0xFFFFFFFF

    sites = hashes_of(side.ops.sites(trace.position), place)
    return mixed(hashes_of(trace.op_columns.name[:], text), sites)


def _beside(what: str, a: float, b: float) -> Beside:
    """Two figures, and by how much the second is larger, in percent."""
    change = ""
    if a:
        change = f"{b / a - 1:+.1%}"
    elif b:
        change = "new"
    return Beside(what, a, b, change)


def _totals(sides: Sides, progress: Progress) -> tuple[Beside, ...]:
    """Figures of the whole run; the second is the time in which launches ran, ns."""
    busy_a = computed_beside(partial(_busy, sides.a), progress, 0.95)
    busy_b = computed_beside(partial(_busy, sides.b), progress, 0.95)
    launches = computed_beside(
        lambda: _launches(sides.a.trace, sides.b.trace), progress, 0.95
    )
    rows = [
        _beside("end, ns", sides.a.trace.end_ns, sides.b.trace.end_ns),
        launches,
        _beside("ops", len(sides.a.ops), len(sides.b.ops)),
    ]
    for name, a, b in zip(CLASSES.values(), busy_a, busy_b, strict=True):
        if a or b:
            rows.append(_beside(f"busy {name}, ns", a, b))
    return tuple(rows)


def _launches(a: Trace, b: Trace) -> Beside:
    """For how long launches ran, ns; where none ended the change says so."""
    launches = _beside("launches, ns", launched_ns(a), launched_ns(b))
    return replace(launches, change=_without_launches((a, b)) or launches.change)


def _busy(side: Index) -> list[float]:
    """The summed time of the ops of each class, ns."""
    codes = side.op_index.class_codes()
    found: list[float] = np.bincount(codes, durations(side), len(CLASSES)).tolist()
    return found


def _by_line(
    sides: Sides, files: Mapping[str, str], progress: Progress
) -> list[Beside]:
    """The time of PEs by kernel line, the largest difference first.

    Lines of a file that was in another folder are named by where it is in B.
    """
    times_a = _line_times(sides.a, files, progress)
    times_b = _line_times(sides.b, {}, progress)
    rows = [
        _beside(line, times_a.get(line, 0.0), times_b.get(line, 0.0))
        for line in times_a | times_b
    ]
    rows.sort(key=lambda row: (-abs(float(row.b) - float(row.a)), -float(row.a)))
    return rows


def _line_times(
    side: Index, files: Mapping[str, str], progress: Progress
) -> dict[str, float]:
    """By file and text of a kernel line, which may have moved, ns of PEs' time."""
    spent = defaultdict[str, float](float)
    with suppress(UsageError):  # no kernel has run
        for row in side.stalls.lines(None, stage(progress, 0.9, 0.95)).rows:
            shown, _, number = row.site.rpartition(":")
            file = files.get(shown, shown)
            line = f"{file}: {row.text}" if row.text else f"{file}:{number}"
            spent[line] += row.time
    return spent


def _by_tensor(sides: Sides, progress: Progress) -> list[Beside]:
    """The tensors whose references or verdicts differ, of what is not lost."""
    judged_a = _judged(sides.a.trace, progress)
    judged_b = _judged(sides.b.trace, progress)
    none = _Judged(b"", "not judged")
    rows = list[Beside]()
    for name in judged_a | judged_b:
        a = judged_a.get(name, none)
        b = judged_b.get(name, none)
        is_lost = any(
            judged.verdict == none.verdict and not is_whole(side.trace)
            for judged, side in ((a, sides.a), (b, sides.b))
        )
        if a != b and not is_lost:
            is_other = a.references != b.references
            change = "other reference" if is_other else ""
            rows.append(Beside(name, a.verdict, b.verdict, change))
    return rows


def _judged(trace: Trace, progress: Progress) -> dict[str, _Judged]:
    """By tensor its references, and what the run recorded of it."""
    parts = defaultdict[tuple[str, int], list[Expectation]](list)
    for expected in computed_beside(lambda: trace.expects, progress, 0.95):
        parts[expected.tensor, expected.after].append(expected)
    references = defaultdict[str, bytes](bytes)
    for (name, _), shards in parts.items():
        progress(0.95)
        both = references[name] + _reference(shards, progress)
        references[name] = blake2b(both).digest()
    verdicts = dict.fromkeys(references, "not judged")
    for name, was_ok in trace.recorded_verdicts.items():
        verdicts[name] = "ok" if was_ok else "wrong"
    return {
        name: _Judged(references[name], verdict) for name, verdict in verdicts.items()
    }


def _reference(shards: Sequence[Expectation], progress: Progress) -> bytes:
    """A hash of what a tensor is to be, however it lies in shards and copies."""
    whole = computed_beside(lambda: _joined(shards), progress, 0.95)
    return b"".join(digest(array, progress) for array in whole)


def _joined(shards: Sequence[Expectation]) -> list[Array]:
    """The references of shards as that of the whole tensor.

    In a damaged trace shards may lie anywhere: they are left as they are then.
    """
    arrays = [shard.array for shard in shards]
    boxes = [
        [
            slice(low, low + size)
            for low, size in zip(x.origin, x.array.shape, strict=True)
        ]
        for x in shards
    ]
    kinds = {(array.ndim, array.dtype) for array in arrays}
    shape = [max(part.stop for part in axis) for axis in zip(*boxes, strict=False)]
    if len(kinds) > 1 or prod(shape) > sum(array.size for array in arrays):
        return arrays
    whole = np.zeros(shape, arrays[0].dtype)
    for box, array in zip(boxes, arrays, strict=True):
        whole[tuple(box)] = array
    return [whole]


def _change(
    sides: Sides,
    programs: Programs,
    matched: Matched,
    kind: str,
    row_a: int,
    row_b: int,
) -> OpChange:
    """An op that has changed, by its rows, -1 where it is missing.

    ``detail`` says what has: its params, the contents of its data, its hops.
    """
    op_a = int(sides.a.trace.position[row_a]) if row_a >= 0 else -1
    op_b = int(sides.b.trace.position[row_b]) if row_b >= 0 else -1
    a = sides.a.ops.row(op_a) if op_a >= 0 else None
    b = sides.b.ops.row(op_b) if op_b >= 0 else None
    shown = b or a
    assert shown is not None
    detail = ""
    if kind == "data":
        detail = "contents"
    if kind == "params" and a and b:
        one = OneOp(sides.a, programs.a, matched.makers[0], row_a)
        other = OneOp(sides.b, programs.b, matched.makers[1], row_b)
        detail = params_apart(one, other)
        if a.component != b.component:
            detail = f"{a.component} -> {b.component} {detail}"
    if kind == "rerouted":
        detail = f"{_hops(sides.a.trace, row_a)} -> {_hops(sides.b.trace, row_b)} hops"
    a_ns = a.t_end - a.t_start if a else 0.0
    b_ns = b.t_end - b.t_start if b else 0.0
    return OpChange(kind, op_a, op_b, a_ns, b_ns, detail, shown)


def _hops(trace: Trace, row: int) -> int:
    """The hops of all transactions of an op."""
    return sum(len(path) - 1 for path, *_ in trace.transfers_of(row))


def _within(traces: tuple[Trace, Trace], percent: float) -> str:
    """That B is within the limit; of no launches it is that there was no time."""
    if _without_launches(traces):
        return f"no launch ended, so there is no time to hold to {percent:g} %"
    return f"within {percent:g} %"


def _wrong(
    traces: tuple[Trace, Trace],
    launches: Beside,
    tensors: Sequence[Beside],
    percent: float,
) -> list[str]:
    """Why B fails, if it does: no measure, longer, ended in an error, wrong tensors."""
    a, b = traces
    cut = [which for which, one in zip("AB", traces, strict=True) if was_cut_off(one)]
    wrong = [f"{which} was cut off" for which in cut]
    is_longer = float(launches.b) > float(launches.a) * (1 + percent / 100) + NOISE_NS
    if bool(a.launches) != bool(b.launches):
        wrong.append(_without_launches(traces))
    elif is_longer and not cut:
        wrong.append(f"more than {percent:g} % longer")
    error = error_of(b)
    if error and not error_of(a):
        wrong.append(f"B ended with {error}")
    for tensor in tensors:
        if tensor.a == "ok" and tensor.b == "wrong":
            wrong.append(f"{tensor.what} is wrong")
    return wrong


def _not_as_before(outputs: Sequence[OutputPair]) -> list[str]:
    """Which tensors are not as they were in A, within the tolerance of their dtype."""
    return [
        f"{pair.tensor} is not as in A" for pair in outputs if pair.beyond or pair.note
    ]


def _same_inputs(sides: Sides, matched: Matched) -> bool:
    """Whether the host has written the same data in both."""
    kinds = matched.kinds
    of_a = np.concatenate([kinds["missing"].a, kinds["data"].a])
    of_b = kinds["added"].b
    inputs = [
        named(side.trace, "host_write")[rows].any()
        for side, rows in zip(sides, (of_a, of_b), strict=True)
    ]
    return not any(inputs)
