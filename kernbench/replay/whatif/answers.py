"""What ``whatif`` answers: a prediction, and the causal profile; frozen data that knows
its own text. Times are ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernbench.replay.text import table, time_text, wrapped

GainKind = Literal["field", "line"]
"""What is faster: a part of the machine that a field of the spec is about, or a line of
a kernel.
"""

How = Literal["2x", "free"]
"""How much faster: it takes half of its time, or none."""

REFUTES = 0.01
"""By which share of the time that a re-run took a prediction may be off it."""

_LAUNCHES = 20
_GAINS = 30
"""So many launches, and so many gains, are shown in the text."""


@dataclass(frozen=True, slots=True)
class LaunchChange:
    """How long the launch of number ``launch`` takes, from its start to its end."""

    launch: int
    kernel: str
    recorded_ns: float
    predicted_ns: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """When the run would end if what is ``changed`` held; it ended at ``end_ns``.

    ``why`` says why it is not ``sure``, or why nothing changes; else it is "".
    ``launches`` are in the order of their numbers. ``proved_ns`` and
    ``proved_launches`` are what a re-run gave (of these ``predicted_ns`` is what it
    took there); None and () without one.
    """

    changed: tuple[str, ...]
    end_ns: float
    predicted_ns: float
    sure: bool
    why: str
    launches: tuple[LaunchChange, ...]
    proved_ns: float | None = None
    proved_launches: tuple[LaunchChange, ...] = ()

    def lines(self, width: int) -> list[str]:
        """As text: the ends, how sure that is, then launch by launch."""
        lines = wrapped(f"what if {', '.join(self.changed) or 'nothing'}", width, 2)
        end = f"the run ends at {_change_text(self.end_ns, self.predicted_ns)}"
        lines += wrapped(end, width, 2)
        if self.proved_ns is not None:
            lines += wrapped(self._proof(self.proved_ns), width, 2)
        lines += wrapped(self._certainty(), width, 2)
        if self.launches:
            lines += table(self._rows(), self._columns(), width=width)
        left_out = len(self.launches) - _LAUNCHES
        if left_out > 0:
            lines.append(f"(further launches: {left_out:,})")
        return lines

    def _proof(self, proved_ns: float) -> str:
        """What a re-run gave, and how far the prediction is from that."""
        proved = f"re-run: it ends at {_change_text(self.end_ns, proved_ns)}"
        error = _error_text(self.predicted_ns, proved_ns)
        return f"{proved}; the prediction is {error}"

    def _certainty(self) -> str:
        """How sure it is, and why it is not, or why nothing changes; of one that was
        called sure, whether a re-run has refuted that.
        """
        told = [(self.predicted_ns, self.proved_ns)]
        real = {change.launch: change.predicted_ns for change in self.proved_launches}
        told += [(one.predicted_ns, real.get(one.launch)) for one in self.launches]
        if self.sure and any(_is_refuted(*one) for one in told):
            return (
                "it was called sure, and the re-run refutes it: what is proved holds, "
                "and other predictions about this run may be wrong, too"
            )
        word = "sure" if self.sure else "unsure"
        return f"{word}: {self.why}" if self.why else word

    def _columns(self) -> str:
        if self.proved_launches:
            return "launch recorded predicted proved change kernel"
        return "launch recorded predicted change kernel"

    def _rows(self) -> list[_LaunchRow]:
        """The launches as a table has them."""
        proved = {change.launch: change.predicted_ns for change in self.proved_launches}
        rows = []
        for launch in self.launches[:_LAUNCHES]:
            real = proved.get(launch.launch)
            rows.append(
                _LaunchRow(
                    launch=launch.launch,
                    recorded=time_text(launch.recorded_ns),
                    predicted=time_text(launch.predicted_ns),
                    proved="" if real is None else time_text(real),
                    change=_share_text(
                        launch.recorded_ns,
                        launch.predicted_ns if real is None else real,
                    ),
                    kernel=launch.kernel,
                )
            )
        return rows


@dataclass(frozen=True, slots=True)
class _LaunchRow:
    """A launch in the table of a prediction; texts."""

    launch: int
    recorded: str
    predicted: str
    proved: str
    change: str
    kernel: str


@dataclass(frozen=True, slots=True)
class Gain:
    """When the run would end if one thing alone were faster; it ended at ``end_ns``.

    ``what`` is the field's dotted path, or FILE:LINE of a kernel. ``change`` is what
    proves it: FIELD=VALUE as ``whatif`` takes it, "" where no field can say it.
    ``why`` says why it is not ``sure``. ``proved_ns`` is when a re-run with that
    change ended, None without one.
    """

    what: str
    kind: GainKind
    how: How
    change: str
    end_ns: float
    predicted_ns: float
    sure: bool
    why: str
    proved_ns: float | None = None

    @property
    def saved_ns(self) -> float:
        """How much sooner the run would end; negative: later."""
        return self.end_ns - self.predicted_ns

    @property
    def is_refuted(self) -> bool:
        """Whether a re-run ended at another time."""
        return _is_refuted(self.predicted_ns, self.proved_ns)


@dataclass(frozen=True, slots=True)
class CausalProfile:
    """What to make faster: by how much sooner the run would end, the largest first.

    Nothing of it was proved, or the first gains; ``proved_ns`` of each says so.
    """

    end_ns: float
    gains: tuple[Gain, ...]

    def lines(self, width: int) -> list[str]:
        """As text: a row a gain, "no" where it is not sure."""
        end = f"the run ends at {time_text(self.end_ns)}"
        if not self.gains:
            return wrapped(f"{end}; nothing known of would end it sooner", width, 2)
        lines = wrapped(f"{end}; how much sooner, if one thing were faster:", width, 2)
        lines += table(self._rows(), self._columns(), width=width)
        left_out = len(self.gains) - _GAINS
        if left_out > 0:
            lines.append(f"(smaller gains: {left_out:,})")
        return lines

    def _columns(self) -> str:
        if any(gain.proved_ns is not None for gain in self.gains):
            return "sooner share proved sure how what"
        return "sooner share sure how what"

    def _rows(self) -> list[_GainRow]:
        """The gains as a table has them."""
        rows = []
        for gain in self.gains[:_GAINS]:
            proved = ""
            if gain.proved_ns is not None:
                proved = time_text(gain.end_ns - gain.proved_ns)
            what = gain.what
            if gain.change:
                what = gain.change
            rows.append(
                _GainRow(
                    sooner=time_text(gain.saved_ns),
                    share=_share_text(gain.end_ns, gain.predicted_ns),
                    proved=proved,
                    sure="yes" if gain.sure and not gain.is_refuted else "no",
                    how=gain.how,
                    what=what,
                )
            )
        return rows


@dataclass(frozen=True, slots=True)
class _GainRow:
    """A gain in the table of a profile; texts."""

    sooner: str
    share: str
    proved: str
    sure: str
    how: str
    what: str


def _is_refuted(predicted_ns: float, proved_ns: float | None) -> bool:
    """Whether a re-run took another time than was predicted, beyond ``REFUTES``."""
    if proved_ns is None:
        return False
    return abs(predicted_ns - proved_ns) > REFUTES * proved_ns


def _change_text(before_ns: float, after_ns: float) -> str:
    """``8.49us -> 6.12us, -27.9 %``."""
    times = f"{time_text(before_ns)} -> {time_text(after_ns)}"
    return f"{times}, {_share_text(before_ns, after_ns)}"


def _share_text(before_ns: float, after_ns: float) -> str:
    """By which share a time changes: ``-27.9 %``, or ``same``."""
    if before_ns == after_ns:
        return "same"
    if before_ns <= 0:
        return "new"
    return f"{after_ns / before_ns - 1:+.1%}"


def _error_text(predicted_ns: float, proved_ns: float) -> str:
    """How far a prediction is from what was proved."""
    if predicted_ns == proved_ns:
        return "exact"
    if proved_ns <= 0:
        return time_text(predicted_ns)
    return f"{predicted_ns / proved_ns - 1:+.2%} off"
