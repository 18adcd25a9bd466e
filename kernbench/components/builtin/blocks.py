"""Blocks of matrices that the DMA stages of a tile move, and the params that say so.

Owns the form of ``spaces, addrs, sizes, rows, row_bytes, pitch`` of a stage. Each is a
list with an item for each block. The last three are there only if some block is not
contiguous. ``block_rows`` of sim_engine/accesses.py reads them back.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kernbench.common.rows import Rows


class Block(NamedTuple):
    """A piece of a memory that a tile reads or writes: the rows in which it lies.

    ``nbytes`` are the bytes of all its rows.
    """

    space: str
    where: Rows
    nbytes: int


def params_of_blocks(blocks: Sequence[Block]) -> dict[str, Any]:
    """The blocks that a DMA stage moves, at least one, as its record has them."""
    spaces, wheres, sizes = zip(*blocks, strict=True)
    addrs, rows, row_bytes, pitch, _ = zip(*wheres, strict=True)
    params: dict[str, Any] = {
        "spaces": list(spaces),
        "addrs": list(addrs),
        "sizes": list(sizes),
    }
    if max(rows) > 1:
        params["rows"] = list(rows)
        params["row_bytes"] = list(row_bytes)
        params["pitch"] = list(pitch)
    return params
