"""Memory at any op: Phase 2 executed step by step, forwards, and undone, backwards.

Owns one MemoryStore and the undo list; starts from an empty store, as the trace holds all that was
ever written.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import Any, NamedTuple

import numpy.typing as npt

from kernbench.sim_engine.accesses import accesses
from kernbench.sim_engine.data_executor import execute
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.trace import Trace

Pieces = list[tuple[int, npt.NDArray[Any]]]


class Undo(NamedTuple):
    """What lay in a range before a step wrote there."""

    space: str
    addr: int
    nbytes: int
    before: Pieces


class Write(NamedTuple):
    """A range that the op at ``position`` wrote."""

    position: int
    space: str
    addr: int
    nbytes: int


class History:
    """``at(op)`` moves one store to just after op ``op``; cost is the number of executed ops
    between.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._store = MemoryStore()
        self._undo: list[list[Undo]] = []
        positions, self._records = trace.executable_positions, trace.executable
        self._positions: list[int] = positions.tolist()

    def at(self, op: int) -> MemoryStore:
        """Memory when ops 0..op have run; -1 is empty. The store is this object's own: read, do
        not keep.
        """
        target = self.executed(op)
        while len(self._undo) < target:
            self._forward()
        while len(self._undo) > target:
            self._backward()
        return self._store

    def executed(self, op: int) -> int:
        """How many ops have changed memory at op ``op``: memory is the same where this is."""
        return bisect_right(self._positions, op)

    @cached_property
    def writes(self) -> tuple[Write, ...]:
        """Every range that an op of the trace writes, in canonical order."""
        return tuple(
            Write(position, access.space, access.addr, access.nbytes)
            for position, record in zip(self._positions, self._records, strict=True)
            for access in accesses(record)
            if access.mode == "w"
        )

    def before(self, op: int) -> MemoryStore:
        """A copy (of references) of memory just before op ``op``."""
        return self.at(op - 1).snapshot()

    def _forward(self) -> None:
        index = len(self._undo)
        record = self._records[index]
        undo: list[Undo] = []
        for access in accesses(record):
            if access.mode == "w":
                before = self._store.take(access.space, access.addr, access.nbytes)
                for addr, piece in before:
                    self._store.patch(access.space, addr, piece)
                undo.append(Undo(access.space, access.addr, access.nbytes, before))
        execute(record, self._store)
        self._undo.append(undo)

    def _backward(self) -> None:
        for space, addr, nbytes, before in reversed(self._undo.pop()):
            self._store.take(space, addr, nbytes)
            for start, piece in before:
                self._store.patch(space, start, piece)
