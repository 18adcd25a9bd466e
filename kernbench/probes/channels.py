"""Which links wait for which others, and where that goes in a circle.

A header that holds one link and asks for the next makes the first depend on the second.
All routes together give the channel dependency graph (Dally and Seitz, 1987: routing
with finite buffers cannot deadlock if that graph has no cycle). The links of the model
are queues of any length, so nothing that it simulates can deadlock there.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from kernbench.policy.routing.router import Path, PathRouter, local_name
from kernbench.topology.graph import TopologyGraph

Link: TypeAlias = tuple[str, str]
"""The nodes at the two ends of a directed link."""

Dependencies: TypeAlias = dict[Link, set[Link]]
"""For every link those that a header on it may ask for next."""


@dataclass(frozen=True, slots=True)
class ChannelCycle:
    """One circle of links that wait for each other, the last for the first.

    ``nodes`` are those that the links lead from, of the first place that has it.
    ``places`` are all cubes that have this very circle ("" if it is in no one cube).
    """

    nodes: tuple[str, ...]
    places: tuple[str, ...]

    @property
    def length(self) -> int:
        """How many links it has."""
        return len(self.nodes)

    def as_text(self) -> str:
        """A line: its length, where it is, and its way."""
        place = self.places[0]
        names = self.nodes
        where = "between cubes"
        if place:
            where = f"in {place}"
            names = tuple(node.removeprefix(f"{place}.") for node in self.nodes)
        if len(self.places) > 1:
            where += f" and {len(self.places) - 1} more cubes"
        return f"{self.length} links {where}: {' > '.join((*names, names[0]))}"


@dataclass(frozen=True, slots=True)
class ChannelReport:
    """The channel dependency graph of the data routes in one SIP.

    ``on_cycles`` counts the links that lie on any cycle. ``shortest`` are the shortest
    cycles; there may be any number of longer ones.
    """

    links: int
    dependencies: int
    on_cycles: int
    shortest: tuple[ChannelCycle, ...]

    def as_text(self) -> str:
        """What there is, and what it means."""
        size = f"{self.links:,} links, {self.dependencies:,} dependencies"
        head = f"channel dependencies of the data routes in a SIP: {size}"
        if not self.shortest:
            return f"{head}; no cycle: finite buffers could not deadlock"
        lines = [f"{head}; {self.on_cycles:,} links on cycles, the shortest:"]
        lines += [f"  {cycle.as_text()}" for cycle in self.shortest]
        lines.append(
            "  with finite buffers these could deadlock; the model's are not finite, "
            "so it cannot show it"
        )
        return "\n".join(lines)


def channel_report(graph: TopologyGraph, router: PathRouter) -> ChannelReport:
    """The cycles among the links of ``data_routes``."""
    waits_for = dependencies(data_routes(graph, router))
    cyclic = [part for part in components(waits_for) if len(part) > 1]
    found = shortest_cycles(waits_for, cyclic)
    return ChannelReport(
        links=len(waits_for),
        dependencies=sum(len(after) for after in waits_for.values()),
        on_cycles=sum(len(part) for part in cyclic),
        shortest=_by_place(found),
    )


def data_routes(
    graph: TopologyGraph, router: PathRouter, sip: int = 0
) -> Iterator[Path]:
    """The ways of data in a SIP, there and back.

    Of every PE to the memories of the SIP and to its PCIe end points, and of these to
    all HBM. SIPs are alike, and what goes to another leaves by an end point.
    """
    here = [node for node in graph.nodes.values() if node.sip == sip]
    named: dict[str, list[str]] = defaultdict(list)
    for node in here:
        named[node.type].append(node.id)
    memories = [*named["hbm_ctrl"], *named["pe_tcm"], *named["sram"]]
    ends = named["pcie_ep"]
    for dma in named["pe_dma"]:
        for target in (*memories, *ends):
            yield from _there_and_back(router.route("pe", dma, target))
    for end in ends:
        for target in named["hbm_ctrl"]:
            yield from _there_and_back(router.route("memory", end, target))


def _there_and_back(path: Path) -> tuple[Path, Path]:
    return path, path[::-1]


def dependencies(routes: Iterable[Path]) -> Dependencies:
    """The channel dependency graph: what each link of the routes may wait for."""
    waits_for: Dependencies = {}
    for path in routes:
        before: Link | None = None
        for link in pairwise(path):
            waits_for.setdefault(link, set())
            if before is not None:
                waits_for[before].add(link)
            before = link
    return waits_for


def components(waits_for: Mapping[Link, set[Link]]) -> list[list[Link]]:
    """The strongly connected components (Tarjan 1972), without recursion."""
    number: dict[Link, int] = {}
    lowest: dict[Link, int] = {}
    stack: list[Link] = []
    is_open: set[Link] = set()
    found: list[list[Link]] = []
    for root in waits_for:
        if root in number:
            continue
        work = [(root, iter(waits_for[root]))]
        number[root] = lowest[root] = len(number)
        stack.append(root)
        is_open.add(root)
        while work:
            link, rest = work[-1]
            child = next(rest, None)
            if child is None:
                work.pop()
                if work:
                    parent = work[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[link])
                if lowest[link] == number[link]:
                    found.append(_popped(stack, is_open, link))
            elif child not in number:
                number[child] = lowest[child] = len(number)
                stack.append(child)
                is_open.add(child)
                work.append((child, iter(waits_for[child])))
            elif child in is_open:
                lowest[link] = min(lowest[link], number[child])
    return found


def _popped(stack: list[Link], is_open: set[Link], last: Link) -> list[Link]:
    """What lies on the stack down to ``last``, taken off it."""
    part = []
    while True:
        link = stack.pop()
        is_open.discard(link)
        part.append(link)
        if link == last:
            return part


def shortest_cycles(
    waits_for: Mapping[Link, set[Link]], cyclic: Iterable[list[Link]]
) -> list[tuple[Link, ...]]:
    """A shortest cycle through each link that has one of the least length of all.

    Each begins with its least link, and is there once; they are sorted.
    """
    least = len(waits_for) + 1
    found: set[tuple[Link, ...]] = set()
    for part in cyclic:
        inside = set(part)
        for start in sorted(part):
            cycle = _shortest_through(start, waits_for, inside, least)
            if cycle is None:
                continue
            if len(cycle) < least:
                least = len(cycle)
                found.clear()
            first = cycle.index(min(cycle))
            found.add((*cycle[first:], *cycle[:first]))
    return sorted(found)


def _shortest_through(
    start: Link, waits_for: Mapping[Link, set[Link]], inside: set[Link], most: int
) -> list[Link] | None:
    """A shortest cycle through a link; None if it has more than ``most`` links."""
    came_from: dict[Link, Link] = {}
    depth = {start: 1}
    queue = deque([start])
    while queue:
        link = queue.popleft()
        if depth[link] > most:
            return None
        for after in sorted(waits_for[link] & inside):
            if after == start:
                cycle = [link]
                while cycle[-1] != start:
                    cycle.append(came_from[cycle[-1]])
                return cycle[::-1]
            if after not in depth:
                depth[after] = depth[link] + 1
                came_from[after] = link
                queue.append(after)
    return None


def _by_place(cycles: Iterable[tuple[Link, ...]]) -> tuple[ChannelCycle, ...]:
    """Cycles that are alike but for their cube, as one."""
    places: dict[tuple[str, ...], list[str]] = defaultdict(list)
    first: dict[tuple[str, ...], tuple[str, ...]] = {}
    for cycle in cycles:
        nodes = tuple(src for src, _ in cycle)
        cubes = {_cube_of(node) for node in nodes}
        shape = nodes
        place = ""
        if len(cubes) == 1 and "" not in cubes:
            (place,) = cubes
            shape = tuple(local_name(node, in_cube=True) for node in nodes)
        places[shape].append(place)
        first.setdefault(shape, nodes)
    return tuple(
        ChannelCycle(first[shape], tuple(found)) for shape, found in places.items()
    )


def _cube_of(node: str) -> str:
    """The cube, as "sip0.cube3", of a node in a cube; "" of another."""
    sip, _, below = node.partition(".")
    cube, _, _ = below.partition(".")
    return f"{sip}.{cube}" if cube.startswith("cube") else ""
