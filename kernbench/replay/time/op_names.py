"""The names of ops as a timeline shows them: what an op does, and to what.

A stage of a tile is ``GEMM 0,0,0``, a composite or a product ``gemm 128x16x128``. What
moves bytes names the tensor and the box of it that they are, ``x[0:8]``; a stage that
does, the tensors and its tile. Memory of PEs has no lasting names, so what moves within
it is named by what it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kernbench.common.arrays import Array, Ints
from kernbench.replay.time.op_classes import COMPOSITE_PREFIX, TILE_PREFIX
from kernbench.trace import Trace

_KEPT = 1 << 16
"""Names that are kept."""
_GEMM_PREFIX = "gemm_"
_OWN = "tcm"
"""The memory whose addresses are given to one handle after the other."""


class _Box(NamedTuple):
    """A part of a tensor: its name, origin and shape there, both in elements of the
    whole, its first byte and how many it has.
    """

    tensor: str
    origin: tuple[int, ...]
    shape: tuple[int, ...]
    addr: int
    nbytes: int


class OpNames:
    """Names ops; a name is found in some ten us and kept."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._names: dict[int, str] = {}
        self._boxes: dict[str, tuple[Ints, Ints]] | None = None
        self._box_of: dict[int, _Box] = {}

    def of(self, rows: Array) -> list[str]:
        """The names of the ops in some rows of the log."""
        if len(self._names) > _KEPT:
            self._names = {}
        names = []
        for row in rows.tolist():
            name = self._names.get(row)
            if name is None:
                name = self._found(row)
                self._names[row] = name
            names.append(name)
        return names

    def _found(self, row: int) -> str:
        """The name of the op in a row."""
        trace = self._trace
        name: str = trace.strings[trace.op_columns.name[row]]
        if name.startswith(TILE_PREFIX):
            return self._stage(name.removeprefix(TILE_PREFIX), trace.params(row))
        if name.startswith((COMPOSITE_PREFIX, _GEMM_PREFIX)):
            params = trace.params(row)
            sizes = [str(params[axis]) for axis in "mnk" if axis in params]
            what = name.removeprefix(COMPOSITE_PREFIX).partition("_")[0]
            return f"{what} {'x'.join(sizes)}".rstrip()
        if name in ("dma_read", "dma_write", "host_write", "host_read", "ipcq_copy"):
            return self._moved(name, row)
        return name

    def _stage(self, stage: str, params: dict[str, Any]) -> str:
        """The name of a stage of a tile."""
        tile = ",".join(map(str, params.get("tile_index", ())))
        spaces = params.get("spaces", ())
        addrs = params.get("addrs", ())
        tensors = []
        for space, addr in zip(spaces, addrs, strict=False):
            box = self._box(space, addr)
            if box is not None and box.tensor not in tensors:
                tensors.append(box.tensor)
        what = ",".join(tensors) or stage
        return f"{what} {tile}" if tile else what

    def _moved(self, name: str, row: int) -> str:
        """The name of an op that moves bytes: the tensor and box that it reads or
        writes outside of the memory of PEs, else what it does.
        """
        sides = ("src", "dst")
        if name in ("dma_write", "host_write"):
            sides = ("dst", "src")
        params = self._trace.params(row)
        for side in sides:
            space = params.get(f"{side}_space")
            addr = params.get(f"{side}_addr")
            if space is None or addr is None:
                continue
            box = self._box(space, addr)
            if box is not None:
                return _part_text(box, addr, int(params.get("nbytes", 0)))
        return name

    def _box(self, space: str, addr: int) -> _Box | None:
        """The part of a tensor that an address is in; None: of none that lasts."""
        if space == _OWN:
            return None
        starts, rows = self._all_boxes().get(space, (np.empty(0), np.empty(0)))
        at = int(np.searchsorted(starts, addr, side="right")) - 1
        if at < 0:
            return None
        row = int(rows[at])
        box = self._box_of.get(row)
        if box is None:
            (shard,) = self._trace.shards([row])
            box = _Box(
                shard.tensor, shard.origin, shard.shape, shard.addr, shard.nbytes
            )
            self._box_of[row] = box
        return box if addr < box.addr + box.nbytes else None

    def _all_boxes(self) -> dict[str, tuple[Ints, Ints]]:
        """By memory where each part of a tensor begins, ascending, and its row."""
        if self._boxes is None:
            log = self._trace.alloc_columns
            space = log.space[:]
            found = {}
            for number, name in enumerate(log.spaces):
                rows = np.flatnonzero(space == number)
                if name != _OWN and len(rows):
                    addr = log.addr[rows].astype(np.int64)
                    order = np.argsort(addr, kind="stable")
                    found[name] = addr[order], rows[order]
            self._boxes = found
        return self._boxes


def _part_text(box: _Box, addr: int, nbytes: int) -> str:
    """Some bytes of a part of a tensor, as ``x[0:8]`` or ``x[0:8,16:32]``.

    Where they are not whole rows, the elements from the first on are named. A tensor
    without axes is one element, and goes by its name.
    """
    count = int(np.prod(box.shape, dtype=np.int64))
    if not box.shape or not count or not box.nbytes:
        return box.tensor
    size = box.nbytes / count
    first = int((addr - box.addr) / size)
    number = int(nbytes / size)
    index = list(np.unravel_index(first, box.shape))
    row = int(np.prod(box.shape[1:], dtype=np.int64))
    spans = []
    if len(box.shape) == 1 or (first % row == 0 and number % row == 0):
        low = box.origin[0] + int(index[0])
        spans.append((low, low + max(number // row, 1)))
        inner = zip(box.origin[1:], box.shape[1:], strict=True)
        if any(box.origin[1:]):
            spans += [(origin, origin + extent) for origin, extent in inner]
    else:
        places = zip(box.origin, index, strict=True)
        spans = [(origin + int(at), 0) for origin, at in places]
    return f"{box.tensor}[{','.join(_span_texts(spans))}]"


def _span_texts(spans: Sequence[tuple[int, int]]) -> list[str]:
    return [f"{low}:{high}" if high else f"{low}" for low, high in spans]
