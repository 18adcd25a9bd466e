"""What a bench holds of a tensor on the machine, and what a kernel is given of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernbench.common.arrays import Array
from kernbench.common.pointers import Box, Layout, TensorPtr
from kernbench.sim_engine.event_log import Shard


@dataclass(slots=True, eq=False, repr=False)
class Tensor:
    """A tensor on the machine.

    ``shape`` is in elements of the whole. In ``shards`` the replicas of a shard follow
    one another. ``fetch`` is how its data are read back.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    shards: list[Shard]
    fetch: Callable[[Tensor], Array]

    @property
    def ptr(self) -> TensorPtr:
        """What kernels are given: its virtual address, and where its parts lie."""
        by_va: dict[int, Shard] = {}
        owners: dict[int, set[str]] = {}
        for shard in self.shards:
            by_va.setdefault(shard.va, shard)
            owners.setdefault(shard.va, set()).add(shard.owner)
        boxes = tuple(
            Box(shard.origin, shard.shape, va, frozenset(owners[va]))
            for va, shard in by_va.items()
        )
        layout = Layout(self.name, self.shape, self.dtype, boxes)
        return TensorPtr(self.shards[0].va, self.dtype, layout)

    def numpy(self) -> Array:
        """The data as they are now, in the tensor's shape; of a replica the first copy.

        A barrier: it drains the simulation, and runs Phase 2 up to now.
        """
        return self.fetch(self)

    def __repr__(self) -> str:
        shape = list(self.shape)
        return f"Tensor({self.name!r}, {self.dtype}{shape}, {len(self.shards)} shards)"
