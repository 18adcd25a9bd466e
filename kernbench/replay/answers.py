"""What ``ReplaySession`` answers about ops and files: frozen data that knows its own
text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernbench.replay.text import (
    cell_text,
    field_values,
    param_text,
    table,
    time_text,
    wrapped,
)

_NAME_COLUMNS = 26
_OPS = "op t_start t_end nbytes name component"


@dataclass(frozen=True, slots=True)
class Listing:
    """Some things and what is to be said of each; ``none`` is said where there are
    none.
    """

    rows: tuple[tuple[str, str], ...]
    none: str = ""

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns: names in a column of their own, as far as they
        fit.
        """
        longest = max((len(name) for name, _ in self.rows), default=0)
        pad = min(longest, _NAME_COLUMNS)
        lines: list[str] = []
        for name, text in self.rows:
            if len(name) > pad:
                lines.append(name)
                name = ""
            lines += wrapped(f"{name:<{pad}} {text}", width, pad + 1)
        return lines or [self.none]


@dataclass(frozen=True, slots=True)
class OpRow:
    """One line of the op log; ``site`` is the kernel line, ``letter`` the class, times
    in ns.
    """

    op: int
    t_issue: float
    t_start: float
    t_end: float
    component: str
    name: str
    kind: str
    letter: str
    nbytes: int
    site: str


@dataclass(frozen=True, slots=True)
class OpList:
    """Lines of an op log of ``total``, of which ``note`` says more; the cursor is at
    ``op``.
    """

    op: int
    total: int
    rows: tuple[OpRow, ...]
    note: str = ""

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        marks = "".join(">" if row.op == self.op else " " for row in self.rows)
        if not self.rows and self.note:
            return [f"{self.note}, of {self.total:,} ops"]
        place = f"op {self.op:,} of" if self.op >= 0 else "before the first of"
        head = f"{place} {self.total:,}" + (f"; {self.note}" if self.note else "")
        return [head, *(table(self.rows, _OPS, marks) if self.rows else [])]


class Moved(OpList):
    """The line that the cursor moved to; none before the first op."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Stopped(Moved):
    """Where a run halted, and at which stops; at none: it came to an end of the log."""

    stops: tuple[str, ...] = ()

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        return [
            *Moved.lines(self, width),
            *(self.stops or ["no further stop that way"]),
        ]


@dataclass(frozen=True, slots=True)
class OpDetails:
    """All that was recorded of an op; ``waits``: (node, reason, t0, t1, op that ended
    it or -1).
    """

    row: OpRow
    cmd: int
    call: str
    launch: int
    slot: int
    params: dict[str, Any]
    dependencies: tuple[int, ...]
    waits: tuple[tuple[str, str, float, float, int], ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        r = self.row
        kind = f" ({r.kind})" * (r.kind != "unknown")
        lines = [
            f"op {r.op:,}  {r.name}{kind} on {r.component}, lane {self.slot}",
            f"time    {r.t_start:.3f} to {r.t_end:.3f} ns = {r.t_end - r.t_start:.3f} ns",
            f"call    #{self.cmd} {'tl.' * (self.launch >= 0)}{self.call} at {r.site}",
            *(
                f"  {key:<20} {param_text(value, key)}"
                for key, value in self.params.items()
            ),
        ]
        if self.dependencies:
            lines.append(f"after   op {', '.join(f'{d:,}' for d in self.dependencies)}")
        for node, reason, t0, t1, holder in self.waits:
            by = f", until op {holder:,} ended" if holder >= 0 else ""
            lines.append(f"waited  {t1 - t0:.3f} ns for {reason} at {node}{by}")
        return lines


@dataclass(frozen=True, slots=True)
class Source:
    """The kernel line that caused an op, counted from 1 (0: unknown), and its whole
    file.
    """

    op: int
    file: str
    line: int
    function: str
    text: tuple[str, ...]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        lines, first = (
            [f"{self.file}:{self.line} in {self.function}"],
            max(self.line - 5, 1),
        )
        for n, text in enumerate(self.text[first - 1 : max(self.line + 5, 0)], first):
            lines.append(f"{'>' if n == self.line else ' '}{n:>5}  {text}")
        return lines


@dataclass(frozen=True, slots=True)
class Touch:
    """``op`` reads or writes bytes, or what is wrong with that; ``other`` is then in
    their way.
    """

    kind: str
    space: str
    addr: int
    nbytes: int
    op: OpRow
    other: OpRow | None = None


@dataclass(frozen=True, slots=True)
class Touches:
    """In canonical order; ``note`` says what could not be looked at, ``ok`` the
    verdict.
    """

    rows: tuple[Touch, ...]
    note: str = ""
    ok: bool = True

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        lines = wrapped(self.note, width) if self.note else []
        for t in self.rows:
            lines.append(f"{t.kind}: {t.nbytes:,} bytes of {t.space} at {t.addr:#x}")
            for r in (t.op, t.other) if t.other is not None else (t.op,):
                issued = f", issued {r.t_issue:.2f}" if r.t_issue < r.t_start else ""
                lines.append(f"  op {r.op:,} {r.name} on {r.component}")
                lines.append(
                    f"    {r.site}, {r.t_start:.2f} to {r.t_end:.2f} ns{issued}"
                )
        return lines or ["none found"]


@dataclass(frozen=True, slots=True)
class Info:
    """What a trace holds."""

    bench: str
    arguments: dict[str, Any]
    ops: int
    by_name: dict[str, int]
    end_ns: float
    complete: bool
    damaged: int
    error: str
    nodes: int
    launches: int
    tensors: tuple[str, ...]
    verified: bool | None

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        facts = field_values(self) | {
            "end_ns": time_text(self.end_ns),
            "error": self.error or "no",
        }
        facts["complete"] = "yes" if self.complete else "no, the recording was cut off"
        facts["verified"] = {None: "not executed", True: "yes", False: "no"}[
            self.verified
        ]
        by_name, lines = sorted(facts.pop("by_name").items()), list[str]()
        for name, value in facts.items():
            lines += wrapped(
                f"{name.removesuffix('_ns'):<10} {cell_text(value)}", width, 11
            )
        return lines + [f"  {count:>9,}  {name}" for name, count in by_name]
