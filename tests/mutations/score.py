"""How many mistakes are found: mutants judged by what is known of them without asking.

    python tests/mutations/score.py                      all mutants on all machines
    python tests/mutations/score.py --only halo/         those whose name has a text
    python tests/mutations/score.py --jobs 2             the same by two processes
    python tests/mutations/score.py --anew               the truth made again and saved
    python tests/mutations/score.py --only NAME --machine slow --keep /tmp/m

What is known comes from runs with delays (``trials.py``) and is kept in
``witnesses.json``; what is found comes from ``kernbench trace hazards`` and, if there
is such a command, ``kernbench trace diagnose``.
"""

import argparse
import gc
import hashlib
import json
import os
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import patch

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parent))

from click.testing import CliRunner
from held import DELAYS_NS, SEEDS
from kernel_mutants import HERE, RULES, Mutant, all_mutants, right
from trials import MACHINES, Outcome, Truth, Written, truth_of

from kernbench.cli import main

WITNESSES = HERE / "witnesses.json"
TOP = 3
"""A line among so many first findings is found."""

NOT_TIMED = Truth("", "")
_SITE = re.compile(r"([\w.]+\.py):(\d+)")
_UNKNOWN_COMMAND = 2


# -- the truth, kept -------------------------------------------------------------------


class Witnesses:
    """What is known of mutants, by what they are; kept in a file."""

    def __init__(self, path: Path = WITNESSES) -> None:
        self._path = path
        self._known: dict[str, dict] = {}
        if path.exists():
            self._known = json.loads(path.read_text())

    @property
    def names(self) -> list[str]:
        """The names of all mutants of which something is known."""
        return [known["mutant"] for known in self._known.values()]

    def get(self, mutant: Mutant) -> Truth | None:
        """What is known of a mutant; None if nothing is."""
        known = self._known.get(_key(mutant))
        if known is None:
            return None
        return Truth(known["by_runs"], known["by_bytes"])

    def put(self, mutant: Mutant, truth: Truth) -> None:
        """Keep what has been found out."""
        self._known[_key(mutant)] = {"mutant": mutant.name, **asdict(truth)}

    def forget(self, mutants: Iterable[Mutant]) -> None:
        """Have nothing known of these mutants."""
        for mutant in mutants:
            self._known.pop(_key(mutant), None)

    def save(self, mutants: Iterable[Mutant]) -> None:
        """Write what is known of these mutants, a line each; others may read it."""
        lines = []
        for mutant in mutants:
            key = _key(mutant)
            if key in self._known:
                lines.append(f"{json.dumps(key)}: {json.dumps(self._known[key])}")
        text = ",\n".join(lines)
        new = self._path.with_suffix(".new")
        new.write_text(f"{{\n{text}\n}}\n")
        new.replace(self._path)


def _key(mutant: Mutant) -> str:
    """The SHA-256 of a mutant and of the machines, as much of it as is needed."""
    whole = f"{mutant.sha} {MACHINES} {DELAYS_NS} {SEEDS}"
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


# -- what is found ---------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What a command says of a trace: how many findings, and which names the line.

    ``rank`` counts from 1; None if no finding names it.
    """

    findings: int
    rank: int | None


def asked(command: str, trace: Path, mutant: Mutant) -> Found | None:
    """What ``kernbench trace COMMAND`` finds; None if there is no such command."""
    answer = CliRunner().invoke(main, ["trace", command, str(trace), "--json"])
    if answer.exit_code == _UNKNOWN_COMMAND:
        return None
    if answer.exit_code not in (0, 1):
        raise RuntimeError(f"{command} of {mutant.name}: {answer.output}")
    said = json.loads(answer.stdout)
    findings = said
    if isinstance(said, dict):
        findings = next(value for value in said.values() if isinstance(value, list))
    wanted = {(mutant.file_name, line) for line in mutant.lines}
    rank = None
    for place, finding in enumerate(findings, 1):
        is_slow = finding["kind"] == "slow"  # that a line takes long is no mistake
        if rank is None and not is_slow and wanted & sites_of(finding):
            rank = place
    return Found(len(findings), rank)


def sites_of(finding: object) -> set[tuple[str, int]]:
    """All lines that a finding names, each by the name of its file and its number."""
    sites = _SITE.findall(json.dumps(finding))
    return {(file, int(line)) for file, line in sites}


@dataclass(frozen=True)
class OnMachine:
    """How a mutant ends on a machine, and what is found in its trace.

    Nothing is found where there is no trace, or no such command.
    """

    outcome: Outcome
    hazards: Found | None
    diagnosis: Found | None

    @property
    def is_reported(self) -> bool:
        """Whether hazards has anything to say."""
        return self.hazards is not None and self.hazards.findings > 0


@dataclass(frozen=True)
class Judged:
    """A mutant: what is known of it, and what is found, by machine."""

    mutant: Mutant
    truth: Truth
    on: Mapping[str, OnMachine]

    @property
    def fails(self) -> bool:
        """Whether its run ends with an error on some machine."""
        return not all(row.outcome.has_ended_well for row in self.on.values())

    @property
    def is_wrong(self) -> bool:
        """Whether its result is wrong on some machine."""
        return any(row.outcome.end == "wrong" for row in self.on.values())

    @property
    def is_reported(self) -> bool:
        """Whether hazards reports it on every machine."""
        return all(row.is_reported for row in self.on.values())

    @property
    def is_reported_once(self) -> bool:
        """Whether hazards reports it on some machine."""
        return any(row.is_reported for row in self.on.values())

    def is_in_top(self, command: str) -> bool:
        """Whether the line is among the first findings, on every machine."""
        for row in self.on.values():
            found = getattr(row, command)
            if found is None or found.rank is None or found.rank > TOP:
                return False
        return True


def judged(
    mutant: Mutant,
    witnesses: Witnesses | None,
    machines: Iterable[str] = MACHINES,
    keep: Path | None = None,
) -> Judged:
    """Run a mutant, and ask of its traces; runs with delays where nothing is known.

    Without ``witnesses`` it is taken for one that does not depend on timing.
    """
    with TemporaryDirectory() as temporary:
        written = Written(mutant, keep or Path(temporary))
        on = {}
        for machine in machines:
            outcome = written.run(machine)
            hazards = None
            diagnosis = None
            if outcome.trace is not None:
                hazards = asked("hazards", outcome.trace, mutant)
                diagnosis = asked("diagnose", outcome.trace, mutant)
            on[machine] = OnMachine(outcome, hazards, diagnosis)
        truth = NOT_TIMED
        if witnesses is not None:
            truth = witnesses.get(mutant) or truth_of(written)
            witnesses.put(mutant, truth)
        return Judged(mutant, truth, on)


# -- the score -------------------------------------------------------------------------


def table(rows: Iterable[Judged]) -> str:
    """By kind of mistake: what depends on timing, and how much of it is reported."""
    heads = ("kind", "mutants", "by runs", "reported", "by bytes", "reported")
    return _by_kind((*heads, "line in 3", "quiet", "reported"), _timed_cells, rows)


def _timed_cells(rows: list[Judged]) -> list[str]:
    """Of some mutants the columns of ``table``."""
    by_runs = [row for row in rows if row.truth.by_runs]
    by_bytes = [row for row in rows if row.truth.by_bytes and not row.truth.by_runs]
    quiet = [row for row in rows if not row.truth.is_timed and not row.fails]
    timed = by_runs + by_bytes
    return [
        str(len(rows)),
        str(len(by_runs)),
        _of(sum(row.is_reported for row in by_runs), len(by_runs)),
        str(len(by_bytes)),
        _of(sum(row.is_reported for row in by_bytes), len(by_bytes)),
        _of(sum(row.is_in_top("hazards") for row in timed), len(timed)),
        str(len(quiet)),
        str(sum(row.is_reported_once for row in quiet)),
    ]


def bad_table(rows: Iterable[Judged]) -> str:
    """By kind of mistake: what is wrong or fails whatever the timing, and is found."""
    heads = ("kind", "fail", "wrong", "line in 3")
    return _by_kind(heads, _bad_cells, bad_ones(rows))


def bad_ones(rows: Iterable[Judged]) -> list[Judged]:
    """Those of some mutants that are wrong or fail whatever the timing."""
    untimed = [row for row in rows if not row.truth.is_timed]
    return [row for row in untimed if row.fails or row.is_wrong]


def _bad_cells(rows: list[Judged]) -> list[str]:
    """Of some mutants the columns of ``bad_table``."""
    fails = sum(row.fails for row in rows)
    found = sum(row.is_in_top("diagnosis") for row in rows)
    return [str(fails), str(len(rows) - fails), _of(found, len(rows))]


def _by_kind(
    heads: Sequence[str],
    cells: Callable[[list[Judged]], list[str]],
    rows: Iterable[Judged],
) -> str:
    """A table of Markdown: a line for each kind of mistake, and one for all."""
    rows = [*rows]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    for kind in (*RULES, "credit early"):
        mine = [row for row in rows if row.mutant.kind == kind]
        if mine:
            lines.append(f"| {' | '.join((kind, *cells(mine)))} |")
    lines.append(f"| {' | '.join(('all', *cells(rows)))} |")
    return "\n".join(lines)


def _of(count: int, total: int) -> str:
    """A count of a total, in per cent as well if it is not all."""
    if not total:
        return "-"
    if count == total:
        return "all"
    return f"{count} ({100 * count / total:.0f} %)"


def listing(rows: Iterable[Judged], wrong: Iterable[Judged]) -> str:
    """What is timed and not reported, and reports on right programs, to reproduce."""
    missed = []
    unwitnessed = []
    for row in rows:
        for machine, found in row.on.items():
            if row.truth.is_timed and not found.is_reported:
                by_runs = f"by runs: {row.truth.by_runs or 'no'}"
                by_bytes = f"by bytes: {row.truth.by_bytes or 'no'}"
                missed.append(_reproduced(row, machine, f"{by_runs}; {by_bytes}"))
            elif found.is_reported and not row.truth.is_timed:
                said = f"{found.hazards.findings} findings, {found.outcome.end}"
                unwitnessed.append(_reproduced(row, machine, said))
    false = []
    for row in wrong:
        for machine, found in row.on.items():
            if found.is_reported:
                said = f"{found.hazards.findings} findings"
                false.append(_reproduced(row, machine, said))
    lines = ["# Reports on right programs", "", *false]
    lines += ["", "# Timed, and not reported", "", *missed]
    lines += ["", "# Reported without a witness", "", *unwitnessed]
    return "\n".join(lines) + "\n"


def _reproduced(row: Judged, machine: str, what: str) -> str:
    """A mutant of a listing: what it is, what is known of it, and how to have it."""
    mutant = row.mutant
    numbers = ", ".join(map(str, mutant.lines))
    command = f"--only '{mutant.name}' --machine {machine} --keep /tmp/mutant"
    return (
        f"- {mutant.program.name}, {mutant.kind}, line {numbers}, {machine}; {what}\n"
        f"  `python tests/mutations/score.py {command}`"
    )


# -- the command -----------------------------------------------------------------------


def chosen(only: str, share: float, seed: int) -> list[Mutant]:
    """The mutants whose name has a text, or a share of them chosen by a seed."""
    mutants = [mutant for mutant in all_mutants() if only in mutant.name]
    if share < 1:
        count = max(round(share * len(mutants)), 1)
        picked = random.Random(seed).sample(range(len(mutants)), count)
        mutants = [mutants[number] for number in sorted(picked)]
    return mutants


def arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names that have this text")
    parser.add_argument("--machine", choices=MACHINES, help="this machine only")
    parser.add_argument("--share", type=float, default=1.0, help="this part of all")
    parser.add_argument("--seed", type=int, default=0, help="which part that is")
    parser.add_argument("--anew", action="store_true", help="find out the truth again")
    parser.add_argument("--keep", type=Path, help="leave mutant and trace in a folder")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time")
    parser.add_argument("--listing", type=Path, help="write what is missed to a file")
    return parser.parse_args()


def judged_by(
    jobs: int, mutants: Sequence[Mutant], machines: list[str], keep: Path | None
) -> Iterator[Judged]:
    """Mutants judged by so many processes, in their order."""
    one = partial(_judged_in_process, machines=machines, keep=keep)
    if jobs == 1:
        yield from map(one, mutants)
        return
    with ProcessPoolExecutor(jobs, initializer=collect_less) as pool:
        yield from pool.map(one, mutants)


def _judged_in_process(
    mutant: Mutant, machines: list[str], keep: Path | None
) -> Judged:
    """A mutant judged by what the file of witnesses has of it."""
    return judged(mutant, Witnesses(), machines, keep)


def score(args: argparse.Namespace) -> int:
    """Judge what the arguments choose; exit code 1 for what is missed or wrong."""
    if args.keep is not None:
        args.keep.mkdir(parents=True, exist_ok=True)
    witnesses = Witnesses()
    machines = [*MACHINES]
    if args.machine:
        machines = [args.machine]
    rows = []
    mutants = chosen(args.only, args.share, args.seed)
    if args.anew:
        witnesses.forget(mutants)
    witnesses.save(all_mutants())
    in_turn = judged_by(args.jobs, mutants, machines, args.keep)
    for number, (mutant, row) in enumerate(zip(mutants, in_turn, strict=True), 1):
        witnesses.put(mutant, row.truth)
        rows.append(row)
        print(
            f"{number} of {len(mutants)}: {mutant.name}: {row.truth}", file=sys.stderr
        )
        for machine, found in row.on.items():
            said = f"{found.outcome.end}, {found.hazards}, {found.diagnosis}"
            print(f"  {machine}: {said}", file=sys.stderr, flush=True)
        witnesses.save(all_mutants())
    wrong = []
    programs = {mutant.program.name: mutant.program for mutant in mutants}
    rights = [right(program) for program in programs.values()]
    for program in rights:
        row = judged(program, None, machines)
        if row.fails or row.is_wrong:
            raise RuntimeError(f"{program.program.name} is not right: {row.on}")
        if row.is_reported_once:
            wrong.append(row)
    print(table(rows))
    is_diagnosed = any(on.diagnosis for row in rows for on in row.on.values())
    if is_diagnosed:
        print(f"\n{bad_table(rows)}\n")
    print(f"right programs reported: {len(wrong)}")
    if args.listing:
        args.listing.write_text(listing(rows, wrong))
    missed = [row for row in rows if row.truth.is_timed and not row.is_reported]
    return int(bool(wrong or missed))


def collect_less() -> None:
    """Have runs force no collections of what is no longer used."""
    patch("kernbench.sim_engine.engine.gc", uncollected()).start()


def uncollected() -> SimpleNamespace:
    """``gc`` without forced collections, each of which looks at all there is."""
    nothing = {name: lambda: 0 for name in ("collect", "freeze", "unfreeze")}
    return SimpleNamespace(**vars(gc) | nothing)


if __name__ == "__main__":
    collect_less()
    sys.exit(score(arguments()))
