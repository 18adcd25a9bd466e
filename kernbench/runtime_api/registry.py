"""The table of benches, and how a name or a file path becomes one.

A bench is a function ``run(torch, **params)``; its keyword parameters with their defaults are the
keys of ``--set``.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from runpy import run_path
from typing import Any

from kernbench.errors import UsageError


@dataclass(frozen=True, slots=True)
class Bench:
    """One registered bench; ``params`` are its keyword parameters and their defaults, ``machine``
    gives the fields of the topology that their values ask for.
    """

    name: str
    description: str
    run: Callable[..., None]
    params: Mapping[str, Any]
    machine: Callable[..., dict[str, Any]] = lambda **_: {}


BENCHES: dict[str, Bench] = {}
_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def bench(
    *,
    name: str,
    description: str,
    machine: Callable[..., dict[str, Any]] = lambda **_: {},
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register ``run(torch, **params)`` under ``name``; a default of None takes an int."""

    def register(run: Callable[..., None]) -> Callable[..., None]:
        _, *params = inspect.signature(run).parameters.values()
        defaults = {p.name: p.default for p in params}
        if inspect.Parameter.empty in defaults.values():
            raise UsageError(
                f"bench {name!r}: every parameter after torch needs a default"
            )
        BENCHES[name] = Bench(name, description, run, defaults, machine)
        return run

    return register


def find_bench(name_or_path: str) -> Bench:
    """A shipped bench by name, or the one that a ``.py`` file registers; UsageError where there is
    none.
    """
    shipped = import_module("kernbench.benches")
    valid = (*shipped.SHIPPED, *shipped.FAULTS)
    if name_or_path in valid:
        return BENCHES[name_or_path]
    what, path = f"bench file {name_or_path!r}", Path(name_or_path)
    if path.suffix != ".py":
        names = ", ".join(valid)
        raise UsageError(
            f"unknown bench {name_or_path!r}; valid: {names}, or the path of a .py file"
        )
    if not path.is_file():
        raise UsageError(f"{what} is not a file")
    before = dict(BENCHES)
    try:
        run_path(str(path.absolute()), run_name=f"kernbench_bench_{path.stem}")
        added = [b for key, b in BENCHES.items() if before.get(key) is not b]
    except Exception as error:
        raise UsageError(f"{what}: {type(error).__name__}: {error}") from error
    finally:  # its bench must not shadow a shipped one of the same name in a later run
        BENCHES.clear()
        BENCHES.update(before)
    if len(added) != 1:
        names = ", ".join(b.name for b in added) or "none"
        raise UsageError(f"{what} must register one @bench, but registers: {names}")
    return added[0]


def bind_params(entry: Bench, given: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults overridden by ``given``; text is parsed to the type of the default."""
    params = dict(entry.params)
    for key, value in given.items():
        if key not in params:
            valid = ", ".join(params) or "none"
            raise UsageError(
                f"bench {entry.name!r} has no parameter {key!r}; valid: {valid}"
            )
        kind = int if params[key] is None else type(params[key])
        params[key] = _parsed(key, value, kind) if isinstance(value, str) else value
        fits = (int, float) if kind is float else (kind, type(entry.params[key]))
        if not isinstance(params[key], fits):
            raise UsageError(f"{key}={value!r}: must be {kind.__name__}")
    return params


def _parsed(key: str, text: str, kind: type) -> Any:
    try:
        return _BOOLS[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        what = "true or false" if kind is bool else kind.__name__
        raise UsageError(f"{key}={text}: must be {what}") from None


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
