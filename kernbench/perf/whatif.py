"""What ``whatif`` predicts against what happens: every field of the machine that time
depends on, changed on every shipped bench, predicted and run.

The truth is found by running, without the predictor: a run gives the spans of its
launches and the hash of its program. A field counts if some bench takes another time
with it, and if all do the same as before.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, get_args

from kernbench.benches import SHIPPED
from kernbench.errors import KernbenchError, TopologyError
from kernbench.perf.make_trace import Tape
from kernbench.runtime_api import run_bench
from kernbench.runtime_api.own_code import code_sha
from kernbench.runtime_api.registry import BENCHES
from kernbench.runtime_api.run import machine_of
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.engine import GraphEngine
from kernbench.sim_engine.op_log import OpRecord
from kernbench.topology import TopologySpec, load_spec, load_topology
from kernbench.topology.section import leaf_types

FACTORS = (0.5, 2.0, 4.0)
"""What each field is multiplied by."""

PES = 8
"""PEs of a bench that takes their number: those of a cube."""

Number: TypeAlias = int | float


class Case(NamedTuple):
    """A bench with one field of its machine changed; no field, of factor 1: as it is.

    ``value`` is that of the field then.
    """

    bench: str
    field: str = ""
    factor: float = 1.0
    value: Number = 0

    @property
    def change(self) -> str:
        """As ``whatif`` takes it."""
        return f"{self.field}={self.value!r}"


class Span(NamedTuple):
    """A launch, from the start of its first PE to the end of its last, ns."""

    launch: int
    kernel: str
    t_start: float
    t_end: float

    @property
    def ns(self) -> float:
        """How long it took."""
        return self.t_end - self.t_start


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of a case did.

    ``program`` is a hash of all that it did but for times and addresses: the calls of
    each PE in order, the ops, the ways of their bytes. ``error`` ended it, or "".
    """

    case: Case
    spans: tuple[Span, ...]
    end_ns: float
    program: str
    error: str = ""


class Truth:
    """What all cases really did.

    ``unchanged`` is by bench. ``fields`` are those that time depends on and that leave
    the program as it is; ``restructuring`` are those that change it, ``idle`` the
    others.
    """

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.unchanged: dict[str, Outcome] = {}
        self.changed: list[Outcome] = []
        for outcome in outcomes:
            if outcome.case.field:
                self.changed.append(outcome)
            else:
                self.unchanged[outcome.case.bench] = outcome
        self.restructuring = self._fields_that(self._changes_program)
        moving = self._fields_that(self._changes_time)
        self.fields = tuple(f for f in moving if f not in self.restructuring)
        known = dict.fromkeys(outcome.case.field for outcome in self.changed)
        self.idle = tuple(
            field
            for field in known
            if field not in self.restructuring and field not in self.fields
        )

    def cases(self) -> list[Outcome]:
        """The outcomes of the fields that count, of runs that have ended well."""
        return [
            outcome
            for outcome in self.changed
            if outcome.case.field in self.fields and not outcome.error
        ]

    def _fields_that(self, does: Callable[[Outcome], bool]) -> tuple[str, ...]:
        """The fields of which some outcome is so, each once, in order."""
        found = dict.fromkeys(o.case.field for o in self.changed if does(o))
        return tuple(found)

    def _changes_program(self, outcome: Outcome) -> bool:
        before = self.unchanged[outcome.case.bench]
        return not outcome.error and outcome.program != before.program

    def _changes_time(self, outcome: Outcome) -> bool:
        before = self.unchanged[outcome.case.bench]
        times = (outcome.end_ns, outcome.spans)
        return not outcome.error and times != (before.end_ns, before.spans)


# -- the cases -------------------------------------------------------------------------


def parameters(bench: str) -> dict[str, Any]:
    """The parameters of a bench in all cases: its defaults, on a cube's PEs."""
    given = dict(BENCHES[bench].params)
    if "pes" in given:
        given["pes"] = PES
    return given


def numeric_fields() -> list[tuple[str, type]]:
    """The dotted path and the type of every field of the machine that is a number."""
    found = []
    for path, hint in leaf_types(TopologySpec):
        base = (get_args(hint) or (hint,))[0]
        if base in (int, float):
            found.append((path, base))
    return found


def cases_of(bench: str) -> Iterator[Case]:
    """The bench as it is, then every field times every factor; whole numbers rounded.

    Values that are as before, or that the machine cannot have, are left out.
    """
    yield Case(bench)
    asked = machine_of(BENCHES[bench], parameters(bench))
    spec = load_spec(None, asked)
    for field, kind in numeric_fields():
        before = attrgetter(field)(spec)
        for factor in FACTORS:
            value = before * factor
            if kind is int:
                value = round(value)
            if value != before and _is_valid({**asked, field: value}):
                yield Case(bench, field, factor, value)


def _is_valid(fields: Mapping[str, Any]) -> bool:
    try:
        load_spec(None, fields)
    except TopologyError:
        return False
    return True


# -- running them ----------------------------------------------------------------------


def run_case(case: Case) -> Outcome:
    """Run a case, in this process, without data being verified."""
    entry = BENCHES[case.bench]
    given = parameters(case.bench)
    fields = machine_of(entry, given)
    if case.field:
        fields = {**fields, case.field: case.value}
    tape: Any = Tape()
    engine = GraphEngine(load_topology(None, fields), recorder=tape, keep=False)
    torch = Torch(engine)
    error = ""
    try:
        engine.run(lambda _: entry.run(torch, **given))
    except KernbenchError as why:
        error = f"{type(why).__name__}: {why}"
    spans = []
    program = _Program()
    for name, args in tape.events:
        if name == "launch":
            launch, kernel, _, _, t_start, t_end = args
            spans.append(Span(launch, kernel, t_start, t_end))
        elif name == "command":
            program.command(*args[:5])
        elif name == "op":
            program.op(args[1], args[5])
        elif name == "transfer":
            program.ways.add(args[1][0])
    return Outcome(case, tuple(sorted(spans)), engine.env.now, program.sha, error)


class _Program:
    """What a run did, but for times and addresses."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.ops: list[str] = []
        self.ways: set[tuple[str, ...]] = set()

    def command(self, cmd: int, pe: str, launch: int, call: str, site: Any) -> None:
        """Take a call of a PE; numbers are given in the order of time."""
        self.calls.append((pe, cmd, launch, call, site))

    def op(self, record: OpRecord, transfers: Sequence[Any]) -> None:
        """Take an op, and the ways that its bytes went."""
        params = {
            name: value
            for name, value in record.params.items()
            if "addr" not in name and isinstance(value, int | str | tuple | list)
        }
        self.ops.append(f"{record.component_id} {record.op_name} {params}")
        for way, *_ in transfers:
            self.ways.add(way)

    @property
    def sha(self) -> str:
        """The SHA-256 of it, in hex; numbers of calls do not count."""
        calls = [(pe, *rest) for pe, _, *rest in sorted(self.calls)]
        whole = repr((calls, sorted(self.ops), sorted(self.ways)))
        return hashlib.sha256(whole.encode()).hexdigest()


def truth(
    benches: Sequence[str] = SHIPPED,
    cache: Path | None = None,
    progress: Callable[[Case], object] | None = None,
) -> Truth:
    """What all cases of ``benches`` do, by running them; some 20 minutes.

    What this code has found before is read from ``cache``, what is new is added to it.
    """
    known = {}
    if cache is not None:
        known = read_outcomes(cache)
    outcomes = []
    for bench in benches:
        for case in cases_of(bench):
            outcome = known.get(case)
            if outcome is None:
                outcome = run_case(case)
                if cache is not None:
                    _append(cache, outcome)
            outcomes.append(outcome)
            if progress is not None:
                progress(case)
    return Truth(outcomes)


def read_outcomes(cache: Path) -> dict[Case, Outcome]:
    """The outcomes that this code has added to a file; none if there is no file."""
    if not cache.exists():
        return {}
    found = {}
    with cache.open() as file:
        for line in file:
            row = json.loads(line)
            if row.pop("code_sha") != code_sha():
                continue
            case = Case(*row["case"])
            spans = tuple(Span(*span) for span in row["spans"])
            found[case] = Outcome(**{**row, "case": case, "spans": spans})
    return found


def _append(cache: Path, outcome: Outcome) -> None:
    """Add an outcome to a file, as a line of JSON."""
    row = {
        "code_sha": code_sha(),
        "case": outcome.case,
        "spans": outcome.spans,
        "end_ns": outcome.end_ns,
        "program": outcome.program,
        "error": outcome.error,
    }
    with cache.open("a") as file:
        file.write(json.dumps(row) + "\n")


def record_base(bench: str, path: Path) -> None:
    """Record a bench as it is: the trace that predictions are made from."""
    run_bench(bench, params=parameters(bench), trace=path)
