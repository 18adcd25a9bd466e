"""What the Stats pane asks beside the commands: the critical path in short.

Each function is ``(index, at, args, progress) -> answer``, as in ``questions.py``.
"""

from __future__ import annotations

from dataclasses import replace

from kernbench.common.progress import Progress
from kernbench.replay.index import Index
from kernbench.replay.query import At
from kernbench.replay.questions import StepCount
from kernbench.replay.time.critical import CriticalPath


def critical_steps(
    index: Index, at: At, args: StepCount, progress: Progress
) -> CriticalPath:
    """The critical path by what, by line and by its longest steps.

    Its pieces, of which there may be a million, are left out.
    """
    path = index.critical.path(args.count, progress)
    return replace(path, times=path.times[:0], whats=path.whats[:0], ops=path.ops[:0])
