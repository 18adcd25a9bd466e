"""What a re-run has changed of the run that it repeats, as a first frame has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kernbench.common.delays import CallName, Delay, OpName
from kernbench.errors import TraceFormatError


@dataclass(frozen=True, slots=True)
class First:
    """What the run that is repeated had where a re-run has something else.

    ``spec`` and ``arguments`` by name, ``seed`` None where that is the same, and of
    ``sources`` the SHA-256, None of a file that was not there. A trace of before there
    was such a map has none of it.
    """

    spec: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    sources: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changed:
    """What is otherwise than in the run of the trace whose fingerprint is ``of``.

    ``spec`` are fields of the machine by dotted path, ``arguments`` parameters of the
    bench; both with their new values. ``seed`` is None where it is the same.
    ``sources`` are the files that have another text, or were not there: "bench NAME",
    "plugin NAME". ``first`` is what that run had instead.
    """

    of: str
    delays: tuple[Delay, ...] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    sources: tuple[str, ...] = ()
    first: First = field(default_factory=First)

    def __bool__(self) -> bool:
        is_other = self.delays or self.spec or self.arguments or self.sources
        return bool(is_other) or self.seed is not None

    def after(self, earlier: Changed, shas: Mapping[str, str]) -> Changed:
        """Both changes, of the run that ``earlier`` repeats.

        Delays of one op add up; of other values the later ones count, and one that is
        back at what the first run had is no change. ``shas`` are those of all sources
        that run now.
        """
        held: dict[OpName, float] = {}
        for delay in (*earlier.delays, *self.delays):
            held[delay.op] = held.get(delay.op, 0.0) + delay.ns
        spec, first_spec = _both(
            (earlier.spec, earlier.first.spec), (self.spec, self.first.spec)
        )
        arguments, first_arguments = _both(
            (earlier.arguments, earlier.first.arguments),
            (self.arguments, self.first.arguments),
        )
        seed, first_seed = _both(
            (_given(earlier.seed), _given(earlier.first.seed)),
            (_given(self.seed), _given(self.first.seed)),
        )
        sources, first_sources = _both(
            (_named(earlier.sources, shas), earlier.first.sources),
            (_named(self.sources, shas), self.first.sources),
        )
        return Changed(
            of=earlier.of,
            delays=tuple(Delay(op, ns) for op, ns in held.items()),
            spec=spec,
            arguments=arguments,
            seed=seed.get("seed"),
            sources=tuple(sources),
            first=First(
                first_spec, first_arguments, first_seed.get("seed"), first_sources
            ),
        )

    def lines(self) -> tuple[str, ...]:
        """Each change as text."""
        found = [str(delay) for delay in self.delays]
        for values in (self.spec, self.arguments):
            found += [f"{name}={value}" for name, value in values.items()]
        if self.seed is not None:
            found.append(f"seed={self.seed}")
        found += [f"source of {name}" for name in self.sources]
        return tuple(found)


_Values: TypeAlias = Mapping[str, Any]


def _both(
    earlier: tuple[_Values, _Values], later: tuple[_Values, _Values]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What two changes make together, by name, and what was first; of each change the
    same pair is given.
    """
    earlier_values, earlier_first = earlier
    later_values, later_first = later
    first = dict(earlier_first)
    for name, value in later_first.items():
        if name not in earlier_values:
            first[name] = value
    values = {
        name: value
        for name, value in {**earlier_values, **later_values}.items()
        if name not in first or _plain(value) != _plain(first[name])
    }
    return values, {name: first[name] for name in values if name in first}


def _plain(value: Any) -> Any:
    """A value as a trace has it: a tuple is a list there."""
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value


def _given(seed: int | None) -> dict[str, int]:
    """A seed by its name, if there is one."""
    if seed is None:
        return {}
    return {"seed": seed}


def _named(sources: Iterable[str], shas: Mapping[str, str]) -> dict[str, str | None]:
    """The SHA-256 that sources have now; None of one that does not run."""
    return {name: shas.get(name) for name in sources}


def changed_of(header: Mapping[str, Any]) -> Changed | None:
    """What a trace says was changed; None if it is of a run that repeats none.

    TraceFormatError if what it says is something else.
    """
    stated = header.get("changed")
    if stated is None:
        return None
    try:
        return Changed(
            of=_text(stated["of"]),
            delays=tuple(map(_delay, stated["delays"])),
            spec=_map(stated["spec"]),
            arguments=_map(stated["arguments"]),
            seed=_seed(stated["seed"]),
            sources=tuple(map(_text, stated["sources"])),
            first=_first(stated.get("first")),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as why:
        raise TraceFormatError(f"what was changed is told otherwise: {why!r}") from None


def _first(stated: Any) -> First:
    """What was first, from its map; nothing of a trace that does not say it."""
    if stated is None:
        return First()
    return First(
        spec=_map(stated["spec"]),
        arguments=_map(stated["arguments"]),
        seed=_seed(stated["seed"]),
        sources=_map(stated["sources"]),
    )


def _delay(stated: Any) -> Delay:
    """A delay from its map."""
    op = stated["op"]
    call = op["call"]
    name = CallName(
        pe=_text(call["pe"]),
        call=_text(call["call"]),
        file=_text(call["file"]),
        line=_number(call["line"]),
        nth=_number(call["nth"]),
    )
    held = OpName(
        op=_text(op["op"]),
        call=name,
        tile=tuple(map(_number, op["tile"])),
        piece=_number(op["piece"]),
        memory=_text(op["memory"]),
    )
    ns = stated["ns"]
    if not isinstance(ns, float):
        raise TypeError("a delay is no float")
    return Delay(held, ns)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r:.40} is no whole number")
    return value


def _seed(value: Any) -> int | None:
    if value is None:
        return None
    return _number(value)


def _map(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.40} is no map")
    return {_text(key): item for key, item in value.items()}
