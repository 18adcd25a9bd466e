"""The host's side of a bench: tensors on the machine, launches, expected results, barriers.

``tensor.numpy()`` and ``expect`` are barriers: they drain the simulation, and Phase 2 runs up to
then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.ccl.config import CclSpec
from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.dtypes import itemsize, name_of, nbytes_of, np_dtype
from kernbench.common.messages import HostReadCmd, HostWriteCmd, Region
from kernbench.common.phys_addr import VA_BASE, PhysAddr
from kernbench.components.pages import Mapping
from kernbench.errors import UsageError, VerificationError
from kernbench.runtime_api.distributed import Distributed
from kernbench.runtime_api.multiprocessing import Multiprocessing
from kernbench.runtime_api.placement import DPPolicy, place_shards
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import HOST, GraphEngine
from kernbench.sim_engine.event_log import Shard
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.sim_engine.verify import Expectation
from kernbench.topology.graph import Place

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


@dataclass(slots=True, eq=False, repr=False)
class Tensor:
    """A tensor on the machine; in ``shards`` the replicas of a shard follow one another."""

    _torch: Torch
    name: str
    shape: tuple[int, ...]
    dtype: str
    shards: list[Shard]

    @property
    def ptr(self) -> TensorPtr:
        """The virtual address that kernels are given."""
        return TensorPtr(self.shards[0].va, self.dtype)

    def numpy(self) -> npt.NDArray[Any]:
        """The data now (of a replica the first copy): drains the simulation, runs Phase 2."""
        return self._torch._fetch(self)

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {self.dtype}{list(self.shape)}, {len(self.shards)} shards)"


class Torch:
    """What a bench's ``run(torch)`` is given; lines in ``notes`` are printed with the results.
    ``ops`` is the table that Phase 2 executes with: NUMPY_OPS, and what the bench puts into it.

    In a spawned rank tensors lie in its SIP, and names begin with that of the rank: ``rank1.x``.
    """

    def __init__(
        self, engine: GraphEngine, seed: int = 0, ccl: CclSpec | None = None
    ) -> None:
        self.engine = engine
        self.multiprocessing = Multiprocessing(engine)
        self.distributed = Distributed(self, ccl)
        self.notes: list[str] = []
        self.rng = np.random.default_rng(seed)
        self.expectations: dict[str, Expectation] = {}
        self._next_va = VA_BASE
        self._hbm_used: dict[Place, int] = {}
        self._names: set[str] = set()
        self.blank = (
            engine.store.snapshot()
        )  # what Phase 2 starts from: nothing written yet
        self.ops = dict(NUMPY_OPS)
        self._phase2 = DataExecutor([], self.blank.snapshot(), self.ops)

    def tensor(
        self,
        data: npt.ArrayLike,
        dtype: str | None = None,
        dp: Dp = None,
        name: Name = None,
    ) -> Tensor:
        """Copy host data to the machine, rounded to ``dtype`` (default: that of the data)."""
        array = np.asarray(data)
        array = np.array(array, np_dtype(dtype or name_of(array.dtype)), order="C")
        array.flags.writeable = False
        tensor = self._allocate(array.shape, name_of(array.dtype), dp, name)
        self._write(tensor, array)
        return tensor

    def full(
        self,
        shape: Shape,
        value: float,
        dtype: str = "f16",
        dp: Dp = None,
        name: Name = None,
    ) -> Tensor:
        """A tensor of one value."""
        return self.tensor(
            np.full(tuple(shape), value, np_dtype(dtype)), dtype, dp, name
        )

    def zeros(
        self, shape: Shape, dtype: str = "f16", dp: Dp = None, name: Name = None
    ) -> Tensor:
        """A tensor of zeros."""
        return self.full(shape, 0, dtype, dp, name)

    def empty(
        self, shape: Shape, dtype: str = "f16", dp: Dp = None, name: Name = None
    ) -> Tensor:
        """Memory that nothing has been written to: no host transfer."""
        return self._allocate(tuple(shape), dtype, dp, name)

    def launch(self, name: str, kernel: Callable[..., None], *args: Any) -> None:
        """Run ``kernel(*args, tl=…)`` on every PE that holds a shard of each tensor argument.

        Tensors become virtual addresses, the rest stays. Starts when all before it has ended.
        """
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        if not tensors:
            raise UsageError(
                f"launch {name!r}: no tensor among its arguments, so no PE to run on"
            )
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
        """State what ``tensor`` holds now: all its copies are judged against ``reference`` rounded
        to its dtype, by default with ADR-0020 D11's tolerances.
        """
        name = self._of_rank(name) if name else tensor.name
        whole = np.asarray(reference)
        if whole.shape != tensor.shape:
            raise VerificationError(
                f"expect {name!r}: the reference has shape {whole.shape}, the tensor {tensor.shape}"
            )
        if any(e.tensor == name for e in self.expectations.values()):
            raise VerificationError(
                f"expect {name!r}: the name is taken; give another with name=…"
            )
        given = {k: v for k, v in (("rtol", rtol), ("atol", atol)) if v is not None}
        tolerance = replace(dtype_row(tensor.dtype).tolerance, **given)
        whole = whole.astype(np_dtype(tensor.dtype))
        self.multiprocessing.drain()
        after = self.engine.op_logger.rows if self.engine.op_logger is not None else 0
        for shard in tensor.shards:
            array = np.ascontiguousarray(whole[_box(shard)])
            key = name if len(tensor.shards) == 1 else f"{name}.{shard.index}"
            what, of = (
                (array, shard.dtype, tolerance),
                (name, shard.index, shard.origin),
            )
            self.expectations[key] = Expectation(
                shard.space, shard.addr, *what, after, *of
            )
            if self.engine.recorder is not None:
                self.engine.recorder.expect(name, shard, array, tolerance, after)

    def _allocate(
        self, shape: tuple[int, ...], dtype: str, dp: DPPolicy | None, name: str | None
    ) -> Tensor:
        name = self._of_rank(name if name is not None else f"t{len(self._names)}")
        if name in self._names:
            raise UsageError(f"a tensor named {name!r} exists; give another name=…")
        self._names.add(name)
        extents = tuple(int(extent) for extent in shape)
        if min(extents, default=1) < 1:
            raise UsageError(f"tensor {name!r}: shape {extents} has an extent below 1")
        dtype_row(dtype)
        spec = self.engine.graph.spec
        cubes = spec.sip.cube_mesh.w * spec.sip.cube_mesh.h
        dp = dp or DPPolicy(num_cubes=1, num_pes=1)
        shards: list[Shard] = []
        va = self._next_va
        rank = self.engine.stream
        sips, first = (spec.system.sips.count, 0) if rank == HOST else (1, rank)
        for part in place_shards(extents, dp, sips, cubes, spec.cube.pes):
            nbytes, box = nbytes_of(part.shape, dtype), (part.origin, part.shape)
            places = [(sip + first, cube, pe) for sip, cube, pe in part.places]
            copies = tuple((place, self._take(place, nbytes, name)) for place in places)
            self.engine.sim.pages.add(Mapping(va, nbytes, name, copies))
            for place, addr in copies:
                at = ("hbm", addr, va, nbytes, self.engine.graph.at(*place, "pe_cpu"))
                shards.append(
                    Shard(name, dtype, *at, *box, self.engine.next_cmd, len(shards))
                )
            va += nbytes
        self._next_va = -(-va // _PAGE) * _PAGE + _PAGE
        if self.engine.recorder is not None:
            for shard in shards:
                self.engine.recorder.alloc(shard)
        return Tensor(self, name, extents, dtype, shards)

    def _of_rank(self, name: str) -> str:
        return (
            name if self.engine.stream == HOST else f"rank{self.engine.stream}.{name}"
        )

    def _take(self, place: Place, nbytes: int, name: str) -> int:
        """A physical range in the HBM slice of a PE; not reused within a run."""
        sip, cube, pe = place
        memory = self.engine.graph.spec.cube.memory_map
        slice_bytes, used = memory.slice_bytes, self._hbm_used.get(place, 0)
        left = slice_bytes - used - self.engine.sim.reserved["hbm", sip, cube, pe]
        if nbytes > left:
            raise UsageError(
                f"tensor {name!r}: {nbytes} bytes do not fit the HBM slice of sip {sip} cube "
                f"{cube} pe {pe}: {left} of {slice_bytes} bytes are left"
            )
        self._hbm_used[place] = used + -(-nbytes // _LINE) * _LINE
        return PhysAddr.pe_hbm_addr(sip, cube, pe, used, slice_bytes).encode()

    def _write(self, tensor: Tensor, array: npt.NDArray[Any]) -> None:
        boxes = {shard.origin: _box(shard) for shard in tensor.shards}
        parts = {
            origin: np.ascontiguousarray(array[box]) for origin, box in boxes.items()
        }
        messages = [
            HostWriteCmd(dst=_region(s), data=parts[s.origin]) for s in tensor.shards
        ]
        writes = [(self.engine.place_of(msg.dst.addr), msg) for msg in messages]
        self.engine.host_write(writes, self.engine.sim.sites.here())

    def _fetch(self, tensor: Tensor) -> npt.NDArray[Any]:
        if self.engine.op_logger is None:
            raise UsageError(
                f"{tensor.name}.numpy() needs the op log, which is off in this run"
            )
        self.multiprocessing.drain()
        self._flush()
        whole = np.empty(tensor.shape, np_dtype(tensor.dtype))
        reads = []
        for shard in {
            shard.origin: shard for shard in reversed(tensor.shards)
        }.values():
            r = _region(shard)
            whole[_box(shard)] = self._phase2.store.view(
                r.space, r.addr, r.shape, r.dtype
            )
            reads.append((self.engine.place_of(r.addr), HostReadCmd(src=r)))
        self.engine.host_read(reads, self.engine.sim.sites.here())
        self.multiprocessing.drain()
        return whole

    def _flush(self) -> None:
        """Phase 2 up to now; what was pending in the Phase 1 store is ready afterwards."""
        log = self.engine.op_log
        self._phase2.extend(log[self._phase2.position :])
        self._phase2.run()
        for space, addr, nbytes in self.engine.pending.ranges():
            if space != "hbm" and self.engine.is_busy():
                continue  # of a kernel that waits for another rank: its compute has yet to come
            data = self._phase2.store.view(space, addr, (nbytes,), "u8")
            self.engine.store.patch(space, addr, data)
            self.engine.pending.clear(space, addr, nbytes)


def _box(shard: Shard) -> tuple[slice, ...]:
    return tuple(
        slice(at, at + n) for at, n in zip(shard.origin, shard.shape, strict=True)
    )


def _region(shard: Shard) -> Region:
    return Region(shard.space, shard.addr, shard.shape, shard.dtype, shard.nbytes)
