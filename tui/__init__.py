"""The debugger on a terminal."""

import os

import kernbench  # noqa: F401  # first, as it ends the program on Ctrl-C from here on

# Read when numpy is imported. Products of a step are small: more threads keep others
# waiting, and `outputs` took 36 ms with them instead of 4.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# A frame that follows another at once waits for a timer of so many ticks a second.
os.environ.setdefault("TEXTUAL_FPS", "500")
# Esc begins what other keys send, so it counts as a key once so many ms have passed.
# With Textual's 100 a key that was typed soon after it was taken for a part of it.
os.environ.setdefault("ESCDELAY", "25")
