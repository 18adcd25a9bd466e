"""A bench for one pane: its functions driven without an App, answers computed on the
spot.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernbench.errors import KernbenchError
from kernbench.replay.commands import answer
from kernbench.replay.index import Index
from kernbench.replay.query import Query
from kernbench.trace import Trace
from tui.draw import UNICODE, Glyphs
from tui.panes.base import Event, Frame, Moved, Picture, Settle, Waiting, drawn

TRACES = Path(__file__).parents[3] / "traces"


def ops_of(index: Index, component: str) -> list[int]:
    """The ops that a component serves, in order."""
    node = index.trace.node_index[component]
    found: list[int] = index.op_index.ops_of(node).tolist()
    return found


def component_of(index: Index, op: int) -> str:
    """The id of the component that serves an op."""
    node = index.ops.component(op)
    name: str = index.trace.node_ids[node]
    return name


class Computed:
    """Answers that are computed when they are asked for, or held back.

    ``asked`` are the questions that were computed. A question of a command in ``held``
    is not answered, even if it was before, unless it is in ``kept``.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self.asked: dict[Query, Any] = {}
        self.held: set[str] = set()
        self.kept: set[Query] = set()

    def of(self, query: Query) -> Any:
        """The answer; raises what computing it raises, and Waiting for one held."""
        if self._is_held(query):
            raise Waiting(query, query.command, 0.5)
        if query not in self.asked:
            try:
                self.asked[query] = answer(self.index, query)
            except KernbenchError as error:
                self.asked[query] = error
        found = self.asked[query]
        if isinstance(found, KernbenchError):
            raise found
        return found

    def known(self, query: Query) -> Any | None:
        """The answer, if somebody asked for it before."""
        found = self.asked.get(query)
        if self._is_held(query) or isinstance(found, KernbenchError):
            return None
        return found

    def _is_held(self, query: Query) -> bool:
        return query.command in self.held and query not in self.kept


class PaneBench:
    """One pane at a size, on a trace, with the cursor on an op."""

    def __init__(
        self,
        make: Any,
        trace: str | Path | Index = "matmul",
        op: int = 0,
        width: int = 80,
        height: int = 12,
        glyphs: Glyphs = UNICODE,
    ) -> None:
        if isinstance(trace, str):
            trace = TRACES / f"{trace}.msgpack"
        self.index = trace if isinstance(trace, Index) else Index(Trace.open(trace))
        self.pane = make(self.index)
        self.answers = Computed(self.index)
        self.frame = Frame(op, 0, self.index.launch_window, width, height, glyphs)
        self.state = self.pane.start()
        self.effects: tuple[Any, ...] = ()
        self.send(Moved())

    def send(self, event: Event) -> bool:
        """Let the pane take an event, then settle it; whether it had a use for it."""
        change = self.pane.update(self.state, event, self.frame, self.answers)
        if change is not None:
            self.state = change.state
            self.effects = change.effects
        self._settle()
        return change is not None

    def goto(self, op: int) -> None:
        """Move the cursor."""
        self._frame(cursor=op)
        self.send(Moved())

    def resize(self, width: int, height: int) -> None:
        """Give it another size."""
        self._frame(width=width, height=height)
        self.send(Settle())

    def refocus(self, level: int) -> None:
        """Widen or narrow the focus."""
        self._frame(level=level)
        self.send(Settle())

    def look_at(self, t0: float, t1: float) -> None:
        """Show other times in the timeline."""
        self._frame(window=(t0, t1))
        self.send(Settle())

    def rest(self) -> None:
        """Press nothing for a while: what the pane wishes to know is computed."""
        for _ in range(3):
            wishes = self.pane.wishes(self.state, self.frame, self.answers)
            for query in wishes:
                with suppress(KernbenchError, Waiting):
                    self.answers.of(query)
            self._take(Settle())

    def _frame(self, **changes: Any) -> None:
        self.frame = replace(self.frame, **changes)

    def _settle(self) -> None:
        """Answer what it wants to know, in three rounds at most."""
        for _ in range(3):
            wanted = self.pane.queries(self.state, self.frame, self.answers)
            new = [
                query
                for query in wanted
                if query not in self.answers.asked
                and query.command not in self.answers.held
            ]
            if not new:
                break
            for query in new:
                with suppress(KernbenchError):
                    self.answers.of(query)
            self._take(Settle())
        else:
            wanted = self.pane.queries(self.state, self.frame, self.answers)
            held = self.answers.held
            left = [q for q in wanted if q not in self.answers.asked]
            assert not [q for q in left if q.command not in held], left

    def _take(self, event: Event) -> None:
        change = self.pane.update(self.state, event, self.frame, self.answers)
        if change is not None:
            self.state = change.state

    @property
    def picture(self) -> Picture:
        """What it shows. What it asks for, it has to have wanted before."""
        wanted = self.pane.queries(self.state, self.frame, self.answers)
        asked = set(self.answers.asked)
        picture, _ = drawn(self.pane, self.state, self.frame, self.answers)
        more = set(self.answers.asked) - asked - set(wanted)
        assert not more, f"render asked for what queries did not name: {more}"
        assert hash(self.state) == hash(self.state)
        return picture

    @property
    def lines(self) -> list[str]:
        """What it shows, a text a line."""
        lines = self.picture.lines
        return ["".join(text for text, _ in line).rstrip() for line in lines]

    @property
    def text(self) -> str:
        """The same as one text."""
        return "\n".join(self.lines)

    @property
    def subtitle(self) -> str:
        """What stands in the title on the right."""
        picture, _ = drawn(self.pane, self.state, self.frame, self.answers)
        return picture.subtitle

    @property
    def enter_word(self) -> str:
        """What Enter is said to do."""
        word: str = self.pane.enter_word(self.state, self.frame, self.answers)
        return word

    @property
    def place(self) -> str | None:
        """The bytes that are picked."""
        place: str | None = self.pane.place(self.state, self.frame, self.answers)
        return place
