"""The debugger on a terminal."""

import os

import kernbench  # noqa: F401  # first, as it ends the program on Ctrl-C from here on

# Read when numpy is imported. Products of a step are small: more threads keep others
# waiting, and `outputs` took 36 ms with them instead of 4.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# A frame that follows another at once waits for a timer of so many ticks a second.
os.environ.setdefault("TEXTUAL_FPS", "500")
