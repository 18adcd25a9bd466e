"""What ``whatif`` predicts against what happens: every field of the machine that time
depends on, changed on every shipped bench, predicted and run.

The truth is found by running, without the predictor: a run gives the spans of its
launches and the hash of its program. A field counts if some bench takes another time
with it, and if all do the same as before.
"""

import hashlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias, get_args

import numpy as np

from kernbench.benches import SHIPPED
from kernbench.common.progress import no_progress
from kernbench.errors import KernbenchError, TopologyError
from kernbench.perf.make_trace import Tape
from kernbench.perf.sim import PerfRow
from kernbench.replay import ReplaySession
from kernbench.replay.whatif.answers import CausalProfile, Prediction
from kernbench.replay.whatif.proof import ProvedBound, prove_slack
from kernbench.runtime_api import run_bench
from kernbench.runtime_api.own_code import code_sha
from kernbench.runtime_api.proofs import Proofs
from kernbench.runtime_api.registry import BENCHES
from kernbench.runtime_api.run import RunProgress, machine_of
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.engine import GraphEngine
from kernbench.sim_engine.op_log import OpRecord
from kernbench.topology import TopologySpec, load_spec, load_topology
from kernbench.topology.graph import TopologyGraph
from kernbench.topology.section import leaf_types
from kernbench.trace import Trace

FACTORS = (0.5, 2.0, 4.0)
"""What each field is multiplied by."""

PES = 8
"""PEs of a bench that takes their number: those of a cube."""

MOVED = 0.02
"""A span has changed if it did by this share or more."""

BEST = 5
"""Improvements of a bench that are ranked."""

TIE = 0.01
"""Improvements that differ by this share of the run's end or less are equally good."""

SLACK_OPS = 400
"""Ops that are held back."""

SLACK_BENCHES = (
    *("matmul", "softmax", "flash_attention"),
    *("moe_route", "ccl_allreduce", "pointer_chase"),
)
"""Programs with contention (products, experts) and without (chase)."""

SPEED_OPS = 1_000_000
"""Ops of the trace on which the time is taken."""

_UNSURE_SECTIONS = ("pe.tile.", "cube.mesh.", "cube.hbm_zone.", "sip.cube_mesh.")
_UNSURE_FIELDS = (
    *("system.sips.count", "sip.io.count", "cube.ucie.connections_per_side"),
    *("cube.pes", "cube.memory_map.slices_per_cube"),
    *("cube.hbm.channels", "cube.hbm.interleave_bytes"),
    *("cube.hbm.ranks", "cube.hbm.banks", "cube.hbm.bank_groups"),
    *("cube.hbm.queue", "cube.hbm.bank_queue", "cube.hbm.write_buffer"),
    *("pe.gemm.rows", "pe.gemm.cols", "pe.tcm.size_kib"),
    *("pe.dma.outstanding", "pe.dma.burst_bytes"),
)
"""What changes structure or order: array rows and columns, tile, window, outstanding,
channels, interleave, burst, slots, meshes and counts. No answer about one has to be
sure."""

_BINS = (
    (0.0, "none"),
    (0.001, "to 0.1 %"),
    (0.01, "to 1 %"),
    (0.02, "to 2 %"),
    (0.06, "to 6 %"),
    (0.1, "to 10 %"),
    (0.2, "to 20 %"),
    (math.inf, "more"),
)
"""The most that an error is, and how that reads."""

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

    ``graph`` is a hash of the machine's nodes and links by their names. ``program`` is
    one of all that it did but for times and addresses: the calls of each PE in order,
    the ops, the ways of their bytes. ``error`` ended it, or "".
    """

    case: Case
    spans: tuple[Span, ...]
    end_ns: float
    graph: str
    program: str
    error: str = ""


class Truth:
    """What all cases really did.

    ``unchanged`` is by bench. ``fields`` are those that time depends on and that leave
    graph and program as they are; ``restructuring`` are those that change them,
    ``idle`` the others.
    """

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.unchanged: dict[str, Outcome] = {}
        self.changed: list[Outcome] = []
        for outcome in outcomes:
            if outcome.case.field:
                self.changed.append(outcome)
            else:
                self.unchanged[outcome.case.bench] = outcome
        self.restructuring = self._fields_that(self._changes_structure)
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

    def _changes_structure(self, outcome: Outcome) -> bool:
        before = self.unchanged[outcome.case.bench]
        structure = (outcome.graph, outcome.program)
        return not outcome.error and structure != (before.graph, before.program)

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
    """The dotted path and the type of every field of the machine that is a number.

    What work costs in energy takes no time.
    """
    found = []
    for path, hint in leaf_types(TopologySpec):
        base = (get_args(hint) or (hint,))[0]
        if base in (int, float) and not path.startswith("energy."):
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
    graph = load_topology(None, fields)
    engine = GraphEngine(graph, recorder=tape, keep=False)
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
    return Outcome(
        case=case,
        spans=tuple(sorted(spans)),
        end_ns=engine.env.now,
        graph=shape_of(graph),
        program=program.sha,
        error=error,
    )


def shape_of(graph: TopologyGraph) -> str:
    """The SHA-256 of the names of a machine's nodes and links, in hex."""
    links = sorted((edge.src, edge.dst, edge.kind) for edge in graph.edges)
    return hashlib.sha256(repr((sorted(graph.nodes), links)).encode()).hexdigest()


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


def _no_run_progress(text: str, count: int, unit: str) -> None:
    """A ``RunProgress`` for callers who just wait."""


def truth(
    benches: Sequence[str] = SHIPPED,
    cache: Path | None = None,
    progress: RunProgress | None = None,
) -> Truth:
    """What all cases of ``benches`` do, by running them; some 20 minutes.

    What this code has found before is read from ``cache``, what is new is added to it.
    """
    notify = progress or _no_run_progress
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
            notify(f"{bench} {case.change}", len(outcomes), "runs")
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
        "graph": outcome.graph,
        "program": outcome.program,
        "error": outcome.error,
    }
    with cache.open("a") as file:
        file.write(json.dumps(row) + "\n")


def record_base(bench: str, path: Path) -> None:
    """Record a bench as it is: the trace that predictions are made from."""
    run_bench(bench, params=parameters(bench), trace=path)


# -- predictions against it ------------------------------------------------------------


class Sample(NamedTuple):
    """A launch of a case: its spans as recorded, predicted and real, ns."""

    case: Case
    launch: int
    recorded: float
    predicted: float
    real: float
    sure: bool

    @property
    def moved(self) -> bool:
        """Whether the span really changes."""
        return abs(self.real / self.recorded - 1) >= MOVED

    @property
    def predicted_to_move(self) -> bool:
        """Whether the prediction says that the span changes."""
        return abs(self.predicted / self.recorded - 1) >= MOVED

    @property
    def error(self) -> float:
        """By which share of the real span the prediction is off."""
        return abs(self.predicted / self.real - 1)

    @property
    def error_of_nothing(self) -> float:
        """The same, had it said that nothing changes."""
        return abs(self.recorded / self.real - 1)


def samples_of(outcomes: Iterable[Outcome], session: ReplaySession) -> list[Sample]:
    """What a trace's ``whatif`` says of changed runs of its bench, by launch."""
    found = []
    for outcome in outcomes:
        told = session.whatif(outcome.case.change)
        assert isinstance(told, Prediction)
        real = {span.launch: span.ns for span in outcome.spans}
        found += [
            Sample(
                outcome.case,
                launch.launch,
                launch.recorded_ns,
                launch.predicted_ns,
                real[launch.launch],
                told.sure,
            )
            for launch in told.launches
        ]
    return found


def is_named_unsure(field: str) -> bool:
    """Whether a field changes structure or order, so that no answer need be sure."""
    return field.startswith(_UNSURE_SECTIONS) or field in _UNSURE_FIELDS


def certainty_rows(samples: Sequence[Sample]) -> list[PerfRow]:
    """How good what is called sure is, and how often it is."""
    sure = [sample for sample in samples if sample.sure]
    moved = [sample for sample in sure if sample.moved]
    still = [sample for sample in sure if not sample.moved]
    errors = [sample.error for sample in moved]
    nothing = [sample.error_of_nothing for sample in moved]
    known = [s for s in samples if not is_named_unsure(s.case.field)]
    known_moved = [sample for sample in known if sample.moved]
    quiet = [not sample.predicted_to_move for sample in still]
    return [
        PerfRow("sure and moved: samples", len(moved), None, "samples"),
        PerfRow("sure and moved: median error", 100 * _median(errors), 1.0, "%"),
        PerfRow("sure and moved: 95th percentile", 100 * _at(errors, 95), 6.0, "%"),
        PerfRow("sure and moved: largest error", 100 * _at(errors, 100), None, "%"),
        PerfRow('"nothing changes": median', 100 * _median(nothing), None, "%"),
        PerfRow('"nothing changes": 95th', 100 * _at(nothing, 95), None, "%"),
        PerfRow("sure and not moved: samples", len(still), None, "samples"),
        PerfRow("of these predicted not to", 100 * _share(quiet), 95.0, "%", True),
        PerfRow(
            "sure, of fields that could be",
            100 * _share([sample.sure for sample in known]),
            80.0,
            "%",
            True,
        ),
        PerfRow(
            "sure, of those that moved",
            100 * _share([sample.sure for sample in known_moved]),
            None,
            "%",
        ),
    ]


def _median(numbers: Sequence[float]) -> float:
    return _at(numbers, 50)


def _at(numbers: Sequence[float], percent: float) -> float:
    """A percentile; NaN of no number."""
    return float(np.percentile(numbers, percent)) if numbers else math.nan


def _share(verdicts: Sequence[bool]) -> float:
    """How many of them hold; NaN of none."""
    return sum(verdicts) / len(verdicts) if verdicts else math.nan


def distribution(samples: Sequence[Sample]) -> list[str]:
    """Tables in Markdown: samples that moved by their error, and the same by field."""
    moved = [sample for sample in samples if sample.moved]
    columns = {
        "sure": [sample.error for sample in moved if sample.sure],
        "unsure": [sample.error for sample in moved if not sample.sure],
        '"nothing changes"': [sample.error_of_nothing for sample in moved],
    }
    lines = [f"| error | {' | '.join(columns)} |", "|---|---:|---:|---:|"]
    low = -math.inf
    for high, name in _BINS:
        counts = [
            sum(low < error <= high for error in errors) for errors in columns.values()
        ]
        lines.append(f"| {name} | {' | '.join(f'{n:,}' for n in counts)} |")
        low = high
    for percent in (50, 90, 95, 100):
        name = f"{percent}th percentile"
        shares = [f"{_at(errors, percent):.2%}" for errors in columns.values()]
        lines.append(f"| {name} | {' | '.join(shares)} |")
    lines += ["", "| field | moved | sure | median | largest | largest, sure |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for field in dict.fromkeys(sample.case.field for sample in moved):
        lines.append(_line_of_field(field, moved))
    return lines


def _line_of_field(field: str, moved: Sequence[Sample]) -> str:
    """The row of a field in the table of fields."""
    mine = [sample for sample in moved if sample.case.field == field]
    errors = [sample.error for sample in mine]
    sure = [sample.error for sample in mine if sample.sure]
    largest = f"{max(sure):.2%}" if sure else ""
    return (
        f"| {field} | {len(mine)} | {len(sure)} | {_median(errors):.2%} | "
        f"{max(errors):.2%} | {largest} |"
    )


# -- the causal profile ----------------------------------------------------------------


def kendall_tau(told: Sequence[float], real: Sequence[float], tie: float) -> float:
    """How well two rankings agree, from -1 to 1; 1 where no pair can be told apart.

    A pair whose numbers differ by no more than ``tie`` in either of the two is a tie,
    and does not count.
    """
    agree = 0
    differ = 0
    for (told_a, real_a), (told_b, real_b) in combinations(
        zip(told, real, strict=True), 2
    ):
        told_gap = told_a - told_b
        real_gap = real_a - real_b
        if min(abs(told_gap), abs(real_gap)) <= tie:
            continue
        if (told_gap > 0) == (real_gap > 0):
            agree += 1
        else:
            differ += 1
    return (agree - differ) / (agree + differ) if agree + differ else 1.0


def ranking(bench: str, session: ReplaySession) -> float:
    """Kendall's tau of the best improvements of a bench against their re-runs."""
    profile = session.whatif()
    assert isinstance(profile, CausalProfile)
    best = [gain for gain in profile.gains if gain.change][:BEST]
    real = []
    for gain in best:
        field, _, value = gain.change.partition("=")
        case = Case(bench, field, math.nan, json.loads(value))
        real.append(run_case(case).end_ns)
    told = [gain.predicted_ns for gain in best]
    return kendall_tau(told, real, TIE * profile.end_ns)


# -- slack -----------------------------------------------------------------------------


def slack_rows(folder: Path, ops: int, progress: RunProgress) -> list[PerfRow]:
    """Some ops of each of SLACK_BENCHES held back for real; their traces are there."""
    trials: list[ProvedBound] = []
    rng = np.random.default_rng(0)
    for bench in SLACK_BENCHES:
        session = ReplaySession(Trace.open(folder / f"{bench}.msgpack"))
        named = np.flatnonzero(session.trace.op_columns.cmd[:] >= 0)
        with TemporaryDirectory() as reruns:
            proofs = Proofs(session.trace, Path(reruns))
            count = min(ops // len(SLACK_BENCHES) + 1, len(named))
            for row in rng.choice(named, count, replace=False).tolist():
                op = int(session.trace.position[row])
                progress(f"slack of {bench}", len(trials), "ops")
                trials.append(
                    prove_slack(
                        session.trace,
                        session.bound(op),
                        lambda spec, delays, proofs=proofs: proofs.run({}, delays),
                        no_progress,
                    )
                )
    wrong = [trial for trial in trials if not trial.ok]
    unmarked = [trial for trial in wrong if trial.bound.sure]
    share = _share([trial.ok for trial in trials])
    return [
        PerfRow("slack: ops held back", len(trials), None, "ops"),
        PerfRow("slack: within 1 ns as told", 100 * share, 97.0, "%", True),
        PerfRow("slack: wrong, yet called sure", len(unmarked), 0.0, "ops"),
    ]


# -- speed -----------------------------------------------------------------------------


def speed_rows(ops: int) -> list[PerfRow]:
    """Seconds of CPU time of predictions and of a profile, and the most memory."""
    python = [sys.executable, "-m"]
    with TemporaryDirectory() as folder:
        path = f"{folder}/large.msgpack"
        make = [*python, "kernbench.cli", "perf", "make-trace", f"--ops={ops}"]
        subprocess.run([*make, "-o", path], check=True)
        ask = [*python, "kernbench.perf.whatif_speed", path]
        done = subprocess.run(ask, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    what = f"{ops:,} ops"
    return [
        PerfRow(f"a first prediction, {what}", found["predict_s"], 2.0, "s"),
        PerfRow(f"a further prediction, {what}", found["further_s"], 2.0, "s"),
        PerfRow(f"the causal profile, {what}", found["profile_s"], 20.0, "s"),
        PerfRow(f"peak memory, {what}", found["peak_mib"], 2048.0, "MiB"),
    ]


# -- all of it -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figures:
    """The goals, and how the errors are distributed, as tables in Markdown."""

    rows: list[PerfRow]
    tables: list[str]


def measure(
    benches: Sequence[str] = SHIPPED,
    cache: Path | None = None,
    slack_ops: int = SLACK_OPS,
    speed_ops: int = SPEED_OPS,
    progress: RunProgress | None = None,
) -> Figures:
    """Measure everything; half an hour, some minutes where ``cache`` has the truth."""
    notify = progress or _no_run_progress
    rows = speed_rows(speed_ops)  # first: a child's peak begins at its parent's
    found = truth(benches, cache, notify)
    with TemporaryDirectory() as name:
        folder = Path(name)
        for bench in dict.fromkeys((*benches, *SLACK_BENCHES)):
            record_base(bench, folder / f"{bench}.msgpack")
        samples: list[Sample] = []
        taus = []
        for bench in benches:
            notify(f"predictions of {bench}", len(samples), "samples")
            session = ReplaySession(Trace.open(folder / f"{bench}.msgpack"))
            mine = [o for o in found.cases() if o.case.bench == bench]
            samples += samples_of(mine, session)
            taus.append(
                PerfRow(f"tau of {bench}", ranking(bench, session), 0.8, "", True)
            )
        rows += [*certainty_rows(samples), *taus]
        rows += slack_rows(folder, slack_ops, notify)
    return Figures(rows, distribution(samples))
