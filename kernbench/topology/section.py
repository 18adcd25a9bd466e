"""Files of fields: what a YAML file may say, its defaults and rules, and its errors.

A file is a ``Section``, a frozen dataclass of numbers, names and further sections. A
field's type may carry a rule: ``Annotated[float, Range(0)]``, or a tuple of the names
that are valid. Owns how such a file is read and checked; knows nothing of machines.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeGuard, dataclass_transform, get_args

import yaml

from kernbench.errors import TopologyError


@dataclass(frozen=True, slots=True)
class Range:
    """Valid numbers: from ``low`` to ``high``, both included; never NaN or infinity.

    ``note`` says in a message why they are just these.
    """

    low: float
    high: float = 1e15
    note: str = ""

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.note}from {self.low:g} to {self.high:g}"


MOST_BYTES = 128 << 10
"""A file of fields has some KiB; to read a list of megabytes would take minutes."""

_MOST_SHOWN = 200
"""So many characters of a wrong value are shown."""

NonNegative = Annotated[float, Range(0)]
Count = Annotated[int, Range(1, 2**31)]
Whole = Annotated[int, Range(0, 2**31)]


@dataclass_transform(frozen_default=True)
class Section:
    """A part of a file, with fields of its own; every subclass is a frozen dataclass.

    With an ``entry`` a field may have any other name too, and is a section of that
    class.
    """

    entry: ClassVar["type[Section] | None"] = None

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)

    @classmethod
    def field_types(cls) -> dict[str, Any]:
        """The type of each field by name, in order; with its rule, where it has one."""
        return {field.name: field.type for field in _own_fields(cls)}


def _own_fields(section: Any) -> tuple[Field[Any], ...]:
    """The fields of a section; Section itself is no dataclass, its subclasses are."""
    return fields(section)


def _is_section(hint: Any) -> TypeGuard[type[Section]]:
    """Whether the type of a field is a section of its own."""
    return isinstance(hint, type) and issubclass(hint, Section)


def field_names(section: type[Section]) -> str:
    """The names of a section's fields, as a message lists them."""
    return ", ".join(section.field_types())


def leaf_types(section: type[Section], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted path and the type of every field that is no section, in order."""
    for name, hint in section.field_types().items():
        path = f"{prefix}{name}"
        if _is_section(hint):
            yield from leaf_types(hint, f"{path}.")
        else:
            yield path, hint


def with_value(section: Any, path: str, value: Any) -> Any:
    """A copy of a section in which the field at a dotted path has another value."""
    name, _, below = path.partition(".")
    if below:
        value = with_value(getattr(section, name), below, value)
    return replace(section, **{name: value})


def converted(value: Any, hint: Any) -> Any:
    """A value for a field of type ``hint``, as YAML 1.2 has it: 1e3 is a number."""
    is_number = get_args(hint)[:1] == (float,)
    if is_number and type(value) in (int, str):
        with suppress(ValueError, OverflowError):
            return float(value)
    return value


def wrong_fields(section: Section, prefix: str) -> Iterator[tuple[str, str]]:
    """The path and the problem of every field that its type or rule does not allow.

    Paths begin with ``prefix``; a problem is the rest of a message that begins with the
    path.
    """
    for name, hint in section.field_types().items():
        value = getattr(section, name)
        path = f"{prefix}{name}"
        if not _is_section(hint):
            yield from _wrong_value(value, hint, path)
        elif isinstance(value, hint):
            yield from wrong_fields(value, f"{path}.")
        else:
            wanted = f"have the fields {field_names(hint)}"
            yield path, f"must {wanted}, not {_shown(value)}"


def wrong_field(section: Any, path: str) -> Iterator[tuple[str, str]]:
    """As ``wrong_fields``, for the one field at a dotted path."""
    owner, _, name = path.rpartition(".")
    if owner:
        section = attrgetter(owner)(section)
    yield from _wrong_value(getattr(section, name), section.field_types()[name], path)


def _wrong_value(value: Any, hint: Any, path: str) -> Iterator[tuple[str, str]]:
    """The path and the problem of a value that its type or rule does not allow."""
    wanted = _unmet(value, hint)
    if wanted:
        yield path, f"must {wanted}, not {_shown(value)}"


def _shown(value: Any) -> str:
    """A wrong value as a message has it: of a long one the beginning."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        text = hex(value)
    if len(text) > _MOST_SHOWN:
        return f"{text[:_MOST_SHOWN]}… ({len(text):,} characters)"
    return text


def _unmet(value: Any, hint: Any) -> str:
    """What a value must be and is not; "" if it is as its type and rule want it."""
    base = hint
    rule: Any = None
    args = get_args(hint)
    if args:
        base, rule = args
    if base is str:
        return _unmet_name(value, rule)
    if base is float:
        number = "number"
        types: Any = int | float
    else:
        number = "whole number"
        types = int
    is_number = isinstance(value, types) and not isinstance(value, bool)
    if is_number and value in rule:
        return ""
    return f"be a {number} {rule}"


def _unmet_name(value: Any, valid: tuple[str, ...] | None) -> str:
    """As ``_unmet``, for a field that holds a name."""
    if valid is not None:
        return "" if value in valid else f"be one of {', '.join(valid)}"
    is_name = isinstance(value, str) and bool(value.strip())
    return "" if is_name else "be a name"


class SpecFile:
    """A YAML file of ``root``'s fields, while it is read and its values are checked.

    It owns the line of each field that the file has.
    """

    def __init__(self, path: Path, root: type[Section]) -> None:
        self.path = path
        self.root = root
        self.lines = {"": 1}

    def where(self, field: str) -> str:
        """File, line and name of a field; its parent's line if it is left out."""
        parent = field
        while parent not in self.lines:
            parent = parent.rpartition(".")[0]
        return f"{self.path}:{self.lines[parent]}: {field}"

    def read(self) -> dict[str, Any]:
        """The values in the file by dotted path, not checked yet.

        TopologyError, with file and line, for what is no YAML, and for a field that is
        unknown, given twice, missing, or no single value where it has to be one.
        """
        root = self._composed()
        if root is None:
            names = field_names(self.root)
            raise TopologyError(f"{self.path}:1: the file is empty; fields: {names}")
        return dict(self._section(self.root, root, ""))

    def _composed(self) -> yaml.Node | None:
        """The YAML nodes of the file; None if it is empty."""
        path = self.path
        try:
            with path.open("rb") as file:
                raw = file.read(MOST_BYTES + 1)
            if len(raw) > MOST_BYTES:
                raise TopologyError(
                    f"{path}: has more than {MOST_BYTES >> 10} KiB; give a file of "
                    f"these fields: {field_names(self.root)}"
                )
            return yaml.compose(raw.decode("utf-8-sig"), Loader=yaml.SafeLoader)
        except OSError as error:
            raise TopologyError(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise TopologyError(
                f"{path}: not a UTF-8 text file: {error.reason}"
            ) from None
        except RecursionError:
            raise TopologyError(
                f"{path}: nested too deeply; a topology has 4 levels"
            ) from None
        except yaml.YAMLError as error:
            line, why = _line_and_cause(error)
            raise TopologyError(f"{path}:{line}: not valid YAML: {why}") from None

    def _section(
        self, cls: type[Section], node: yaml.Node, path: str
    ) -> Iterator[tuple[str, Any]]:
        """The fields of a section of the file, at ``path``, and of those below it."""
        if not isinstance(node, yaml.MappingNode):
            where = self.where(path or "the file")
            names = field_names(cls)
            raise TopologyError(f"{where}: must be a mapping with fields of: {names}")
        for key, value in node.value:
            yield from self._field(cls, key, value, path)
        for field in _own_fields(cls):
            is_given = _below(path, field.name) in self.lines
            if not is_given and not _has_default(field):
                raise TopologyError(
                    f"{self.where(path)}: the field {field.name} is missing"
                )

    def _field(
        self, cls: type[Section], key: yaml.Node, value: yaml.Node, parent: str
    ) -> Iterator[tuple[str, Any]]:
        """One field of a section; its values, if it is a section itself."""
        name = "a list or mapping"
        if isinstance(key, yaml.ScalarNode):
            name = str(key.value)
        path = _below(parent, name)
        first = self.lines.get(path)
        self.lines[path] = key.start_mark.line + 1
        hint = cls.field_types().get(name, cls.entry)
        if hint is None:
            names = field_names(cls)
            raise TopologyError(f"{self.where(path)}: unknown field; valid: {names}")
        if first:
            raise TopologyError(
                f"{self.where(path)}: given twice; first on line {first}"
            )
        if _is_section(hint):
            yield from self._section(hint, value, path)
        elif isinstance(value, yaml.ScalarNode):
            yield path, _scalar(value, hint)
        else:
            what = "must be one value, not a list or mapping"
            raise TopologyError(f"{self.where(path)}: {what}")


def _below(parent: str, name: str) -> str:
    """The dotted path of a field of the section at ``parent``, "" for the file."""
    return f"{parent}.{name}".lstrip(".")


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _line_and_cause(error: yaml.YAMLError) -> tuple[int, str]:
    """Where a text stops to be YAML, counted from 1, and why."""
    mark = getattr(error, "problem_mark", None)
    why: str = getattr(error, "problem", None) or ""
    if not why:
        why = getattr(error, "reason", "cannot be parsed")
    if mark is None:
        return 1, why
    return mark.line + 1, why


def _scalar(node: yaml.ScalarNode, hint: Any) -> Any:
    """The value of a YAML node for a field of type ``hint``."""
    try:
        value = yaml.SafeLoader("").construct_object(node)
    except (ValueError, IndexError, OverflowError, yaml.YAMLError):
        return node.value  # not what it claims to be: the check says what it should be
    is_quoted = isinstance(value, str) and node.style is not None
    return value if is_quoted else converted(value, hint)
