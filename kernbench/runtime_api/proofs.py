"""``Proofs``: runs a trace again for whoever wants to prove what would happen."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernbench.common.user_code import described
from kernbench.errors import KernbenchError
from kernbench.runtime_api.rerun import Change, Rerun, rerun
from kernbench.runtime_api.run import RunProgress
from kernbench.trace import Trace
from kernbench.trace.same_times import same_times


class Proofs:
    """The re-runs of one trace, whose own traces are put into ``folder``.

    Before the first of them the run is repeated without a change, since a run that does
    something else each time proves nothing. What it does has to be as recorded, and
    when; that numbers are rounded otherwise than on another machine moves no time.
    ``plugins`` and ``any_source`` are those of ``Change``.
    """

    def __init__(
        self,
        trace: Trace,
        folder: Path,
        progress: RunProgress | None = None,
        plugins: Sequence[str | Path] = (),
        any_source: bool = False,
    ) -> None:
        self._trace = trace
        self._folder = folder
        self._progress = progress
        self._plugins = plugins
        self._any_source = any_source
        self._runs = 0

    def run(
        self,
        spec: Mapping[str, Any] | None = None,
        delays: Sequence[tuple[int, float]] = (),
    ) -> Path:
        """The trace of a run with some fields of the machine changed and ops held back.

        Raises as ``rerun`` does. KernbenchError for a run that is not deterministic, or
        that ends with an error with which the recorded one did not.
        """
        if self._runs == 0:
            self._refuse_other_run()
        done = self._rerun(Change(spec=spec or {}, delays=delays))
        recorded = self._trace.end or {}
        if done.error is not None and recorded.get("error") is None:
            raise KernbenchError(
                f"no proof: the changed run ended with {described(done.error)}"
            )
        return done.path

    def _refuse_other_run(self) -> None:
        """KernbenchError if the run without a change does not do the same in time."""
        same = self._rerun(Change())
        if same.parting is not None and not same_times(
            self._trace, Trace.open(same.path)
        ):
            raise KernbenchError(f"no proof: {'; '.join(same.verdict())}")
        same.path.unlink()

    def _rerun(self, change: Change) -> Rerun:
        """Run again, with the plugins and sources that were allowed."""
        self._runs += 1
        whole = Change(
            delays=change.delays,
            spec=change.spec,
            plugins=self._plugins,
            any_source=self._any_source,
        )
        out = self._folder / f"{self._runs}.msgpack"
        return rerun(self._trace, out, whole, self._progress)
