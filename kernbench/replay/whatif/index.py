"""``WhatIfIndex``: when a recorded run would end on another machine.

It re-times the recorded graph (graph.py) with the weights of the changed machine, and
says how sure that is. The causal profile does so for every field and every kernel line
alone. Nothing is simulated: a re-run proves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kernbench.common.arrays import Array, Floats
from kernbench.common.exact_time import SAME_NS, TICK_NS
from kernbench.common.progress import (
    Progress,
    computed_beside,
    forwards,
    no_progress,
    stage,
)
from kernbench.errors import RefusedError
from kernbench.replay.time.mapped_logs import map_logs
from kernbench.replay.whatif.alone import MovesAlone
from kernbench.replay.whatif.answers import (
    CausalProfile,
    Gain,
    How,
    LaunchChange,
    Prediction,
)
from kernbench.replay.whatif.bounds import longest_path
from kernbench.replay.whatif.certainty import (
    ALONE_SHARE,
    CROWDED_SHARE,
    LEAST_SHARE,
    Engines,
    Queues,
    awaits_more_than_calls,
    crowding,
    waits_for_credit,
)
from kernbench.replay.whatif.edges import MOST_SLOWER
from kernbench.replay.whatif.fields import (
    Change,
    all_fields,
    parse_change,
    value_of,
    with_changes,
)
from kernbench.replay.whatif.graph import Graph, build_graph
from kernbench.replay.whatif.holds import Holds
from kernbench.replay.whatif.links import ChangedLinks, LinkTimes, recorded_links
from kernbench.replay.whatif.machine import Machine, Ways, ways_of
from kernbench.replay.whatif.slack import STEP_NS, Slack, slacks, tried_out, uses_up
from kernbench.replay.whatif.streams import Streams
from kernbench.replay.whatif.turns import Turns
from kernbench.replay.whatif.walk import Batches, Late, Scenarios
from kernbench.topology import recorded_spec
from kernbench.topology.spec import TopologySpec
from kernbench.trace import Trace

_BLOCK_BYTES = 9 << 26
"""Of the times of a block of scenarios."""

_MUCH = 0.02
"""If waits of such a share of a launch depend on another order it is unsure."""

_LEAST_NS = 0.5
"""Gains below this many ns are not told."""

_FEW_EDGES = 1 << 16
"""A graph of at most so many edges is re-timed in turns where an order changes."""

_LESS = 8
"""In so many parts a slack is tried out, whether less of it moves the end."""

_FEWER_EDGES = 1 << 14
_FIRST = 5
"""In a profile of a graph of at most so many edges so many of the largest gains are."""

_MACHINES = 16
"""Of so many changed machines the links are kept."""

_OTHER_ORDER = (
    "links or memories would serve others before it, beside it, or at another distance "
    "from it"
)

_OTHER_TURNS = "links or memories would serve in another order than they did"
"""Memories are controllers of HBM, ports of SRAMs, and channels of TCMs."""

_ENGINES = "engines would serve in another order than they did"

_AWAITS = (
    "the host went on when the machine was idle, later than calls ended; how long that "
    "takes is not known"
)

_HELD = (
    "an op would come before an earlier one that touches the same bytes, and be held"
)

_HELD_BY_NONE = "an op was held by an earlier one, and by which is not found"

_CROWDED = "a link or a memory would be asked for more at once than it can do"

_MET_OTHERWISE = (
    "transactions would meet otherwise at a controller of HBM, and may find other rows "
    "open"
)

_TURNED_OTHERWISE = (
    "reads and writes would meet otherwise at a controller of HBM, and its bus may "
    "turn at other times"
)

_OTHER_ROWS = (
    "transactions would open rows of HBM, or fill some of its channels, at another "
    "pace than is known; sent alone they are off by {share:.1%}"
)

_SLOWER = (
    "a link would be {times:.3g} times slower; who waits there for whom that did not "
    "wait before is known up to {most:g} times"
)

_CREDITS = (
    "messages waited for free slots of a ring, and others may wait for others then"
)

_REFRESHED = (
    "refreshes of HBM would come at other times, or take another time; who meets one "
    "then is not known"
)

_NEVER_ENDED = (
    "the run ended within a launch, so when it would have ended cannot be told"
)

_NO_LINE = (
    "past it the end does not come later by as much as the op does, since others are "
    "served in another order"
)

_LESS_MOVES = (
    "a shorter delay moves the end, since others are then served in another order"
)

OF_LINKS = (
    *("system.", "sip.", "cube.router.", "cube.ucie.", "cube.m_cpu.", "cube.sram."),
    *("cube.hbm.to_router_bw_gbs", "pe.tcm.", "pe.dma.to_router_bw_gbs"),
)
"""The fields that any link of the machine depends on."""


_Fields: TypeAlias = tuple[tuple[str, Any], ...]
"""Paths of fields, each with a value."""


class _Known(NamedTuple):
    """What is found in a trace once; ``last`` are the places of ``graph.last``."""

    spec: TopologySpec
    ways: Ways
    links: LinkTimes
    changed_links: ChangedLinks
    graph: Graph
    batches: Batches
    last: Array
    queues: Queues
    engines: Engines
    holds: Holds
    weight: Floats
    machine: Machine
    has_credits: bool
    doubt: str
    has_no_end: bool

    @property
    def why_unsure(self) -> str:
        """Why any times but the recorded ones are unsure; "" if nothing says so."""
        return _CREDITS if self.has_credits else self.doubt


class _Scenario(NamedTuple):
    """One thing that is faster: the machine, its weights by class, and the line."""

    what: str
    is_line: bool
    how: How
    change: str
    machine: Machine
    weight: Floats
    line: int
    factor: float


class _Order(NamedTuple):
    """A walk of one scenario in which links, controllers and channels serve in the
    recorded order: by place the time of each node, ns, and the edges of the graph at
    which one waits for another that comes later.
    """

    times: Floats
    overtaken: Array


class WhatIfIndex:
    """Answers about what would happen on another machine.

    The graph is made by one thread, the worker of lane "columns", when it is first
    asked for. No other thread may ask. A computation that is cancelled leaves what was
    there.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._known: _Known | None = None
        self._slack: Floats | None = None
        self._turns: Turns | None = None
        self._alone: MovesAlone | None = None
        self._streams: Streams | None = None
        self._built: dict[_Fields, LinkTimes | None] = {}

    def predict(
        self, changes: Sequence[str], progress: Progress = no_progress
    ) -> Prediction:
        """When the run would end with ``FIELD=VALUE`` changed, and each launch.

        UsageError for a field or a value that there is not, KernbenchError for a trace
        that does not hold all of a run.
        """
        parsed = tuple(parse_change(text) for text in changes)
        known = self._made(stage(progress, 0.0, 0.7))
        spec = with_changes(known.spec, parsed)
        find = partial(self._changed, known, spec, parsed)
        machine, weight = computed_beside(find, progress, 0.7)
        one = _alone(weight)
        kept = known.batches.walk(one, stage(progress, 0.7, 0.8))[:, 0]
        part = stage(progress, 0.8, 0.85)
        order = self._order(known, kept, weight, part)
        served = self._as_channels_serve(known, order, one, part)
        times = kept[:, None] if served is None else served
        why = _unsure_by_nature(parsed)
        if not why and known.has_no_end and parsed:
            why = _NEVER_ENDED
        if not why:
            rest = stage(progress, 0.85, 0.9)
            why = self._order_changes(known, order, one, machine, rest)
        if not why and spec != known.spec:
            rest = stage(progress, 0.9, 1.0)
            times, why = self._as_served(known, machine, weight, times, rest)
        launches = self._launches(known, times[:, 0])
        end = float(self._ends(known, times)[0])
        is_same = end == self._trace.end_ns and all(
            launch.recorded_ns == launch.predicted_ns for launch in launches
        )
        return Prediction(
            changed=tuple(changes),
            end_ns=self._trace.end_ns,
            predicted_ns=end,
            sure=not why,
            why=why or _nothing_changes(parsed, is_same),
            launches=launches,
        )

    def profile(
        self, progress: Progress = no_progress, least_ns: float = _LEAST_NS
    ) -> CausalProfile:
        """By how much sooner the run would end if one thing alone were faster.

        Fields and lines are left out that cannot save ``least_ns``, twice as fast or
        free.
        """
        known = self._made(stage(progress, 0.0, 0.3))
        scenarios = list(self._scenarios(known, stage(progress, 0.3, 0.38)))
        part = stage(progress, 0.38, 0.4)
        scenarios = _worth_a_walk(known, scenarios, least_ns, part)
        size = max(_BLOCK_BYTES // (8 * max(known.graph.nodes, 1)), 1)
        gains: list[Gain] = []
        for low in range(0, len(scenarios), size):
            some = scenarios[low : low + size]
            part = stage(
                progress,
                0.4 + 0.5 * low / len(scenarios),
                0.4 + 0.5 * (low + len(some)) / len(scenarios),
            )
            gains += self._gains(known, some, part)
        gains.sort(key=_largest_first)
        if len(known.graph.cause) <= _FEWER_EDGES:
            self._predict_first(gains, stage(progress, 0.9, 1.0))
            gains.sort(key=_largest_first)
        return CausalProfile(self._trace.end_ns, tuple(gains))

    def slack(self, position: int, progress: Progress = no_progress) -> Slack:
        """How much later the op at a position could start with the end unmoved.

        The end is that of the last launch, or of the run if there is none.
        KernbenchError for a trace that does not hold all of a run.
        """
        known = self._made(stage(progress, 0.0, 0.6))
        graph = known.graph
        slack = self._slack
        if slack is None:
            part = stage(progress, 0.6, 0.8)
            slack = slacks(graph, known.weight, part)
            self._slack = slack
        row = np.array([self._trace.order[position]], np.int64)
        node = int(graph.moments.op_start(row)[0])
        ns = float(slack[node])
        if not np.isfinite(ns):
            return Slack(ns, True, "")
        if known.has_no_end:
            return Slack(ns, False, _NEVER_ENDED)
        if known.doubt:
            return Slack(ns, False, known.doubt)
        late = Late(node, ns + STEP_NS)
        one = _alone(known.weight)
        rest = stage(progress, 0.8, 0.9)
        times = known.batches.walk(one, rest, late=late)[:, 0]
        late_by = times[known.batches.place] - graph.times
        is_held = partial(known.holds.held, times, known.machine)
        if computed_beside(is_held, progress, 0.9) > SAME_NS:
            return Slack(ns, False, _HELD)

        def is_sure() -> bool:
            """Whether all are served in the same order, though the op is late, and the
            end is as late as the op is beyond its slack.
            """
            end = times[known.batches.place[graph.ends]].max()
            if abs(end - graph.times[graph.ends].max() - STEP_NS) > SAME_NS:
                return False
            if _waits_for_what_is_unknown(graph, slack, late_by):
                return False
            queues = known.queues
            if known.has_credits or len(queues.overtaken(times, known.weight)):
                return False
            if len(known.engines.overtaken(times, known.weight, late)[0]):
                return False
            if self._streams_of(known).meet_otherwise(late_by):
                return False
            nodes = len(self._trace.node_ids)
            by_node = times[known.batches.place]
            if crowding(graph, nodes, known.machine, known.machine, by_node):
                return False
            row_ns = known.machine.dram.row
            return not queues.met_otherwise(times, known.weight, row_ns)

        if computed_beside(is_sure, progress, 0.9):
            return Slack(ns, True, "")
        if len(graph.cause) > _FEW_EDGES:
            return Slack(ns, False, _OTHER_ORDER)
        return self._in_turns(known, node, ns, stage(progress, 0.9, 1.0))

    def _in_turns(
        self, known: _Known, node: int, told: float, progress: Progress
    ) -> Slack:
        """The slack of a node if each server takes who comes first.

        It is sure where the re-timing in turns explains all that was recorded, and the
        end comes as much later as the op does once the slack is used up.
        """
        turns = self._turns_of(known, progress)
        each = forwards(stage(progress, 0.2, 1.0))

        tried: dict[float, float] = {}

        def moved(ns: float) -> float:
            """By how much the end comes later."""
            if ns not in tried:
                tried[ns] = turns.end_if(Late(node, ns), each) - turns.end
            return tried[ns]

        ns = tried_out(moved, told)
        if not turns.explains:
            return Slack(ns, False, _OTHER_ORDER)
        if any(late > SAME_NS for less, late in tried.items() if less < ns):
            return Slack(ns, False, _LESS_MOVES)
        if not uses_up(moved, ns):
            return Slack(ns, False, _NO_LINE)
        late = turns.times_if(Late(node, ns + STEP_NS), each)
        times = np.zeros(known.graph.nodes)
        times[known.batches.place[: len(late)]] = late
        if known.holds.held(times, known.machine) > SAME_NS:
            return Slack(ns, False, _HELD)
        if any(moved(ns * part / _LESS) > SAME_NS for part in range(1, _LESS)):
            return Slack(ns, False, _LESS_MOVES)
        return Slack(ns, True, "")

    def _as_served(
        self,
        known: _Known,
        machine: Machine,
        weight: Floats,
        kept: Floats,
        progress: Progress,
    ) -> tuple[Floats, str]:
        """Times by place, and of one scenario, if each server takes who comes first;
        and why these are unsure, "" if they are not.

        They are those of ``kept`` of a large graph, where re-timing in turns does not
        explain what was recorded, and where it comes to the same.
        """
        found: list[float] | None = None
        if len(known.graph.cause) <= _FEW_EDGES:
            turns = self._turns_of(known, progress)
            found = turns.on(machine, weight, forwards(stage(progress, 0.2, 1.0)))
        if found is None:
            return kept, _refreshed_otherwise(known, machine)
        came = np.array(found)
        place = known.batches.place
        is_other = np.isfinite(came) & (np.abs(came - kept[place, 0]) > SAME_NS)
        times = kept.copy()
        times[place[is_other], 0] = came[is_other]
        if np.array_equal(times[place, 0], known.graph.times):
            return times, ""
        why = known.why_unsure
        if why:
            return times, why
        held_ns = known.holds.held(times[:, 0], machine)
        if held_ns > LEAST_SHARE * self._mean_span(known, times[:, 0]):
            return times, _HELD
        return times, ""

    # -- what is found once --

    def _turns_of(self, known: _Known, progress: Progress) -> Turns:
        if self._turns is None:
            machine = known.machine
            graph = known.graph
            make = partial(
                Turns, self._trace, machine, graph, known.queues, known.weight
            )
            self._turns = computed_beside(make, progress, 0.0)
        return self._turns

    def _made(self, progress: Progress) -> _Known:
        if self._known is None:
            trace = self._trace
            _refuse_parts(trace)
            map_logs(trace, progress, "commands", "waits", "launches", "transfers")
            spec = recorded_spec(trace.spec)
            ways = computed_beside(partial(ways_of, trace), progress, 0.0)
            links = computed_beside(partial(recorded_links, trace), progress, 0.0)
            machine = Machine(ways, links, spec)
            graph = build_graph(trace, machine, stage(progress, 0.0, 0.7))
            batches = Batches(graph, stage(progress, 0.7, 1.0))
            last = computed_beside(
                lambda: np.sort(batches.place[graph.last]), progress, 1.0
            )
            on_it = partial(graph.table.on, machine)
            recorded = computed_beside(on_it, progress, 1.0)
            links_from = len(trace.node_ids)
            find = partial(Queues, graph, recorded, batches.place, links_from)
            queues = computed_beside(find, progress, 1.0)
            look = partial(Engines, graph, recorded, batches.place)
            engines = computed_beside(look, progress, 1.0)
            order = partial(Holds, graph, batches.place, machine)
            holds = computed_beside(order, progress, 1.0)
            changed = ChangedLinks(trace, spec)
            self._known = _Known(
                spec=spec,
                ways=ways,
                links=links,
                changed_links=changed,
                graph=graph,
                batches=batches,
                last=last,
                queues=queues,
                engines=engines,
                holds=holds,
                weight=recorded,
                machine=machine,
                has_credits=waits_for_credit(trace),
                doubt=_doubt(graph),
                has_no_end=_ended_within_a_launch(trace),
            )
        return self._known

    def _changed(
        self, known: _Known, spec: TopologySpec, changes: tuple[Change, ...]
    ) -> tuple[Machine, Floats]:
        """The machine ``spec``, which has some changes, and its weights.

        Those that were recorded if that machine has other links.
        """
        links = self._links(known, spec, changes)
        if links is None:
            return known.machine, known.weight
        machine = Machine(known.ways, links, spec)
        return machine, known.graph.table.on(machine)

    def _links(
        self, known: _Known, spec: TopologySpec, changes: tuple[Change, ...]
    ) -> LinkTimes | None:
        """The links of the machine ``spec``; None if it has others than were recorded.

        Those of the last few are kept: to build a machine takes longer than a walk.
        """
        of_links = tuple(
            (change.field.path, change.value)
            for change in changes
            if change.field.role == "unsure" or change.field.path.startswith(OF_LINKS)
        )
        if not of_links:
            return known.links
        if of_links not in self._built:
            if len(self._built) == _MACHINES:
                self._built.clear()
            self._built[of_links] = known.changed_links.with_(spec)
        return self._built[of_links]

    # -- what comes of it --

    def _ends(self, known: _Known, times: Floats) -> Floats:
        """By scenario when the run ends, ns: as much later as the last thing in it."""
        if not len(known.last):
            return np.full(times.shape[1], self._trace.end_ns)
        recorded = float(known.graph.times[known.graph.last].max())
        last = times.take(known.last, 0).max(axis=0)
        return np.asarray(self._trace.end_ns + (last - recorded))

    def _spans(self, known: _Known, times: Floats) -> Floats:
        """How long each launch takes, ns, in the order of ``Trace.launches``."""
        numbers = np.arange(len(self._trace.launches))
        place = known.batches.place
        moments = known.graph.moments
        starts = times[place[moments.launch_start(numbers)]]
        ends = times[place[moments.launch_end(numbers)]]
        return np.asarray(ends - starts)

    def _mean_span(self, known: _Known, times: Floats) -> float:
        """How long a launch takes on average, ns; without any the run."""
        spans = self._spans(known, times)
        return float(spans.mean()) if len(spans) else self._trace.end_ns

    def _order(
        self, known: _Known, times: Floats, weight: Floats, progress: Progress
    ) -> _Order:
        """What a walk of one scenario has found."""
        find = partial(known.queues.overtaken, times, weight)
        return _Order(times, computed_beside(find, progress, 0.0))

    def _as_channels_serve(
        self, known: _Known, order: _Order, scenario: Scenarios, progress: Progress
    ) -> Floats | None:
        """Times by place, and of one scenario, in which nobody waits for a channel of a
        TCM behind another that asks for it later; None if nobody does anyway.
        """
        at_channels = order.overtaken[known.graph.is_channel[order.overtaken]]
        if not len(at_channels):
            return None
        return known.batches.walk(scenario, progress, at_channels)

    def _order_changes(
        self,
        known: _Known,
        order: _Order,
        scenario: Scenarios,
        machine: Machine,
        progress: Progress,
    ) -> str:
        """Why the order in which was served makes times unsure; "" if it does not."""
        times, overtaken = order
        weight = scenario.weight[:, 0]
        why = computed_beside(
            lambda: self._contended(known, order, weight, machine), progress, 0.1
        )
        if why or not len(overtaken):
            return why
        other = known.batches.walk(scenario, stage(progress, 0.2, 1.0), overtaken)[:, 0]
        spans = self._spans(known, times)
        # without their waits; whoever is served after them instead may wait longer
        waited = spans - self._spans(known, other)
        most = float(np.max(waited / np.maximum(spans, TICK_NS), initial=0.0))
        if most < _MUCH:
            return ""
        return f"{_OTHER_TURNS}; waits worth {most:.1%} of a launch depend on it"

    def _contended(
        self, known: _Known, order: _Order, weight: Floats, machine: Machine
    ) -> str:
        """Why servers make times unsure without a further walk; "" if they do not."""
        queues = known.queues
        times, overtaken = order
        by_node = times[known.batches.place]
        slower = _slower(known, machine)
        if slower > MOST_SLOWER:
            return _SLOWER.format(times=slower, most=MOST_SLOWER)
        if _has_other_moves(known, machine):
            off = self._moves_alone(known).off(machine)
            if off > ALONE_SHARE:
                return _OTHER_ROWS.format(share=off)
        if np.array_equal(by_node, known.graph.times):
            return ""
        if known.why_unsure:
            return known.why_unsure
        span = self._mean_span(known, times)
        turns = weight[known.graph.weight[overtaken]]
        if turns.max(initial=0.0) > LEAST_SHARE * span:
            return _OTHER_TURNS
        _, taken_ns = known.engines.overtaken(times, weight)
        if taken_ns > LEAST_SHARE * span:
            return _ENGINES
        if known.holds.held(times, machine) > LEAST_SHARE * span:
            return _HELD
        row_ns = known.machine.dram.row
        if queues.met_otherwise(times, weight, row_ns) > LEAST_SHARE * span:
            return _MET_OTHERWISE
        turn_ns = known.machine.dram.turn
        if queues.turned_otherwise(times, weight, turn_ns) > LEAST_SHARE * span:
            return _TURNED_OTHERWISE
        nodes = len(self._trace.node_ids)
        asked_ns = crowding(known.graph, nodes, known.machine, machine, by_node)
        if asked_ns > CROWDED_SHARE * span:
            return _CROWDED
        return ""

    def _streams_of(self, known: _Known) -> Streams:
        if self._streams is None:
            self._streams = Streams(self._trace, known.machine, known.graph)
        return self._streams

    def _moves_alone(self, known: _Known) -> MovesAlone:
        if self._alone is None:
            self._alone = MovesAlone(self._trace, known.machine, known.graph.moves)
        return self._alone

    def _launches(self, known: _Known, times: Floats) -> tuple[LaunchChange, ...]:
        """How long each launch takes, in the order of their numbers."""
        spans = self._spans(known, times).tolist()
        found = [
            LaunchChange(
                launch=launch.launch,
                kernel=launch.kernel,
                recorded_ns=launch.t_end - launch.t_start,
                predicted_ns=span,
            )
            for launch, span in zip(self._trace.launches, spans, strict=True)
        ]
        found.sort(key=lambda launch: launch.launch)
        return tuple(found)

    # -- the profile --

    def _predict_first(self, gains: list[Gain], progress: Progress) -> None:
        """Put what ``predict`` says in place of the first gains of fields."""
        of_fields = [at for at, gain in enumerate(gains) if gain.kind == "field"]
        for number, at in enumerate(of_fields[:_FIRST]):
            gain = gains[at]
            part = stage(progress, number / _FIRST, (number + 1) / _FIRST)
            told = self.predict((gain.change,), part)
            gains[at] = replace(
                gain, predicted_ns=told.predicted_ns, sure=told.sure, why=told.why
            )

    def _scenarios(self, known: _Known, progress: Progress) -> Iterator[_Scenario]:
        """Every field and every kernel line, twice as fast, and free."""
        fields = [field for field in all_fields().values() if field.role == "timed"]
        for number, field in enumerate(fields):
            value = value_of(known.spec, field.path)
            hows: tuple[tuple[How, float | None], ...] = (
                ("2x", field.faster(value)),
                ("free", field.free(value)),
            )
            for how, better in hows:
                if better is None:
                    continue
                text = f"{field.path}={better!r}"
                change = Change(field, better, text)
                find = partial(self._with, known, change)
                machine, weight = computed_beside(find, progress, number / len(fields))
                if not np.array_equal(weight, known.weight):
                    yield _Scenario(
                        field.path, False, how, text, machine, weight, -1, 1.0
                    )
        used = computed_beside(lambda: np.unique(known.graph.line), progress, 1.0)
        for line in used[used >= 0].tolist():
            what = known.graph.lines[line]
            same = known.machine, known.weight
            yield _Scenario(what, True, "2x", "", *same, line, 0.5)
            yield _Scenario(what, True, "free", "", *same, line, 0.0)

    def _with(self, known: _Known, change: Change) -> tuple[Machine, Floats]:
        """The machine with one field changed, and its weights."""
        spec = with_changes(known.spec, (change,))
        return self._changed(known, spec, (change,))

    def _gains(
        self, known: _Known, some: list[_Scenario], progress: Progress
    ) -> Iterator[Gain]:
        """What some scenarios gain; those that gain nothing are left out."""
        stack = partial(np.stack, [scenario.weight for scenario in some], 1)
        weights = computed_beside(stack, progress, 0.0)
        lines = np.array([scenario.line for scenario in some])
        factors = np.array([scenario.factor for scenario in some])
        together = Scenarios(weights, lines, factors)
        times = known.batches.walk(together, stage(progress, 0.0, 0.7))
        ends = computed_beside(lambda: self._ends(known, times), progress, 0.7)
        for number, scenario in enumerate(some):
            rest = stage(progress, 0.7 + 0.3 * number / len(some), 1.0)
            if scenario.is_line:
                end = float(ends[number])
                why = _NO_PROOF
            else:
                own = partial(np.ascontiguousarray, times[:, number])
                alone = computed_beside(own, rest, 0.0)
                end = float(ends[number])
                end, why = self._of_field(known, scenario, alone, end, rest)
            if self._trace.end_ns - end < _LEAST_NS:
                continue
            yield Gain(
                what=scenario.what,
                kind="line" if scenario.is_line else "field",
                how=scenario.how,
                change=scenario.change,
                end_ns=self._trace.end_ns,
                predicted_ns=end,
                sure=not why,
                why=why,
            )

    def _of_field(
        self,
        known: _Known,
        scenario: _Scenario,
        times: Floats,
        end: float,
        progress: Progress,
    ) -> tuple[float, str]:
        """When the run ends with a field changed, and why that is unsure; "" if it is
        sure, or gains nothing.

        ``times`` are those of a walk in the recorded order, which ends at ``end``.
        """
        alone = _alone(scenario.weight)
        order = self._order(known, times, scenario.weight, progress)
        served = self._as_channels_serve(known, order, alone, progress)
        if served is not None:
            end = float(self._ends(known, served)[0])
        if self._trace.end_ns - end < _LEAST_NS:
            return end, ""
        if known.has_no_end:
            return end, _NEVER_ENDED
        machine = scenario.machine
        why = self._order_changes(known, order, alone, machine, progress)
        return end, why or _refreshed_otherwise(known, machine)


_NO_PROOF = "no re-run can make one line of a kernel faster"


def _has_other_moves(known: _Known, machine: Machine) -> bool:
    """Whether anything may move at another pace on a machine: HBM, or a link."""
    same_hbm = machine.spec.cube.hbm == known.spec.cube.hbm
    return machine.links is not known.links or not same_hbm


def _refreshed_otherwise(known: _Known, machine: Machine) -> str:
    """Why refreshes make a machine unsure; "" if they are as they were."""
    was = known.spec.cube.hbm
    now = machine.spec.cube.hbm
    if (was.trefi_ns, was.trfc_ns) == (now.trefi_ns, now.trfc_ns):
        return ""
    return _REFRESHED


def _slower(known: _Known, machine: Machine) -> float:
    """How many times slower that link is that is slowed down most, of those on paths
    of a trace.
    """
    if machine.links is known.links:
        return 1.0
    used = np.unique(known.ways.hop_edges)
    used = used[used >= 0]
    slower = known.links.speed[used] / machine.links.speed[used]
    return float(slower.max(initial=1.0))


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


def _ended_within_a_launch(trace: Trace) -> bool:
    """Whether kernels ran of a launch that never ended: an error ended the run."""
    ran = trace.commands.launch[:]
    ended = np.array([launch.launch for launch in trace.launches], np.int64)
    return bool((~np.isin(ran[ran >= 0], ended)).any())


def _doubt(graph: Graph) -> str:
    """Why no answer about a graph is sure; "" if one may be."""
    if awaits_more_than_calls(graph):
        return _AWAITS
    return _HELD_BY_NONE if graph.held_by_none else ""


def _waits_for_what_is_unknown(graph: Graph, slack: Floats, late_by: Floats) -> bool:
    """Whether anything that makes the end late came later than its edges explain.

    What it waited for then may have it wait for less if it comes later. ``late_by`` is
    by node, and what is later than its ``slack`` makes the end late.
    """
    makes_late = late_by > slack + SAME_NS
    return bool((makes_late & (graph.rest > SAME_NS)).any())


def _largest_first(gain: Gain) -> tuple[float, str, str]:
    return (gain.predicted_ns, gain.what, gain.how)


def _alone(weight: Floats) -> Scenarios:
    """A scenario of one machine, on which no line is faster."""
    return Scenarios(weight[:, None], np.full(1, -1), np.ones(1))


def _worth_a_walk(
    known: _Known, scenarios: list[_Scenario], least_ns: float, progress: Progress
) -> list[_Scenario]:
    """The scenarios of what can save that much, by the longest path."""
    path = longest_path(known.graph, known.weight, progress)
    saved: dict[str, float] = {}
    for scenario in scenarios:
        most = path.most_saved(scenario.weight, scenario.line, scenario.factor)
        saved[scenario.what] = max(most, saved.get(scenario.what, 0.0))
    return [scenario for scenario in scenarios if saved[scenario.what] >= least_ns]


def _unsure_by_nature(changes: tuple[Change, ...]) -> str:
    """Why no prediction of some changes is sure; "" if one may be."""
    fields = [change.field for change in changes if change.field.role == "unsure"]
    return "; ".join(f"{field.path} {field.why}" for field in fields)


def _nothing_changes(changes: tuple[Change, ...], is_same: bool) -> str:
    """Why some changes change nothing; "" where they do."""
    if not is_same:
        return ""
    reasons = []
    for change in changes:
        why = change.field.why or "nothing in this run waits for it"
        reasons.append(f"{change.field.path} changes nothing: {why}")
    return "; ".join(reasons)
