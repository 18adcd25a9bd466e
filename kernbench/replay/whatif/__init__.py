"""What if: a recorded run re-timed on a changed machine, without simulating it."""

from kernbench.replay.whatif.index import WhatIfIndex

__all__ = ["WhatIfIndex"]
