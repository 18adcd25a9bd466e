"""What is done where an answer cannot be printed, as the screen's program knows it."""

from kernbench.common.stdout import end_if_stdout_fails

__all__ = ["end_if_stdout_fails"]
