"""The debugger on a terminal."""

import os

# products on screen are small: more threads cost more time to wake than they save
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
