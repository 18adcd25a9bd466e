"""Predictions that are made up, so that what is shown of them does not depend on how
good the real ones are.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernbench.errors import UsageError
from kernbench.replay.progress import Progress
from kernbench.replay.whatif.answers import (
    CausalProfile,
    Gain,
    LaunchChange,
    Prediction,
)
from kernbench.replay.whatif.slack import Slack

END_NS = 8492.115234375
GAINS = (
    Gain("cube.hbm.channel_bw_gbs", "field", "free", "", END_NS, 8211.5, True, ""),
    Gain("kernbench/benches/matmul.py:35", "line", "2x", "", END_NS, 8245.25, True, ""),
    Gain("pe.clock_ghz", "field", "2x", "pe.clock_ghz=2", END_NS, 8268.615, True, ""),
    Gain(
        "cube.hbm.access_ns",
        "field",
        "2x",
        "cube.hbm.access_ns=10",
        END_NS,
        8460.0,
        False,
        "who is served first at an HBM controller would change",
    ),
    Gain("cube.ucie.overhead_ns", "field", "2x", "x=1", END_NS, END_NS, True, ""),
)


class MadeUp:
    """A predictor of any trace; ``asked`` are the changes that it was asked about."""

    def __init__(self, gains: tuple[Gain, ...] = GAINS) -> None:
        self.asked: list[Sequence[str]] = []
        self._gains = gains

    def predict(self, changes: Sequence[str], progress: Progress) -> Prediction:
        """Half a microsecond sooner, all of it in the launch."""
        self.asked.append(changes)
        progress(0.5)
        if "no" in changes[0]:
            raise UsageError(f"{changes[0]}: unknown field; did you mean pe.clock_ghz?")
        return Prediction(
            changed=tuple(changes),
            end_ns=END_NS,
            predicted_ns=END_NS - 500.0,
            sure=False,
            why="it is made up",
            launches=(LaunchChange(0, "matmul", 592.585, 92.585),),
        )

    def slack(self, position: int, progress: Progress) -> Slack:
        """As many ns as the op's position."""
        progress(0.5)
        return Slack(float(position), False, "it is made up")

    def profile(self, progress: Progress, least_ns: float = 0.0) -> CausalProfile:
        """The gains that it was given."""
        progress(0.5)
        return CausalProfile(END_NS, self._gains)
