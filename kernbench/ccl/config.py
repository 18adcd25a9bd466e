"""``ccl.yaml`` (ADR-0032 D6): queues between PEs, and algorithms that use them.

Nothing is imported because a file names it: a module is ours, or is loaded.
"""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from kernbench.ccl import algorithms
from kernbench.ccl.contract import SE_CORNER, unkept
from kernbench.common.phys_addr import MAX_CUBES
from kernbench.errors import TopologyError
from kernbench.topology.provenance import assumed
from kernbench.topology.section import (
    Count,
    NonNegative,
    Range,
    Section,
    SpecFile,
    wrong_fields,
)

SHIPPED = Path(__file__).parents[1] / "configs" / "ccl.yaml"


class QueueSpec(Section):
    """The receive rings, one a direction, and what an algorithm needs beside them.

    ``call_overhead_ns`` is what software takes for a call of a collective, before its
    kernel is launched; 0, the default, means that it is left out. ``n_elem`` elements a
    cube are what a bench takes by default. The topology of the SIPs is not said here:
    it is that of topology.yaml.
    """

    topology: Annotated[str, ("none",)] = assumed("none", "said in topology.yaml")
    buffer_kind: Annotated[str, ("tcm", "sram", "hbm")] = assumed(
        "tcm", "the memory that is nearest"
    )
    slots: Count = assumed(4, "enough for a link inside a SIP at slots of 4 KiB")
    slot_bytes: Count = assumed(4096, "as a burst of the DMA")
    credit_bytes: Count = assumed(16, "an address and a count")
    call_overhead_ns: NonNegative = assumed(0.0, "left out")
    n_elem: Count = assumed(8, "a bench that is small")


class DefaultsSpec(QueueSpec):
    """What holds for every algorithm that does not say otherwise.

    ``algorithm`` is the one that is taken where none is named.
    """

    algorithm: str = assumed("intercube_allreduce", "few messages, for small tensors")


class EntrySpec(QueueSpec):
    """One algorithm as the file has it: its module, and the cube that it reduces to.

    ``root_cube`` is an override: without it that is the SE corner of the mesh.
    """

    module: str = field(kw_only=True)
    root_cube: Annotated[int, Range(SE_CORNER, MAX_CUBES - 1)] = SE_CORNER


class AlgorithmSpec(EntrySpec):
    """One algorithm, the defaults filled in."""

    name: str = ""

    def load(self) -> ModuleType:
        """The module; TopologyError if it is not loaded, or does not keep to D7."""
        where = f"ccl: algorithms.{self.name}.module: {self.module}"
        if self.module not in sys.modules:
            ours = f"{algorithms.__name__}."
            shipped = [name for name in sys.modules if name.startswith(ours)]
            raise TopologyError(
                f"{where} is not loaded, and a ccl.yaml loads none; give the file that "
                f"has it as --plugin FILE.py, or name one of {', '.join(shipped)}"
            )
        module = sys.modules[self.module]
        problem = unkept(module)
        if problem:
            raise TopologyError(f"{where} {problem}")
        return module


class AlgorithmsSpec(Section):
    """The algorithms by name."""

    entry = EntrySpec


class CclFile(Section):
    """The whole file."""

    defaults: DefaultsSpec = DefaultsSpec()
    algorithms: AlgorithmsSpec = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class CclSpec:
    """All algorithms by name; ``dist.all_reduce`` takes the ``default``."""

    default: str
    algorithms: Mapping[str, AlgorithmSpec]

    def of(self, name: str | None = None) -> AlgorithmSpec:
        """An algorithm, None: the default; TopologyError lists the valid names."""
        if not name:
            name = self.default
        if name not in self.algorithms:
            valid = ", ".join(self.algorithms)
            raise TopologyError(f"ccl: unknown algorithm {name!r}; valid: {valid}")
        return self.algorithms[name]


def load_ccl(path: str | Path | None = None) -> CclSpec:
    """The spec in a YAML file; None is the shipped one.

    TopologyError names the file, line and field of what is wrong.
    """
    file = SpecFile(Path(path or SHIPPED), CclFile)
    sections = _by_section(file.read())
    defaults = DefaultsSpec(**sections.pop("defaults", {}))
    _check(file, "defaults", defaults)
    shared = asdict(defaults)
    chosen = shared.pop("algorithm")
    specs: dict[str, AlgorithmSpec] = {}
    for section, own in sections.items():
        name = section.removeprefix("algorithms.")
        spec = AlgorithmSpec(**shared | own, name=name)
        _check(file, section, spec)
        specs[name] = spec
    if chosen not in specs:
        wrong = f"must be one of {', '.join(specs)}, not {chosen!r}"
        raise TopologyError(f"{file.where('defaults.algorithm')}: {wrong}")
    return CclSpec(chosen, specs)


def recorded_ccl(stated: Mapping[str, Any]) -> CclSpec:
    """The spec that a trace has as maps; TopologyError for what is none."""
    where = "ccl of the trace"
    default = stated.get("default")
    algorithms = stated.get("algorithms")
    if not isinstance(default, str) or not isinstance(algorithms, Mapping):
        raise TopologyError(f"{where}: has no default or no algorithms")
    specs: dict[str, AlgorithmSpec] = {}
    for name, fields in algorithms.items():
        try:
            spec = AlgorithmSpec(**fields)
        except TypeError as why:
            raise TopologyError(
                f"{where}: {name}: {why}; run the trace with the kernbench that "
                "recorded it"
            ) from None
        for field_path, problem in wrong_fields(spec, f"{where}: {name}."):
            raise TopologyError(f"{field_path}: {problem}")
        specs[name] = spec
    return CclSpec(default, specs)


def queues_of(cfg: Mapping[str, Any]) -> QueueSpec:
    """The queues that a mapping of an entry's fields says, the rest by default.

    TopologyError for a field that no ccl.yaml has, and for a wrong value.
    """
    fields = DefaultsSpec.field_types() | AlgorithmSpec.field_types()
    for name in cfg:
        if name not in fields:
            valid = ", ".join(fields)
            raise TopologyError(f"cfg: unknown field {name!r}; valid: {valid}")
    own = {name: cfg[name] for name in QueueSpec.field_types() if name in cfg}
    queues = QueueSpec(**own)
    for field_path, problem in wrong_fields(queues, "cfg."):
        raise TopologyError(f"{field_path}: {problem}")
    return queues


def _by_section(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The fields of each section of the file, for fields by dotted path."""
    sections: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        section, _, name = path.rpartition(".")
        sections.setdefault(section, {})[name] = value
    return sections


def _check(file: SpecFile, path: str, section: Section) -> None:
    """TopologyError for the first field of a section that is wrong."""
    for field_path, problem in wrong_fields(section, f"{path}."):
        raise TopologyError(f"{file.where(field_path)}: {problem}")
