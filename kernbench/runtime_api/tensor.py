"""What a bench holds of a tensor on the machine, and what a kernel is given of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernbench.common.arrays import Array
from kernbench.common.dtypes import itemsize
from kernbench.sim_engine.event_log import Shard


class TensorPtr(int):
    """A virtual address that knows its element type; both survive ``+``.

    That is how an all-reduce kernel, whose arguments ADR-0032 D7 fixes, learns the
    dtype of its tensor.
    """

    dtype: str
    itemsize: int

    def __new__(cls, value: int, dtype: str) -> TensorPtr:
        """A pointer to elements of ``dtype`` at virtual address ``value``."""
        pointer = super().__new__(cls, value)
        pointer.dtype = dtype
        pointer.itemsize = itemsize(dtype)
        return pointer

    def __add__(self, other: int) -> TensorPtr:
        return TensorPtr(int(self) + int(other), self.dtype)

    __radd__ = __add__


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
        """The virtual address that kernels are given."""
        return TensorPtr(self.shards[0].va, self.dtype)

    def numpy(self) -> Array:
        """The data as they are now, in the tensor's shape; of a replica the first copy.

        A barrier: it drains the simulation, and runs Phase 2 up to now.
        """
        return self.fetch(self)

    def __repr__(self) -> str:
        shape = list(self.shape)
        return f"Tensor({self.name!r}, {self.dtype}{shape}, {len(self.shards)} shards)"
