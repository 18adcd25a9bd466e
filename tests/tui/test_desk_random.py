"""Whatever is done to a desk, it shows what a new one would show that stood so."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from desks import SIZES, DeskBench, PromptRunner, session_of, text_of, waiting
from made_up import MadeUp
from pace import first_fast, some_in_ci

from kernbench.errors import KernbenchError
from kernbench.replay import ReplaySession
from kernbench.replay.commands import (
    BACK,
    CAUSE,
    EFFECT,
    FIRST,
    GOTO,
    LANE,
    LAST,
    LINE,
    NEXT,
    STEP,
    WIDEN,
    Call,
)
from kernbench.replay.query import Query
from tui.desk import Given
from tui.panes import PANES
from tui.panes.base import (
    Back,
    ChangeView,
    Click,
    Do,
    Enter,
    Event,
    NextMark,
    Pan,
    Pin,
    Scroll,
    Show,
)
from tui.panes.ops import Filter
from tui.panes.timeline import Fit, FitBetween, Zoom
from tui.prefetch import likely
from tui.runner import Urgency

TRACES = ("matmul", "mlp_tp", "fault_missing_wait")
KEYS = tuple(row.key for row in PANES)
MOVES = (
    STEP(n=1),
    STEP(n=1),
    STEP(n=1),
    STEP(n=-1),
    NEXT(n=1),
    NEXT(n=-1),
    LINE(n=1),
    LANE(n=1),
    CAUSE(),
    EFFECT(),
    FIRST(),
    LAST(),
    BACK(n=1),
    WIDEN(n=1),
    WIDEN(n=-1),
)
FAR = 10**9
SEEDS = some_in_ci(range(4), 1)
"""One walk of each trace at each size runs in CI, the others with the soak."""
EVENTS = (
    Scroll(1),
    Scroll(-1),
    Scroll(1, pages=True),
    Scroll(FAR),
    Scroll(-FAR),
    Pan(1),
    Pan(-1),
    ChangeView(1),
    ChangeView(1),
    ChangeView(-1),
    NextMark(1),
    NextMark(-1),
    Pin(),
    Enter(),
    Back(),
    Zoom(0.5),
    Zoom(0.5),
    Zoom(2.0),
    Fit(),
    FitBetween(10.0, 300.0),
    Filter("kind = memory"),
    Filter("dur > 1s"),
    Show("hbm 0x4000:64"),
)


class Hand:
    """Does to a desk what somebody might do who presses keys at random."""

    def __init__(self, bench: DeskBench, size: tuple[int, int], seed: object) -> None:
        self.bench = bench
        self.size = size
        self.rng = Random(f"{bench.replay.trace.path.stem} {size} {seed}")
        self.last: Call = STEP(n=1)

    def press(self) -> None:
        """Press a key, or resize the screen."""
        use = self.use_pane
        move = self.move
        self.rng.choice([move, move, move, use, use, use, self.jump, self.lay_out])()

    def press_or_wait(self) -> None:
        """The same, or let some time pass."""
        press = self.press
        waits = [self.prefetch, self.prefetch, self.bench.draw, self.bench.settle]
        self.rng.choice([press, press, *waits])()

    def move(self) -> None:
        """Press a key that moves."""
        self._carry_out(self.rng.choice(MOVES))

    def jump(self) -> None:
        """Go to any op, or before the first."""
        self._carry_out(GOTO(op=self.rng.randrange(-1, len(self.bench.index.ops))))

    def lay_out(self) -> None:
        """Make the screen another size, or another pane the active one."""
        rng = self.rng
        size = rng.choice([self.size, self.size, (60, 16), (80, 5), (20, 5)])
        active = rng.choice(KEYS)
        tab = rng.choice(KEYS[1:])
        self.bench.lay_out(size, active, tab, maximised=rng.random() < 0.3)

    def use_pane(self) -> None:
        """Press a key, or click, in a pane in view."""
        rng = self.rng
        key = rng.choice(self.bench.desk.in_view).key
        width, height = self.bench.desk.sizes[key]
        event: Event = rng.choice(EVENTS)
        if rng.random() < 0.1:
            event = Click(rng.randrange(width), rng.randrange(-1, height))
        effects = self.bench.desk.send(key, event)
        for effect in effects or ():
            if isinstance(effect, Do) and effect.call.command.kind == "move":
                self._carry_out(effect.call)

    def prefetch(self) -> None:
        """Wait a little: some of what is likely to come next is drawn."""
        call = self.rng.choice(likely(self.last))
        try:
            session = self.bench.led_to(call)
        except KernbenchError:
            return
        for _ in range(self.rng.randrange(1, 3)):
            self.bench.draw_ahead(session)
            self.bench.wait()

    def _carry_out(self, call: Call) -> None:
        try:
            self.bench.move(call)
        except KernbenchError:
            return
        self.last = call


@pytest.fixture(scope="module", autouse=True)
def made_up() -> Iterator[MadeUp]:
    """The predictor of all traces, also of ``untouched``, which lives as long."""
    predictor = MadeUp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernbench.replay.index.WhatIfIndex", lambda _: predictor)
        yield predictor


@pytest.fixture(scope="module", params=first_fast(TRACES))
def untouched(request: pytest.FixtureRequest, made_up: MadeUp) -> ReplaySession:
    """A session whose index has answered to fresh desks only."""
    return session_of(request.param)


def stood_as(made: DeskBench, bench: DeskBench) -> DeskBench:
    """A new desk, made to stand as another one."""
    made.replay.state = bench.replay.state
    made.desk.sizes = dict(bench.desk.sizes)
    made.desk.columns_alone = bench.desk.columns_alone
    made.desk.states = dict(bench.desk.states)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", SIZES)
def test_it_shows_what_a_new_desk_would(seed, size, untouched, desk_bench) -> None:
    bench = desk_bench(untouched.trace.path.stem, size=size)
    hand = Hand(bench, size, seed)
    for _ in range(6):
        for _ in range(8):
            hand.press_or_wait()
        found = bench.settle()
        other = stood_as(desk_bench(untouched), bench)
        wanted = other.settle()
        assert other.desk.states == bench.desk.states
        assert found.keys() == wanted.keys()
        for key in wanted:
            shown = found[key].picture
            assert text_of(shown) == text_of(wanted[key].picture), key
            assert shown.lines == wanted[key].picture.lines, key
            assert shown.subtitle == wanted[key].picture.subtitle, key


# -- rounds of questions ------------------------------------------------------------


def unknown(bench: DeskBench) -> list[Query]:
    """What the panes in view would ask if they were asked what they want once more."""
    desk = bench.desk
    answers = Given(bench.runner, Urgency.VISIBLE)
    wanted: list[Query] = []
    for row in desk.in_view:
        frame = desk.frame(row, desk.session, desk.window)
        wanted += desk.panes[row.key].queries(desk.states[row.key], frame, answers)
    return [query for query in wanted if bench.runner.known(query) is None]


@pytest.mark.parametrize("seed", some_in_ci(range(2), 1))
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.slow
def test_three_rounds_of_questions_are_enough(trace, size, seed, desk_bench) -> None:
    bench = desk_bench(trace, size=size, runner=PromptRunner)
    hand = Hand(bench, size, seed)
    for _ in range(40):
        hand.press()
        bench.runner.waits.clear()
        found = bench.draw(Urgency.KEY)
        assert len(bench.runner.waits) <= 3
        assert waiting(found) == []
        assert unknown(bench) == []


# The statistics have a view of a second, and others have as many rounds.
_EACH_PANE = [
    pytest.param(row, id=row.key, marks=pytest.mark.slow if row.key == "stats" else ())
    for row in PANES
]


@pytest.mark.parametrize("row", _EACH_PANE)
@pytest.mark.slow
def test_three_rounds_are_enough_for_each_view_of_a_pane_that_opens(
    row, untouched, desk_bench
) -> None:
    untouched.goto(2)
    for view in range(max(len(row.make.views), 1)):
        for size in SIZES:
            bench = desk_bench(untouched, runner=PromptRunner)
            bench.show(row.key, size)
            pane = bench.desk.panes[row.key]
            bench.desk.states[row.key] = pane.with_view(pane.start(), view)
            found = bench.draw(Urgency.KEY)
            assert waiting(found) == []
            assert unknown(bench) == []
