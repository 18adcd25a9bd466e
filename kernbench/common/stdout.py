"""A stdout that takes nothing more: a disk that is full, or somebody has closed it."""

import os
import sys
from contextlib import suppress


def _why_stdout_fails() -> str | None:
    """Why nothing more can be written to stdout; None if a line's end could be."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except (OSError, ValueError) as error:  # a ValueError if somebody has closed it
        return getattr(error, "strerror", None) or str(error)
    return None


def drop_stdout() -> None:
    """Let what stdout still holds go nowhere, as it is flushed at the exit."""
    with suppress(ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def end_if_stdout_fails() -> None:
    """Say in a line why stdout fails, and exit 1; does nothing if it does not fail."""
    reason = _why_stdout_fails()
    if reason is None:
        return
    print(f"error: cannot write the standard output: {reason}", file=sys.stderr)
    drop_stdout()
    sys.exit(1)
