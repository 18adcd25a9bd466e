"""The simulated time, and the rule of who comes first within an instant.

What happens at one instant is in the order of the nodes, and what happens at one node
in the order in which that node made it happen. So who gets a link, a slot or a row
first does not depend on what the rest of the machine did before (docs/machine.md, "The
order within an instant"). Knows places and streams, and no component.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappush
from typing import Any, ClassVar

import simpy
from simpy.events import NORMAL, PENDING, EventPriority

from kernbench.common.exact_time import exact_ns
from kernbench.topology.graph import Place

HOST = -1
"""The stream of the bench itself; a rank's has its number."""


class Clock(simpy.Environment):
    """A SimPy environment in which every event has a turn.

    Of the events of one instant, the one with the least turn is next. A turn belongs to
    a PE (all that its kernel causes, wherever that happens), to a node that belongs to
    no PE, or to a stream of the host: nodes by sip, cube and pe, with what a cube or a
    SIP shares before its PEs, then the host's streams. Turns are odd; the even number
    before is of the processes that begin.

    ``turn`` is that of the event under way. An event that is scheduled has the turn of
    the one that caused it, unless ``as_node``, ``as_stream`` or ``event`` say else.
    """

    def __init__(self, places: Iterable[Place] = ()) -> None:
        super().__init__(0.0)
        ordered = sorted(set(places))
        self._turns = {place: 2 * at + 1 for at, place in enumerate(ordered)}
        self._host_turn = 2 * len(ordered) + 1
        self.turn = self.stream_turn(HOST)

    def node_turn(self, place: Place) -> int:
        """The turn of the nodes at a place."""
        return self._turns[place]

    def stream_turn(self, stream: int) -> int:
        """The turn of a stream of the host."""
        return self._host_turn + 2 * (stream - HOST)

    def process_at(
        self, turn: int, generator: simpy.events.ProcessGenerator
    ) -> simpy.Process:
        """A process that begins now, with a turn of its own."""
        before = self.turn
        self.turn = turn
        try:
            return self.process(generator)
        finally:
            self.turn = before

    def event(self) -> Appointment:
        """An event that has the present turn, whoever lets it happen."""
        return Appointment(self)

    def timeout(self, delay: float = 0, value: Any | None = None) -> simpy.Timeout:
        """A wait, in exact time, also where the model that asks does not round."""
        if delay * 1024 % 1:  # for most it is exact, and rounding costs more
            delay = exact_ns(delay)
        if delay < 0:
            raise ValueError(f"Negative delay {delay}")
        # All that its constructor does, and ``schedule``, without a call of either.
        event = simpy.Timeout.__new__(simpy.Timeout)
        event.env = self
        event.callbacks = []
        event._value = value
        event._delay = delay
        event._ok = True
        entry = (self._now + delay, self.turn, next(self._eid), event)
        heappush(self._queue, entry)  # type: ignore[misc]
        return event

    def call_at(self, when: float, turn: int, call: Callable[[Any], object]) -> None:
        """Have ``call`` called at a time that is not before now, with a turn.

        It is given the event, of which it has no use. Half of what a timeout costs.
        """
        entry = (when, turn, next(self._eid), Call(call))
        heappush(self._queue, entry)  # type: ignore[misc]

    def schedule(
        self,
        event: simpy.Event,
        priority: EventPriority = NORMAL,
        delay: float = 0,
    ) -> None:
        """Let an event happen after a delay, with the present turn."""
        turn = self.turn if priority == NORMAL else self.turn - 1
        at = self._now + delay
        heappush(self._queue, (at, turn, next(self._eid), event))  # type: ignore[misc]

    def step(self) -> None:
        """Let the next event happen."""
        if self._queue:
            self.turn = self._queue[0][1] | 1
        super().step()


class Call:
    """What the queue needs of an event, for one that nobody waits for."""

    __slots__ = ("callbacks",)

    _ok: ClassVar[bool] = True

    def __init__(self, call: Callable[[Any], object]) -> None:
        self.callbacks = (call,)


class Appointment(simpy.Event):
    """An event of the node that made it, and that it will resume."""

    env: Clock

    def __init__(self, clock: Clock) -> None:
        self.env = clock
        self.callbacks = []
        self._turn = clock.turn

    def succeed(self, value: Any | None = None) -> Appointment:
        """Let it happen now, in the turn of who made it."""
        if self._value is not PENDING:
            raise RuntimeError(f"{self} has already been triggered")
        self._ok = True
        self._value = value
        clock = self.env
        entry = (clock._now, self._turn, next(clock._eid), self)
        heappush(clock._queue, entry)  # type: ignore[misc]
        return self
