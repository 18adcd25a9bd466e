"""The host's side of a bench: tensors on the machine, launches, expected results.

``tensor.numpy()`` and ``expect`` are barriers: they drain the simulation, and Phase 2
runs up to then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, signature
from math import inf
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.ccl.config import CclSpec
from kernbench.common.arrays import Array
from kernbench.common.dtypes import (
    Tolerance,
    dtype_name,
    is_dtype_name,
    name_of,
    np_dtype,
)
from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.from_triton import WORDS, instead_of
from kernbench.common.messages import HostReadCmd, HostWriteCmd, Region
from kernbench.common.pointers import TensorPtr
from kernbench.common.source_names import code_of, shown_name, working_folder
from kernbench.errors import UsageError, VerificationError
from kernbench.runtime_api.allocation import Allocator
from kernbench.runtime_api.distributed import Distributed
from kernbench.runtime_api.multiprocessing import Multiprocessing
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.tensor import Tensor
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import HOST, GraphEngine
from kernbench.sim_engine.event_log import Shard
from kernbench.sim_engine.expected import unused
from kernbench.sim_engine.numpy_ops import NUMPY_OPS
from kernbench.sim_engine.verify import (
    Expectation,
    as_stored,
    lost_numbers,
    rounded,
)

__all__ = ["Tensor", "TensorPtr", "Torch"]

_NAME = re.compile(r"(?!h\d+\.\d+$|ipcq\.)[^\s\[\]@]+")
"""What the debugger takes for the name of a tensor, and for nothing else."""

Dp: TypeAlias = DPPolicy | None
Name: TypeAlias = str | None
Shape: TypeAlias = Sequence[int]


class Torch:
    """What a bench's ``run(torch)`` is given.

    ``engine`` is the machine, ``rng`` a numpy generator with the run's seed. Lines in
    ``notes`` are printed with the results. ``ops`` is the table that Phase 2 executes
    with: NUMPY_OPS, and what the bench puts into it; ``blank`` is the memory that Phase
    2 starts from, in which nothing has been written yet. ``has_data`` says whether the
    op log holds what the host wrote, which ``tensor.numpy()`` needs.

    In a spawned rank tensors lie in its SIP, and their names begin with that of the
    rank: ``rank1.x``.
    """

    def __init__(
        self,
        engine: GraphEngine,
        seed: int = 0,
        ccl: CclSpec | None = None,
        has_data: bool = True,
    ) -> None:
        self.engine = engine
        self.has_data = has_data
        self.multiprocessing = Multiprocessing(engine)
        self.distributed = Distributed(engine, self.multiprocessing, self.launch, ccl)
        self.notes: list[str] = []
        self.rng = np.random.default_rng(seed)
        self.expectations: dict[str, Expectation] = {}
        self.blank = engine.store.snapshot()
        self.ops = dict(NUMPY_OPS)
        self._names: set[str] = set()
        self._allocator = Allocator(engine)
        self._phase2 = DataExecutor(
            [],
            self.blank.snapshot(),
            self.ops,
            as_logged=False,
            issued_at=engine.line_of,
        )

    def __getattr__(self, name: str) -> str:
        """Our name of a dtype, by that of torch; AttributeError for another name."""
        if is_dtype_name(name):
            return dtype_name(name)
        known = [word for word in dir(type(self)) if not word.startswith("_")]
        raise AttributeError(f"torch has no {name!r}{instead_of(name, known)}")

    def tensor(
        self,
        data: npt.ArrayLike,
        dtype: str | None = None,
        dp: Dp = None,
        name: Name = None,
    ) -> Tensor:
        """Copy host data to the machine, rounded to ``dtype``; None: that of the data.

        What the dtype has not, as 70,000 in f16, is told in the notes of the results.
        UsageError for a dtype that we do not have, and as for ``empty``.
        """
        given = np.asarray(data)
        stored_as = dtype_name(dtype or given.dtype)
        array = rounded(given, stored_as)
        array.flags.writeable = False
        tensor = self._allocate(array.shape, name_of(array.dtype), dp, name)
        lost = lost_numbers(f"tensor {tensor.name!r}", given, array, stored_as)
        if lost:
            self.notes.append(lost)
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
        data = np.broadcast_to(np.asarray(value), tuple(shape))
        return self.tensor(data, dtype, dp, name)

    def zeros(
        self, shape: Shape, dtype: str = "f16", dp: Dp = None, name: Name = None
    ) -> Tensor:
        """A tensor of zeros."""
        return self.full(shape, 0, dtype, dp, name)

    def empty(
        self, shape: Shape, dtype: str = "f16", dp: Dp = None, name: Name = None
    ) -> Tensor:
        """Memory that nothing has been written to: no host transfer.

        UsageError for a name that is taken or means something else, an extent below 1,
        a dtype or a policy that there is not, and where it does not fit.
        """
        return self._allocate(tuple(shape), dtype, dp, name)

    def launch(
        self, name: str, kernel: Callable[..., None], /, *args: Any, **options: Any
    ) -> None:
        """Run ``kernel(*args, **options, tl=…)`` on every PE with a shard of each
        tensor among them.

        Tensors become pointers, the rest stays. It starts when all before it has ended.
        UsageError if there is no such PE, and for arguments that the kernel does not
        take.
        """
        given = [*args, *options.values()]
        tensors = [arg for arg in given if isinstance(arg, Tensor)]
        if not tensors:
            raise UsageError(
                f"launch {name!r}: no tensor among its arguments, so no PE to run on"
            )
        _check_arguments(name, kernel, args, options)
        holders = []
        for tensor in tensors:
            places = {self.engine.place_of(shard.addr) for shard in tensor.shards}
            holders.append(places)
        pes = sorted(set.intersection(*holders))
        if not pes:
            names = ", ".join(tensor.name for tensor in tensors)
            raise UsageError(
                f"launch {name!r}: no PE holds a shard of each of {names}; "
                "align their DPPolicy"
            )
        site = self.engine.sim.sites.here()
        values = tuple(map(_as_argument, args))
        named = {key: _as_argument(value) for key, value in options.items()}
        self.engine.launch(name, kernel, values, pes, site, named)

    def expect(
        self,
        tensor: Tensor,
        reference: npt.ArrayLike,
        name: str | None = None,
        rtol: float | None = None,
        atol: float | None = None,
    ) -> None:
        """State what ``tensor`` holds now, as a barrier.

        All its copies are judged against ``reference`` rounded to its dtype, by default
        with the tolerances of ADR-0020 D11. VerificationError for a reference of
        another shape, or with a number that an integer dtype has not, for a tolerance
        that is none, and for a name that is taken.
        """
        name = self._of_rank(name) if name else tensor.name
        whole = np.asarray(reference)
        if whole.shape != tensor.shape:
            raise VerificationError(
                f"expect {name!r}: the reference has shape {whole.shape}, "
                f"the tensor {tensor.shape}"
            )
        if any(known.tensor == name for known in self.expectations.values()):
            raise VerificationError(
                f"expect {name!r}: the name is taken; give another with name=…"
            )
        tolerance = dtype_row(tensor.dtype).tolerance
        if rtol is not None:
            tolerance = replace(tolerance, rtol=rtol)
        if atol is not None:
            tolerance = replace(tolerance, atol=atol)
        for which, bound in (("rtol", tolerance.rtol), ("atol", tolerance.atol)):
            if not 0 <= bound < inf:
                raise VerificationError(
                    f"expect {name!r}: {which}={bound}: must be 0 or more, and finite"
                )
        given = whole
        whole = as_stored(name, given, tensor.dtype)
        lost = lost_numbers(f"expect {name!r}", given, whole, tensor.dtype)
        if lost:
            self.notes.append(f"{lost}; an output that overflows is right there")
        self.multiprocessing.drain()
        for shard in tensor.shards:
            key = name if len(tensor.shards) == 1 else f"{name}.{shard.index}"
            free = unused(key, self.expectations)
            self._expect_shard(free, name, shard, whole, tolerance)

    def _expect_shard(
        self, key: str, name: str, shard: Shard, whole: Array, tolerance: Tolerance
    ) -> None:
        """State what one shard, or one copy of it, holds after the ops so far."""
        engine = self.engine
        after = 0
        if engine.op_logger is not None:
            after = engine.op_logger.rows
        array = np.asarray(whole[_box(shard)], order="C")
        self.expectations[key] = Expectation(
            space=shard.space,
            addr=shard.addr,
            array=array,
            dtype=shard.dtype,
            tolerance=tolerance,
            after=after,
            tensor=name,
            shard=shard.index,
            origin=shard.origin,
        )
        if engine.recorder is not None:
            engine.recorder.expect(name, shard, array, tolerance, after)

    def _allocate(
        self, shape: tuple[int, ...], dtype: str, dp: Dp, name: Name
    ) -> Tensor:
        """A tensor of memory that nothing has been written to; errors as ``empty``."""
        if name is None:
            name = f"t{len(self._names)}"
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"tensor name {name!r}: it could mean an element (x[0]), a copy "
                "(x@NODE), bytes (hbm 0x40), a handle (h0.1) or a ring (ipcq.0.E); use "
                "letters, digits, _, - and . alone, and no such name"
            )
        name = self._of_rank(name)
        if name in self._names:
            raise UsageError(f"a tensor named {name!r} exists; give another name=…")
        self._names.add(name)
        extents = tuple(int(extent) for extent in shape)
        if min(extents, default=1) < 1:
            raise UsageError(f"tensor {name!r}: shape {extents} has an extent below 1")
        dtype = dtype_name(dtype)
        policy = dp or DPPolicy(num_cubes=1, num_pes=1)
        shards = self._allocator.shards(name, extents, dtype, policy)
        self.engine.tensors[name] = shards
        return Tensor(name, extents, dtype, shards, self._fetch)

    def _of_rank(self, name: str) -> str:
        """The name of a tensor of whoever calls: a rank's begins with the rank's."""
        rank = self.engine.stream
        return name if rank == HOST else f"rank{rank}.{name}"

    def _write(self, tensor: Tensor, array: Array) -> None:
        """Write host data to all copies of a tensor's shards; copies share an array."""
        parts: dict[tuple[int, ...], Array] = {}
        writes = []
        for shard in tensor.shards:
            if shard.origin not in parts:
                parts[shard.origin] = np.asarray(array[_box(shard)], order="C")
            command = HostWriteCmd(dst=_region(shard), data=parts[shard.origin])
            writes.append((self.engine.place_of(shard.addr), command))
        self.engine.host_write(writes, self.engine.sim.sites.here())

    def _fetch(self, tensor: Tensor) -> Array:
        """The data of a tensor after all that was asked for; of a replica the first."""
        if self.engine.op_logger is None:
            raise UsageError(
                f"{tensor.name}.numpy() needs the op log, which is off in this run"
            )
        if not self.has_data:
            raise UsageError(
                f"{tensor.name}.numpy() needs data that --no-data leaves out of the "
                "trace; leave out --no-data, or --trace"
            )
        self.multiprocessing.drain()
        self._flush()
        whole = np.empty(tensor.shape, np_dtype(tensor.dtype))
        first_copies: dict[tuple[int, ...], Shard] = {}
        for shard in tensor.shards:
            first_copies.setdefault(shard.origin, shard)
        reads = []
        # The last shard comes first: a trace holds the reads in this order.
        for shard in reversed(first_copies.values()):
            region = _region(shard)
            whole[_box(shard)] = self._phase2.store.view(
                region.space, region.addr, region.shape, region.dtype
            )
            reads.append((self.engine.place_of(shard.addr), HostReadCmd(src=region)))
        self.engine.host_read(reads, self.engine.sim.sites.here())
        self.multiprocessing.drain()
        return whole

    def _flush(self) -> None:
        """Run Phase 2 up to now; what was pending in the Phase 1 store is ready."""
        log = self.engine.op_log
        self._phase2.extend(log[self._phase2.position :])
        self._phase2.run()
        for space, addr, nbytes in self.engine.pending.ranges():
            if space != "hbm" and self.engine.is_busy():
                # Of a kernel that waits for another rank: its compute has yet to come.
                continue
            data = self._phase2.store.view(space, addr, (nbytes,), "u8")
            self.engine.store.patch(space, addr, data)
            self.engine.pending.clear(space, addr, nbytes)


def _check_arguments(
    name: str,
    kernel: Callable[..., None],
    args: tuple[Any, ...],
    options: Mapping[str, Any],
) -> None:
    """Raise UsageError for arguments that a kernel does not take."""
    if not callable(kernel):
        raise UsageError(f"launch {name!r}: {kernel!r} is no kernel; give a function")
    try:
        of_kernel = signature(kernel)
    except ValueError:
        return
    parameters = of_kernel.parameters
    takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())
    if "tl" not in parameters and not takes_any:
        return  # it fails as it is called, which names its line
    try:
        of_kernel.bind(*args, **options, tl=None)
    except TypeError as error:
        problem = f"launch {name!r}: {error}"
        for option in options:
            if option not in parameters and option in WORDS:
                problem = f"launch {name!r}: {option}: {WORDS[option]}"
        shown = ", ".join(parameters)
        raise UsageError(
            f"{problem}; the kernel takes ({shown}){_line_of(kernel)}"
        ) from error


def _line_of(kernel: Callable[..., None]) -> str:
    """Where a kernel is written, as the end of an error; "" of one without a line."""
    code = code_of(kernel)
    if code is None:
        return ""
    name = shown_name(code.co_filename, working_folder()) or code.co_filename
    return f" at {name}:{code.co_firstlineno}"


def _as_argument(given: Any) -> Any:
    """What a kernel is given: of a tensor its pointer."""
    return given.ptr if isinstance(given, Tensor) else given


def _box(shard: Shard) -> tuple[slice, ...]:
    """Where a shard lies in the whole tensor, as an index."""
    ranges = zip(shard.origin, shard.shape, strict=True)
    return tuple(slice(low, low + extent) for low, extent in ranges)


def _region(shard: Shard) -> Region:
    return Region(shard.space, shard.addr, shard.shape, shard.dtype, shard.nbytes)
