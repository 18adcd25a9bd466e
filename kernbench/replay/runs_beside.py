"""What two traces say of their runs: what was run otherwise, how both ended.

All of it is known without any op.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import PurePath
from typing import Any

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.replay.text import count_text
from kernbench.trace import Trace
from kernbench.trace.changed import changed_of

SAID = 3
"""Things of a kind that a verdict names; tables have all."""

_RECORDER = (
    *("version", "kernbench", "code_sha", "crc", "pad", "time_unit", "topology_hash"),
    *("bench_file", "bench_sha", "debug", "max_ns", "max_ops"),
)
"""What the head of a trace says of the file and of who recorded it, not of the run.

A bench's text is among the sources, which are compared line by line; a limit that ended
a run is in how it ended.
"""


@dataclass(frozen=True, slots=True)
class Beside:
    """One figure or verdict of both."""

    what: str
    a: float | str
    b: float | str
    change: str


def same_sources(a: Trace, b: Trace) -> dict[str, str]:
    """By source file of A the one of B that it is, whatever folder either was in.

    That is the one with its path, else one with its text, else one with its name; of
    several the one whose folders are the same the furthest up.
    """
    found = {path: path for path in a.sources if path in b.sources}
    for is_same in (_same_text, _same_name):
        left_a = [path for path in a.sources if path not in found]
        left_b = b.sources.keys() - found.values()
        pairs = [
            (path_a, path_b)
            for path_a in left_a
            for path_b in sorted(left_b)
            if is_same(a, path_a, b, path_b)
        ]
        pairs.sort(key=lambda pair: -_alike_from_the_end(*pair))
        for path_a, path_b in pairs:
            if path_a not in found and path_b not in found.values():
                found[path_a] = path_b
    return found


def _same_text(a: Trace, path_a: str, b: Trace, path_b: str) -> bool:
    """Whether two files have the same text."""
    return a.sources[path_a].text == b.sources[path_b].text


def _same_name(a: Trace, path_a: str, b: Trace, path_b: str) -> bool:
    """Whether two files have the same name."""
    return PurePath(path_a).name == PurePath(path_b).name


def _alike_from_the_end(path_a: str, path_b: str) -> int:
    """How many parts of two paths are the same, from the name of the file upwards."""
    count = 0
    for part_a, part_b in zip(
        reversed(PurePath(path_a).parts), reversed(PurePath(path_b).parts), strict=False
    ):
        if part_a != part_b:
            break
        count += 1
    return count


def other_benches(a: Trace, b: Trace) -> tuple[str, str] | None:
    """The names of the two benches, if they are known to be two."""
    bench_a = str(a.header.get("bench") or "")
    bench_b = str(b.header.get("bench") or "")
    if bench_a and bench_b and bench_a != bench_b:
        return bench_a, bench_b
    return None


def other_runs(a: Trace, b: Trace, files: Mapping[str, str]) -> list[Beside]:
    """What was run otherwise: what a re-run changed, then all by itself.

    That is bench, parameters, seed, machine, source; ``files`` as of ``same_sources``.
    """
    found = list[Beside]()
    changes_a = _changes(a)
    changes_b = _changes(b)
    if changes_a != changes_b:
        found.append(Beside("changed", changes_a or "-", changes_b or "-", ""))
    # an older trace does not say with which collectives it ran
    known = a.header.keys() & b.header.keys()
    facts_a = dict(_facts(a, known))
    facts_b = dict(_facts(b, known))
    for what in facts_a | facts_b:
        fact_a = facts_a.get(what, "-")
        fact_b = facts_b.get(what, "-")
        if fact_a != fact_b:
            found.append(Beside(what, fact_a, fact_b, ""))
    return [*found, *_other_sources(a, b, files)]


def rerun_of(a: Trace, b: Trace) -> str:
    """Which of two traces is a re-run of the other, and what that changed; "" if none.

    It may be one of what the other repeats, too.
    """
    for this, that, name, other in ((b, a, "B", "A"), (a, b, "A", "B")):
        changed = changed_of(this.header)
        if changed is not None and changed.of == that.fingerprint():
            return f"{name} is {other} with {_changes(this)}"
    return ""


def _changes(trace: Trace) -> str:
    """What a re-run changed, in one line; "" of a run that repeats none."""
    changed = changed_of(trace.header)
    if changed is None:
        return ""
    return "; ".join(changed.lines())


def _other_sources(a: Trace, b: Trace, files: Mapping[str, str]) -> Iterator[Beside]:
    """The source files whose text differs, by the first line that does.

    Of those that are in one trace alone each is beside one of the other's.
    """
    own_a = [path for path in a.sources if path not in files]
    own_b = [path for path in b.sources if path not in files.values()]
    for path_a, path_b in [*files.items(), *zip_longest(own_a, own_b, fillvalue="-")]:
        text_a = _source_lines(a, path_a)
        text_b = _source_lines(b, path_b)
        if text_a != text_b:
            line_a, line_b = _first_line_apart(text_a, text_b)
            name_a = PurePath(path_a).name
            name_b = PurePath(path_b).name
            yield Beside("source", f"{name_a} {line_a}", f"{name_b} {line_b}", "")


def _facts(trace: Trace, known: Collection[str]) -> Iterator[tuple[str, str]]:
    """What a trace says of its run, then of its machine: names and values.

    ``known`` is what the heads of both traces have.
    """
    for name, value in trace.header.items():
        if name == "changed" or (name == "ccl" and name not in known):
            continue
        if name == "arguments":
            yield from _flat("parameter", value, " ")
        elif name not in _RECORDER:
            yield from _flat(name, value)
    yield from _flat("machine", trace.spec, " ")


def _flat(name: str, value: Any, joint: str = ".") -> Iterator[tuple[str, str]]:
    """A value, or each value of a map with its path, as text."""
    if not isinstance(value, Mapping):
        yield name, str(value)
        return
    for key, item in value.items():
        yield from _flat(f"{name}{joint}{key}", item)


def _source_lines(trace: Trace, path: str) -> list[str]:
    """The lines of a source file; none of one that is not there."""
    source = trace.sources.get(path)
    return [] if source is None else source.text.splitlines()


def _first_line_apart(a: Sequence[str], b: Sequence[str]) -> tuple[str, str]:
    """The first line that differs between two texts, with its number."""
    for number, (line_a, line_b) in enumerate(zip_longest(a, b, fillvalue=""), 1):
        if line_a != line_b:
            return f"{number}: {line_a.strip()}", f"{number}: {line_b.strip()}"
    return "", ""


def lost(a: Trace, b: Trace) -> list[str]:
    """What is not in either file."""
    found = list[str]()
    for which, trace in (("A", a), ("B", b)):
        if trace.cut:
            found.append(f"{which} is a part of a trace")
        if was_cut_off(trace):
            found.append(f"{which} was cut off: what its run did later is not in it")
        if trace.damaged:
            frames = count_text(len(trace.damaged), "damaged frame")
            found.append(f"{which} has {frames}: what they held is not known")
    if found:
        found.append("calls that issue no op: of some the op may be what is lost")
    return found


def was_cut_off(trace: Trace) -> bool:
    """Whether the recording stopped before its run did; a part is none of these."""
    return not trace.complete and not trace.cut


def is_whole(trace: Trace) -> bool:
    """Whether all that a run did is in its trace."""
    return trace.complete and not trace.cut and not trace.damaged


def differing_ends(
    a: Trace, b: Trace, issued_a: Ints, issued_b: Ints, files: Mapping[str, str]
) -> list[str]:
    """How the two runs ended, what they said and what else they called, if it differs.

    That is in whatever order: PEs talk at the same time. ``issued_a`` and ``issued_b``
    are the rows of ``Trace.commands`` that issued ops, which are compared themselves.
    A line that they name is the same in another folder, by ``files`` as of
    ``same_sources``. What is lost of a trace that is not whole does not differ.
    """
    found = list[str]()
    end_a = error_of(a)
    end_b = error_of(b)
    have_ended = a.end is not None and b.end is not None
    if have_ended and _moved(end_a, files) != end_b:
        found.append(f"A ended with {end_a or 'no error'}, B with {end_b or 'none'}")
    said_a = Counter((text.level, _moved(text.message, files)) for text in a.texts)
    said_b = Counter((text.level, text.message) for text in b.texts)
    only_a = said_a - said_b if is_whole(b) else Counter()
    only_b = said_b - said_a if is_whole(a) else Counter()
    for which, only in (("A", only_a), ("B", only_b)):
        for level, message in list(only)[:1]:
            texts = count_text(only.total(), "text")
            found.append(f"{texts} only in {which}, the first {level} {message!r:.60}")
    if not (is_whole(a) and is_whole(b)):
        return found
    calls_a = _calls(a, issued_a)
    calls_b = _calls(b, issued_b)
    names = [
        name
        for name in sorted(calls_a.keys() | calls_b.keys())
        if calls_a[name] != calls_b[name]
    ]
    for name in names[:SAID]:
        found.append(f"{calls_a[name]:,} -> {calls_b[name]:,} calls of {name}")
    if len(names) > SAID:
        found.append(f"other numbers of {len(names) - SAID} more calls")
    return found


def _moved(text: Any, files: Mapping[str, str]) -> Any:
    """A text of A with the lines that it names as B would name them."""
    if not isinstance(text, str):
        return text
    moved = [(path_a, path_b) for path_a, path_b in files.items() if path_a != path_b]
    for path_a, path_b in moved:
        text = re.sub(rf"(?<![\w./-]){re.escape(path_a)}(?=:\d)", path_b, text)
    return text


def _calls(trace: Trace, issued: Ints) -> Counter[str]:
    """How often each call was made that issues no op."""
    issues = np.zeros(len(trace.commands.cmd) + 1, np.bool_)
    issues[issued] = True
    names, counts = np.unique(trace.commands.call[:][~issues[:-1]], return_counts=True)
    texts = [trace.strings[number] for number in names.tolist()]
    return Counter(dict(zip(texts, counts.tolist(), strict=True)))


def error_of(trace: Trace) -> Any:
    """What a run ended with; None where that is not in its trace, too."""
    return (trace.end or {}).get("error")
