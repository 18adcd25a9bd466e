"""``python -m kernbench.perf.whatif_speed TRACE``: what ``whatif`` costs on a trace.

It is a process of its own, so that its peak of memory is that of ``whatif``. Prints
seconds of CPU time after opening, and MiB, as JSON.
"""

import gc
import json
import resource
import sys
from functools import partial

from kernbench.perf.sim import seconds
from kernbench.replay import ReplaySession
from kernbench.trace import Trace

CHANGE = "pe.clock_ghz=2"
ANOTHER = "pe.clock_ghz=3"
"""What is predicted, first and then."""


def speed(path: str) -> dict[str, float]:
    """Seconds of a first and a further prediction and of a first profile, and the most
    memory.

    The profile is of a fresh session: nothing is left of the first one by then, whose
    graph would else count with the second.
    """
    session = _opened(path)
    taken = {
        "predict_s": seconds(partial(session.whatif, CHANGE)),
        "further_s": seconds(partial(session.whatif, ANOTHER)),
    }
    del session
    gc.collect()
    taken["profile_s"] = seconds(_opened(path).whatif)
    per_mib = 2**20 if sys.platform == "darwin" else 2**10  # of ru_maxrss
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / per_mib
    return {**taken, "peak_mib": peak}


def _opened(path: str) -> ReplaySession:
    """A session of a trace whose columns are there."""
    session = ReplaySession(Trace.open(path))
    session.index.prepare()
    return session


if __name__ == "__main__":
    print(json.dumps(speed(sys.argv[1])))
