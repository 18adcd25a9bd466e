"""``CopyIndex``: which copy of a tensor a name stands for, and which differ from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from kernbench.common.arrays import Array
from kernbench.common.dtypes import itemsize
from kernbench.common.progress import Progress, no_progress, stage
from kernbench.replay.data.history import History
from kernbench.replay.data.places import PlaceIndex
from kernbench.replay.data.write_counts import WriteCounts
from kernbench.sim_engine.event_log import Shard

_NAMED = 4
"""Owners of copies that are named."""

_TENSORS_KEPT = 4
_STATES_KEPT = 1 << 14
"""Of the pairs of a tensor."""


class _Pair(NamedTuple):
    """The first copy of a shard and another, and their numbers among all copies."""

    first: Shard
    other: Shard
    first_number: int
    other_number: int


_PairState: TypeAlias = tuple[int, int, int]
"""The number of a pair, and how many writes into either of it had been made."""


@dataclass(slots=True)
class _Copied:
    """The copies of a tensor, each beside the first one of its shard.

    ``apart`` has in how many elements pairs differ.
    """

    pairs: list[_Pair]
    counts: WriteCounts
    apart: dict[_PairState, int] = field(default_factory=dict)


class CopyIndex:
    """What to say of the copies of a tensor. It executes ops, so that its caches belong
    to the thread of lane "memory".
    """

    def __init__(self, history: History, places: PlaceIndex) -> None:
        self._history = history
        self._places = places
        self._copied: dict[str, _Copied] = {}

    def told(self, op: int, place: str, progress: Progress = no_progress) -> str:
        """What to say of the copies of the tensor that a place is of, at op ``op``.

        Which copy the name stands for, and whose differ from that. Empty where there is
        one only, or the place says which. Executes the ops that lead there.
        """
        name = place.partition("[")[0].strip()
        copied = self._copied_of(name, stage(progress, 0.0, 0.5))
        if not copied.pairs:
            return ""
        owners = dict.fromkeys(pair.first.owner for pair in copied.pairs)
        text = f"{name} is the copy of {_some(owners)}"
        steps = self._history.executed(op)
        differing = self._differing(copied, steps, stage(progress, 0.5, 1.0))
        if not differing:
            return f"{text}; its other copies hold the same"
        told = [f"{name}@{owner} in {count:,}" for owner, count in differing.items()]
        return f"{text}; it differs from {_some(told)} elements"

    def _copied_of(self, name: str, progress: Progress) -> _Copied:
        """The copies of a tensor; those of the last few are kept."""
        found = self._copied.get(name)
        if found is None:
            pairs = list[_Pair]()
            shards = list[Shard]()
            for first, *others in self._places.copies(name):
                if not others:
                    continue
                number = len(shards)
                shards += (first, *others)
                for at, other in enumerate(others, number + 1):
                    pairs.append(_Pair(first, other, number, at))
            ranges = [shard.place for shard in shards]
            found = _Copied(pairs, WriteCounts(self._history, ranges, progress))
            newest = [*self._copied.items()][1 - _TENSORS_KEPT :]
            self._copied = dict(newest) | {name: found}
        return found

    def _differing(
        self, copied: _Copied, steps: int, progress: Progress
    ) -> dict[str, int]:
        """Whose copies differ from the first after so many steps, in how many
        elements.
        """
        writes = copied.counts.after(steps).tolist()
        differing: dict[str, int] = {}
        for number, pair in enumerate(copied.pairs):
            progress(number / len(copied.pairs))
            state = (number, writes[pair.first_number], writes[pair.other_number])
            apart = copied.apart.get(state)
            if apart is None:
                apart = self._apart(pair, steps, progress)
                if len(copied.apart) > _STATES_KEPT:
                    copied.apart.clear()
                copied.apart[state] = apart
            if apart:
                owner = pair.other.owner
                differing[owner] = differing.get(owner, 0) + apart
        return differing

    def _apart(self, pair: _Pair, steps: int, progress: Progress) -> int:
        """In how many elements two copies of a shard differ after so many steps."""
        wanted = self._read(steps, pair.first, progress)
        apart = wanted != self._read(steps, pair.other, progress)
        by_element = apart.reshape(-1, itemsize(pair.first.dtype)).any(axis=1)
        return int(by_element.sum())

    def _read(self, steps: int, shard: Shard, progress: Progress) -> Array:
        """The bytes of a shard after so many steps."""
        return self._history.read(steps, *shard.place, progress).values


def _some(names: Iterable[str]) -> str:
    """The first few of some names, and how many there are besides."""
    every = list(names)
    text = ", ".join(every[:_NAMED])
    if len(every) > _NAMED:
        text += f" and {len(every) - _NAMED:,} more"
    return text
