"""The table of benches, and how a name or a file path becomes one.

A bench is a function ``run(torch, **params)``; its keyword parameters with their
defaults are the keys of ``--set``. It registers itself (``@bench``) when its file is
imported: those that ship are found by their files, and so is a user's.

    @bench(name="twice", description="y = 2 x")
    def run(torch, n=64):
        x = torch.tensor(torch.rng.standard_normal(n), "f32")
        y = torch.empty((n,), "f32")
        torch.launch("twice", twice_kernel, x, y, n)
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from kernbench.common.dtypes import dtype_name, is_dtype_name
from kernbench.common.near import did_you_mean, instead_of
from kernbench.common.source_names import code_of
from kernbench.errors import UsageError
from kernbench.runtime_api.user_files import SourceFile, run_file, sha_of

_SHIPPED = "kernbench.benches"
"""The package whose import registers the benches that ship.

It imports this room, so it is known by its name only, and imported when a bench is
looked up.
"""

_LAST = ("tutorial", "slow", "fault")
"""What the names of benches of other kinds begin with, in the order of the list."""

_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def _as_it_is(**params: Any) -> dict[str, Any]:
    """No field of the topology is asked for."""
    return {}


@dataclass(frozen=True, slots=True)
class Bench:
    """One registered bench.

    ``params`` are its keyword parameters and their defaults. ``machine`` gives the
    fields of the topology, by dotted path, that values of the parameters ask for.
    ``source`` is the file that was run to find it; None of one that had been imported.
    """

    name: str
    description: str
    run: Callable[..., None]
    params: Mapping[str, Any]
    machine: Callable[..., dict[str, Any]] = _as_it_is
    source: SourceFile | None = None

    @property
    def kind(self) -> str:
        """Whether it teaches ("tutorial"), is right but slow on purpose ("slow"), is
        wrong on purpose ("fault") or neither ("bench"), as its name says.
        """
        first = self.name.partition("_")[0]
        return first if first in _LAST else "bench"


BENCHES: dict[str, Bench] = {}


def bench(
    *,
    name: str,
    description: str,
    machine: Callable[..., dict[str, Any]] = _as_it_is,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register ``run(torch, **params)`` under ``name``; a default of None takes an int.

    UsageError for a parameter after ``torch`` that has no default.
    """

    def register(run: Callable[..., None]) -> Callable[..., None]:
        """Put the function into the table, as it is."""
        _, *params = inspect.signature(run).parameters.values()
        defaults = {param.name: param.default for param in params}
        if inspect.Parameter.empty in defaults.values():
            raise UsageError(
                f"bench {name!r}: every parameter after torch needs a default"
            )
        BENCHES[name] = Bench(name, description, run, defaults, machine)
        return run

    return register


def registered(name: str) -> Bench | None:
    """The bench that ships, or was imported, under a name; None if none did."""
    import_module(_SHIPPED)
    return BENCHES.get(name)


def find_bench(name_or_path: str) -> Bench:
    """A registered bench by name, or the one that a ``.py`` file registers.

    UsageError where there is none, or a file that registers not just one.
    """
    found = registered(name_or_path)
    if found is not None:
        return found
    path = Path(name_or_path)
    if path.suffix != ".py":
        hint = did_you_mean(name_or_path, BENCHES)
        hint = hint or f"valid: {', '.join(_listed())}, or the path of a .py file"
        raise UsageError(f"unknown bench {name_or_path!r}; {hint}")
    what = f"bench file {name_or_path!r}"
    if not path.is_file():
        raise UsageError(f"{what} is not a file")
    added = _registered_by(path, what)
    if len(added) != 1:
        names = ", ".join(found.name for found in added) or "none"
        raise UsageError(f"{what} must register one @bench, but registers: {names}")
    return added[0]


def source_of(entry: Bench) -> SourceFile | None:
    """The file that a bench is in; None of one that was typed in, or is in no file."""
    if entry.source is not None:
        return entry.source
    code = code_of(entry.run)
    if code is None:
        return None
    try:
        return SourceFile(code.co_filename, sha_of(Path(code.co_filename)))
    except OSError:
        return None


def _listed() -> list[str]:
    """The names of all benches, those that are slow or wrong on purpose last."""
    kinds = ("bench", *_LAST)
    entries = sorted(BENCHES.values(), key=lambda entry: kinds.index(entry.kind))
    return [entry.name for entry in entries]


def _registered_by(path: Path, what: str) -> list[Bench]:
    """The benches that running a file registers; the table is left as it was.

    A bench of a file must not shadow a shipped one of the same name in a later run.
    """
    before = dict(BENCHES)
    try:
        sha = run_file(path, f"kernbench_bench_{path.stem}", what)
        source = SourceFile(str(path.absolute()), sha)
        return [
            replace(entry, source=source)
            for key, entry in BENCHES.items()
            if before.get(key) is not entry
        ]
    finally:
        BENCHES.clear()
        BENCHES.update(before)


def bind_params(entry: Bench, given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of a bench, overridden by ``given``.

    Text is parsed to the type of the default. UsageError for a parameter that the bench
    does not have, and for a value of another type.
    """
    params = dict(entry.params)
    for key, value in given.items():
        if key not in params:
            raise UsageError(
                f"bench {entry.name!r} has no parameter {key!r}; "
                f"{instead_of(key, params)}"
            )
        params[key] = _bound(key, value, entry.params[key])
    return params


def _bound(key: str, value: Any, default: Any) -> Any:
    """The value of a parameter with that default; of a dtype our name of it."""
    kind = int if default is None else type(default)
    bound = _parsed(key, value, kind) if isinstance(value, str) else value
    fits = (int, float) if kind is float else (kind, type(default))
    is_truth_value = isinstance(bound, bool) and kind is not bool
    if is_truth_value or not isinstance(bound, fits):
        raise UsageError(f"{key}={value!r}: must be {kind.__name__}")
    if kind is float:
        return _as_float(key, bound)
    if isinstance(default, str) and is_dtype_name(default):
        text = str(bound)
        return dtype_name(text) if is_dtype_name(text) else text
    return bound


def _as_float(key: str, number: float) -> float:
    """A number as a float: 1 and 1.0 are the same parameter."""
    try:
        return float(number)
    except OverflowError:
        raise UsageError(f"{key}: must be float, and is too large for one") from None


def _parsed(key: str, text: str, kind: type) -> Any:
    """The value that a text gives of that type."""
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
