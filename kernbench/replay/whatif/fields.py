"""The fields of the machine: which a prediction knows, and what it says of the others.

A field is one of four. Time depends on it as on a number of a formula (the usual one);
it changes the order or the structure of what happens, so that no re-timing is sure of
it; it changes what the program does; or time does not depend on it at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from kernbench.errors import TopologyError, UsageError
from kernbench.topology.section import Range, converted, leaf_types, with_value
from kernbench.topology.spec import TopologySpec, check_changes

Role = Literal["timed", "unsure", "idle"]

_ORDER = "changes who is served first"
_STRUCTURE = "changes the machine's structure, and the program with it"
_PROGRAM = "changes the program"
_MAPPING = "changes which bytes lie where"
_NO_TIME = "time does not depend on it"

_UNSURE = {
    "system.sips.count": _STRUCTURE,
    "sip.cube_mesh": _STRUCTURE,
    "sip.io.count": _STRUCTURE,
    "system.sips.topology": "changes the way of collectives, which is the program",
    "pe.tcm.size_kib": "changes the tiles of a composite that gives none",
    "cube.pes": _STRUCTURE,
    "cube.size_mm": "changes the lengths of wires, and may change routes",
    "cube.mesh": _STRUCTURE,
    "cube.hbm_zone": _STRUCTURE,
    "cube.ucie.connections_per_side": _STRUCTURE,
    "cube.memory_map.slices_per_cube": _STRUCTURE,
    "cube.hbm.channels": _MAPPING,
    "cube.hbm.model": "changes how HBM works",
    "cube.hbm.channel_hash": _MAPPING,
    "cube.hbm.interleave_bytes": _MAPPING,
    "cube.hbm.ranks": _MAPPING,
    "cube.hbm.banks": _MAPPING,
    "cube.hbm.bank_groups": _MAPPING,
    "cube.hbm.row_bytes": _MAPPING,
    "cube.hbm.access_bytes": _MAPPING,
    "cube.hbm.queue": _ORDER,
    "cube.hbm.bank_queue": _ORDER,
    "cube.hbm.write_buffer": _ORDER,
    "pe.gemm.rows": "changes how products are cut into folds",
    "pe.gemm.cols": "changes how products are cut into folds",
    "pe.gemm.dataflow": "changes how products are cut into folds",
    "pe.dma.outstanding": _ORDER,
    "pe.dma.burst_bytes": _ORDER,
    "pe.tile.window": _ORDER,
    "pe.tile": _PROGRAM,
    "components": "is another model, of which nothing is known",
}
"""By field, or by the section that it is in, why no prediction is sure of it."""

_IDLE = {
    "cube.pe_layout": "there is one layout only",
    "cube.memory_map.hbm_total_gb": f"it is a size, and {_NO_TIME}",
    "cube.sram.size_mib": f"it is a size, and {_NO_TIME}",
    "energy": f"it is what things cost, and {_NO_TIME}",
}
"""By field or section, why time does not depend on it."""

_FASTER_MORE = ("_gbs", "_ghz", "lanes", "trefi_ns")
"""Ends of the names of fields that are better when they are more."""


class Field(NamedTuple):
    """A field of the machine: ``path`` is dotted, ``hint`` its type.

    ``why`` says why no prediction is sure of it, or why it changes nothing.
    """

    path: str
    hint: Any
    role: Role
    why: str

    @property
    def limits(self) -> Range | None:
        """The valid numbers; None of a field that holds a name."""
        rule = get_args(self.hint)[1:]
        return rule[0] if rule and isinstance(rule[0], Range) else None

    @property
    def is_rate(self) -> bool:
        """Whether more of it is faster; of the others less is."""
        return self.path.endswith(_FASTER_MORE) or ".rate." in self.path

    def faster(self, value: float) -> float | None:
        """Its value twice as fast; None if there is none that is valid."""
        twice = value * 2 if self.is_rate else value / 2
        if get_args(self.hint)[0] is int:
            twice = int(twice)
            if not self.is_rate and twice * 2 != value:
                return None
        limits = self.limits
        if limits is None or twice not in limits or twice == value:
            return None
        return twice

    def free(self, value: float) -> float | None:
        """Its value when it costs nothing, or as little as is valid."""
        limits = self.limits
        if limits is None:
            return None
        best = limits.high if self.is_rate else limits.low
        if get_args(self.hint)[0] is int:
            best = int(best)
        return None if best == value else best


@cache
def all_fields() -> Mapping[str, Field]:
    """All fields by their paths."""
    fields = {path: _field(path, hint) for path, hint in leaf_types(TopologySpec)}
    return MappingProxyType(fields)


def _field(path: str, hint: Any) -> Field:
    why = _said_of(path, _UNSURE)
    if why:
        return Field(path, hint, "unsure", why)
    why = _said_of(path, _IDLE)
    if why:
        return Field(path, hint, "idle", why)
    return Field(path, hint, "timed", "")


def _said_of(path: str, known: Mapping[str, str]) -> str:
    """What is said of a field, or of the innermost section that it is in."""
    while path:
        if path in known:
            return known[path]
        path = path.rpartition(".")[0]
    return ""


class Change(NamedTuple):
    """A field with another value; ``text`` is how it was asked for."""

    field: Field
    value: Any
    text: str


def parse_change(text: str) -> Change:
    """``FIELD=VALUE``, by any end of the field's path that is certain.

    UsageError names the fields that are near an unknown one.
    """
    name, equals, value = text.partition("=")
    name = name.strip()
    value = value.strip()
    if not equals or not name or not value:
        raise UsageError(f"whatif {text}: give FIELD=VALUE, as pe.clock_ghz=2")
    field = _named(name)
    if get_args(field.hint)[:1] == (int,) and value.lstrip("-").isdigit():
        return Change(field, int(value), text)
    return Change(field, converted(value, field.hint), text)


def _named(name: str) -> Field:
    """The one field that ``name`` is, or is the end of."""
    fields = all_fields()
    if name in fields:
        return fields[name]
    found = [path for path in fields if path.endswith(f".{name}")]
    if len(found) > 1:
        raise UsageError(
            f"whatif {name}: could be any of {', '.join(found)}; give more of it"
        )
    if found:
        return fields[found[0]]
    ends = {path.rpartition(".")[2]: path for path in fields}
    near = get_close_matches(name, fields, 3, 0.5)
    near += [ends[end] for end in get_close_matches(name, ends, 3, 0.6)]
    what = "kernbench info --topology lists all"
    if near:
        what = f"the nearest: {', '.join(dict.fromkeys(near))}"
    raise UsageError(f"whatif {name}: unknown field; {what}")


def with_changes(spec: TopologySpec, changes: tuple[Change, ...]) -> TopologySpec:
    """A valid spec with some fields changed; UsageError if that is none any more, or a
    field is given twice.
    """
    paths = [change.field.path for change in changes]
    for path in paths:
        if paths.count(path) > 1:
            raise UsageError(
                f"whatif {path} is given {paths.count(path)} times; give it once"
            )
    for change in changes:
        spec = with_value(spec, change.field.path, change.value)
    try:
        check_changes(spec, [change.field.path for change in changes])
    except TopologyError as error:
        raise UsageError(f"whatif {error}") from error
    return spec


def value_of(spec: TopologySpec, path: str) -> Any:
    """The value of the field at a dotted path."""
    return attrgetter(path)(spec)
