"""Blocks of matrices that the DMA stages of a tile move, and the params that say so.

Owns the form of ``spaces, addrs, sizes, rows, row_bytes, pitch`` of a stage. Each is a
list with an item for each block. The last three are there only if some block is not
contiguous. ``block_rows`` of sim_engine/accesses.py reads them back.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kernbench.common.rows import Rows


class Block(NamedTuple):
    """What tiles of one extent read or write of a matrix: the rows in which it lies.

    ``where`` are those of the tile at the origin, and ``steps`` how many bytes they lie
    further on for each index along m, n and k that a tile begins behind it. ``nbytes``
    are the bytes of all rows.
    """

    space: str
    where: Rows
    nbytes: int
    steps: tuple[int, int, int]


def params_of_blocks(blocks: Sequence[Block]) -> dict[str, Any]:
    """The blocks that a DMA stage moves, at least one, as its record has them.

    Their addresses are those of the tile at the origin.
    """
    spaces, wheres, sizes, _ = zip(*blocks, strict=True)
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
