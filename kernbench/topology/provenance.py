"""Where the default of every field of the machine comes from.

Owns the three ways to say it, one of which stands around each default of a section:
``of_class(128.0, "UCIe 1.0, 64 lanes at 16 GT/s", 2022)``. Also how it is shown: in the
YAML of ``kernbench info --topology`` and in the table of docs/machine.md.
"""

import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from inspect import getdoc
from typing import Any, Literal, TypeVar

import yaml

from kernbench.topology.section import Section

Basis = Literal["measured", "class", "assumed"]
T = TypeVar("T")

_KEY = "provenance"


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a default rests on.

    ``basis`` is "measured" (on hardware, or by a simulator of it), "class" (what a
    standard, or parts of a class, have) or "assumed" (a choice of this model).
    ``source`` says by whom and of what, or why the choice is sensible; ``year`` is that
    of the source, None for what is assumed.
    """

    basis: Basis
    source: str
    year: int | None = None

    def __str__(self) -> str:
        parts = [self.basis, self.source]
        if self.year is not None:
            parts.append(str(self.year))
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class DefaultOf:
    """The default of the field at a dotted path, and what it rests on.

    ``provenance`` is None where the declaration does not say it.
    """

    path: str
    value: Any
    provenance: Provenance | None


def measured(default: T, source: str, year: int) -> T:
    """A default that ``source`` has measured."""
    return _field(default, Provenance("measured", source, year))


def of_class(default: T, source: str, year: int) -> T:
    """A default that parts of the class have, as ``source`` says."""
    return _field(default, Provenance("class", source, year))


def assumed(default: T, why: str) -> T:
    """A default that this model chose, and why it is of a sensible size."""
    return _field(default, Provenance("assumed", why))


def _field(default: T, provenance: Provenance) -> T:
    """A field of a dataclass with a default, which mypy sees as the default."""
    return field(default=default, metadata={_KEY: provenance})


def defaults_of(section: type[Section], prefix: str = "") -> Iterator[DefaultOf]:
    """The default of every field of a section and of those below it, in order.

    Fields without a default of their own, as those of the components, are left out.
    """
    hints = section.field_types()
    declared: Any = section
    for each in fields(declared):
        hint = hints[each.name]
        path = f"{prefix}{each.name}"
        if isinstance(hint, type) and issubclass(hint, Section):
            yield from defaults_of(hint, f"{path}.")
        elif each.default is not MISSING:
            yield DefaultOf(path, each.default, each.metadata.get(_KEY))


def as_yaml(section: Section) -> str:
    """A section as a YAML file of one field a line, with its provenance as a comment.

    ``load_spec`` reads it back to an equal section.
    """
    rests_on = {each.path: each.provenance for each in defaults_of(type(section))}
    return "\n".join(_yaml_lines(section, "", rests_on)) + "\n"


def _yaml_lines(
    section: Section, prefix: str, rests_on: dict[str, Provenance | None]
) -> Iterator[str]:
    """The lines of a section whose fields' paths begin with ``prefix``."""
    indent = "  " * prefix.count(".")
    for name, hint in section.field_types().items():
        value = getattr(section, name)
        path = f"{prefix}{name}"
        if isinstance(value, Section):
            about = (getdoc(hint) or "").partition("\n")[0].replace("``", "")
            yield f"{indent}{name}:  # {about}"
            yield from _yaml_lines(value, f"{path}.", rests_on)
            continue
        scalar = yaml.safe_dump(value).partition("\n")[0]
        provenance = rests_on.get(path)
        comment = "" if provenance is None else f"  # {provenance}"
        yield f"{indent}{name}: {scalar}{comment}"


def table_of_defaults(section: type[Section]) -> list[str]:
    """A Markdown table of every default and what it rests on.

    Behind it is a list of what the sections say of their fields.
    """
    lines = [
        "| field | default | basis | source, or why | year |",
        "|---|---|---|---|---|",
    ]
    for each in defaults_of(section):
        value = f"{each.value:g}" if isinstance(each.value, float) else each.value
        rests_on = each.provenance
        cells = ["", "", ""]
        if rests_on is not None:
            cells = [rests_on.basis, rests_on.source, str(rests_on.year or "")]
        lines.append(f"| {' | '.join([f'`{each.path}`', str(value), *cells])} |")
    lines.append("")
    for path, about in _texts(section, ""):
        item = f"- `{path}`: {about}"
        lines += textwrap.wrap(item, 88, subsequent_indent="  ")
    return lines


def _texts(section: type[Section], prefix: str) -> Iterator[tuple[str, str]]:
    """The path of every section that has defaults, and what its docstring says."""
    for name, hint in section.field_types().items():
        if not (isinstance(hint, type) and issubclass(hint, Section)):
            continue
        path = f"{prefix}{name}"
        if next(defaults_of(hint), None) is not None:
            text = " ".join((getdoc(hint) or "").split())
            yield path, text.replace("``", "`")
            yield from _texts(hint, f"{path}.")
