"""A progress that cancels what it is given to, once."""

from kernbench.common.progress import Cancelled


def cancelled_at(call):
    """Raises Cancelled at that call, counted from 0, and at no other."""
    calls = 0

    def progress(done):
        nonlocal calls
        calls += 1
        if calls == call + 1:
            raise Cancelled(f"cancelled at call {call}")

    return progress
