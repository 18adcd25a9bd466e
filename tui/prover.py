"""What is proved by running again: at most one claim at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from time import monotonic

from kernbench.errors import KernbenchError
from kernbench.replay.query import Query
from kernbench.trace import Trace
from tui.claims import Claim, Proved, prove, title_of
from tui.rerun import Reruns
from tui.runner import Pending

_PATIENCE_S = 2.0
"""For the end of what is given up."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What re-runs said of a claim, and the last new trace; or why there is nothing."""

    claim: Claim
    answer: Proved | None = None
    path: Path | None = None
    error: Exception | None = None


class Prover:
    """Owns the re-runs of ``trace`` that somebody waits for, if there are any.

    ``came(proof)`` is called by a thread when they have ended.
    """

    def __init__(
        self, trace: Trace, came: Callable[[Proof], None] = lambda proof: None
    ) -> None:
        self.came = came
        self._trace = trace
        self._reruns = Reruns(trace)
        self._claim: Claim | None = None
        self._worker: Thread | None = None
        self._begun = 0.0
        self._closed = False

    @property
    def pending(self) -> Pending | None:
        """How far the re-run is; None if there is none."""
        claim = self._claim
        if claim is None:
            return None
        reruns = self._reruns
        query = Query("rerun", claim)
        return Pending(query, reruns.phase, reruns.done, self._begun)

    def prove(self, claim: Claim) -> None:
        """Begin to run again; KernbenchError while something is being proved."""
        if self._claim is not None:
            raise KernbenchError(f"still proving {title_of(self._claim)}; Esc cancels")
        self._claim = claim
        self._begun = monotonic()
        self._reruns.renew()
        self._worker = Thread(target=self._work, args=(claim,), daemon=True)
        self._worker.start()

    def cancel(self) -> bool:
        """End what is being proved; whether there was anything."""
        if self._claim is None:
            return False
        self._reruns.cancel()
        return True

    def close(self) -> None:
        """Nobody waits any more: nothing is left of what was begun."""
        self._closed = True
        self._reruns.cancel()
        if self._worker is not None:
            self._worker.join(_PATIENCE_S)

    def _work(self, claim: Claim) -> None:
        """Prove a claim. Runs in a thread."""
        try:
            answer = prove(claim, self._trace, self._reruns)
            proof = Proof(claim, answer, self._reruns.last)
        except Exception as error:  # raised where the proof is taken, unless it is ours
            proof = Proof(claim, error=error)
        self._claim = None
        if not self._closed:
            self.came(proof)
