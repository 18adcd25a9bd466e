"""What the next key is likely to show, drawn while nothing is pressed: then it need only be shown.

Owns which moves are likely. A key that comes meanwhile waits for one pane at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from kernbench.errors import KernbenchError
from kernbench.replay import ReplaySession
from kernbench.replay.commands import run_command
from tui.widgets.pane import Pane

_QUIET_S = 0.01  # after a key: what it drew is being written
_MOVES = ("step", "next", "line", "lane", "stage", "tile", "last", "first", "cause", "effect")
_OTHER_WAY = {"cause": "effect", "effect": "cause"}


def likely(line: str) -> list[str]:
    """The moves that may come after a command line: it again, its opposite, those of most keys."""
    word, _, by = line.partition(" ")
    other = f"{word} {-int(by)}" if word in _MOVES and by else _OTHER_WAY.get(word)
    wanted = [line] * (word in _MOVES) + ["step 1", other or "", "step -1", "next 1", "next -1"]
    return [*dict.fromkeys(filter(None, wanted))]


async def look_ahead(
    session: ReplaySession, lines: list[str], panes: Sequence[Pane], quiet: Callable[[], bool]
) -> None:
    """Let panes draw what each of ``lines`` leads to, as long as it is ``quiet``.

    Answers that a key waits for come first, but for late ones.
    """
    jobs = panes[0].jobs
    await asyncio.sleep(_QUIET_S)
    jobs.pressed = 0.0
    while len(jobs.running()) > len(jobs.late()):
        await asyncio.sleep(_QUIET_S)
    ops = list[int]()
    for line in lines:
        with suppress(KernbenchError):
            ops.append(session.leads(partial(run_command, session, line)))
    wanted = [(op, pane) for op in ops if op != session.cursor for pane in panes]
    while wanted:
        late = []
        for op, pane in wanted:
            await asyncio.sleep(0)
            if not quiet():
                return
            if not pane.look_ahead(op):
                late.append((op, pane))
        wanted = late if jobs.spared else []
        await asyncio.sleep(_QUIET_S if wanted else 0)
        while wanted and jobs.busy:
            await asyncio.sleep(_QUIET_S)
