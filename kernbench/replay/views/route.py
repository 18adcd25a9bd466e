"""What the pane of routes asks: maps of the machine, and how loaded the lines of one
are.

Each function is ``(index, at, args, progress) -> answer``, as in ``questions.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernbench.common.progress import Progress
from kernbench.replay.index import Index
from kernbench.replay.query import At
from kernbench.replay.time.machine_map import MachineMap, Pair, Place
from kernbench.replay.time.spans import window


@dataclass(frozen=True, slots=True)
class MapPlace:
    """Which part of the machine a map is of.

    () is the system; the others are (sip,), (sip, cube) and (sip, cube, pe). On a
    ``narrow`` map boxes stand as near to each other as they can.
    """

    place: Place
    narrow: bool = False


@dataclass(frozen=True, slots=True)
class MapWindow:
    """The part of the machine that a map is of, and a window of time: [t0, t1) ns."""

    place: Place
    t0: float
    t1: float


@dataclass(frozen=True, slots=True)
class LineLoad:
    """How loaded the links that lead from one box of a map to another were.

    ``pair`` are the two boxes by number. ``busy`` is the share of time that the busiest
    link was in use, ``nbytes`` is what they carried in all, and ``queue`` is the most
    transactions that waited for one of them at once.
    """

    pair: Pair
    busy: float
    nbytes: int
    queue: int


def machine_map(index: Index, at: At, args: MapPlace, progress: Progress) -> MachineMap:
    """The map of a part of the machine."""
    return index.maps.of(args.place, progress, args.narrow)


def map_load(
    index: Index, at: At, args: MapWindow, progress: Progress
) -> tuple[LineLoad, ...]:
    """The lines of a map that carried something in a window, the busiest first."""
    edges = index.trace.edges
    box_of = index.maps.of(args.place, progress).box_of
    t0, t1 = window(index.launch_window, args.t0, args.t1)
    links = index.loads.links(t0, t1, progress).links
    found: dict[Pair, LineLoad] = {}
    for i, link in enumerate(links):
        progress(i / len(links))
        src = box_of.get(int(edges.src[link.edge]))
        dst = box_of.get(int(edges.dst[link.edge]))
        if src is None or dst is None or src == dst:
            continue
        pair = src, dst
        before = found.get(pair, LineLoad(pair, link.busy, 0, 0))
        found[pair] = LineLoad(
            pair,
            before.busy,
            before.nbytes + round(link.nbytes),
            max(before.queue, link.queue),
        )
    return tuple(found.values())
