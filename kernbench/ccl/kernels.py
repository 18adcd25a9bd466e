"""What the all-reduce kernels share: arguments, lanes, and what peers exchange.

Arguments are those of ADR-0032 D7.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kernbench.ccl.topologies import SIP_TOPO_MESH, TOPO_NAME_TO_KIND
from kernbench.errors import KernelError

OPS = {"sum": "add", "max": "maximum", "min": "minimum"}
"""The operators, each with the ``tl`` call that applies it."""


class Lane(NamedTuple):
    """A place on a line or ring of ``size`` places.

    ``ahead`` and ``back`` are the directions of its neighbours, None past an end.
    """

    size: int
    place: int
    ahead: str | None
    back: str | None
    ring: bool = False

    @classmethod
    def of(
        cls, size: int, place: int, ahead: str, back: str, ring: bool = False
    ) -> Lane:
        """A lane whose ways are cut where a line ends."""
        has_next = ring or place < size - 1
        has_previous = ring or place > 0
        return cls(
            size,
            place,
            ahead if has_next else None,
            back if has_previous else None,
            ring,
        )


class Lanes(NamedTuple):
    """Where a kernel runs: in its row and column of cubes, and of SIPs."""

    row: Lane
    col: Lane
    sip_row: Lane
    sip_col: Lane


@dataclass(frozen=True, slots=True)
class Peers:
    """Exchange with the neighbours; where a way is None nothing is done.

    ``combine`` is the ``tl`` call of the operator.
    """

    tl: Any
    combine: Callable[..., Any]

    def slot_bytes(self, way: str) -> int:
        """Bytes of a slot of the rings that lead to and from the neighbour.

        A ``tl`` that has no rings carries any payload whole.
        """
        size_of = getattr(type(self.tl), "slot_bytes", None)
        return sys.maxsize if size_of is None else size_of(self.tl, way)

    def merge(self, way: str | None, mine: Any) -> None:
        """Combine what comes with ``mine``, in place."""
        if way is not None:
            with self.tl.scope():
                self.combine(mine, self.tl.recv(way, mine.shape, mine.dtype), out=mine)

    def take(self, way: str | None, mine: Any) -> None:
        """Put what comes in the place of ``mine``."""
        if way is not None:
            self.tl.recv(way, mine.shape, mine.dtype, out=mine)

    def give(self, way: str | None, mine: Any) -> None:
        """Queue ``mine`` and go on; what would overwrite it waits until it is read."""
        if way is not None:
            self.tl.send(way, mine, wait=False)


def kernel_args(
    world_size: int, n_elem: int, cube_w: int = 4, cube_h: int = 4
) -> tuple[int, int, int, int]:
    """The scalar arguments of a kernel for a tensor of ``n_elem`` elements a cube."""
    return n_elem, cube_w, cube_h, world_size


def all_reduce_kernel(
    exchange: Callable[[Peers, Any, int, Lanes], None],
) -> Callable[..., None]:
    """A kernel of D7's signature: load a cube's row, ``exchange`` it, store it.

    ``exchange`` works in place; it is given the peers, the row, the kind of SIP
    topology and the lanes.
    """

    def kernel(
        t_ptr: Any,
        n_elem: int,
        cube_w: int,
        cube_h: int,
        n_sips: int,
        sip_rank: int,
        sip_topo_kind: int,
        sip_topo_w: int,
        sip_topo_h: int,
        tl: Any,
        *,
        op: str = "sum",
    ) -> None:
        """Reduce every cube's row of a SIP's (cubes, n_elem) tensor with all others.

        Each row holds the result afterwards. KernelError for an unknown ``op``, and for
        a topology that does not fit the number of SIPs.
        """
        if op not in OPS:
            raise KernelError(f"all-reduce: unknown op {op!r}; valid: {', '.join(OPS)}")
        known = sip_topo_kind in TOPO_NAME_TO_KIND.values()
        if not known or sip_topo_w * sip_topo_h != n_sips:
            raise KernelError(
                f"all-reduce: topology {sip_topo_kind} of {sip_topo_w} x {sip_topo_h} "
                f"= {n_sips} SIPs does not exist; valid: {TOPO_NAME_TO_KIND}, "
                "and a product that holds"
            )
        if tl.program_id(0) != 0:
            return
        cube = tl.program_id(1)
        row, col = divmod(cube, cube_w)
        sip_row, sip_col = divmod(sip_rank, sip_topo_w)
        ring = sip_topo_kind != SIP_TOPO_MESH
        lanes = Lanes(
            row=Lane.of(cube_w, col, "E", "W"),
            col=Lane.of(cube_h, row, "S", "N"),
            sip_row=Lane.of(sip_topo_w, sip_col, "global_E", "global_W", ring),
            sip_col=Lane.of(sip_topo_h, sip_row, "global_S", "global_N", ring),
        )
        peers = Peers(tl, getattr(tl, OPS[op]))
        shard = t_ptr + cube * n_elem * t_ptr.itemsize
        acc = tl.load(shard, (n_elem,), t_ptr.dtype)
        exchange(peers, acc, sip_topo_kind, lanes)
        tl.store(shard, acc)

    return kernel
