"""What a sweep is to try: a YAML file, and the points that it describes.

    bench: matmul
    set: {m: [64, 128], tile: {from: 32, to: 128, factor: 2}}
    spec: {pe.clock_ghz: [1, 2]}
    where: tile <= m
    objectives: {end_ns: min, energy_j: min}

Paths in it are relative to the file. ``kernbench doc sweep`` has every field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import yaml

from kernbench.errors import UsageError
from kernbench.runtime_api.registry import Bench, bind_params, find_bench
from kernbench.runtime_api.run import check_numbers
from kernbench.runtime_api.user_files import load_plugins
from kernbench.sweep.axes import Axis, Part, read_axis
from kernbench.sweep.columns import check_column
from kernbench.sweep.condition import Condition, parse_condition
from kernbench.topology import TopologySpec, load_spec
from kernbench.topology.section import converted, leaf_types

Direction: TypeAlias = Literal["min", "max"]

_FIELDS = (
    *("bench", "set", "spec", "seed", "where", "objectives"),
    *("topology", "ccl", "plugins", "verify", "max_ns", "max_ops"),
)

_MOST_BYTES = 1 << 20
"""A space of more text would take long to read, and has hardly been written by hand."""

_BETTER_HIGH = ("ok", "verified")
"""The columns of which more is better, where an objective does not say."""


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a sweep: parameters of the bench, fields of the machine, and seed."""

    params: Mapping[str, Any]
    spec: Mapping[str, Any]
    seed: int

    def values(self) -> dict[str, Any]:
        """All of it by name, as a condition or a table has it."""
        return {**self.params, **self.spec, "seed": self.seed}


@dataclass(frozen=True, slots=True)
class Objective:
    """A column of the results, and whether the least or the most of it is best."""

    column: str
    direction: Direction

    def badness(self, value: float) -> float:
        """A number that is less for a better value."""
        return value if self.direction == "min" else -value

    def __str__(self) -> str:
        return f"{'least' if self.direction == 'min' else 'most'} {self.column}"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What all points of a sweep have in common; the files are absolute paths."""

    topology: str | None = None
    ccl: str | None = None
    plugins: tuple[str, ...] = ()
    verify: bool = True
    max_ns: float | None = None
    max_ops: int | None = None

    @property
    def topology_file(self) -> Path | None:
        """The file of the machine; None is the shipped one."""
        return None if self.topology is None else Path(self.topology)


@dataclass(frozen=True, slots=True)
class Space:
    """A checked space. ``bench`` is a name or an absolute path, ``entry`` what it is.

    The axes are in the order of the file, seed last; the last one changes first.
    """

    bench: str
    entry: Bench
    axes: tuple[Axis, ...]
    conditions: tuple[Condition, ...]
    objectives: tuple[Objective, ...]
    options: RunOptions = field(default_factory=RunOptions)

    @property
    def grid_points(self) -> int | None:
        """How many points all values make, conditions left out; None: any number."""
        if any(axis.values is None for axis in self.axes):
            return None
        return math.prod(len(axis.values or ()) for axis in self.axes)

    def point(self, values: Sequence[Any]) -> Point:
        """The point that has a value on each axis."""
        parts: dict[Part, dict[str, Any]] = {"set": {}, "spec": {}, "seed": {}}
        for axis, value in zip(self.axes, values, strict=True):
            parts[axis.part][axis.name] = value
        return Point(parts["set"], parts["spec"], parts["seed"]["seed"])

    def holds(self, point: Point) -> bool:
        """Whether all conditions hold at a point; UsageError as ``Condition.holds``."""
        if not self.conditions:
            return True
        values = {**self.entry.params, **point.values()}
        return all(condition.holds(values) for condition in self.conditions)


def read_space(path: str | Path) -> Space:
    """Read and check a file; UsageError or TopologyError says what is wrong with it."""
    file = Path(path)
    given = _read_yaml(file)
    unknown = [str(name) for name in given if name not in _FIELDS]
    if unknown:
        valid = ", ".join(_FIELDS)
        raise UsageError(f"{file}: unknown field {unknown[0]!r}; valid: {valid}")
    options = _options(file, given)
    load_plugins(options.plugins)
    bench = _text(file, given, "bench")
    if bench is None:
        raise UsageError(f"{file}: bench is missing: a name, or the path of a .py file")
    if bench.endswith(".py"):
        bench = _beside(file, bench)
    entry = find_bench(bench)
    axes = [*_axes(file, given, "set"), *_axes(file, given, "spec")]
    axes.append(read_axis("seed", "seed", given.get("seed", 0)))
    _check_axes(entry, axes, options)
    axes = [_as_meant(entry, axis) for axis in axes]
    texts = _texts(file, given, "where")
    conditions = tuple(parse_condition(text) for text in texts)
    names = {*entry.params, *(axis.name for axis in axes)}
    for condition in conditions:
        for name in sorted(condition.names - names):
            raise UsageError(
                f"where: {condition.text!r}: no value {name!r}; there are: "
                f"{', '.join(sorted(names))}"
            )
    objectives = _objectives(file, given.get("objectives", "end_ns"))
    return Space(bench, entry, tuple(axes), conditions, objectives, options)


def _read_yaml(file: Path) -> Mapping[Any, Any]:
    """The mapping in a file."""
    try:
        with file.open("rb") as stream:
            raw = stream.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise UsageError(f"{file}: has more than {_MOST_BYTES >> 20} MiB")
        text = raw.decode("utf-8-sig")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_twice(file, node)
        given = yaml.safe_load(text)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not a UTF-8 text file: {error.reason}") from None
    except RecursionError:
        raise UsageError(f"{file}: nested too deeply; a space has 3 levels") from None
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = 1 if mark is None else mark.line + 1
        why = getattr(error, "problem", None) or str(error)
        raise UsageError(f"{file}:{line}: not valid YAML: {why}") from None
    if not isinstance(given, Mapping):
        raise UsageError(f"{file}: must be a mapping of: {', '.join(_FIELDS)}")
    return given


def _refuse_twice(file: Path, node: yaml.Node | None, level: int = 0) -> None:
    """UsageError for a name that a mapping has twice; YAML would take the last one."""
    if not isinstance(node, yaml.MappingNode) or level > 2:
        return
    seen: set[str] = set()
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                line = key.start_mark.line + 1
                raise UsageError(f"{file}:{line}: {key.value!r} is given twice")
            seen.add(key.value)
        _refuse_twice(file, value, level + 1)


def _options(file: Path, given: Mapping[Any, Any]) -> RunOptions:
    """What all points have in common."""
    verify = given.get("verify", True)
    if not isinstance(verify, bool):
        raise UsageError(f"{file}: verify: must be true or false, not {verify!r}")
    max_ns = _limit(file, given, "max_ns")
    max_ops = _limit(file, given, "max_ops")
    if isinstance(max_ops, float):
        raise UsageError(f"{file}: max_ops: must be a whole number, not {max_ops}")
    if isinstance(max_ns, float) and not math.isfinite(max_ns):
        raise UsageError(
            f"{file}: max_ns: {max_ns} is no time; leave it out for no limit"
        )
    check_numbers(0, max_ns, max_ops)
    topology = _text(file, given, "topology")
    ccl = _text(file, given, "ccl")
    return RunOptions(
        topology=None if topology is None else _beside(file, topology),
        ccl=None if ccl is None else _beside(file, ccl),
        plugins=tuple(_beside(file, path) for path in _texts(file, given, "plugins")),
        verify=verify,
        max_ns=max_ns,
        max_ops=max_ops,
    )


def _limit(file: Path, given: Mapping[Any, Any], name: str) -> int | float | None:
    """The number of a field that ends runs; None if it is left out."""
    value = given.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not is_number:
        raise UsageError(f"{file}: {name}: must be a number, not {value!r}")
    return value


def _beside(file: Path, path: str) -> str:
    """The absolute path of a file that a space names."""
    return str((file.parent / path).absolute())


def _text(file: Path, given: Mapping[Any, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{file}: {name}: must be a text, not {value!r}")
    return value


def _texts(file: Path, given: Mapping[Any, Any], name: str) -> list[str]:
    """The texts of a field that may have one or a list of them."""
    value = given.get(name)
    if value is None:
        return []
    given_texts = value if isinstance(value, list) else [value]
    texts = [text for text in given_texts if isinstance(text, str)]
    if len(texts) < len(given_texts):
        raise UsageError(f"{file}: {name}: must be a text, or a list of texts")
    return texts


def _axes(file: Path, given: Mapping[Any, Any], part: Part) -> list[Axis]:
    """The axes of ``set`` or ``spec``."""
    named = given.get(part)
    if named is None:
        return []
    if not isinstance(named, Mapping):
        raise UsageError(f"{file}: {part}: must be a mapping of names to values")
    return [read_axis(part, str(name), values) for name, values in named.items()]


def _check_axes(entry: Bench, axes: Sequence[Axis], options: RunOptions) -> None:
    """UsageError or TopologyError for a name that there is not, and for a wrong type.

    Of a range the first value stands for all.
    """
    fields = [path for path, _ in leaf_types(TopologySpec)]
    by_name: dict[str, Axis] = {}
    by_path: dict[str, Axis] = {}
    for axis in axes:
        if axis.name in by_name:
            raise UsageError(
                f"{axis.label}: {by_name[axis.name].label} has that name too; write "
                "the field of the machine with its whole path"
            )
        by_name[axis.name] = axis
        path = _whole_path(axis.name, fields)
        if axis.part == "spec" and path is not None:
            if path in by_path:
                raise UsageError(
                    f"{axis.label}: {by_path[path].label} is the same field, {path}; "
                    "write it once"
                )
            by_path[path] = axis
        values = [axis.low] if axis.values is None else axis.values
        if isinstance(values, range):
            values = values[:1]
        for value in values:
            if axis.part == "set":
                bind_params(entry, {axis.name: value})
            elif axis.part == "seed":
                _check_seed(value)
            elif path is None:
                load_spec(options.topology_file, {axis.name: value})
    load_spec(options.topology_file)


def _as_meant(entry: Bench, axis: Axis) -> Axis:
    """A checked axis, in which a text is the value that a run makes of it.

    YAML 1.1 takes 1e3 for a text. To a condition it has to be the number that it is to
    the bench, or to the machine.
    """
    if not isinstance(axis.values, tuple):
        return axis
    values = []
    for value in axis.values:
        meant = value
        if isinstance(value, str) and axis.part == "set":
            meant = bind_params(entry, {axis.name: value})[axis.name]
        elif isinstance(value, str) and axis.part == "spec":
            meant = converted(value, _type_of(axis.name))
        values.append(meant)
    return replace(axis, values=tuple(values))


def _type_of(name: str) -> Any:
    """The type of the field of the machine that is meant; None if that is no one."""
    types = dict(leaf_types(TopologySpec))
    path = _whole_path(name, list(types))
    return None if path is None else types[path]


def _whole_path(name: str, fields: Sequence[str]) -> str | None:
    """The one field of the machine that is meant; None if that is none or several."""
    if name in fields:
        return name
    found = [path for path in fields if path.endswith(f".{name}")]
    return found[0] if len(found) == 1 else None


def _check_seed(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"seed: must be a whole number, not {value!r}")
    check_numbers(value, None, None)


def _objectives(file: Path, given: Any) -> tuple[Objective, ...]:
    """The columns that are to be least or most."""
    named = given
    if isinstance(given, str):
        named = [given]
    if isinstance(named, list):
        named = {
            column: "max" if column in _BETTER_HIGH else "min"
            for column in map(str, named)
        }
    if not isinstance(named, Mapping) or not named:
        raise UsageError(
            f"{file}: objectives: must be a column, a list of columns, or columns with "
            "min or max"
        )
    objectives = []
    for column, direction in named.items():
        check_column(f"{file}: objectives", str(column))
        if direction not in ("min", "max"):
            raise UsageError(
                f"{file}: objectives: {column}: must be min or max, not {direction!r}"
            )
        objectives.append(Objective(str(column), direction))
    return tuple(objectives)
