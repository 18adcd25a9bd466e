"""Which tensor bytes belong to, for whole columns of addresses."""

from __future__ import annotations

import numpy as np

from kernbench.common.arrays import Bools, Ints
from kernbench.common.progress import Progress, computed_beside
from kernbench.trace import Trace

SCRATCH = "(scratch)"
OTHER = "(other)"


class TensorNames:
    """The tensors of a trace that lie outside of the scratch of PEs.

    ``names`` are theirs, ascending. Addresses in HBM and SRAM are never given to
    another tensor within a run, so the first allocation at an address is the only one.
    """

    def __init__(self, trace: Trace, progress: Progress) -> None:
        self.names: list[str] = []
        self._first: dict[str, Ints] = {}
        self._last: dict[str, Ints] = {}
        self._tensor: dict[str, Ints] = {}
        log = trace.alloc_columns
        space = computed_beside(lambda: log.space[:], progress, 0.0)
        found: dict[str, Ints] = {}
        for number, name in enumerate(log.spaces):
            if name != "tcm":
                found[name] = np.flatnonzero(space == number)
        texts = {}
        outside = np.concatenate([np.empty(0, np.int64), *found.values()])
        tensors, firsts = np.unique(log.tensor[outside], return_index=True)
        for tensor, row in zip(tensors.tolist(), outside[firsts].tolist(), strict=True):
            progress(0.5)
            (shard,) = trace.shards([row])
            texts[tensor] = shard.tensor
        self.names = sorted(set(texts.values()))
        numbers = {name: number for number, name in enumerate(self.names)}
        for name, rows in found.items():
            addr = log.addr[rows].astype(np.int64)
            order = np.argsort(addr, kind="stable")
            rows = rows[order]
            self._first[name] = addr[order]
            self._last[name] = addr[order] + log.nbytes[rows].astype(np.int64)
            self._tensor[name] = np.array(
                [numbers[texts[tensor]] for tensor in log.tensor[rows].tolist()],
                np.int64,
            )

    def of(self, space: str, addr: Ints) -> Ints:
        """The number of the tensor at each address of a memory; -1 for none."""
        first = self._first.get(space)
        if first is None or not len(first):
            return np.full(len(addr), -1)
        at = np.searchsorted(first, addr, side="right") - 1
        inside: Bools = (at >= 0) & (addr < self._last[space][at])
        return np.where(inside, self._tensor[space][at], -1)
