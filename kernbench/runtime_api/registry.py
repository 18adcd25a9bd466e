"""The table of benches, and how a name or a file path becomes one.

A bench is a function ``run(torch, **params)``; its keyword parameters with their defaults are the
keys of ``--set``.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernbench.errors import UsageError


@dataclass(frozen=True, slots=True)
class Bench:
    """One registered bench; ``params`` are its keyword parameters and their defaults."""

    name: str
    description: str
    run: Callable[..., None]
    params: Mapping[str, Any]


BENCHES: dict[str, Bench] = {}


def bench(*, name: str, description: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register ``run(torch, **params)`` under ``name``; a parameter of default None takes an
    int.
    """

    def register(run: Callable[..., None]) -> Callable[..., None]:
        _, *params = inspect.signature(run).parameters.values()
        defaults = {p.name: p.default for p in params}
        if inspect.Parameter.empty in defaults.values():
            raise UsageError(f"bench {name!r}: every parameter after torch needs a default")
        BENCHES[name] = Bench(name, description, run, defaults)
        return run

    return register


def find_bench(name_or_path: str) -> Bench:
    """A shipped bench by name, or the one that a ``.py`` file registers; UsageError lists the
    names.
    """
    shipped = importlib.import_module("kernbench.benches")
    if not name_or_path.endswith(".py"):
        valid = (*sorted(shipped.SHIPPED), *shipped.FAULTS)
        if name_or_path not in valid:
            raise UsageError(
                f"unknown bench {name_or_path!r}; valid: {', '.join(valid)}, or the path of a .py "
                "file"
            )
        return BENCHES[name_or_path]
    path = Path(name_or_path)
    if not path.is_file():
        raise UsageError(f"bench file {name_or_path!r} is not a file")
    before = dict(BENCHES)
    spec = importlib.util.spec_from_file_location(f"kernbench_bench_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        added = [b for key, b in BENCHES.items() if before.get(key) is not b]
    except Exception as error:
        raise UsageError(f"bench file {name_or_path!r}: {type(error).__name__}: {error}") from error
    finally:  # its bench must not shadow a shipped one of the same name in a later run
        BENCHES.clear()
        BENCHES.update(before)
    if len(added) != 1:
        names = ", ".join(b.name for b in added) or "none"
        raise UsageError(
            f"bench file {name_or_path!r} must register one @bench, but registers: {names}"
        )
    return added[0]


def bind_params(entry: Bench, given: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults overridden by ``given``; text is parsed to the type of the default."""
    params = dict(entry.params)
    for key, value in given.items():
        if key not in params:
            valid = ", ".join(params) or "none"
            raise UsageError(f"bench {entry.name!r} has no parameter {key!r}; valid: {valid}")
        kind = int if params[key] is None else type(params[key])
        fits = (int, float) if kind is float else (kind, type(params[key]))
        if isinstance(value, str) and kind is not str:
            value = _parse(key, value, kind)
        elif not isinstance(value, fits):
            raise UsageError(f"{key}={value!r}: must be {kind.__name__}")
        params[key] = value
    return params


def at_least_one(**sizes: int | None) -> None:
    """UsageError if a size is below 1; None passes."""
    for key, value in sizes.items():
        if value is not None and value < 1:
            raise UsageError(f"{key}={value}: must be at least 1")


def one_of(valid: Sequence[str], **choices: str) -> None:
    """UsageError if a choice is none of the ``valid`` ones."""
    for key, value in choices.items():
        if value not in valid:
            raise UsageError(f"{key}={value}: valid: {', '.join(valid)}")


def _parse(key: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() in ("true", "false", "1", "0"):
            return text.lower() in ("true", "1")
        raise UsageError(f"{key}={text}: must be true or false")
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{key}={text}: must be {kind.__name__}") from None
