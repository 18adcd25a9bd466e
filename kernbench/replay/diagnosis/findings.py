"""What ``diagnose`` answers: findings, the most urgent first; they know their text."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from kernbench.replay.text import command_lines, count_text, wrapped
from kernbench.trace import Trace

FindingKind = Literal["wrong", "slow", "odd", "unchecked"]
"""Wrong: a result, or an access that no kernel may make. Slow: what would end the run
sooner. Odd: what is not alike though it could be. Unchecked: what nobody could look at.
"""


_PROVE = "--prove"
_AT = "--op"
_HAZARDS = "hazards"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that somebody should look at.

    ``ops`` are positions in the log and ``lines`` kernel lines ("FILE:LINE"), the most
    suspicious first: the first op is of the first line, unless none of that line is
    known. ``evidence`` are sentences, and ``check`` is a command that shows it.
    """

    kind: FindingKind
    title: str
    ops: tuple[int, ...]
    lines: tuple[str, ...]
    evidence: tuple[str, ...]
    check: str


class Diagnosis(tuple[Finding, ...]):
    """All findings, those to look at first first; as data it is a list."""

    __slots__ = ()

    def lines(self, width: int) -> list[str]:
        """As text: what it is, where, why, and the command that checks it."""
        if not self:
            return ["nothing is wrong, slow or odd"]
        lines: list[str] = []
        for number, finding in enumerate(self, 1):
            head = f"{number}. {finding.kind}: {finding.title}"
            lines += wrapped(head, width, 3)
            for sentence in (*_places(finding), *finding.evidence):
                lines += [f"   {line}" for line in wrapped(sentence, width - 3, 2)]
            lines += [f"   {line}" for line in command_lines(finding.check, width - 3)]
        return lines


def _places(finding: Finding) -> list[str]:
    """Where a finding is: its kernel lines, and its ops."""
    places = []
    if finding.lines:
        places.append("at " + ", ".join(finding.lines))
    if finding.ops:
        shown = ", ".join(f"{op:,}" for op in finding.ops[:_SHOWN])
        more = len(finding.ops) - _SHOWN
        if more > 0:
            shown += f" and {more:,} more"
        places.append(f"{count_text(len(finding.ops), 'op')}: {shown}")
    return places


_SHOWN = 4
"""Ops of a finding that its text names."""


def ranked(*some: Iterable[Finding]) -> Diagnosis:
    """All findings in the order in which to look at them.

    Where something is wrong, what is odd may be the reason, and comes before what is
    slow; else after it. What was not checked comes last.
    """
    found = [finding for part in some for finding in part]
    is_wrong = any(finding.kind == "wrong" for finding in found)
    order = ("wrong", "odd", "slow") if is_wrong else ("slow", "odd")
    place = {kind: number for number, kind in enumerate((*order, "unchecked"))}
    return Diagnosis(sorted(found, key=lambda finding: place[finding.kind]))


def command(trace: Trace, *words: str) -> str:
    """A command line of ``kernbench trace`` about this trace."""
    name, *rest = words
    return shlex.join(["kernbench", "trace", name, str(trace.path), *rest])


def asked_by(finding: Finding) -> list[str]:
    """The command that checks a finding, as words of ``:``; without a proof, and
    without the op, which is where the cursor stands.
    """
    _, _, name, _, *rest = shlex.split(finding.check)
    if _AT in rest:
        at = rest.index(_AT)
        del rest[at : at + 2]
    return [name, *(word for word in rest if word != _PROVE)]


def claimed_by(found: Diagnosis, finding: Finding) -> str:
    """What a re-run can prove of one of some findings, as one would type it: a change
    of a field, or a race by its number; empty if there is nothing.
    """
    if _PROVE not in shlex.split(finding.check):
        return ""
    name, *rest = asked_by(finding)
    if name != _HAZARDS:
        return " ".join(rest)
    numbered = [
        one for one in found if one.kind == "wrong" and asked_by(one) == [_HAZARDS]
    ]
    return f"race {numbered.index(finding) + 1}"
