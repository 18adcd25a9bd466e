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
_JOB_S = 0.02  # in which most jobs end
_SHORT_S = 0.002  # between two looks at a job
_MOVES = (
    "step",
    "next",
    "line",
    "lane",
    "stage",
    "tile",
    "last",
    "first",
    "cause",
    "effect",
)
_OTHER_WAY = {"cause": "effect", "effect": "cause"}


def likely(line: str) -> list[str]:
    """The moves that may come after a command line: it again, its opposite, those of most keys."""
    word, _, by = line.partition(" ")
    other = f"{word} {-int(by)}" if word in _MOVES and by else _OTHER_WAY.get(word)
    wanted = [line] * (word in _MOVES) + [
        "step 1",
        other or "",
        "step -1",
        "next 1",
        "next -1",
    ]
    return [*dict.fromkeys(filter(None, wanted))]


async def look_ahead(
    session: ReplaySession,
    lines: list[str],
    panes: Sequence[Pane],
    quiet: Callable[[], bool],
) -> None:
    """Let panes draw what each of ``lines`` leads to, as long as it is ``quiet``.

    Answers that a key waits for come first, if they are there soon.
    """
    jobs = panes[0].jobs
    await asyncio.sleep(_QUIET_S)
    jobs.drawn()
    if len(jobs.running()) > len(jobs.late()):
        await asyncio.sleep(_JOB_S)
    for line in lines:
        wanted, op = panes, session.cursor
        with suppress(KernbenchError):
            op = session.leads(partial(run_command, session, line))
        while wanted and op != session.cursor:
            late = []
            for pane in wanted:
                await asyncio.sleep(0)
                if not quiet():
                    return
                with jobs.held():
                    ready = pane.look_ahead(op)
                if not ready:
                    late.append(pane)
            wanted = late if jobs.spared else []
            while wanted and jobs.busy:
                await asyncio.sleep(_SHORT_S)
            await asyncio.sleep(_SHORT_S)
    for pane in panes:
        if pane.display:
            pane.idle()
