"""What an op reads and writes: the only definition (architecture.md, Interfaces 5).

Knows the params of ADR-0052 D3 and nothing else. TileTokens and unknown kinds touch nothing: the
bytes of a tile are its composite's.
"""

from __future__ import annotations

from typing import NamedTuple

from kernbench.common.dtypes import nbytes_of
from kernbench.common.messages import Region
from kernbench.sim_engine.op_log import PLACES, OpRecord


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


# a host_write has no source, a host_read no destination, most gemms no accumulator
_OPTIONAL = ("src", "dst", "acc")
_LISTS = {"gemm": "epilogue", "math": "input"}


def _region(space: str, addr: int, shape: tuple[int, ...], dtype: str) -> Region:
    return Region(space, addr, tuple(shape), dtype, nbytes_of(shape, dtype))


def regions(record: OpRecord) -> Regions:
    """Operands and output of ``record`` as tensors; none for kinds that are never executed.

    Those of a gemm are a, b, the accumulator (of out's dtype) where there is one, the epilogue's.
    """
    p, kind = record.params, record.op_kind
    found = {
        name: _region(*(p[key] for key in keys[:4]))
        for name, keys in PLACES.get(kind, {}).items()
        if keys[0] in p or name not in _OPTIONAL
    }
    write = found.pop("out", None) or found.pop("dst", None)
    reads = list(found.values())
    if kind in _LISTS and (kind == "math" or "epilogue" in p):
        fields = ("spaces", "addrs", "shapes", "dtypes")
        columns = (p[f"{_LISTS[kind]}_{field}"] for field in fields)
        reads += [_region(*row) for row in zip(*columns, strict=True)]
    return Regions(tuple(reads), write)


def accesses(record: OpRecord) -> list[Access]:
    """Every range of bytes that ``record`` touches, reads first; empty ranges are left out."""
    reads, write = regions(record)
    touched = [("r", r) for r in reads] + ([("w", write)] if write is not None else [])
    return [Access(mode, r.space, r.addr, r.nbytes) for mode, r in touched if r.nbytes]
