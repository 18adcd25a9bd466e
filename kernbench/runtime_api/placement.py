"""Where the shards of a tensor lie: ``DPPolicy`` and the split by ceiling."""

from __future__ import annotations

from dataclasses import dataclass

from kernbench.errors import UsageError

Place = tuple[int, int, int]  # sip, cube, pe
POLICIES = ("replicate", "row_wise", "column_wise")


@dataclass(frozen=True, slots=True)
class DPPolicy:
    """How a tensor is laid over the machine: ``cube`` over cubes (of all SIPs, sip-major), ``pe``
    over a cube's PEs.

    Each is "replicate", "row_wise" (axis 0) or "column_wise" (the last axis); ``num_cubes`` and
    ``num_pes`` take the first so many, None all. A size that does not divide is split by ceiling:
    the last shard is shorter, or empty, and a PE without a shard stays idle.
    """

    cube: str = "replicate"
    pe: str = "replicate"
    num_cubes: int | None = None
    num_pes: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("cube", self.cube), ("pe", self.pe)):
            if value not in POLICIES:
                raise UsageError(f"DPPolicy {name}={value!r}; valid: {', '.join(POLICIES)}")


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

    ``cubes`` are those of a SIP, ``pes`` those of a cube. UsageError if the policy asks for more
    than there are.
    """
    used_cubes = _count("num_cubes", dp.num_cubes, sips * cubes)
    used_pes = _count("num_pes", dp.num_pes, pes)
    whole = (tuple(0 for _ in shape), shape)
    shards: list[Placed] = []
    by_cube = _split(whole, dp.cube, used_cubes)
    for cube_index, cube_box in enumerate(by_cube):
        owners = range(used_cubes) if dp.cube == "replicate" else [cube_index]
        for pe_index, (origin, extents) in enumerate(_split(cube_box, dp.pe, used_pes)):
            local = range(used_pes) if dp.pe == "replicate" else [pe_index]
            places = tuple((c // cubes, c % cubes, p) for c in owners for p in local)
            if min(extents, default=1) > 0:
                shards.append(Placed(origin, extents, places))
    return shards


_Box = tuple[tuple[int, ...], tuple[int, ...]]


def _split(box: _Box, policy: str, count: int) -> list[_Box]:
    """A box cut in ``count`` by ceiling along the axis of the policy; itself if replicated."""
    origin, shape = box
    if policy == "replicate":
        return [box]
    if not shape:
        raise UsageError(f"a tensor without axes cannot be split {policy}; use replicate")
    axis = 0 if policy == "row_wise" else len(shape) - 1
    step = -(-shape[axis] // count)
    boxes = []
    for i in range(count):
        low = min(i * step, shape[axis])
        extent = min(step, shape[axis] - low)
        at = (*origin[:axis], origin[axis] + low, *origin[axis + 1 :])
        boxes.append((at, (*shape[:axis], extent, *shape[axis + 1 :])))
    return boxes


def _count(name: str, asked: int | None, limit: int) -> int:
    if asked is None:
        return limit
    if not 1 <= asked <= limit:
        raise UsageError(f"DPPolicy {name}={asked}; this machine has 1 to {limit}")
    return asked
