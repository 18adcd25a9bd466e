"""The hazards of Diff as lines: a line each, and all about the picked one."""

from __future__ import annotations

from dataclasses import replace
from textwrap import wrap
from typing import TypeAlias

from kernbench.replay.races.findings import Finding, Findings, Verdict
from tui.draw import Line
from tui.panes.base import Rows
from tui.panes.grid import picked_style

_Ops: TypeAlias = tuple[int, int]
"""The later and the earlier op of a race."""

Proofs: TypeAlias = tuple[tuple[_Ops, Verdict], ...]
"""What came of races that were tried out, by their ops."""


def hazard_lines(
    found: Findings, list_: Rows, proofs: Proofs, width: int
) -> list[Line]:
    """The hazards in view, and all about the picked one."""
    lines: list[Line] = []
    head = " no hazards"
    if found.rows:
        head = f" hazards: {len(found.rows):,}"
    if found.note:
        head += f"; {found.note}"
    if not found.rows:
        parts = wrap(head.strip(), max(width - 1, 8))
        return [[(f" {part}", "dim")] for part in parts]
    lines.append([(head, "dim")])
    visible = list_.visible
    hazards = found.rows[visible.start : visible.stop]
    for i, hazard in enumerate(hazards, visible.start):
        proof = _with_proof(hazard, proofs).proof
        style = picked_style(i == list_.pick)
        lines.append([(_hazard(hazard, proof), style)])
    at = list_.at or 0
    some = [_with_proof(row, proofs) for row in found.rows[at : at + 1]]
    picked = Findings(tuple(some), unchecked=found.unchecked)
    if not picked.rows:
        return lines
    for line in picked.lines(width):
        parts = wrap(line, max(width - 4, 8), subsequent_indent="    ")
        lines += [[(f"  {part}", "title")] for part in parts]
    return lines


def _with_proof(row: Finding, proofs: Proofs) -> Finding:
    """A finding with what came of it when it was tried out."""
    known = dict(proofs)
    return replace(row, proof=known.get(_ops_of(row)))


def with_proofs(known: Proofs, rows: tuple[Finding, ...]) -> Proofs:
    """Proofs that are known, with those of some findings."""
    found = dict(known)
    for row in rows:
        if row.proof is not None:
            found[_ops_of(row)] = row.proof
    return tuple(found.items())


def _ops_of(row: Finding) -> _Ops:
    """The later and the earlier op of a finding, -1 for none."""
    return row.op.op, -1 if row.other is None else row.other.op


def _hazard(hazard: Finding, proof: Verdict | None) -> str:
    """One line: what is wrong, between which ops, how often, and what comes of it."""
    text = f"! {hazard.what or hazard.kind}: op {hazard.op.op:,}"
    if hazard.other is not None:
        text += f" and {hazard.other.op:,}"
    if hazard.count > 1:
        text += f", {hazard.count:,} times"
    if proof is not None:
        text += f"; {proof.text}"
    return text
