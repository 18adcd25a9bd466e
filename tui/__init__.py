"""The debugger on a terminal."""

import os

# products on screen are small: more threads cost more time to wake than they save
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# a frame that follows another at once waits for a timer of this many ticks a second
os.environ.setdefault("TEXTUAL_FPS", "500")
