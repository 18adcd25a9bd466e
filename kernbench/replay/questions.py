"""What can be asked: ``(index, at, args, progress) -> answer``, a function each.

An answer depends on the trace and on these values only; none reads a cursor. Where a
function is a command of its own name it is called as that is, with dashes as
underscores.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Annotated

import numpy as np

from kernbench.common.arrays import Ints, distinct
from kernbench.common.progress import (
    Cancelled,
    Progress,
    computed_beside,
    no_progress,
    stage,
)
from kernbench.errors import KernbenchError, UsageError
from kernbench.replay.answers import (
    NOT_RECORDED,
    Info,
    Listing,
    OpDetails,
    OpList,
    Source,
    Touches,
)
from kernbench.replay.check import Check, check_file
from kernbench.replay.compare import Comparison, parse_percent
from kernbench.replay.compare import compare as compare_traces
from kernbench.replay.data import places as data_places
from kernbench.replay.data.blame import Blame
from kernbench.replay.data.diff import OpDiff
from kernbench.replay.data.memory import Memory, TensorView
from kernbench.replay.data.outputs import Outputs
from kernbench.replay.data.parting import Parting, parting_of
from kernbench.replay.expr import parse_count, parse_time
from kernbench.replay.index import Index
from kernbench.replay.parsing import NoArguments, Reader, one_of
from kernbench.replay.query import At
from kernbench.replay.races.findings import Findings as Hazards
from kernbench.replay.races.prove import prove_findings
from kernbench.replay.texts import TextList
from kernbench.replay.time.activity import Activity
from kernbench.replay.time.call_times import (
    CallTimes,
    call_times,
    is_of_kernel,
    nearest_called,
)
from kernbench.replay.time.critical import CriticalPath
from kernbench.replay.time.energy import Energy
from kernbench.replay.time.fetches import Fetches
from kernbench.replay.time.loads import Busiest, LinkLoad
from kernbench.replay.time.message_routes import (
    MessageRoutes,
    credit_routes,
    launch_routes,
)
from kernbench.replay.time.roofline import Bound, Roofline
from kernbench.replay.time.routes import Route, route_of
from kernbench.replay.time.spans import cut_off, window
from kernbench.replay.time.stalls import Ledger, LineTimes
from kernbench.replay.time.tiles import Tiles, TileWindow
from kernbench.replay.time.timeline import RowKey, Timeline
from kernbench.replay.whatif import proof
from kernbench.replay.whatif.answers import CausalProfile, Prediction
from kernbench.replay.whatif.proof import ProvedBound
from kernbench.replay.whatif.slack import Slack
from kernbench.trace import Trace
from kernbench.trace.cut import Cut
from kernbench.trace.cut import cut as cut_trace
from kernbench.trace.export import EXPORTERS, Exported
from kernbench.trace.export import export as export_trace

_LISTED = 20
PAGE = 1000
"""Ops of a page of the whole log."""
_BLAME_DEPTH = 32
"""Ops deep that blame goes where nothing is said."""
_CRITICAL_STEPS = 20
_BUSIEST = 10
_PROVED = 5
"""Rows of the causal profile that are proved."""
_TIMELINE_CELLS = 60


# -- arguments ----------------------------------------------------------------


def count(text: str) -> int:
    """A whole number; UsageError for what is none."""
    try:
        return parse_count(text)
    except UsageError as why:
        raise UsageError(f"count {why}") from None


def _size(text: str) -> int:
    number = count(text)
    if number < 0:
        raise UsageError(f"count {number}: must not be negative")
    return number


def parse_change(text: str) -> str:
    """FIELD=VALUE as it is; UsageError for what is none."""
    field, _, value = text.partition("=")
    if not field or not value:
        raise UsageError(f"{text!r}: must be FIELD=VALUE, as pe.clock_ghz=2")
    return text


def _call_number(text: str) -> int:
    try:
        return parse_count(text)
    except UsageError as why:
        raise UsageError(f"call {why}") from None


def _depth_or_place(text: str) -> int | str:
    """How many ops deep, if it is a number; else a place."""
    return count(text) if text.isdecimal() else text


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes by name or by address."""

    place: Annotated[str, Reader("PLACE", extent="place")]


@dataclass(frozen=True, slots=True)
class BlamePlace:
    """Bytes, and how many ops deep to go; or right bytes, and wrong ones."""

    place: Annotated[str, Reader("PLACE", extent="place")]
    depth: Annotated[int | str, Reader("N|BAD", _depth_or_place, extent="place")] = (
        _BLAME_DEPTH
    )


@dataclass(frozen=True, slots=True)
class Listed:
    """How many ops around the cursor, or those that fit, and how many of them."""

    count: Annotated[int | None, Reader("COUNT", _size)] = None
    where: Annotated[str, Reader("EXPR", extent="expression", option="where")] = ""
    limit: Annotated[int | None, Reader("COUNT", _size, option="limit")] = None


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor by name; without one the allocations."""

    name: Annotated[str | None, Reader("TENSOR")] = None


@dataclass(frozen=True, slots=True)
class Window:
    """Times, ns; without them while launches ran."""

    t0: Annotated[float | None, Reader("FROM", parse_time)] = None
    t1: Annotated[float | None, Reader("TO", parse_time, nested=True)] = None


@dataclass(frozen=True, slots=True)
class LoadWindow:
    """The same, of links."""

    t0: Annotated[float | None, Reader("FROM", parse_time)] = None
    t1: Annotated[float | None, Reader("TO", parse_time)] = None


@dataclass(frozen=True, slots=True)
class ActivityWindow:
    """The same, of the nodes whose names a pattern fits; of links, if it has a "->".

    Without a pattern of all.
    """

    t0: Annotated[float | None, Reader("FROM", parse_time)] = None
    t1: Annotated[float | None, Reader("TO", parse_time)] = None
    components: Annotated[str, Reader("GLOB", option="components")] = ""


@dataclass(frozen=True, slots=True)
class PeWindow:
    """A PE, cube or SIP by name (without one all that ran), and times, ns."""

    pe: Annotated[str | None, Reader("PE|all")] = None
    t0: Annotated[float | None, Reader("FROM", parse_time)] = None
    t1: Annotated[float | None, Reader("TO", parse_time)] = None


@dataclass(frozen=True, slots=True)
class Pe:
    """A PE, cube or SIP by name; without one all that ran."""

    pe: Annotated[str | None, Reader("PE")] = None


@dataclass(frozen=True, slots=True)
class TextsOf:
    """A PE, cube or SIP by name (without one all), and how many texts, the first."""

    pe: Annotated[str | None, Reader("PE|all")] = None
    limit: Annotated[int | None, Reader("COUNT", _size, option="limit")] = None


@dataclass(frozen=True, slots=True)
class CallNumber:
    """A tl call by its number; without one that of the op."""

    cmd: Annotated[int | None, Reader("CMD", _call_number)] = None


@dataclass(frozen=True, slots=True)
class StepCount:
    """Of how many steps."""

    count: Annotated[int, Reader("COUNT", _size)] = _CRITICAL_STEPS


@dataclass(frozen=True, slots=True)
class BusiestCount:
    """Of how many components and links."""

    count: Annotated[int, Reader("COUNT", _size)] = _BUSIEST


@dataclass(frozen=True, slots=True)
class OpBound:
    """Whether the slack is to be proved."""

    prove: Annotated[bool, Reader("", option="prove", flag=True)] = False


@dataclass(frozen=True, slots=True)
class RacesToProve:
    """Whether races are to be tried out, and how many of them, the worst first."""

    prove: Annotated[bool, Reader("", option="prove", flag=True)] = False
    first: Annotated[int, Reader("N", _size, option="first")] = _PROVED


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Fields of the machine with other values; without one which to make faster.

    Whether that is to be proved, and how many rows of it.
    """

    changes: Annotated[
        tuple[str, ...], Reader("FIELD=VALUE", parse_change, repeated=True)
    ] = ()
    prove: Annotated[bool, Reader("", option="prove", flag=True)] = False
    first: Annotated[int, Reader("N", _size, option="first")] = _PROVED


@dataclass(frozen=True, slots=True)
class OtherTrace:
    """A trace to compare with, and by how many percent it may be slower."""

    file: Annotated[str, Reader("FILE")]
    percent: Annotated[float | None, Reader("FAIL-OVER", parse_percent)] = None


@dataclass(frozen=True, slots=True)
class CutPart:
    """What to keep of a trace, and where to write it."""

    out: Annotated[str, Reader("OUT")]
    t0: Annotated[float, Reader("TIME", parse_time, option="from")] = -inf
    t1: Annotated[float, Reader("TIME", parse_time, option="to")] = inf
    components: Annotated[str, Reader("GLOB", option="components")] = "*"


@dataclass(frozen=True, slots=True)
class ExportTo:
    """A format, where to write it, and whether a folder there may be replaced."""

    format: Annotated[str, Reader("FORMAT")]
    out: Annotated[str, Reader("OUT")]
    force: Annotated[bool, Reader("", option="force", flag=True)] = False


@dataclass(frozen=True, slots=True)
class RouteOf:
    """A launch or a credit, by its number or as the op's; without one the op itself."""

    what: Annotated[str, Reader("launch|credit", one_of("launch", "credit"))] = ""
    number: Annotated[int | None, Reader("N", count, nested=True)] = None


@dataclass(frozen=True, slots=True)
class Fitting:
    """Which ops, as an expression."""

    expr: str


@dataclass(frozen=True, slots=True)
class Touching:
    """Which bytes, and how: r, w or rw."""

    place: str
    mode: str


@dataclass(frozen=True, slots=True)
class Findings:
    """Of which kind: hazards or checks."""

    what: str


def op_of(at: At) -> int:
    """The op that a question is about, -1 before the first."""
    return -1 if at.op is None else at.op


def _op_or_last(index: Index, at: At) -> int:
    """The op that a question is about; before the first op the last one."""
    op = op_of(at)
    return op if op >= 0 else len(index.ops) - 1


def _wanted(index: Index, args: Listed, progress: Progress) -> Ints | range:
    """The ops that are to be listed: those that fit, else all."""
    if args.where:
        return index.fitting(args.where, progress)
    return range(len(index.ops))


def _place(index: Index, text: str, op: int, progress: Progress) -> data_places.Place:
    """The bytes that a text names at an op; UsageError says what is wrong with it."""
    index.places.prepare(progress)
    return index.places.place(text, op, progress)


def _noted(index: Index, op: int, place: str, note: str, progress: Progress) -> str:
    """A note, and what to say of the copies of the tensor that a place is of.

    Nothing of these if the ops cannot be executed.
    """
    try:
        on_copies = index.copies.told(op, place, progress)
    except Cancelled:
        raise
    except KernbenchError:
        on_copies = ""
    return "; ".join(filter(None, (note, on_copies)))


# -- what happened ------------------------------------------------------------


def info(index: Index, at: At, args: NoArguments, progress: Progress) -> Info:
    """What the trace holds."""
    return index.ops.info()


def ops(index: Index, at: At, args: Listed, progress: Progress) -> OpList:
    """Lines of the op log around an op; with a limit from the first."""
    found = _wanted(index, args, progress)
    op = op_of(at)
    if args.limit is None:
        count = _LISTED if args.count is None else args.count
        middle = bisect_left(found, op) - count // 2
        first = max(min(middle, len(found) - count), 0)
        shown = found[first : first + count]
    else:
        shown = found[: args.limit]
    note = f"{len(found):,} fit {args.where!r}" if args.where else ""
    note += _misspelt(index, args, found)
    return OpList(op, len(index.ops), tuple(index.ops.rows_of(shown)), note)


def pages_of_ops(index: Index, args: Listed) -> Iterator[OpList] | None:
    """All ops, or those that fit, some at a time; None if a part was asked for."""
    return None if args.count is not None else _pages(index, args)


def _pages(index: Index, args: Listed) -> Iterator[OpList]:
    found = _wanted(index, args, no_progress)[: args.limit]
    for first in range(0, max(len(found), 1), PAGE):
        rows = tuple(index.ops.rows_of(found[first : first + PAGE]))
        note = f"{len(found):,} fit{_misspelt(index, args, found)}"
        yield OpList(-1, len(index.ops), rows, note)


def _misspelt(index: Index, args: Listed, found: Ints | range) -> str:
    """What to say of an expression that no op fits, if a value of it is no op's."""
    if len(found) or not args.where:
        return ""
    why = index.misspelt(args.where)
    return f" ({why})" if why else ""


def op(index: Index, at: At, args: NoArguments, progress: Progress) -> OpDetails:
    """Everything recorded about an op, and what its kernel said after it."""
    found = index.ops.details(op_of(at))
    return replace(found, texts=index.texts.of_call(found.cmd))


def texts(index: Index, at: At, args: TextsOf, progress: Progress) -> TextList:
    """What kernels printed and asserted, and what was warned of, as it happened."""
    pes = None
    if args.pe not in (None, "all"):
        pes = index.stalls.pes(args.pe, stage(progress, 0.0, 0.3))
    numbers = index.texts.numbers(pes, stage(progress, 0.3, 0.5))
    shown = numbers[: args.limit]
    rows = index.texts.rows(shown, stage(progress, 0.5, 1.0))
    return TextList(rows, len(numbers))


def source(index: Index, at: At, args: NoArguments, progress: Progress) -> Source:
    """The kernel line that issued an op."""
    return index.ops.source(op_of(at))


def marks(index: Index, at: At, args: NoArguments, progress: Progress) -> Listing:
    """All marks."""
    rows = tuple((name, f"op {op:,}") for name, op in at.marks or ())
    return Listing(rows, "no mark is set")


def breaks(index: Index, at: At, args: NoArguments, progress: Progress) -> Listing:
    """All stops."""
    rows = []
    for stop in at.stops or ():
        name, _, what = stop.lines(0)[0].partition(": ")
        rows.append((name, what))
    return Listing(tuple(rows), "no stop is set")


# -- which ops: what moves and stops have to know -----------------------------


def fitting(index: Index, at: At, args: Fitting, progress: Progress) -> Ints:
    """The ops that fit an expression, ascending."""
    return index.fitting(args.expr, progress)


def touching(index: Index, at: At, args: Touching, progress: Progress) -> Ints:
    """The ops that read (r), write (w) or touch (rw) bytes of a place, ascending."""
    history = index.history
    index.places.prepare(progress)
    rows = index.places.accesses_to(args.place, progress).numbers
    if args.mode != "rw":
        rows = rows[history.touched.mode[rows] == (args.mode == "w")]
    return distinct(history.touched.row[rows])


def findings(index: Index, at: At, args: Findings, progress: Progress) -> Ints:
    """The ops with hazards; or, of checks, those that rounding does not explain and
    where an output is due and wrong. Executes everything.
    """
    if args.what == "hazards":
        return index.hazards.ops(progress)
    report = index.outputs.verify(stage(progress, 0.0, 0.5))
    ops = [out.after - 1 for out in report.rows if not out.row.ok]
    ops += index.diffs.over(stage(progress, 0.5, 1.0))
    return np.unique(np.array(ops, np.int64))


# -- with which data, and who made it -----------------------------------------


def memory(
    index: Index, at: At, args: Tensor, progress: Progress
) -> Memory | TensorView:
    """The allocations that hold something at an op, or the numbers of one tensor."""
    if args.name is None:
        index.memory.index(progress)
        return index.memory.at(op_of(at))
    op = op_of(at)
    view = index.memory.tensor(op, args.name, stage(progress, 0.0, 0.5))
    note = index.copies.told(op, args.name, stage(progress, 0.5, 1.0))
    return replace(view, note=note)


def history(index: Index, at: At, args: Place, progress: Progress) -> Touches:
    """Every read and write of a place, from the first op to the last."""
    index.places.prepare(progress)
    numbers = index.places.accesses_to(args.place, progress).numbers
    return Touches(index.touches.numbered(numbers, progress))


def blame(
    index: Index, at: At, args: BlamePlace, progress: Progress
) -> Blame | Parting:
    """The ops behind a place as it is at an op, or at the end before the first op.

    With another place, a wrong one, where its chain parts from that of the first.
    """
    op = _op_or_last(index, at)
    if isinstance(args.depth, int):
        return _chain(index, args.place, op, args.depth, progress)
    good = _chain(index, args.place, op, _BLAME_DEPTH, stage(progress, 0.0, 0.5))
    bad = _chain(index, args.depth, op, _BLAME_DEPTH, stage(progress, 0.5, 1.0))
    return parting_of(good, bad)


def _chain(index: Index, text: str, op: int, depth: int, progress: Progress) -> Blame:
    """The ops behind one place."""
    found = index.blame.named(text, op, depth, progress)
    return replace(found, note=_noted(index, op, text, found.note, progress))


def who_wrote(index: Index, at: At, args: Place, progress: Progress) -> Touches:
    """The writers of what a place holds at an op, or at the end before the first op."""
    op = _op_or_last(index, at)
    place = _place(index, args.place, op, progress)
    found = index.touches.writers(place, op, progress)
    return replace(found, note=_noted(index, op, args.place, found.note, progress))


def who_reads(index: Index, at: At, args: Place, progress: Progress) -> Touches:
    """The reads after an op of what a place holds there, until it is overwritten."""
    op = op_of(at)
    place = _place(index, args.place, op, progress)
    return index.touches.readers(place, op, progress)


# -- is it right --------------------------------------------------------------


def diff(index: Index, at: At, args: NoArguments, progress: Progress) -> OpDiff:
    """What an op wrote beside its float64 oracle, with its errors; the accumulated one
    too where that is quick.
    """
    return index.diffs.checked(index.ops.checked(op_of(at)), progress=progress)


def divergence(index: Index, at: At, args: NoArguments, progress: Progress) -> OpDiff:
    """The first op that rounding does not explain, three-way, by executing everything.

    If there is none and an output fails, the op at which that went wrong: where a NaN
    was made, or what had accumulated was more than the output's tolerance.
    """
    found = index.diffs.first_divergence(stage(progress, 0.0, 0.5))
    if found is None:
        found = index.departures.first(stage(progress, 0.5, 1.0))
    if found is not None:
        return replace(found, site=index.ops.row(found.op).site)
    return OpDiff(-1, "divergence", note=_no_divergence(index))


def _no_divergence(index: Index) -> str:
    """That no op is off by more than rounding, and of how much of the run."""
    note = "rounding explains every op"
    if not len(index.ops):
        note = "no op is recorded"
    if index.ops.error:
        return f"{note}, yet the run ended with {index.ops.error}"
    part = cut_off(index.trace)
    if part:
        return f"{note}; {part}"
    return note


def outputs(index: Index, at: At, args: NoArguments, progress: Progress) -> Outputs:
    """The expected tensors, against memory at an op."""
    return index.outputs.at(op_of(at), progress)


def verify(index: Index, at: At, args: NoArguments, progress: Progress) -> Outputs:
    """The expected tensors, each when it was due, by executing the whole trace."""
    return index.outputs.verify(progress)


def hazards(index: Index, at: At, args: RacesToProve, progress: Progress) -> Hazards:
    """What ops do to bytes that they should not, by lines and tensor, worst first.

    Executes everything, to compare what Phase 1 saw with Phase 2.
    """
    return index.hazards.findings(progress)


def prove_hazards(
    index: Index, at: At, args: RacesToProve, progress: Progress
) -> Hazards:
    """The same, and the first races tried out: the earlier op is held back in a re-run
    until it comes behind the later one.
    """
    rerun = proof.needed(index.rerun)
    found = hazards(index, at, args, stage(progress, 0.0, 0.2))
    part = stage(progress, 0.2, 1.0)
    return prove_findings(index.trace, found, rerun, args.first, part)


# -- why is it slow -----------------------------------------------------------


def route(
    index: Index, at: At, args: RouteOf, progress: Progress
) -> Route | MessageRoutes:
    """The hops of an op's transactions; where it has none, of the nearest stage of its
    tile that has. Or those of a launch, or of credits.
    """
    if args.what:
        return _message_routes(index, at, args, progress)
    op = index.ops.checked(op_of(at))
    found = route_of(index.trace, op)
    if found.legs:
        return found
    composite = index.tiles.composite_at(op)
    progress(0.5)
    if composite is None:
        return found
    tile = composite.tile_of(op)
    if tile is None and found.name.startswith("composite_") and composite.count:
        tile = 0
    moving = [] if tile is None else composite.stages_like(tile, "DMA")
    if not moving:
        return found
    near = max((other for other in moving if other < op), default=moving[0])
    other = route_of(index.trace, near)
    note = f"{found.note}; shown is {other.name} #{near:,} of the tile"
    return replace(found, legs=other.legs, note=note, parts=other.parts)


def _message_routes(
    index: Index, at: At, args: RouteOf, progress: Progress
) -> MessageRoutes:
    """The hops of a launch or of credits: by its number, or those of an op."""
    op = op_of(at)
    if args.number is None:
        op = index.ops.checked(op)
    if args.what == "launch":
        return launch_routes(index.trace, op, args.number, progress)
    return credit_routes(index.trace, op, args.number, progress)


def tiles(index: Index, at: At, args: Window, progress: Progress) -> Tiles | TileWindow:
    """The tiles of an op's composite, or those in some stage within a time."""
    if args.t0 is None:
        op = op_of(at)
        return computed_beside(lambda: index.tiles.tiles_of(op), progress, 0.0)
    return index.tiles.between(
        *window(index.launch_window, args.t0, args.t1), progress=progress
    )


def timeline(index: Index, at: At, args: Window, progress: Progress) -> Timeline:
    """Busy cells of every component that served an op."""
    t0, t1 = window(index.launch_window, args.t0, args.t1)
    components = index.op_index.components.tolist()
    return timeline_of(
        index, op_of(at), components, t0, t1, _TIMELINE_CELLS, progress=progress
    )


def timeline_of(
    index: Index,
    op: int,
    components: Sequence[int],
    t0: float,
    t1: float,
    columns: int,
    lanes: bool = False,
    progress: Progress = no_progress,
) -> Timeline:
    """Busy cells of ``components`` (node indices), or of each lane of them, over [t0,
    t1) ns; the cell of the time of ``op`` is marked.
    """
    rows: list[RowKey] = []
    for node in components:
        if lanes:
            of_node = index.op_index.lanes_of(node)
            rows += [RowKey((node,), lane) for lane in of_node]
        else:
            rows.append(RowKey((node,)))
    cursor = None
    time = index.ops.time(op)
    if op >= 0 and t0 <= time < t1:
        cell_ns = max((t1 - t0) / columns, 1e-12)
        cursor = min(int((time - t0) / cell_ns), columns - 1)
    drawn = index.timelines.draw_rows(rows, t0, t1, columns, progress)
    return Timeline(t0, t1, columns, cursor, drawn)


def stalls(index: Index, at: At, args: PeWindow, progress: Progress) -> Ledger:
    """Where the time of a PE, or of all within a cube or SIP, went."""
    return index.stalls.ledger(args.pe, args.t0, args.t1, progress)


def lines(index: Index, at: At, args: Pe, progress: Progress) -> LineTimes:
    """Time and stalls by kernel line."""
    return index.stalls.lines(args.pe, progress)


def pes(index: Index, at: At, args: CallNumber, progress: Progress) -> CallTimes:
    """One tl call on all of its PEs."""
    cmd = args.cmd
    if cmd is None:
        op = index.ops.checked(op_of(at))
        cmd = int(index.trace.op_columns.cmd[index.ops.row_of(op)])
        if not is_of_kernel(index.trace, cmd):
            nearest = nearest_called(index.trace, op, progress)
            raise UsageError(_of_no_kernel(index, op, nearest))
    return call_times(index.trace, cmd, progress)


def _of_no_kernel(index: Index, op: int, nearest: int | None) -> str:
    """That no kernel is known to have called an op, and where to ask instead."""
    name = index.ops.row(op).name
    what = f"op {op:,} {name} is the host's, so no PE called it"
    if index.ops.call(op).call == NOT_RECORDED:
        what = (
            f"the call of op {op:,} {name} is not recorded, so no PE is known to have "
            "made it"
        )
    if nearest is None:
        return f"{what}; no kernel called any op here"
    which = "next" if nearest > op else "last"
    return f"{what}; the {which} op that one called is {nearest}: ask there"


def critical(index: Index, at: At, args: StepCount, progress: Progress) -> CriticalPath:
    """The chain that sets the end of the launches, with its longest steps."""
    return index.critical.path(args.count, progress)


def links(index: Index, at: At, args: LoadWindow, progress: Progress) -> LinkLoad:
    """Bytes, busy share and queue of every link."""
    return index.loads.links(*window(index.launch_window, args.t0, args.t1), progress)


def busiest(index: Index, at: At, args: BusiestCount, progress: Progress) -> Busiest:
    """The components and links that are busy for most of the launches' time."""
    return index.loads.busiest(*index.launch_window, args.count, progress)


def activity(
    index: Index, at: At, args: ActivityWindow, progress: Progress
) -> Activity:
    """The busy share of every component and link, of all kinds."""
    t0, t1 = window(index.launch_window, args.t0, args.t1)
    return index.activity.activity(t0, t1, args.components, progress)


def roofline(index: Index, at: At, args: NoArguments, progress: Progress) -> Roofline:
    """FLOPs and HBM bytes of the launches' time against the machine's peaks, by PE."""
    return index.roofline.roofline(*index.launch_window, progress)


def energy(index: Index, at: At, args: NoArguments, progress: Progress) -> Energy:
    """The energy of the run by component class, kernel line and tensor."""
    return index.energy.energy(progress)


def fetches(index: Index, at: At, args: NoArguments, progress: Progress) -> Fetches:
    """How often each operand was fetched."""
    return index.fetches.fetches(progress)


def bound(index: Index, at: At, args: OpBound, progress: Progress) -> Bound:
    """The ideal time of an op beside its real one, and its slack."""
    op = index.ops.checked(op_of(at))
    row = index.ops.row(op)
    ideal = index.roofline.ideal_ns(op, stage(progress, 0.0, 0.5))
    slack = _slack(index, op, stage(progress, 0.5, 1.0))
    real = row.t_end - row.t_start
    return Bound(row, real, ideal, slack.ns, slack.sure, slack.why)


def _slack(index: Index, op: int, progress: Progress) -> Slack:
    """The slack of an op; of a part of a run what its own ops say."""
    trace = index.trace
    if trace.cut or not trace.complete:
        ns = index.critical.slack(op, progress)
        return Slack(ns, False, "the trace does not hold all of its run")
    return index.whatif.slack(op, progress)


def prove_bound(index: Index, at: At, args: OpBound, progress: Progress) -> ProvedBound:
    """The same, and the slack tried out by running again with that op held back."""
    rerun = proof.needed(index.rerun)
    found = bound(index, at, args, stage(progress, 0.0, 0.2))
    return proof.prove_slack(index.trace, found, rerun, stage(progress, 0.2, 1.0))


def whatif(
    index: Index, at: At, args: WhatIf, progress: Progress
) -> Prediction | CausalProfile:
    """When the run would end on a changed machine; of no change what to make faster."""
    if args.changes:
        return index.whatif.predict(args.changes, progress)
    return index.whatif.profile(progress)


def prove_whatif(
    index: Index, at: At, args: WhatIf, progress: Progress
) -> Prediction | CausalProfile:
    """The same, with what a re-run gives; of the profile the first rows."""
    rerun = proof.needed(index.rerun)
    found = whatif(index, at, args, stage(progress, 0.0, 0.2))
    if isinstance(found, Prediction):
        return proof.prove_prediction(found, rerun)
    return proof.prove_profile(found, rerun, args.first, stage(progress, 0.2, 1.0))


# -- other traces and files ---------------------------------------------------


def compare(index: Index, at: At, args: OtherTrace, progress: Progress) -> Comparison:
    """Another trace beside this one."""
    other = computed_beside(lambda: Trace.open(args.file), progress, 0.0)
    return compare_traces(index.trace, other, args.percent, progress=progress)


def check(index: Index, at: At, args: NoArguments, progress: Progress) -> Check:
    """The frames of the file, and what is damaged or missing."""
    return check_file(index.trace.path, progress)


def cut(index: Index, at: At, args: CutPart, progress: Progress) -> Cut:
    """Write what ran within a time on some components to a trace of its own."""
    return cut_trace(index.trace.path, args.out, args.t0, args.t1, args.components)


def export(index: Index, at: At, args: ExportTo, progress: Progress) -> Exported:
    """Write all of the trace in another format."""
    return export_trace(index.trace, args.format, args.out, progress, args.force)


EXPORT_FORMATS = tuple(EXPORTERS)
