"""The arrays of a trace: views of the mapped file, made when they are asked for."""

from __future__ import annotations

from functools import cache
from math import prod

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import DTYPES
from kernbench.errors import TraceFormatError
from kernbench.trace.frames import Frame, FrameFile
from kernbench.trace.logs import Logs
from kernbench.trace.tables import GrowingTable, LazySequence, lists_of


class Tensors(GrowingTable[Array | None]):
    """The arrays of a file by number; None for those whose frame is damaged.

    An array is a view of the mapping: it costs no memory, and cannot be written to.
    """

    def __init__(self, file: FrameFile, logs: Logs) -> None:
        self._file = file
        self._logs = logs
        super().__init__(file, "tensors", self._read, lambda number: None)

    def _read(self, frame: Frame) -> LazySequence[Array | None]:
        """The arrays of a frame; TraceFormatError if one does not lie in its body."""
        columns = self._logs.read_frame(frame)
        body = self._file.body(frame)
        dtypes = [*DTYPES.values()]
        shapes = lists_of(columns, "shape")
        offsets = columns["offset"]

        def tensor(number: int) -> Array:
            dtype = dtypes[columns["dtype"][number]].numpy
            shape = shapes[number]
            offset = int(offsets[number])
            # numpy counts bytes in 64 bits, and believes a shape whose bytes are 2^64
            nbytes = prod(shape) * dtype.itemsize
            if offset + nbytes > len(body):
                raise TraceFormatError(f"array {number}, {shape}, is not in the body")
            return np.ndarray(shape, dtype, body, offset)

        for number in range(len(offsets)):
            tensor(number)  # lies in the body, or raises
        # Two threads may make two views of the same bytes, which do no harm.
        return LazySequence(len(offsets), cache(tensor))

    def array(self, number: int) -> Array:
        """An array, read-only; TraceFormatError if it is not there."""
        array = self.get(number)
        if array is None:
            raise TraceFormatError(
                f"{self._file.path}: tensor {number} is not in the file, or damaged"
            )
        return array
