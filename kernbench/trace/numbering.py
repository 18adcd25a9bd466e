"""How a writer numbers what is stored once: strings, paths, arrays.

Each of them is a table that grows by frames. What is new since the last frame is kept
here until the next is written, and only the numbers stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernbench.common.arrays import Array
from kernbench.common.dtypes import name_of
from kernbench.errors import UsageError
from kernbench.trace.params import TensorId
from kernbench.trace.schema import NONE, Body
from kernbench.trace.stream import NewFrame

REMEMBERED = 1 << 16
"""So many texts, and digests of arrays, are known again; more would grow with the run.

Each that is forgotten is stored again when it comes again."""

TENSOR_FRAME_BYTES = 1 << 20
"""A frame has so many bytes of arrays, or a single larger one."""

NO_TENSOR = TensorId(NONE)
"""The number of an array that is not stored."""


class NewEntries(list[Any]):
    """The entries of a table that no frame holds yet; ``first`` numbers them."""

    first = 0

    def take(self) -> tuple[dict[str, int], list[Any]]:
        """The head of a frame for all entries, and these: the caller writes it."""
        head = {"first": self.first}
        taken = self.copy()
        self.first += len(self)
        self.clear()
        return head, taken

    def go_on_from(self, other: NewEntries) -> None:
        """Number as ``other`` will, which stays as it is."""
        self.first = other.first
        self[:] = other


class Numbers(dict[Any, int]):
    """The number of each key in a table, given when it is first asked for.

    A key that is new is put among the new entries of ``table``. Forgetting keys
    (``clear``) is allowed: they then get another number.
    """

    def __init__(self, table: NewEntries) -> None:
        super().__init__()
        self._table = table

    def __missing__(self, key: Any) -> int:
        number = self._table.first + len(self._table)
        self._table.append(key)
        self[key] = number
        return number


class TensorStore:
    """Stores arrays, the same content once, in ``tensors`` frames that ``write`` takes.

    ``tables`` number what columns refer to. With ``keeps_data`` false no array is
    stored.
    """

    def __init__(
        self,
        tables: Mapping[str, Mapping[Any, int]],
        write: Callable[[NewFrame], None],
    ) -> None:
        self.keeps_data = True
        self._tables = tables
        self._write = write
        self._new = NewEntries()
        self._new_bytes = 0
        self._known: dict[Any, TensorId] = {}

    def number(self, array: Array) -> TensorId:
        """The number of the array's content; NO_TENSOR if it is not to be stored.

        It is not if its type is none of the machine's: then it is not its data.
        """
        try:
            dtype = name_of(array.dtype)
        except UsageError:
            return NO_TENSOR
        if not self.keeps_data:
            return NO_TENSOR
        data = array.tobytes()
        digest = hashlib.sha256(data).digest()
        key = (digest, dtype, array.shape)
        if key in self._known:
            return self._known[key]
        if len(self._known) >= REMEMBERED:
            oldest = next(iter(self._known))
            del self._known[oldest]
        if self._new_bytes and self._new_bytes + len(data) > TENSOR_FRAME_BYTES:
            self.flush()
        number = TensorId(self._new.first + len(self._new))
        self._known[key] = number
        sha = np.frombuffer(digest, "<u8").tolist()
        self._new.append((dtype, array.shape, data, sha))
        self._new_bytes += len(data)
        return number

    def go_on_from(self, other: TensorStore) -> None:
        """Number as ``other`` will, which stays as it is; know no array again."""
        self.keeps_data = other.keeps_data
        self._new.go_on_from(other._new)
        self._new_bytes = other._new_bytes

    def flush(self) -> None:
        """Write the arrays that no frame holds yet."""
        self._new_bytes = 0
        head, tensors = self._new.take()
        if not tensors:
            return
        dtypes, shapes, contents, shas = zip(*tensors, strict=True)
        body = Body()
        offsets = [body.add(content) for content in contents]
        columns = [dtypes, shapes, offsets, shas]
        log = body.add_log("tensors", columns, self._tables)
        self._write(("tensors", log | head, body))
