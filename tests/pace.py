"""Which cases of a test run on every change, which in CI, and which with the soak."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings


def first_fast(values: Iterable[Any], fast: int = 1) -> list[Any]:
    """Cases for ``parametrize``: the first as they are, all others marked slow."""
    every = list(values)
    others = [pytest.param(value, marks=pytest.mark.slow) for value in every[fast:]]
    return [*every[:fast], *others]


def some_in_ci(values: Iterable[Any], count: int) -> list[Any]:
    """Cases for ``parametrize`` of a slow test: ``count`` of them, spread evenly, run
    in CI, all others with the soak.
    """
    every = list(values)
    kept = {len(every) * turn // count for turn in range(count)}
    return [
        value if place in kept else pytest.param(value, marks=pytest.mark.soak)
        for place, value in enumerate(every)
    ]


def for_all(
    *drawn: Any, fast: int, whole: int, **named: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """``given`` with ``fast`` examples, and with ``whole`` of them with the soak.

    Arguments of the test that are not drawn are fixtures.
    """

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        def test(examples: int, **fixtures: Any) -> None:
            settings(max_examples=examples)(given(*drawn, **named)(check))(**fixtures)

        fixtures = inspect.signature(given(*drawn, **named)(check)).parameters
        examples = inspect.Parameter("examples", inspect.Parameter.KEYWORD_ONLY)
        test.__signature__ = inspect.Signature([*fixtures.values(), examples])
        test.__name__ = check.__name__
        test.__doc__ = check.__doc__
        test.__module__ = check.__module__
        cases = [fast, pytest.param(whole, marks=pytest.mark.soak)]
        return pytest.mark.parametrize("examples", cases)(test)

    return decorate
