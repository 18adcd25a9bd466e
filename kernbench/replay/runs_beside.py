"""What two traces say of their runs: what was run otherwise, how both ended.

All of it is known without any op.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import PurePath
from typing import Any, TypeAlias

import numpy as np

from kernbench.common.arrays import Ints
from kernbench.replay.text import count_text
from kernbench.trace import Trace
from kernbench.trace.changed import changed_of

_Lines: TypeAlias = dict[str, tuple[str, ...]]
"""The lines of source files by their names."""

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


def other_runs(a: Trace, b: Trace) -> list[Beside]:
    """What was run otherwise: what a re-run changed, then all by itself.

    That is bench, parameters, seed, machine, source.
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
    return [*found, *_other_sources(_sources(a), _sources(b))]


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


def _other_sources(a: _Lines, b: _Lines) -> Iterator[Beside]:
    """The source files whose text differs, by the first line that does.

    Files are the same by their name, whatever folder they were in; of those that are
    in one trace alone each is beside one of the other's, unless the other has its text.
    """
    own_a = [name for name in a if name not in b and a[name] not in b.values()]
    own_b = [name for name in b if name not in a and b[name] not in a.values()]
    both = [(name, name) for name in a if name in b and a[name] != b[name]]
    for name_a, name_b in [*both, *zip_longest(own_a, own_b, fillvalue="-")]:
        lines = _first_line_apart(a.get(name_a, ()), b.get(name_b, ()))
        yield Beside("source", f"{name_a} {lines[0]}", f"{name_b} {lines[1]}", "")


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


def _sources(trace: Trace) -> _Lines:
    """The lines of each source file by its name, whatever folder it was in."""
    return {
        PurePath(path).name: tuple(source.text.splitlines())
        for path, source in trace.sources.items()
    }


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
        if not trace.complete and not trace.cut:
            found.append(f"{which} was cut off: what its run did later is not in it")
        if trace.damaged:
            frames = count_text(len(trace.damaged), "damaged frame")
            found.append(f"{which} has {frames}: what they held is not known")
    return found


def differing_ends(a: Trace, b: Trace, issued_a: Ints, issued_b: Ints) -> list[str]:
    """How the two runs ended, what they said and what else they called, if it differs.

    That is in whatever order: PEs talk at the same time. ``issued_a`` and ``issued_b``
    are the rows of ``Trace.commands`` that issued ops, which are compared themselves.
    """
    found = list[str]()
    end_a = error_of(a)
    end_b = error_of(b)
    if end_a != end_b:
        found.append(f"A ended with {end_a or 'no error'}, B with {end_b or 'none'}")
    said_a = Counter((text.level, text.message) for text in a.texts)
    said_b = Counter((text.level, text.message) for text in b.texts)
    for which, only in (("A", said_a - said_b), ("B", said_b - said_a)):
        for level, message in list(only)[:1]:
            texts = count_text(only.total(), "text")
            found.append(f"{texts} only in {which}, the first {level} {message!r:.60}")
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


def _calls(trace: Trace, issued: Ints) -> Counter[str]:
    """How often each call was made that issues no op."""
    issues = np.zeros(len(trace.commands.cmd) + 1, np.bool_)
    issues[issued] = True
    names, counts = np.unique(trace.commands.call[:][~issues[:-1]], return_counts=True)
    texts = [trace.strings[number] for number in names.tolist()]
    return Counter(dict(zip(texts, counts.tolist(), strict=True)))


def error_of(trace: Trace) -> Any:
    """What a run ended with; its recording may have been cut off."""
    return (trace.end or {"error": "a cut file"}).get("error")
