"""``python -m kernbench.perf.whatif_speed TRACE``: what ``whatif`` costs on a trace.

It is a process of its own, so that its peak of memory is that of ``whatif``. Prints
seconds of CPU time after opening, and MiB, as JSON.
"""

import json
import resource
import sys
from functools import partial

from kernbench.perf.sim import seconds
from kernbench.replay import ReplaySession
from kernbench.trace import Trace

CHANGE = "pe.clock_ghz=2"
"""What is predicted."""


def speed(path: str) -> dict[str, float]:
    """Seconds of a first prediction and of a first profile, and the most memory."""
    taken = {}
    for name, changes in (("predict_s", (CHANGE,)), ("profile_s", ())):
        session = ReplaySession(Trace.open(path))
        session.index.prepare()
        taken[name] = seconds(partial(session.whatif, *changes))
    per_mib = 2**20 if sys.platform == "darwin" else 2**10  # of ru_maxrss
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / per_mib
    return {**taken, "peak_mib": peak}


if __name__ == "__main__":
    print(json.dumps(speed(sys.argv[1])))
