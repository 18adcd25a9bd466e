"""What a re-run has changed of the run that it repeats, as a first frame has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernbench.common.delays import CallName, Delay, OpName
from kernbench.errors import TraceFormatError


@dataclass(frozen=True, slots=True)
class Changed:
    """What is otherwise than in the run of the trace whose fingerprint is ``of``.

    ``spec`` are fields of the machine by dotted path, ``arguments`` parameters of the
    bench; both with their new values. ``seed`` is None where it is the same.
    ``sources`` are the files that have another text, or were not there: "bench NAME",
    "plugin NAME".
    """

    of: str
    delays: tuple[Delay, ...] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    sources: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        is_other = self.delays or self.spec or self.arguments or self.sources
        return bool(is_other) or self.seed is not None

    def after(self, earlier: Changed) -> Changed:
        """Both changes, of the run that ``earlier`` repeats.

        Delays of one op add up; of other values the later ones count.
        """
        held: dict[OpName, float] = {}
        for delay in (*earlier.delays, *self.delays):
            held[delay.op] = held.get(delay.op, 0.0) + delay.ns
        return Changed(
            of=earlier.of,
            delays=tuple(Delay(op, ns) for op, ns in held.items()),
            spec={**earlier.spec, **self.spec},
            arguments={**earlier.arguments, **self.arguments},
            seed=earlier.seed if self.seed is None else self.seed,
            sources=tuple(dict.fromkeys((*earlier.sources, *self.sources))),
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
        )
    except (KeyError, TypeError, ValueError) as why:
        raise TraceFormatError(f"what was changed is told otherwise: {why!r}") from None


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
