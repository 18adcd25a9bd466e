"""Where the shards of a tensor lie: ``DPPolicy`` and the split by ceiling."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernbench.errors import UsageError
from kernbench.topology.graph import Place

_Box = tuple[tuple[int, ...], tuple[int, ...]]  # origin, shape
POLICIES = ("replicate", "row_wise", "column_wise")


@dataclass(frozen=True, slots=True)
class DPPolicy:
    """How a tensor lies: ``cube`` over cubes, ``pe`` over a cube's PEs.

    The cubes are those of all SIPs, sip-major; in a spawned rank those of its own. Each is
    "replicate", "row_wise" (axis 0) or "column_wise" (the last axis); ``num_cubes`` and ``num_pes``
    take the first so many, None all. A size that does not divide is split by ceiling: the last
    shard is shorter, or empty, and a PE without a shard stays idle.
    """

    cube: str = "replicate"
    pe: str = "replicate"
    num_cubes: int | None = None
    num_pes: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("cube", self.cube), ("pe", self.pe)):
            if value not in POLICIES:
                raise UsageError(
                    f"DPPolicy {name}={value!r}; valid: {', '.join(POLICIES)}"
                )


@dataclass(frozen=True, slots=True)
class Placed:
    """One shard: its box in the whole tensor, and the PEs that hold a copy of it."""

    origin: tuple[int, ...]
    shape: tuple[int, ...]
    places: tuple[Place, ...]


def place_shards(
    shape: tuple[int, ...], dp: DPPolicy, sips: int, cubes: int, pes: int
) -> list[Placed]:
    """The non-empty shards of a tensor in virtual-address order: by cube, then by PE.

    ``cubes`` are those of a SIP, ``pes`` those of a cube. UsageError if there are too few.
    """
    used_cubes = _count("num_cubes", dp.num_cubes, sips * cubes)
    used_pes = _count("num_pes", dp.num_pes, pes)
    shards: list[Placed] = []
    for owners, box in _split((tuple(0 for _ in shape), shape), dp.cube, used_cubes):
        for local, (origin, extents) in _split(box, dp.pe, used_pes):
            places = tuple((c // cubes, c % cubes, p) for c in owners for p in local)
            shards.append(Placed(origin, extents, places))
    return shards


def _split(box: _Box, policy: str, count: int) -> Iterator[tuple[Sequence[int], _Box]]:
    """(owners, part) of a box cut by ceiling for ``count`` owners; empty parts are left out."""
    origin, shape = box
    if policy == "replicate":
        yield range(count), box
        return
    if not shape:
        raise UsageError(
            f"a tensor without axes cannot be split {policy}; use replicate"
        )
    axis = 0 if policy == "row_wise" else len(shape) - 1
    step = -(-shape[axis] // count)
    for owner, low in enumerate(range(0, shape[axis], step)):
        at, extent = list(origin), list(shape)
        at[axis], extent[axis] = origin[axis] + low, min(step, shape[axis] - low)
        yield [owner], (tuple(at), tuple(extent))


def _count(name: str, asked: int | None, limit: int) -> int:
    if asked is None:
        return limit
    if not 1 <= asked <= limit:
        raise UsageError(f"DPPolicy {name}={asked}; this machine has 1 to {limit}")
    return asked
