"""What is proved by running again: at most one claim at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernbench.errors import KernbenchError
from kernbench.replay.query import Query
from kernbench.replay.whatif.answers import Prediction
from kernbench.trace import Trace
from tui.claims import Claim, proved
from tui.rerun import Ended, Rerun
from tui.runner import Pending


@dataclass(frozen=True, slots=True)
class Proof:
    """What a re-run said of a claim: the prediction with the real time beside it, and
    the new trace. Or else why there is none.
    """

    claim: Claim
    path: Path | None = None
    prediction: Prediction | None = None
    error: KernbenchError | None = None


class Prover:
    """Owns the re-run of ``trace`` that somebody waits for, if there is one.

    ``came(proof)`` is called by a thread when it has ended.
    """

    def __init__(
        self, trace: Trace, came: Callable[[Proof], None] = lambda proof: None
    ) -> None:
        self.came = came
        self._trace = trace
        self._claim: Claim | None = None
        self._rerun: Rerun | None = None

    @property
    def pending(self) -> Pending | None:
        """How far the re-run is; None if there is none."""
        rerun = self._rerun
        if rerun is None or self._claim is None:
            return None
        query = Query("rerun", self._claim)
        return Pending(query, rerun.phase, rerun.done, rerun.begun)

    def prove(self, claim: Claim) -> None:
        """Begin a re-run; KernbenchError while there is one."""
        if self._claim is not None:
            raise KernbenchError(f"still proving {self._claim.title}; Esc cancels it")
        self._claim = claim
        self._rerun = Rerun(
            self._trace.path, claim.options, len(self._trace.order), self._ended
        )
        self._rerun.start()

    def cancel(self) -> bool:
        """End the re-run; whether there was one."""
        rerun = self._rerun
        if rerun is None:
            return False
        rerun.cancel()
        return True

    def close(self) -> None:
        """Nobody waits any more: nothing of it is left."""
        if self._rerun is not None:
            self._rerun.close()

    def _ended(self, result: Ended) -> None:
        """Say what came of it. Runs in the thread of the re-run."""
        claim = self._claim
        assert claim is not None
        proof = Proof(claim, error=result.error)
        if result.path is not None:
            try:
                prediction = proved(claim, self._trace, Trace.open(result.path))
                proof = Proof(claim, result.path, prediction)
            except KernbenchError as error:
                proof = Proof(claim, error=error)
        self._rerun = None
        self._claim = None
        self.came(proof)
