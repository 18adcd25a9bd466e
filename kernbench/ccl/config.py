"""``ccl.yaml``: the queues between PEs and the algorithms that use them (ADR-0032 D6)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from kernbench.common.phys_addr import MAX_CUBES
from kernbench.errors import TopologyError
from kernbench.topology.section import Count, Range, Section, SpecFile, wrong_fields

SHIPPED = Path(__file__).parents[1] / "configs" / "ccl.yaml"
NO_ROOT = -1  # of an algorithm without a root cube
SYMBOLS = (  # of the module of an algorithm
    *("kernel", "kernel_args", "TOPO_NAME_TO_KIND"),
    *("SIP_TOPO_RING", "SIP_TOPO_TORUS", "SIP_TOPO_MESH"),
)


class QueueSpec(Section):
    """The receive rings, one a direction, and what an algorithm needs beside them.

    ``n_elem`` elements a cube are what a bench takes by default; the topology of the SIPs is that
    of topology.yaml.
    """

    topology: Annotated[str, ("none",)] = "none"
    buffer_kind: Annotated[str, ("tcm", "sram", "hbm")] = "tcm"
    slots: Count = 4
    slot_bytes: Count = 4096
    credit_bytes: Count = 16
    n_elem: Count = 8


class DefaultsSpec(QueueSpec):
    """What holds for every algorithm that does not say otherwise; which one is taken."""

    algorithm: str = "intercube_allreduce"


class EntrySpec(QueueSpec):
    """One algorithm as the file has it."""

    module: str = field(kw_only=True)
    root_cube: Annotated[int, Range(NO_ROOT, MAX_CUBES - 1)] = NO_ROOT


class AlgorithmSpec(EntrySpec):
    """One algorithm, the defaults filled in."""

    name: str = ""

    def load(self) -> ModuleType:
        """The module; TopologyError if there is none, or it lacks a symbol of ADR-0032 D7."""
        where = f"ccl: algorithms.{self.name}.module: {self.module}"
        try:
            module = import_module(self.module)
        except ImportError as error:
            raise TopologyError(f"{where} cannot be imported: {error}") from error
        lacking = [name for name in SYMBOLS if not hasattr(module, name)]
        if lacking:
            raise TopologyError(f"{where} lacks {', '.join(lacking)}")
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
    """All algorithms by name, and the one that ``dist.all_reduce`` takes."""

    default: str
    algorithms: Mapping[str, AlgorithmSpec]

    def of(self, name: str | None = None) -> AlgorithmSpec:
        """An algorithm, None: the default one; TopologyError lists the valid names."""
        name = name or self.default
        if name not in self.algorithms:
            valid = ", ".join(self.algorithms)
            raise TopologyError(f"ccl: unknown algorithm {name!r}; valid: {valid}")
        return self.algorithms[name]


def load_ccl(path: str | Path | None = None) -> CclSpec:
    """The spec in a YAML file, None: the shipped one; TopologyError with file, line and field."""
    file = SpecFile(Path(path or SHIPPED), CclFile)
    given: dict[str, dict[str, Any]] = {}
    for place, value in file.read().items():
        section, _, name = place.rpartition(".")
        given.setdefault(section, {})[name] = value
    defaults = DefaultsSpec(**given.pop("defaults", {}))
    shared = asdict(defaults)
    chosen = shared.pop("algorithm")
    found = {section.removeprefix("algorithms."): own for section, own in given.items()}
    specs = {
        name: AlgorithmSpec(**shared | own, name=name) for name, own in found.items()
    }
    sections = {"defaults": defaults} | {
        f"algorithms.{name}": specs[name] for name in specs
    }
    for section, spec in sections.items():
        for field_of, problem in wrong_fields(spec, f"{section}."):
            raise TopologyError(f"{file.where(field_of)}: {problem}")
    if chosen not in specs:
        wrong = f"must be one of {', '.join(specs)}, not {chosen!r}"
        raise TopologyError(f"{file.where('defaults.algorithm')}: {wrong}")
    return CclSpec(chosen, specs)
