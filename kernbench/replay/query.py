"""What is asked, and where somebody stands: frozen values that nothing later can
change.

A ``Query`` is made when a user asks, on the thread that asks. Its answer depends on it
and on the trace alone, so it may be computed later, elsewhere, and be kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kernbench.common.arrays import Ints

FOCUS_LEVELS = ("component", "pe", "cube", "sip", "machine")
"""How wide the focus is that ``next`` stays within, from the narrowest on."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Where ``continue`` halts: a ``break`` on an expression, a ``watch`` of bytes, or
    a ``catch`` of findings.

    ``ops`` is at how many ops, ``at`` the positions of these, ascending and read-only.
    """

    number: int
    kind: str
    what: str
    ops: int
    at: Ints = field(repr=False, compare=False, metadata={"shown": False})

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        noun = "op" if self.ops == 1 else "ops"
        return [f"stop {self.number}: {self.kind} {self.what}, at {self.ops:,} {noun}"]

    def next(self, op: int, forward: bool) -> int | None:
        """The nearest op after (or before) ``op`` at which this stop halts;
        None: none.
        """
        if forward:
            i = int(np.searchsorted(self.at, op, "right"))
        else:
            i = int(np.searchsorted(self.at, op)) - 1
        return int(self.at[i]) if 0 <= i < len(self.at) else None


class Session(NamedTuple):
    """Where a user stands in a trace. A move makes another one of it.

    A named tuple, since every move makes one: a frozen dataclass of as many fields
    takes three times as long to make.

    ``cursor`` is a position of the op log, -1 before the first; "at op i" means that
    ops 0 to i have run. ``level`` is an index of FOCUS_LEVELS. ``marks`` are (name, op)
    in the order in which they were set. ``left`` are the ops that jumps left from,
    ``returned`` those that ``back`` came from; ``made`` counts the stops ever made, so
    that a number stays one stop's.
    """

    cursor: int = -1
    level: int = 0
    marks: tuple[tuple[str, int], ...] = ()
    left: tuple[int, ...] = ()
    returned: tuple[int, ...] = ()
    stops: tuple[Stop, ...] = ()
    made: int = 0

    def on(self, op: int) -> Session:
        """This session with the cursor on another op, which is no jump."""
        cursor = (op,)
        others = self[1:]
        return tuple.__new__(Session, cursor + others)

    def next_stop(self, forward: bool) -> int | None:
        """The nearest op after (or before) the cursor at which any stop halts."""
        found = [stop.next(self.cursor, forward) for stop in self.stops]
        ops = [op for op in found if op is not None]
        if not ops:
            return None
        return min(ops) if forward else max(ops)

    def stops_at(self, op: int) -> tuple[Stop, ...]:
        """The stops that halt at an op."""
        return tuple(stop for stop in self.stops if stop.next(op - 1, True) == op)


@dataclass(frozen=True, slots=True)
class At:
    """The moment that a question is about: those parts of a session that its answer
    depends on. None: it does not depend on that part.
    """

    op: int | None = None
    marks: tuple[tuple[str, int], ...] | None = None
    stops: tuple[Stop, ...] | None = None


ANY_TIME = At()
"""The moment of a question whose answer is the same at any."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question: a command by its name, that command's own frozen arguments, the
    moment.

    It is looked up many times where a picture is drawn, and arguments may be long, so
    their hash is computed once.
    """

    command: str
    args: Any
    at: At = ANY_TIME
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        if self._hash is None:
            found = hash((self.command, self.args, self.at))
            object.__setattr__(self, "_hash", found)
            return found
        return self._hash
