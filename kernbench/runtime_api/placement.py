"""Where the shards of a tensor lie: ``DPPolicy`` and the split by ceiling."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kernbench.errors import UsageError
from kernbench.topology.graph import Place

POLICIES = ("replicate", "row_wise", "column_wise")


@dataclass(frozen=True, slots=True)
class DPPolicy:
    """How a tensor lies: ``cube`` over cubes, ``pe`` over a cube's PEs.

    The cubes are those of all SIPs, sip-major; in a spawned rank those of its own. Each
    is "replicate", "row_wise" (axis 0) or "column_wise" (the last axis). ``num_cubes``
    and ``num_pes`` take the first so many; None takes all. A size that does not divide
    is split by ceiling: the last shard is shorter, or empty, and a PE without a shard
    has nothing to do. UsageError for another policy.
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


class _Box(NamedTuple):
    """A part of a tensor, in elements of the whole."""

    origin: tuple[int, ...]
    shape: tuple[int, ...]


class _Part(NamedTuple):
    """A box, and the numbers of those who hold a copy of it."""

    owners: Sequence[int]
    box: _Box


def place_shards(
    shape: tuple[int, ...], dp: DPPolicy, sips: int, cubes: int, pes: int
) -> list[Placed]:
    """The non-empty shards of a tensor in virtual-address order: by cube, then by PE.

    ``cubes`` are those of a SIP, ``pes`` those of a cube. UsageError if there are fewer
    of them than the policy wants, or if a tensor without axes is to be split.
    """
    used_cubes = _used("num_cubes", dp.num_cubes, sips * cubes)
    used_pes = _used("num_pes", dp.num_pes, pes)
    whole = _Box(tuple(0 for _ in shape), shape)
    shards: list[Placed] = []
    for of_cubes in _split(whole, dp.cube, used_cubes):
        for of_pes in _split(of_cubes.box, dp.pe, used_pes):
            places = tuple(
                (*divmod(cube, cubes), pe)
                for cube in of_cubes.owners
                for pe in of_pes.owners
            )
            shards.append(Placed(of_pes.box.origin, of_pes.box.shape, places))
    return shards


def _split(box: _Box, policy: str, count: int) -> Iterator[_Part]:
    """A box cut by ceiling for ``count`` owners; empty parts are left out."""
    if policy == "replicate":
        yield _Part(range(count), box)
        return
    if not box.shape:
        raise UsageError(
            f"a tensor without axes cannot be split {policy}; use replicate"
        )
    axis = 0 if policy == "row_wise" else len(box.shape) - 1
    extent = box.shape[axis]
    step = -(-extent // count)
    for owner, low in enumerate(range(0, extent, step)):
        origin = list(box.origin)
        shape = list(box.shape)
        origin[axis] += low
        shape[axis] = min(step, extent - low)
        yield _Part([owner], _Box(tuple(origin), tuple(shape)))


def _used(name: str, asked: int | None, limit: int) -> int:
    """How many cubes or PEs take part, of ``limit``; UsageError if it is too few."""
    if asked is None:
        return limit
    if not 1 <= asked <= limit:
        raise UsageError(f"DPPolicy {name}={asked}; this machine has 1 to {limit}")
    return asked
