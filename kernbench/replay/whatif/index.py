"""``WhatIfIndex``: when a recorded run would end on another machine.

It re-times the recorded graph (graph.py) with the weights of the changed machine, and
says how sure that is. The causal profile does so for every field and every kernel line
alone. Nothing is simulated: a re-run proves it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernbench.common.progress import Progress, no_progress, stage
from kernbench.replay.whatif.answers import CausalProfile, Prediction
from kernbench.replay.whatif.fields import parse_change
from kernbench.replay.whatif.known import KnownRun, known_run
from kernbench.replay.whatif.op_slack import slack_of
from kernbench.replay.whatif.predictions import prediction
from kernbench.replay.whatif.profile import LEAST_NS, causal_profile
from kernbench.replay.whatif.slack import Slack
from kernbench.trace import Trace


class WhatIfIndex:
    """Answers about what would happen on another machine.

    The graph is made by one thread, the worker of lane "columns", when it is first
    asked for. No other thread may ask. A computation that is cancelled leaves what was
    there. All raise KernbenchError for a trace that does not hold all of a run.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._found: KnownRun | None = None

    def predict(
        self, changes: Sequence[str], progress: Progress = no_progress
    ) -> Prediction:
        """When the run would end with ``FIELD=VALUE`` changed, and each launch.

        UsageError for a field or a value that there is not.
        """
        parsed = tuple(parse_change(text) for text in changes)
        known = self._known(stage(progress, 0.0, 0.7))
        return prediction(known, parsed, stage(progress, 0.7, 1.0))

    def profile(
        self, progress: Progress = no_progress, least_ns: float = LEAST_NS
    ) -> CausalProfile:
        """By how much sooner the run would end if one thing alone were faster.

        Fields and lines are left out that cannot save ``least_ns``, twice as fast or
        free.
        """
        known = self._known(stage(progress, 0.0, 0.3))
        return causal_profile(known, least_ns, stage(progress, 0.3, 1.0))

    def slack(self, position: int, progress: Progress = no_progress) -> Slack:
        """How much later the op at a position could start with the end unmoved.

        The end is that of the last launch, or of the run if there is none.
        """
        known = self._known(stage(progress, 0.0, 0.6))
        return slack_of(known, position, stage(progress, 0.6, 1.0))

    def _known(self, progress: Progress) -> KnownRun:
        """What is found in the trace once."""
        if self._found is None:
            self._found = known_run(self._trace, progress)
        return self._found
