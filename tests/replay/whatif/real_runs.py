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
        """Held back by its slack an op leaves the end where it was, and with 10 ns more
        it makes it as much later.
        """
        end_ns = end_of_launches(self.path)
        for more, least, most in ((0.0, -0.1, 0.1), (10.0, 9.0, 11.0)):
            delay = slack.ns + more
            if delay > 0:
                late = folder / "late"
                rerun(self.path, late, Change(delays=[(op, delay)]))
                assert least <= end_of_launches(late) - end_ns <= most, op


def end_of_launches(path):
    """When the last launch of a trace ended, ns."""
    return max(launch.t_end for launch in Trace.open(path).launches)
