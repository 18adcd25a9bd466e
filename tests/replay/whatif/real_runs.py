"""What the machine itself says: runs of a bench's text, changed ones, and late ones."""

from kernbench.replay import ReplaySession
from kernbench.runtime_api import Change, rerun, run_bench
from kernbench.trace import Trace


class Recorded:
    """A bench of one's own in a folder, as ``bench``, and the trace of a run of it, on
    a machine of which some fields are others, ``spec``.
    """

    def __init__(self, folder, text, spec=None):
        file = folder / "own_bench.py"
        file.write_text(text)
        self.bench = str(file)
        self.path = folder / "trace"
        self.spec = spec or {}
        run_bench(self.bench, spec=self.spec, trace=self.path)

    def told_and_run(self, field, value, folder):
        """What is told of a machine of which a field is another, and when its run
        ends.
        """
        told = ReplaySession(Trace.open(self.path)).whatif(f"{field}={value}")
        changed = folder / "changed"
        run_bench(self.bench, spec=self.spec | {field: value}, trace=changed)
        return told, Trace.open(changed).end_ns

    def check_slack(self, op, slack, folder):
        """Held back by its slack an op leaves the end no later than it was, and with 10
        ns more it makes it as much later at least.
        """

        def moved(ns):
            """By how much the end comes later."""
            late = folder / "late"
            rerun(self.path, late, Change(delays=[(op, ns)]))
            return end_of_launches(late) - end_of_launches(self.path)

        if slack.ns > 0:
            assert moved(slack.ns) <= 0.1, op
        assert moved(slack.ns + 10.0) >= 9.0, op


def end_of_launches(path):
    """When the last launch of a trace ended, ns."""
    return max(launch.t_end for launch in Trace.open(path).launches)
