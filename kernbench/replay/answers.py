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
from kernbench.replay.texts import TextRow

_VERIFIED = {None: "not executed", True: "yes", False: "no"}
_NAME_COLUMNS = 26
_AROUND = 5
"""Lines of the source that are shown before and after one."""
NOT_RECORDED = "?"
"""The call of an op, and the file and function of its line, where a recording was cut
off between the two.
"""
_OPS = "op t_start t_end nbytes name component"
_OP_TITLES = {"t_start": "start_ns", "t_end": "end_ns", "nbytes": "bytes"}


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

    ``caller`` is the line at which the function around ``site`` was called; "" if that
    is a kernel, or it is not known.
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
    caller: str = ""

    @property
    def where(self) -> str:
        """The kernel line, and the one at which its function was called."""
        if not self.caller:
            return self.site
        return f"{self.site}, called at {self.caller}"


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
        if not self.rows and self.note:
            return wrapped(f"{self.note}, of {self.total:,} ops", width, 2)
        place = "before the first of" if self.op < 0 else f"op {self.op:,} of"
        head = f"{place} {self.total:,}"
        if self.note:
            head += f"; {self.note}"
        if not self.rows:
            return wrapped(head, width, 2)
        marks = "".join(">" if row.op == self.op else " " for row in self.rows)
        return [head, *table(self.rows, _OPS, marks, titles=_OP_TITLES)]


class Moved(OpList):
    """The line that the cursor moved to; none before the first op."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Stopped(Moved):
    """Where a run halted, and at which stops; at none: it came to an end of the log."""

    stops: tuple[str, ...] = ()

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        lines = Moved.lines(self, width)
        return [*lines, *(self.stops or ["no further stop that way"])]


@dataclass(frozen=True, slots=True)
class OpDetails:
    """All that was recorded of an op; ``waits``: (node, reason, t0, t1, op that ended
    it or -1). ``texts`` are what its kernel said after the call that caused it, and
    before the next that caused any.
    """

    row: OpRow
    cmd: int
    call: str
    launch: int
    slot: int
    params: dict[str, Any]
    dependencies: tuple[int, ...]
    waits: tuple[tuple[str, str, float, float, int], ...]
    texts: tuple[TextRow, ...] = ()

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        row = self.row
        kind = "" if row.kind == "unknown" else f" ({row.kind})"
        took = f"{row.t_end - row.t_start:.3f} ns"
        call = f"tl.{self.call}" if self.launch >= 0 else self.call
        made = f"{call} at {row.where}"
        if self.call == NOT_RECORDED:
            made = "was not recorded"
        lines = [
            f"op {row.op:,}  {row.name}{kind} on {row.component}, lane {self.slot}",
            f"time    {row.t_start:.3f} to {row.t_end:.3f} ns = {took}",
            f"call    #{self.cmd} {made}",
        ]
        for key, value in self.params.items():
            lines.append(f"  {key:<20} {param_text(value, key)}")
        if self.dependencies:
            lines.append(f"after   op {', '.join(f'{d:,}' for d in self.dependencies)}")
        for node, reason, t0, t1, holder in self.waits:
            by = f", behind op {holder:,}" if holder >= 0 else ""
            lines.append(f"waited  {t1 - t0:.3f} ns for {reason} at {node}{by}")
        for text in self.texts:
            lines += wrapped(f"said    {text.site}: {text.said}", width, 8)
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

    @property
    def why_no_text(self) -> str:
        """Why there is no text, if there is none."""
        if self.file == NOT_RECORDED:
            return "its call was not recorded"
        return f"{self.file}: its text is not in this trace"

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        if self.file == NOT_RECORDED:
            return [f"the line of op {self.op:,} is not known: {self.why_no_text}"]
        lines = [f"{self.file}:{self.line} in {self.function}"]
        first = max(self.line - _AROUND, 1)
        last = max(self.line + _AROUND, 0)
        for n, text in enumerate(self.text[first - 1 : last], first):
            mark = ">" if n == self.line else " "
            lines.append(f"{mark}{n:>5}  {text.expandtabs()}")
        return lines


@dataclass(frozen=True, slots=True)
class Touch:
    """``op`` reads or writes bytes, or what is wrong with that; ``other`` is then in
    their way.

    ``nbytes`` lie in so many ``rows``, the first at ``addr``. ``row_bytes`` is 0 where
    rows differ in size, and ``pitch``, the distance of their beginnings, where that
    differs or there is one row only.
    """

    kind: str
    space: str
    addr: int
    nbytes: int
    op: OpRow
    other: OpRow | None = None
    rows: int = 1
    row_bytes: int = 0
    pitch: int = 0

    @property
    def place(self) -> str:
        """The bytes in words: ``8,192 bytes in 64 rows of 128, 1,024 apart``."""
        text = f"{self.nbytes:,} bytes"
        if self.rows > 1:
            text += f" in {self.rows:,} rows"
            if self.row_bytes:
                text += f" of {self.row_bytes:,}"
            if self.pitch:
                text += f", {self.pitch:,} apart,"
        return f"{text} of {self.space} at {self.addr:#x}"


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
        for touch in self.rows:
            lines.append(f"{touch.kind}: {touch.place}")
            lines += op_lines(touch.op)
            if touch.other is not None:
                lines += op_lines(touch.other)
        return lines or ["none found"]


def op_lines(row: OpRow) -> list[str]:
    """An op that touches bytes: what it is, its line and its times."""
    times = f"{row.t_start:.2f} to {row.t_end:.2f} ns"
    if row.t_issue < row.t_start:
        times += f", issued {row.t_issue:.2f}"
    return [
        f"  op {row.op:,} {row.name} on {row.component}",
        f"    {row.where}, {times}",
    ]


@dataclass(frozen=True, slots=True)
class Info:
    """What a trace holds; ``plugins`` are the models of users that the run had, by
    name, with the SHA-256 of their files. ``changed`` is what a re-run did otherwise
    than the run that it repeats, ``part`` says what of another trace this is a part of.
    ``later`` is the file of a later run, which was killed or still goes on, and was to
    write this one.
    ``verified`` is None where Phase 2 did not execute the run; ``compared`` is how many
    outputs it compared.
    """

    bench: str
    arguments: dict[str, Any]
    plugins: dict[str, str]
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
    compared: int = 0
    changed: tuple[str, ...] = ()
    part: str = ""
    later: str = ""

    def facts(self) -> dict[str, str]:
        """What there is to say in a line each, by its title."""
        values = field_values(self)
        del values["by_name"]
        del values["changed"]
        del values["complete"]
        del values["part"]
        del values["later"]
        if self.later:
            values["later run"] = f"was killed, or still goes on: {self.later}"
        if not self.plugins:
            del values["plugins"]
        values["end_ns"] = time_text(self.end_ns)
        # What was not asked for yet was not looked into either.
        found = self.damaged or "nothing"
        values["damaged"] = f"{found} found so far, check looks into every frame"
        values["error"] = self.error or "no"
        values["recording"] = self._recording()
        if self.error or not self.complete:
            # one that has begun is recorded when it ends
            values["launches"] = f"{self.launches:,} that ended"
        values["verified"] = _VERIFIED[self.verified]
        del values["compared"]
        if self.verified and not self.compared:
            values["verified"] = "nothing: the bench states no expected outputs"
        return {
            name.removesuffix("_ns"): cell_text(value) for name, value in values.items()
        }

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        lines: list[str] = []
        for what in self.changed:
            lines += wrapped(f"{'changed':<10} {what}", width, 11)
        for title, text in self.facts().items():
            lines += wrapped(f"{title:<10} {text}", width, 11)
        for name, count in sorted(self.by_name.items()):
            lines.append(f"  {count:>9,}  {name}")
        return lines

    def _recording(self) -> str:
        """How much of the run the file holds."""
        if not self.complete:
            return "was cut off: the run was killed, or still goes on"
        if self.part:
            return f"is a part of another: {self.part}"
        if self.error:
            return "goes up to where the run ended with the error above"
        return "has all of the run"
