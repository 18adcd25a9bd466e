"""What was made last, kept by what it was made of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Newest(Generic[K, V]):
    """The newest ``most`` values, by key; what is older is made again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key; ``make`` makes it where there is none."""
        try:
            return self._values[key]
        except KeyError:
            pass
        value = make()
        self._values[key] = value
        if len(self._values) > self._most:
            self._values.popitem(last=False)
        return value
