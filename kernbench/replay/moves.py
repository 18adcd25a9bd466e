"""Every way to move a session: ``(index, session, args, known) -> Session``.

A move runs on the thread that asks and changes nothing: it makes another session. What
has nowhere to go returns the session as it is. A move that has to know something first
names its question in ``questions_of_moves``'s rows (``commands.py``); ``known`` is then
the answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Annotated, Any

import numpy as np

from kernbench.common.arrays import Array, Ints
from kernbench.common.messages import WAIT_REASONS, Wait
from kernbench.errors import UsageError
from kernbench.replay.expr import parse_count, parse_time
from kernbench.replay.index import Index
from kernbench.replay.parsing import NoArguments, Reader, one_of
from kernbench.replay.program_order import HELD
from kernbench.replay.query import FOCUS_LEVELS, Session, Stop

_HELD = WAIT_REASONS[HELD]
_PE = FOCUS_LEVELS.index("pe")
_MACHINE = FOCUS_LEVELS.index("machine")
_JUMPS = 1000
"""That ``back`` can undo."""


# -- arguments ----------------------------------------------------------------


def _number(what: str, text: str) -> int:
    try:
        return parse_count(text)
    except UsageError as why:
        raise UsageError(f"{what} {why}") from None


def _count(text: str) -> int:
    return _number("count", text)


def _place_in_log(text: str) -> int | str:
    """An op's number, ``start``, ``end`` or the name of a mark."""
    return text if text.isidentifier() else _number("op", text)


def _stop_number(text: str) -> int:
    return _number("stop", text)


@dataclass(frozen=True, slots=True)
class Steps:
    """How often to move; negative: back."""

    n: Annotated[int, Reader("N", _count)] = 1


@dataclass(frozen=True, slots=True)
class LineNumber:
    """A line of the kernel, from 1."""

    n: Annotated[int, Reader("N", _count)]


@dataclass(frozen=True, slots=True)
class Where:
    """A place in the op log: a position, ``start``, ``end`` or a mark."""

    op: Annotated[int | str, Reader("OP | MARK | start | end", _place_in_log)]


@dataclass(frozen=True, slots=True)
class When:
    """A time, ns."""

    t: Annotated[float, Reader("TIME", parse_time)]


@dataclass(frozen=True, slots=True)
class MarkName:
    """The name of a mark."""

    name: Annotated[str, Reader("NAME")]


@dataclass(frozen=True, slots=True)
class Expression:
    """Which ops, in the grammar of ``expr.py``."""

    expr: Annotated[str, Reader("EXPR", extent="expression")]


@dataclass(frozen=True, slots=True)
class Watched:
    """Bytes, and what of them stops: reads (r), writes (w) or both."""

    place: Annotated[str, Reader("PLACE", extent="place")]
    mode: Annotated[str, Reader("r|w|rw", one_of("r", "w", "rw"))] = "rw"


@dataclass(frozen=True, slots=True)
class Caught:
    """Which findings stop."""

    what: Annotated[str, Reader("hazards|checks", one_of("hazards", "checks"))]


@dataclass(frozen=True, slots=True)
class StopNumber:
    """Which stop."""

    number: Annotated[int, Reader("STOP", _stop_number)]


@dataclass(frozen=True, slots=True)
class Direction:
    """Whether to run back."""

    back: Annotated[str, Reader("back", one_of("back"))] = ""


# -- jumps: ``back`` undoes them ----------------------------------------------


def jump(index: Index, session: Session, op: int) -> Session:
    """Put the cursor on an op; UsageError if there is no such op."""
    last = index.ops.last
    if not -1 <= op <= last:
        known = "this trace has no ops; info has more"
        if last >= 0:
            known = f"this trace has ops 0 to {last}, -1 is before the first"
        raise UsageError(f"no op {op}; {known}")
    cursor, level, marks, left, _, stops, made = session
    if op == cursor:
        return session
    if len(left) >= _JUMPS:
        left = left[1 - _JUMPS :]
    here = (cursor,)
    return tuple.__new__(Session, (op, level, marks, left + here, (), stops, made))


def goto(index: Index, session: Session, args: Where, known: None) -> Session:
    """To an op or a mark."""
    if isinstance(args.op, int):
        return jump(index, session, args.op)
    places = dict(session.marks)
    places["start"] = -1
    places["end"] = index.ops.last
    if args.op not in places:
        names = ", ".join(name for name, _ in session.marks) or "none is set"
        raise UsageError(
            f"op {args.op!r}: must be a whole number, start, end or a mark ({names})"
        )
    return jump(index, session, places[args.op])


def goto_time(index: Index, session: Session, args: When, known: None) -> Session:
    """To the last op that has started by a time."""
    return jump(index, session, index.ops.at_time(args.t))


def mark(index: Index, session: Session, args: MarkName, known: None) -> Session:
    """Give the cursor's place a name; one that was set before moves here."""
    name = args.name
    if not name.isidentifier() or name in ("start", "end"):
        raise UsageError(f"mark {name!r}: must be a word other than start and end")
    others = tuple(pair for pair in session.marks if pair[0] != name)
    return session._replace(marks=(*others, (name, session.cursor)))


def back(index: Index, session: Session, args: Steps, known: None) -> Session:
    """Undo jumps; negative: do them again."""
    cursor = session.cursor
    gone = list(session.left)
    ahead = list(session.returned)
    if args.n < 0:
        gone, ahead = ahead, gone
    for _ in range(min(abs(args.n), len(gone))):
        ahead.append(cursor)
        cursor = gone.pop()
    if args.n < 0:
        gone, ahead = ahead, gone
    return session._replace(cursor=cursor, left=tuple(gone), returned=tuple(ahead))


def to_cause(index: Index, session: Session, args: NoArguments, known: None) -> Session:
    """To the op which this one waited for last, if only the stage before it in its
    tile.
    """
    op = index.ops.checked(session.cursor)
    before, _ = stages_beside(index, op)
    cause = cause_of(index, op, before, index.ops.waits(op))
    return session if cause is None else jump(index, session, cause)


def to_effect(
    index: Index, session: Session, args: NoArguments, known: None
) -> Session:
    """To the first op that waited for this one; at one time the next stage of
    its tile.
    """
    op = index.ops.checked(session.cursor)
    trace = index.trace
    waiting = np.array([*trace.effects(index.ops.row_of(op))], np.int64)
    waiters = np.sort(trace.position[waiting])
    _, after = stages_beside(index, op)
    others = np.append(after, waiters)
    found = np.append(others, index.ops.held_by(op)).astype(np.int64)
    if not len(found):
        return session
    earliest = index.ops.starts(found).argmin()
    return jump(index, session, int(found[earliest]))


def to_first(index: Index, session: Session, args: NoArguments, known: None) -> Session:
    """To the first stage of this op's tile."""
    return jump(index, session, int(_stages_of_tile(index, session.cursor)[0]))


def to_last(index: Index, session: Session, args: NoArguments, known: None) -> Session:
    """To the last stage of this tile; else to what its component started last by its
    end.
    """
    stages = _stages_of_tile(index, session.cursor)
    if len(stages) > 1:
        return jump(index, session, int(stages[-1]))
    op = session.cursor
    mine = index.op_index.ops_of(int(index.ops.components[op]))
    by_end = bisect_right(mine, index.ops.ends(op), key=index.ops.starts)
    return jump(index, session, int(mine[by_end - 1]))


def to_line(index: Index, session: Session, args: LineNumber, known: None) -> Session:
    """To the next op of a line of this op's kernel on this PE, else to the
    first of it.
    """
    op = index.ops.checked(session.cursor)
    file = int(index.ops.sites(np.array([op]))[0]) >> 32
    mine = index.ops.group(op, _PE)
    mine = mine[index.ops.sites(mine) == (file << 32 | args.n)]
    if not len(mine):
        raise UsageError(
            f"line {args.n}: no op of this PE comes from it; :lines shows which do"
        )
    later = np.searchsorted(mine, op, side="right")
    return jump(index, session, int(mine[later % len(mine)]))


def find(index: Index, session: Session, args: Expression, known: Ints) -> Session:
    """To the next op that fits; ``known`` are all that do."""
    at = int(np.searchsorted(known, session.cursor, "right"))
    return _found(index, session, args.expr, known, at, "after")


def find_back(index: Index, session: Session, args: Expression, known: Ints) -> Session:
    """To the previous op that fits; ``known`` are all that do."""
    at = int(np.searchsorted(known, session.cursor, "left")) - 1
    return _found(index, session, args.expr, known, at, "before")


def _found(
    index: Index, session: Session, expr: str, known: Ints, at: int, way: str
) -> Session:
    if not 0 <= at < len(known):
        why = "" if len(known) else index.misspelt(expr)
        why = why or (f"{len(known):,} do" if len(known) else "none does")
        raise UsageError(f"no op {way} op {session.cursor} fits {expr!r}; {why}")
    return jump(index, session, int(known[at]))


# -- steps --------------------------------------------------------------------


def stepped(index: Index, session: Session, n: int) -> Session:
    """``n`` ops further, at most to the ends; negative: back.

    What ``Session.on`` does is done here: a call takes as long as all of it.
    """
    cursor, level, marks, left, returned, stops, made = session
    op = cursor + n
    if op < -1:
        op = -1
    elif op > index.ops.last:
        op = index.ops.last
    return tuple.__new__(Session, (op, level, marks, left, returned, stops, made))


def step(index: Index, session: Session, args: Steps, known: None) -> Session:
    """By so many ops, at most to the ends."""
    return stepped(index, session, args.n)


def step_in_focus(index: Index, session: Session, args: Steps, known: None) -> Session:
    """By so many ops within the focus, at most to its ends."""
    if session.cursor < 0:
        return stepped(index, session, 1) if args.n > 0 else session
    if session.level == _MACHINE:
        at_least_first = max(args.n, -session.cursor)
        return stepped(index, session, at_least_first)
    group = index.ops.group(session.cursor, session.level)
    return session.on(index.ops.nth(group, session.cursor, args.n))


def step_lane(index: Index, session: Session, args: Steps, known: None) -> Session:
    """By so many ops in the lane of this op's component."""
    slots = index.trace.op_columns.slot
    order = index.trace.order
    group = index.ops.group(session.cursor, 0)

    def same_lane(op: int, others: Array) -> Array:
        return np.asarray(slots[order[others]] == slots[order[op]])

    op = index.ops.seek(group, session.cursor, args.n, same_lane)
    return session.on(op)


def step_line(index: Index, session: Session, args: Steps, known: None) -> Session:
    """By so many changes of the kernel line that this PE's ops are of."""
    group = index.ops.group(session.cursor, _PE)

    def other_line(op: int, others: Array) -> Array:
        here = index.ops.sites(np.array([op]))
        return np.asarray(index.ops.sites(others) != here)

    op = index.ops.seek(group, session.cursor, args.n, other_line)
    return session.on(op)


def step_stage(index: Index, session: Session, args: Steps, known: None) -> Session:
    """By so many stages of this op's tile."""
    stages = _stages_of_tile(index, session.cursor)
    return session.on(index.ops.nth(stages, session.cursor, args.n))


def step_tile(index: Index, session: Session, args: Steps, known: None) -> Session:
    """By so many tiles of the composite here, to the first stage of one."""
    composite = index.tiles.composite_at(index.ops.checked(session.cursor))
    if composite is None or not composite.count:
        return session
    here = composite.tile_of(session.cursor)
    if here is None:
        here = -1 if args.n > 0 else 0
    tile = min(max(here + args.n, 0), composite.count - 1)
    return session.on(int(composite.ops_of(tile)[0]))


def _stages_of_tile(index: Index, op: int) -> Ints:
    """The ops of an op's tile, ascending; of any other op itself."""
    itself = np.array([op])
    if not index.trace.ops[index.ops.checked(op)].op_name.startswith("TileToken/"):
        return itself
    composite = index.tiles.composite_at(op)
    tile = None if composite is None else composite.tile_of(op)
    if composite is None or tile is None:
        return itself
    return composite.ops_of(tile)


def cause_of(index: Index, op: int, before: Ints, waits: Sequence[Wait]) -> int | None:
    """What an op waited for last, by its ``waits``, if only the stage ``before`` it in
    its tile.
    """
    trace = index.trace
    known = trace.position[trace.deps(index.ops.row_of(op))]
    found = np.append(known, before).astype(np.int64)
    held: list[tuple[int, float]] = []
    shared: list[tuple[int, float]] = []
    for _, reason, _, t1, holder in waits:
        if holder >= 0 and holder not in found:
            (held if reason == _HELD else shared).append((holder, t1))
    # What was held in program order waited until the other began, which may have ended
    # later. Others that are not known as causes only shared a server: they count where
    # nothing else does.
    ended = zip(found.tolist(), index.ops.ends(found).tolist(), strict=True)
    causes = [*ended, *held] or shared
    return max(causes, key=itemgetter(1))[0] if causes else None


def stages_beside(index: Index, op: int) -> tuple[Ints, Ints]:
    """The stage of an op's tile before it, and the one after; each an array of at most
    one.
    """
    stages = _stages_of_tile(index, op)
    starts = index.ops.starts
    ends = index.ops.ends(stages)
    before = stages[(ends <= starts(op)) & (stages < op)]
    after = stages[(starts(stages) >= index.ops.ends(op)) & (stages > op)]
    return before[-1:], after[:1]


# -- the focus ----------------------------------------------------------------


def widen(index: Index, session: Session, args: Steps, known: None) -> Session:
    """Widen the focus; negative: narrow it."""
    return session._replace(level=min(max(session.level + args.n, 0), _MACHINE))


# -- stops --------------------------------------------------------------------


def _armed(session: Session, kind: str, what: str, ops: Ints) -> Session:
    """The session with one more stop at ``ops``, which ascend."""
    number = session.made + 1
    stop = Stop(number, kind, what, len(ops), ops)
    return session._replace(stops=(*session.stops, stop), made=number)


def break_on(index: Index, session: Session, args: Expression, known: Ints) -> Session:
    """Stop at ops that fit an expression; ``known`` are these."""
    return _armed(session, "break", args.expr, known)


def watch(index: Index, session: Session, args: Watched, known: Ints) -> Session:
    """Stop at what reads or writes bytes; ``known`` are these ops."""
    return _armed(session, "watch", f"{args.place} {args.mode}", known)


def catch(index: Index, session: Session, args: Caught, known: Ints) -> Session:
    """Stop at findings; ``known`` are these ops."""
    return _armed(session, "catch", args.what, known)


def delete(index: Index, session: Session, args: StopNumber, known: None) -> Session:
    """Forget a stop; UsageError lists those there are."""
    left = tuple(stop for stop in session.stops if stop.number != args.number)
    if len(left) == len(session.stops):
        numbers = ", ".join(str(stop.number) for stop in session.stops) or "none"
        raise UsageError(f"no stop {args.number}; there is: {numbers}")
    return session._replace(stops=left)


def continue_(index: Index, session: Session, args: Direction, known: None) -> Session:
    """To the next stop, or back to the previous; if there is none, to that end of the
    log.
    """
    op = session.next_stop(forward=not args.back)
    if op is None:
        op = -1 if args.back else index.ops.last
    return jump(index, session, op)


def stay(index: Index, session: Session, args: Any, known: Any) -> Session:
    """Nowhere: for what only has to be known, as a condition."""
    return session
