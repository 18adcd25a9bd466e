"""What the next key is likely to show, drawn while nothing is pressed: then it need
only be shown.

Owns which moves are likely. A key that comes meanwhile waits for one pane at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import monotonic

from kernbench.errors import KernbenchError
from kernbench.replay.command import Call
from kernbench.replay.commands import (
    CAUSE,
    EFFECT,
    FIRST,
    LANE,
    LAST,
    LINE,
    NEXT,
    STAGE,
    STEP,
    TILE,
    moved,
)
from kernbench.replay.query import Query, Session
from tui.desk import Desk
from tui.panes.base import Moved
from tui.widgets.pane_view import PaneView

_WRITTEN_S = 0.003
"""After a key: what it drew is being written."""
_SHORT_S = 0.002
"""Between two looks at whether answers have come."""
YOUNG_S = 0.1
"""An answer that somebody has waited for no longer comes first, even if it takes more
than a moment; one that takes longer is computed beside.
"""
_TRIES = 6
"""At asking: answers may lead to further questions, and jobs may be given up."""
_THERE_AND_BACK = (STEP, NEXT, LINE, LANE, STAGE, TILE)
_REPEATED = (*_THERE_AND_BACK, FIRST, LAST, CAUSE, EFFECT)


def likely(last: Call) -> list[Call]:
    """The moves that may come after one: it again, its opposite, those of most keys."""
    wanted = []
    if last.command in _REPEATED:
        wanted.append(last)
    wanted.append(STEP(n=1))
    if last.command in _THERE_AND_BACK:
        wanted.append(Call(last.command, replace(last.args, n=-last.args.n)))
    elif last.command is CAUSE:
        wanted.append(EFFECT())
    elif last.command is EFFECT:
        wanted.append(CAUSE())
    wanted += [STEP(n=-1), NEXT(n=1), NEXT(n=-1)]
    return list(dict.fromkeys(wanted))


async def prefetch(
    desk: Desk,
    last: Call,
    views: Mapping[str, PaneView],
    is_quiet: Callable[[], bool],
) -> None:
    """Draw what each likely move leads to, for the panes in view, while it
    ``is_quiet``.

    First the key itself gets its answers, but for those that take long.
    """
    runner = desk.runner
    await asyncio.sleep(_WRITTEN_S)
    runner.lower()
    while runner.busy_for_a_moment or runner.busy_since(monotonic() - YOUNG_S):
        await asyncio.sleep(_SHORT_S)
        if not is_quiet():
            return
    try:
        for number, call in enumerate(likely(last)):
            runner.drawing_ahead = number == 0
            session = _led_to(desk, call)
            if session is None:
                continue
            if not await _drawn(desk, session, views, is_quiet):
                return
            if number == 0:
                desk.prepare()
    finally:
        runner.drawing_ahead = False
    desk.prepare()


async def _drawn(
    desk: Desk,
    session: Session,
    views: Mapping[str, PaneView],
    is_quiet: Callable[[], bool],
) -> bool:
    """Draw what a move leads to, for the panes in view; False if a key ended that."""
    scene = desk.ahead(session)
    for row in desk.rows_ahead:
        if not is_quiet():
            return False
        scene.update(row, Moved())
    missing: set[Query] = set()
    for _ in range(_TRIES):
        before = missing
        missing = set()
        for row in desk.in_view:
            if not is_quiet():
                return False
            scene.settle([row])
            missing |= scene.ask([row])
        if not missing or missing == before:
            break
        while desk.runner.busy_ahead:
            await asyncio.sleep(_SHORT_S)
            if not is_quiet():
                return False
    for row in desk.in_view:
        await asyncio.sleep(0)
        if not is_quiet():
            return False
        drawn = desk.draw_ahead(scene, row)
        if drawn.waiting is None:
            views[row.key].prepare(drawn.picture)
    return True


def _led_to(desk: Desk, call: Call) -> Session | None:
    """Where a move leads to; None where it leads nowhere."""
    try:
        session = moved(desk.index, desk.session, call)
    except KernbenchError:
        return None
    return session if session.cursor != desk.session.cursor else None
