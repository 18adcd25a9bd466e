"""Large tables kept in files, of which memory holds what is being looked at.

A table of a trace of ten million ops takes 40 or 80 MB. In a file it takes none: its
pages are the system's, which may drop them at any time and read them again.
"""

from __future__ import annotations

import mmap
import os
from tempfile import TemporaryFile

import numpy as np

from kernbench.common.arrays import Array

LARGE = 4 << 20
"""Bytes from which on an array is worth a file."""


def paged(array: Array, large: int = LARGE) -> Array:
    """The same values, read-only; those of at least ``large`` bytes in a file.

    The file has no name, and is gone once nobody has the array any more. It is written
    through to the disk, as until then its pages could not be dropped: some 0.1 s for
    40 MB, in which other threads go on. The array itself comes back where the system
    has no room for such a file.
    """
    if array.nbytes < large:
        return array
    try:
        with TemporaryFile(prefix="kernbench-") as file:
            array.tofile(file)
            os.fsync(file.fileno())
            data = mmap.mmap(file.fileno(), array.nbytes, access=mmap.ACCESS_READ)
    except OSError:
        return array
    return np.frombuffer(data, array.dtype).reshape(array.shape)
