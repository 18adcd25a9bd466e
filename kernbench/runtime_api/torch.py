"""The host's side of a bench: tensors on the machine, launches, expected results, barriers.

``tensor.numpy()`` and ``expect`` are barriers: they drain the simulation, and Phase 2 runs up to
then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.dtypes import itemsize, name_of, nbytes_of, np_dtype
from kernbench.common.messages import HostReadCmd, HostWriteCmd, Region
from kernbench.common.phys_addr import VA_BASE, PhysAddr
from kernbench.components.builtin.pe_mmu import Mapping
from kernbench.errors import UsageError, VerificationError
from kernbench.runtime_api.placement import DPPolicy, Place, place_shards
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine
from kernbench.sim_engine.event_log import Shard
from kernbench.sim_engine.verify import Expectation

Dp: TypeAlias = DPPolicy | None
Name: TypeAlias = str | None
Shape: TypeAlias = Sequence[int]
_PAGE, _LINE = 4096, 256  # alignment of a tensor's virtual range, and of a shard in HBM


class TensorPtr(int):
    """A virtual address that knows its element type; both survive ``+``."""

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


class Tensor:
    """A tensor on the machine; ``shards`` are its copies, replicas of a shard one after the
    other.
    """

    def __init__(
        self, torch: Torch, name: str, shape: tuple[int, ...], dtype: str, shards: list[Shard]
    ) -> None:
        self._torch = torch
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.shards = shards

    @property
    def ptr(self) -> TensorPtr:
        """The virtual address that kernels are given."""
        return TensorPtr(self.shards[0].va, self.dtype)

    def numpy(self) -> npt.NDArray[Any]:
        """The data now: drains the simulation and runs Phase 2 up to here; the first copy of a
        replica.
        """
        return self._torch._fetch(self)

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {self.dtype}{list(self.shape)}, {len(self.shards)} shards)"


class Torch:
    """What a bench's ``run(torch)`` is given."""

    def __init__(self, engine: GraphEngine, seed: int = 0) -> None:
        self.engine = engine
        self.rng = np.random.default_rng(seed)
        self.expectations: dict[str, Expectation] = {}
        self._next_va = VA_BASE
        self._hbm_used: dict[Place, int] = {}
        self._names: set[str] = set()
        self.blank = engine.store.snapshot()  # what Phase 2 starts from: nothing written yet
        self._phase2 = DataExecutor([], self.blank.snapshot())

    def tensor(
        self, data: npt.ArrayLike, dtype: str | None = None, dp: Dp = None, name: Name = None
    ) -> Tensor:
        """Copy host data to the machine, rounded to ``dtype`` (default: that of the data)."""
        array = np.asarray(data)
        array = np.array(array, np_dtype(dtype or name_of(array.dtype)), order="C")
        array.flags.writeable = False
        tensor = self._allocate(array.shape, name_of(array.dtype), dp, name)
        self._write(tensor, array)
        return tensor

    def full(
        self, shape: Shape, value: float, dtype: str = "f16", dp: Dp = None, name: Name = None
    ) -> Tensor:
        """A tensor of one value."""
        return self.tensor(np.full(tuple(shape), value, np_dtype(dtype)), dtype, dp, name)

    def zeros(self, shape: Shape, dtype: str = "f16", dp: Dp = None, name: Name = None) -> Tensor:
        """A tensor of zeros."""
        return self.full(shape, 0, dtype, dp, name)

    def empty(self, shape: Shape, dtype: str = "f16", dp: Dp = None, name: Name = None) -> Tensor:
        """Memory that nothing has been written to: no host transfer."""
        return self._allocate(tuple(shape), dtype, dp, name)

    def launch(self, name: str, kernel: Callable[..., None], *args: Any) -> None:
        """Run ``kernel(*args, tl=…)`` on every PE that holds a shard of each tensor argument.

        Tensors reach the kernel as virtual addresses, scalars as they are. Starts when all before
        it has ended.
        """
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        if not tensors:
            raise UsageError(f"launch {name!r}: no tensor among its arguments, so no PE to run on")
        holders = [{self.engine.place_of(s.addr) for s in t.shards} for t in tensors]
        pes = sorted(set.intersection(*holders))
        if not pes:
            names = ", ".join(t.name for t in tensors)
            raise UsageError(
                f"launch {name!r}: no PE holds a shard of each of {names}; align their DPPolicy"
            )
        values = tuple(arg.ptr if isinstance(arg, Tensor) else arg for arg in args)
        self.engine.launch(name, kernel, values, pes, self.engine.sim.sites.here())

    def expect(
        self,
        tensor: Tensor,
        reference: npt.ArrayLike,
        name: str | None = None,
        rtol: float | None = None,
        atol: float | None = None,
    ) -> None:
        """State what ``tensor`` holds now; all its copies are judged against ``reference`` rounded
        to its dtype.

        Tolerances default to ADR-0020 D11's for the dtype.
        """
        name = name or tensor.name
        whole = np.asarray(reference)
        if whole.shape != tensor.shape:
            raise VerificationError(
                f"expect {name!r}: the reference has shape {whole.shape}, the tensor {tensor.shape}"
            )
        if any(e.tensor == name for e in self.expectations.values()):
            raise VerificationError(f"expect {name!r}: the name is taken; give another with name=…")
        tolerance = dtype_row(tensor.dtype).tolerance
        given = {k: v for k, v in (("rtol", rtol), ("atol", atol)) if v is not None}
        tolerance = replace(tolerance, **given)
        whole = whole.astype(np_dtype(tensor.dtype))
        self.engine.drain()
        after = self.engine.op_logger.rows if self.engine.op_logger is not None else 0
        for shard in tensor.shards:
            array = np.ascontiguousarray(whole[_box(shard)])
            key = name if len(tensor.shards) == 1 else f"{name}.{shard.index}"
            what, of = (array, shard.dtype, tolerance), (name, shard.index, shard.origin)
            self.expectations[key] = Expectation(shard.space, shard.addr, *what, after, *of)
            if self.engine.recorder is not None:
                self.engine.recorder.expect(name, shard, array, tolerance, after)

    def _allocate(
        self, shape: tuple[int, ...], dtype: str, dp: DPPolicy | None, name: str | None
    ) -> Tensor:
        name = self._name(name)
        extents = tuple(int(extent) for extent in shape)
        if min(extents, default=1) < 1:
            raise UsageError(f"tensor {name!r}: shape {extents} has an extent below 1")
        dtype_row(dtype)
        spec = self.engine.graph.spec
        cubes = spec.sip.cube_mesh.w * spec.sip.cube_mesh.h
        dp = dp or DPPolicy(num_cubes=1, num_pes=1)
        placed = place_shards(extents, dp, spec.system.sips.count, cubes, spec.cube.pes)
        shards: list[Shard] = []
        va = self._next_va
        for part in placed:
            nbytes = nbytes_of(part.shape, dtype)
            copies = tuple((place, self._take(place, nbytes, name)) for place in part.places)
            self.engine.sim.pages.add(Mapping(va, nbytes, name, copies))
            for place, addr in copies:
                owner = self.engine.graph.at(*place, "pe_cpu")
                at = ("hbm", addr, va, nbytes, owner)
                box = (part.origin, part.shape)
                shards.append(Shard(name, dtype, *at, *box, self.engine.next_cmd, len(shards)))
            va += nbytes
        self._next_va = -(-va // _PAGE) * _PAGE + _PAGE
        if self.engine.recorder is not None:
            for shard in shards:
                self.engine.recorder.alloc(shard)
        return Tensor(self, name, extents, dtype, shards)

    def _name(self, name: str | None) -> str:
        if name is None:
            name = f"t{len(self._names)}"
        if name in self._names:
            raise UsageError(f"a tensor named {name!r} exists; give another name=…")
        self._names.add(name)
        return name

    def _take(self, place: Place, nbytes: int, name: str) -> int:
        """A physical range in the HBM slice of a PE; not reused within a run."""
        sip, cube, pe = place
        memory = self.engine.graph.spec.cube.memory_map
        slice_bytes = memory.hbm_total_gb * (1 << 30) // memory.slices_per_cube
        used = self._hbm_used.get(place, 0)
        if used + nbytes > slice_bytes:
            raise UsageError(
                f"tensor {name!r}: {nbytes} bytes do not fit the HBM slice of sip {sip} cube "
                f"{cube} pe {pe}: {slice_bytes - used} of {slice_bytes} bytes are left"
            )
        self._hbm_used[place] = used + -(-nbytes // _LINE) * _LINE
        return PhysAddr.pe_hbm_addr(sip, cube, pe, used, int(slice_bytes)).encode()

    def _write(self, tensor: Tensor, array: npt.NDArray[Any]) -> None:
        writes = []
        parts: dict[tuple[int, ...], npt.NDArray[Any]] = {}
        for shard in tensor.shards:
            part = parts.get(shard.origin)
            if part is None:
                part = parts[shard.origin] = np.ascontiguousarray(array[_box(shard)])
            msg = HostWriteCmd(dst=_region(shard), data=part)
            writes.append((self.engine.place_of(shard.addr), msg))
        self.engine.host_write(writes, self.engine.sim.sites.here())

    def _fetch(self, tensor: Tensor) -> npt.NDArray[Any]:
        if self.engine.op_logger is None:
            raise UsageError(f"{tensor.name}.numpy() needs the op log, which is off in this run")
        self.engine.drain()
        self._flush()
        whole = np.empty(tensor.shape, np_dtype(tensor.dtype))
        firsts = {shard.origin: shard for shard in reversed(tensor.shards)}
        reads = []
        for shard in firsts.values():
            region = _region(shard)
            whole[_box(shard)] = self._phase2.store.view(
                region.space, region.addr, region.shape, region.dtype
            )
            reads.append((self.engine.place_of(shard.addr), HostReadCmd(src=region)))
        self.engine.host_read(reads, self.engine.sim.sites.here())
        self.engine.drain()
        return whole

    def _flush(self) -> None:
        """Phase 2 up to now; what was pending in the Phase 1 store is ready afterwards."""
        log = self.engine.op_log
        self._phase2.extend(log[self._phase2.position :])
        self._phase2.run()
        for space, addr, nbytes in self.engine.pending.ranges():
            data = self._phase2.store.view(space, addr, (nbytes,), "u8")
            self.engine.store.patch(space, addr, data)
            self.engine.pending.clear(space, addr, nbytes)


def _box(shard: Shard) -> tuple[slice, ...]:
    return tuple(
        slice(low, low + extent) for low, extent in zip(shard.origin, shard.shape, strict=True)
    )


def _region(shard: Shard) -> Region:
    return Region(shard.space, shard.addr, shard.shape, shard.dtype, shard.nbytes)
