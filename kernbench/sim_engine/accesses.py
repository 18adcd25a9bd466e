"""What an op reads and writes: the only definition (architecture.md, Interfaces 5).

Knows the params of ADR-0052 D3 and nothing else. TileTokens and unknown kinds touch nothing: the
bytes of a tile are its composite's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kernbench.common.dtypes import nbytes_of
from kernbench.common.messages import Region
from kernbench.sim_engine.op_log import OpRecord


class Access(NamedTuple):
    """Contiguous bytes of one memory at a physical address; ``mode`` is "r" or "w"."""

    mode: str
    space: str
    addr: int
    nbytes: int


class Regions(NamedTuple):
    """The operands of an op in the order in which it takes them, and what it writes."""

    reads: tuple[Region, ...]
    write: Region | None


def _region(space: str, addr: int, shape: tuple[int, ...], dtype: str) -> Region:
    shape = tuple(shape)
    return Region(space, addr, shape, dtype, nbytes_of(shape, dtype))


def _listed(p: dict[str, Any], prefix: str) -> tuple[Region, ...]:
    columns = (p[f"{prefix}_{name}"] for name in ("spaces", "addrs", "shapes", "dtypes"))
    return tuple(_region(*row) for row in zip(*columns, strict=True))


def _memory(p: dict[str, Any]) -> Regions:
    """Source and destination: a host_write has no source, a host_read no destination."""
    src, dst = (
        Region(p[f"{end}_space"], p[f"{end}_addr"], tuple(p["shape"]), p["dtype"], p["nbytes"])
        if f"{end}_space" in p
        else None
        for end in ("src", "dst")
    )
    return Regions(() if src is None else (src,), dst)


def _gemm(p: dict[str, Any]) -> Regions:
    """Operands a and b, the accumulator (of out's dtype) where there is one, the epilogue's."""
    dtype_in, dtype_out = p["dtype_in"], p["dtype_out"]
    reads = [
        _region(p["src_a_space"], p["src_a_addr"], p["shape_a"], dtype_in),
        _region(p["src_b_space"], p["src_b_addr"], p["shape_b"], dtype_in),
    ]
    if "src_acc_addr" in p:
        reads.append(_region(p["src_acc_space"], p["src_acc_addr"], p["shape_out"], dtype_out))
    if "epilogue" in p:
        reads += _listed(p, "epilogue")
    return Regions(tuple(reads), _region(p["dst_space"], p["dst_addr"], p["shape_out"], dtype_out))


def _math(p: dict[str, Any]) -> Regions:
    out = _region(p["dst_space"], p["dst_addr"], p["shape_out"], p["dtype"])
    return Regions(_listed(p, "input"), out)


_BY_KIND: dict[str, Callable[[dict[str, Any]], Regions]] = {
    "memory": _memory,
    "gemm": _gemm,
    "math": _math,
}


def regions(record: OpRecord) -> Regions:
    """Operands and output of ``record`` as tensors; none for kinds that are never executed."""
    read = _BY_KIND.get(record.op_kind)
    return read(record.params) if read is not None else Regions((), None)


def accesses(record: OpRecord) -> list[Access]:
    """Every range of bytes that ``record`` touches, reads first; empty ranges are left out."""
    reads, write = regions(record)
    touched = [Access("r", r.space, r.addr, r.nbytes) for r in reads if r.nbytes]
    if write is not None and write.nbytes:
        touched.append(Access("w", write.space, write.addr, write.nbytes))
    return touched
