"""What a log is to leave in memory, as a caller of ``DataExecutor.verify`` says it.

That may be plain arrays (ADR-0020 D10): of a name, of an address, or of the last output
of the log. Owns how their places and dtypes follow from a log; compares nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.common.arrays import Array
from kernbench.common.dtypes import dtype as dtype_row
from kernbench.common.dtypes import itemsize, name_of
from kernbench.common.messages import Region
from kernbench.errors import KernbenchError, VerificationError
from kernbench.sim_engine.accesses import regions
from kernbench.sim_engine.event_log import Shard
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import OpRecord
from kernbench.sim_engine.verify import Expectation, as_stored

Address: TypeAlias = tuple[str, int]
"""The space and the address of a tensor's first byte."""

Tensors: TypeAlias = Mapping[str, "Address | list[Shard]"]
"""Where tensors lie, by name: in one piece, or in shards."""

NO_TENSORS: Tensors = {}

Expected: TypeAlias = "npt.ArrayLike | Mapping[Any, Expectation | npt.ArrayLike]"
"""An array, or arrays and expectations by name or by address."""


def expectations(
    expected: Expected,
    records: Sequence[OpRecord],
    tensors: Tensors,
    initial: MemoryStore,
) -> dict[str, Expectation]:
    """What ``records`` are to leave behind, by name; ``initial`` was there before.

    An array alone is that of the last op that writes to HBM, or writes at all: of the
    tensor of ``tensors`` that it writes a shard of, or of what it writes. In a mapping
    the key of an array is its (space, address), or a name: one of ``tensors``, or the
    ``handle_id`` of a store. Arrays are judged after all records, with the tolerance of
    the dtype in which the log has written there (ADR-0020 D11).
    VerificationError for a name that is not known, for an array of another size, and
    for a number that an integer dtype has not.
    """
    if not isinstance(expected, Mapping):
        return _of_output(np.asarray(expected), records, tensors, initial)
    found = {}
    for key, value in expected.items():
        if isinstance(value, Expectation):
            found[key] = value
            continue
        array = np.asarray(value)
        if isinstance(key, tuple):
            space, addr = key
            found[f"{space} {addr:#x}"] = _at(key, array, records, initial)
            continue
        for name, stated in _of_name(key, array, records, tensors, initial).items():
            is_whole = name == key
            found[key if is_whole else unused(name, found, expected)] = stated
    return found


def unused(key: str, *taken: Container[Any]) -> str:
    """A key for an expectation that is not taken yet.

    The first shard of y is y.0, and so may be another tensor.
    """
    while any(key in keys for keys in taken):
        key = f"{key}'"
    return key


def _of_name(
    name: str,
    array: Array,
    records: Sequence[OpRecord],
    tensors: Tensors,
    initial: MemoryStore,
) -> dict[str, Expectation]:
    """What is expected of the tensor of a name: one expectation, or one a shard."""
    place = _place_of(name, records, tensors)
    if isinstance(place, tuple):
        return {name: _at(place, array, records, initial)}
    return _sharded(name, place, array, len(records))


def _of_output(
    array: Array,
    records: Sequence[OpRecord],
    tensors: Tensors,
    initial: MemoryStore,
) -> dict[str, Expectation]:
    """What is expected of the last output of a log.

    What the host has written is no output. VerificationError if there is none, or if it
    is of another size than ``array``.
    """
    written = []
    for record, write in _written(records):
        if record.op_name != "host_write":
            written.append(write)
    if not written:
        raise VerificationError("an array is expected of a log in which no op writes")
    in_hbm = [write for write in written if write.space == "hbm"]
    last = (in_hbm or written)[0]
    for name, held in tensors.items():
        if any(isinstance(x, Shard) and _is_in(last, x) for x in held):
            return _of_name(name, array, records, tensors, initial)
    if last.strided is not None:
        raise VerificationError(
            "an array is expected, but the last op writes rows with gaps between them "
            f"at {last.space} {last.addr:#x}; give a mapping from (space, address), or "
            "from a name of ``tensors``"
        )
    place = (last.space, last.addr)
    dtype = _dtype_at(place, array, records, initial)
    if array.size * itemsize(dtype) != last.nbytes:
        raise VerificationError(
            f"an array of shape {array.shape} is expected, but the last op writes "
            f"{last.nbytes} bytes at {last.space} {last.addr:#x}; give a mapping "
            "from (space, address), or from a name of ``tensors``"
        )
    return {"output": _at(place, array, records, initial)}


def _is_in(write: Region, shard: Shard) -> bool:
    """Whether what is written begins in a shard."""
    same_space = write.space == shard.space
    return same_space and shard.addr <= write.addr < shard.addr + shard.nbytes


def _place_of(
    name: str, records: Sequence[OpRecord], tensors: Tensors
) -> Address | list[Shard]:
    """Where the tensor of a name lies; VerificationError lists the names."""
    if name in tensors:
        return tensors[name]
    stores: dict[str, Address] = {}
    for record in records:
        if record.op_kind == "memory" and "dst_addr" in record.params:
            handle = record.params.get("handle_id")
            if record.op_name == "dma_write" and isinstance(handle, str):
                params = record.params
                stores[handle] = (params["dst_space"], params["dst_addr"])
    if name in stores:
        return stores[name]
    known = ", ".join([*tensors, *stores]) or "none"
    raise VerificationError(
        f"nobody knows where {name!r} lies; known are {known}; give the executor "
        "tensors={name: (space, address)}, or (space, address) as the key"
    )


def _at(
    place: Address, array: Array, records: Sequence[OpRecord], initial: MemoryStore
) -> Expectation:
    """What is expected from an address on."""
    dtype = _dtype_at(place, array, records, initial)
    space, addr = place
    tolerance = dtype_row(dtype).tolerance
    stored = as_stored(f"{space} {addr:#x}", array, dtype)
    return Expectation(space, addr, stored, dtype, tolerance, len(records))


def _sharded(
    name: str, shards: Sequence[Shard], array: Array, after: int
) -> dict[str, Expectation]:
    """What is expected of each shard, and each copy of one, of a tensor."""
    extents = [
        [low + n for low, n in zip(shard.origin, shard.shape, strict=True)]
        for shard in shards
    ]
    shape = tuple(map(max, zip(*extents, strict=True)))
    if array.shape != shape:
        raise VerificationError(
            f"{name}: an array of shape {array.shape} is expected of a tensor of "
            f"shape {shape}; give one of the tensor's own shape"
        )
    found = {}
    for number, (shard, end) in enumerate(zip(shards, extents, strict=True)):
        box = tuple(map(slice, shard.origin, end))
        key = name if len(shards) == 1 else f"{name}.{number}"
        found[key] = Expectation(
            space=shard.space,
            addr=shard.addr,
            array=as_stored(key, array[box], shard.dtype),
            dtype=shard.dtype,
            tolerance=dtype_row(shard.dtype).tolerance,
            after=after,
            tensor=name,
            shard=number,
            origin=tuple(shard.origin),
        )
    return found


def _dtype_at(
    place: Address, array: Array, records: Sequence[OpRecord], initial: MemoryStore
) -> str:
    """The dtype in which the log has last written there.

    A copy of bytes is of the dtype of what it copies. What the log has not written is
    of that in which it was there before, or else of that of ``array``.
    """
    space, addr = place
    for record, write in _written(records):
        offset = int(write.where.offsets(np.array([addr]))[0])
        if write.space != space or offset < 0:
            continue
        source = regions(record).reads[:1]
        if record.op_kind != "memory" or write.dtype != "u8" or not source:
            return write.dtype
        space = source[0].space
        addr = int(source[0].where.addresses(np.array([offset]))[0])
    before = initial.read(space, addr) if initial.has(space, addr) else array
    return name_of(before.dtype)


def _written(records: Sequence[OpRecord]) -> Iterator[tuple[OpRecord, Region]]:
    """The ops that write, each with what it writes, the last one first."""
    for record in reversed(records):
        try:
            write = regions(record).write
        except KernbenchError:  # one that cannot be executed
            continue
        if write is not None and write.nbytes:
            yield record, write
