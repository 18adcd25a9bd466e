"""What is found in a trace once, and serves every question about what would happen."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from kernbench.common.arrays import Array, Floats
from kernbench.common.progress import (
    Progress,
    computed_beside,
    no_progress,
    stage,
)
from kernbench.errors import RefusedError
from kernbench.replay.time.mapped_logs import map_logs
from kernbench.replay.time.spans import launches_not_ended
from kernbench.replay.whatif.alone import MovesAlone
from kernbench.replay.whatif.certainty import Engines, Queues, waits_for_credit
from kernbench.replay.whatif.changed_machines import ChangedMachines
from kernbench.replay.whatif.fields import Change
from kernbench.replay.whatif.graph import Graph, build_graph
from kernbench.replay.whatif.holds import Holds
from kernbench.replay.whatif.links import ChangedLinks, recorded_links
from kernbench.replay.whatif.machine import Machine, ways_of
from kernbench.replay.whatif.slack import slacks
from kernbench.replay.whatif.streams import Streams
from kernbench.replay.whatif.turns import MOST_EDGES, Turns
from kernbench.replay.whatif.walk import Batches, Scenarios
from kernbench.topology import recorded_spec
from kernbench.topology.spec import TopologySpec
from kernbench.trace import Trace


@dataclass
class KnownRun:
    """What a trace says of its run, and the machine that recorded it.

    ``weight`` is what each class takes on that ``machine``, ns. ``last`` are the places
    of ``graph.last`` in a walk. ``has_credits`` says that messages waited for free
    slots of a ring, ``has_no_end`` that an error ended the run within a launch. Turns,
    streams and whatever else only some answers need is found when it is first asked
    for.
    """

    trace: Trace
    machine: Machine
    machines: ChangedMachines
    graph: Graph
    batches: Batches
    last: Array
    queues: Queues
    engines: Engines
    holds: Holds
    weight: Floats
    has_credits: bool
    has_no_end: bool
    _turns: Turns | None = field(default=None, init=False)
    _slacks: Floats | None = field(default=None, init=False)

    @property
    def spec(self) -> TopologySpec:
        """That of the machine that recorded the trace."""
        return self.machine.spec

    def on(
        self, spec: TopologySpec, changes: tuple[Change, ...]
    ) -> tuple[Machine, Floats]:
        """The machine ``spec``, which has some changes, and its weights by class, ns.

        Both are those of the recorded machine if that machine has other links.
        """
        machine = self.machines.with_(spec, changes)
        if machine is self.machine:
            return machine, self.weight
        return machine, self.graph.table.on(machine)

    # -- when things come --

    def by_node(self, times: Floats) -> Floats:
        """Times of a walk, which are by place, by node of the graph."""
        return times[self.batches.place]

    def ends(self, times: Floats) -> Floats:
        """By scenario when the run ends, ns: as much later as the last thing in it.

        ``times`` are by place, a column a scenario.
        """
        recorded_ns = self.trace.end_ns
        if not len(self.last):
            return np.full(times.shape[1], recorded_ns)
        recorded = float(self.graph.times[self.graph.last].max())
        last = times.take(self.last, 0).max(axis=0)
        return np.asarray(recorded_ns + (last - recorded))

    def spans(self, times: Floats) -> Floats:
        """How long each launch takes, ns, in the order of ``Trace.launches``."""
        numbers = np.arange(len(self.trace.launches))
        place = self.batches.place
        moments = self.graph.moments
        starts = times[place[moments.launch_start(numbers)]]
        ends = times[place[moments.launch_end(numbers)]]
        return np.asarray(ends - starts)

    def mean_span(self, times: Floats) -> float:
        """How long a launch takes on average, ns; without any the run."""
        spans = self.spans(times)
        return float(spans.mean()) if len(spans) else self.trace.end_ns

    # -- what only some answers need --

    def turns(self, progress: Progress) -> Turns:
        """The graph, ready to be re-timed in turns."""
        if self._turns is None:
            make = partial(
                Turns, self.trace, self.machine, self.graph, self.queues, self.weight
            )
            self._turns = computed_beside(make, progress, 0.0)
        return self._turns

    @property
    def is_small(self) -> bool:
        """Whether it is small enough to be re-timed in turns."""
        return len(self.graph.cause) <= MOST_EDGES

    @property
    def is_explained_in_turns(self) -> bool:
        """Whether it is small, and in turns it comes to what was recorded."""
        return self.is_small and self.turns(no_progress).explains

    def slacks(self, progress: Progress) -> Floats:
        """By node of the graph its slack, ns, as ``slack.slacks`` has it."""
        if self._slacks is None:
            self._slacks = slacks(self.graph, self.weight, progress)
        return self._slacks

    @cached_property
    def streams(self) -> Streams:
        """When each move had each link."""
        return Streams(self.trace, self.machine, self.graph)

    @cached_property
    def moves_alone(self) -> MovesAlone:
        """Some moves through HBM, sent alone."""
        return MovesAlone(self.trace, self.machine, self.graph.moves)


def known_run(trace: Trace, progress: Progress) -> KnownRun:
    """What is known of a trace; RefusedError if it does not hold all of a run."""
    _refuse_parts(trace)
    map_logs(trace, progress, "commands", "waits", "launches", "transfers")
    spec = recorded_spec(trace.spec)
    ways = computed_beside(partial(ways_of, trace), progress, 0.0)
    links = computed_beside(partial(recorded_links, trace), progress, 0.0)
    machine = Machine(ways, links, spec)
    graph = build_graph(trace, machine, stage(progress, 0.0, 0.7))
    batches = Batches(graph, stage(progress, 0.7, 1.0))
    last = computed_beside(lambda: np.sort(batches.place[graph.last]), progress, 1.0)
    on_it = partial(graph.table.on, machine)
    recorded = computed_beside(on_it, progress, 1.0)
    links_from = len(trace.node_ids)
    find = partial(Queues, graph, recorded, batches.place, links_from)
    queues = computed_beside(find, progress, 1.0)
    look = partial(Engines, graph, recorded, batches.place)
    engines = computed_beside(look, progress, 1.0)
    order = partial(Holds, graph, batches.place, machine)
    holds = computed_beside(order, progress, 1.0)
    return KnownRun(
        trace=trace,
        machine=machine,
        machines=ChangedMachines(machine, ChangedLinks(trace, spec)),
        graph=graph,
        batches=batches,
        last=last,
        queues=queues,
        engines=engines,
        holds=holds,
        weight=recorded,
        has_credits=waits_for_credit(trace),
        has_no_end=bool(launches_not_ended(trace)),
    )


def alone(weight: Floats) -> Scenarios:
    """A scenario of one machine, on which no line is faster; ``weight`` is by class."""
    return Scenarios(weight[:, None], np.full(1, -1), np.ones(1))


def _refuse_parts(trace: Trace) -> None:
    """RefusedError if a trace does not hold all of a run."""
    if trace.cut:
        raise RefusedError(
            "this trace was cut from another and holds some of its ops only, so "
            "when its run would end cannot be told; ask the whole trace"
        )
    if not trace.complete:
        raise RefusedError(
            "the recording of this trace was cut off, so when its run would have ended "
            "cannot be told; record it again"
        )
