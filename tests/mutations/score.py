"""How many mistakes are found: mutants judged by what is known of them without asking.

    python tests/mutations/score.py                      all mutants on all machines
    python tests/mutations/score.py --only halo/         those whose name has a text
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
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parent))

from click.testing import CliRunner
from mutants import HERE, PROGRAMS, RULES, Mutant, all_mutants, right
from trials import MACHINES, Truth, Written, truth_of

from kernbench.cli import main

WITNESSES = HERE / "witnesses.json"
TOP = 3
"""A line among so many first findings is found."""

_SITE = re.compile(r"([\w.]+\.py):(\d+)")
_UNKNOWN_COMMAND = 2


# -- the truth, kept -------------------------------------------------------------------


class Witnesses:
    """What is known of mutants on machines, by what they are; kept in a file."""

    def __init__(self, path: Path = WITNESSES) -> None:
        self._path = path
        self._known: dict[str, dict] = {}
        if path.exists():
            self._known = json.loads(path.read_text())

    def get(self, mutant: Mutant, machine: str) -> Truth | None:
        """What is known of a mutant on a machine; None if nothing is."""
        known = self._known.get(_key(mutant, machine))
        if known is None:
            return None
        fields = {name: value for name, value in known.items() if name != "mutant"}
        return Truth(**fields)

    def put(self, mutant: Mutant, machine: str, truth: Truth) -> None:
        """Keep what has been found out."""
        row = {"mutant": f"{mutant.name} on {machine}", **asdict(truth)}
        self._known[_key(mutant, machine)] = row

    def save(self, mutants: Iterable[Mutant]) -> None:
        """Write what is known of these mutants, a line each."""
        lines = []
        for mutant in mutants:
            for machine in MACHINES:
                key = _key(mutant, machine)
                if key in self._known:
                    lines.append(f"{json.dumps(key)}: {json.dumps(self._known[key])}")
        text = ",\n".join(lines)
        self._path.write_text(f"{{\n{text}\n}}\n")


def _key(mutant: Mutant, machine: str) -> str:
    """The SHA-256 of a mutant and of the fields of a machine, as much as is needed."""
    whole = f"{mutant.sha} {MACHINES[machine]}"
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
        if rank is None and wanted & sites_of(finding):
            rank = place
    return Found(len(findings), rank)


def sites_of(finding: object) -> set[tuple[str, int]]:
    """All lines that a finding names, each by the name of its file and its number."""
    sites = _SITE.findall(json.dumps(finding))
    return {(file, int(line)) for file, line in sites}


@dataclass(frozen=True)
class Judged:
    """A mutant on a machine: what is known of it, and what is found."""

    mutant: Mutant
    machine: str
    truth: Truth
    hazards: Found | None
    diagnosis: Found | None

    @property
    def is_reported(self) -> bool:
        """Whether hazards has anything to say."""
        return self.hazards is not None and self.hazards.findings > 0


def judged(
    mutant: Mutant,
    machine: str,
    witnesses: Witnesses,
    anew: bool = False,
    keep: Path | None = None,
) -> Judged:
    """Run a mutant, and ask of its trace; runs with delays where nothing is known."""
    with TemporaryDirectory() as temporary:
        folder = keep or Path(temporary)
        written = Written(mutant, machine, folder)
        plain = written.run()
        truth = None if anew else witnesses.get(mutant, machine)
        if truth is None:
            truth = truth_of(written, plain)
            witnesses.put(mutant, machine, truth)
        hazards = None
        diagnosis = None
        if plain.trace is not None:
            hazards = asked("hazards", plain.trace, mutant)
            diagnosis = asked("diagnose", plain.trace, mutant)
        return Judged(mutant, machine, truth, hazards, diagnosis)


# -- the score -------------------------------------------------------------------------


class OfMutant:
    """A mutant on all machines that were asked of."""

    def __init__(self, rows: list[Judged]) -> None:
        self.rows = rows
        self.kind = rows[0].mutant.kind

    @property
    def fails(self) -> bool:
        """Whether its run ends with an error on some machine."""
        return any(row.truth.end not in ("right", "wrong") for row in self.rows)

    @property
    def is_wrong(self) -> bool:
        """Whether its result is wrong on some machine."""
        return any(row.truth.end == "wrong" for row in self.rows)

    @property
    def by_runs(self) -> bool:
        """Whether runs with delays end otherwise, on some machine."""
        return any(row.truth.by_runs is not None for row in self.rows)

    @property
    def by_bytes(self) -> bool:
        """Whether only bytes that move late show it."""
        late = any(row.truth.by_bytes is not None for row in self.rows)
        return late and not self.by_runs

    @property
    def is_reported(self) -> bool:
        """Whether hazards reports it on every machine."""
        return all(row.is_reported for row in self.rows)

    @property
    def is_reported_once(self) -> bool:
        """Whether hazards reports it on some machine."""
        return any(row.is_reported for row in self.rows)

    def in_top(self, command: str) -> bool:
        """Whether the line is among the first findings, on every machine."""
        ranks = []
        for row in self.rows:
            found = getattr(row, command)
            ranks.append(TOP + 1 if found is None else found.rank or TOP + 1)
        return max(ranks) <= TOP


def of_mutants(rows: Iterable[Judged]) -> list[OfMutant]:
    """The rows of each mutant."""
    by_name: dict[str, list[Judged]] = {}
    for row in rows:
        by_name.setdefault(row.mutant.name, []).append(row)
    return [OfMutant(mine) for mine in by_name.values()]


COLUMNS = (
    "kind",
    "mutants",
    "fail",
    "wrong",
    "timed, by runs",
    "reported",
    "timed, by bytes",
    "reported",
    "line in 3",
    "no witness",
    "reported",
    "diagnose: line in 3",
)


def table(rows: list[Judged]) -> str:
    """By kind of mistake: what is known, and how much of it is found."""
    mutants = of_mutants(rows)
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    kinds = [*RULES, "credit early"]
    for kind in kinds:
        mine = [mutant for mutant in mutants if mutant.kind == kind]
        if mine:
            lines.append(_line(kind, mine))
    lines.append(_line("all", mutants))
    return "\n".join(lines)


def _line(kind: str, mine: list[OfMutant]) -> str:
    """A line of the table."""
    by_runs = [m for m in mine if m.by_runs]
    by_bytes = [m for m in mine if m.by_bytes]
    timed = by_runs + by_bytes
    rest = [m for m in mine if m not in timed and not m.fails]
    untimed = [m for m in mine if m not in timed and (m.fails or m.is_wrong)]
    asked_diagnose = any(row.diagnosis is not None for m in mine for row in m.rows)
    diagnosed = "-"
    if asked_diagnose:
        diagnosed = _of(sum(m.in_top("diagnosis") for m in untimed), len(untimed))
    cells = [
        kind,
        str(len(mine)),
        str(sum(m.fails for m in mine)),
        str(sum(m.is_wrong for m in mine)),
        str(len(by_runs)),
        _of(sum(m.is_reported for m in by_runs), len(by_runs)),
        str(len(by_bytes)),
        _of(sum(m.is_reported for m in by_bytes), len(by_bytes)),
        _of(sum(m.in_top("hazards") for m in timed), len(timed)),
        str(len(rest)),
        str(sum(m.is_reported_once for m in rest)),
        diagnosed,
    ]
    return f"| {' | '.join(cells)} |"


def _of(count: int, total: int) -> str:
    """A count of a total, in per cent as well."""
    if not total:
        return "-"
    return f"{count} ({100 * count / total:.0f} %)"


def listing(rows: list[Judged], wrong: list[Judged]) -> str:
    """What is timed and not reported, and reports on right programs, to reproduce."""
    lines = ["# Timed, and not reported", ""]
    timed = {m.rows[0].mutant.name for m in of_mutants(rows) if m.by_runs or m.by_bytes}
    for row in rows:
        if row.mutant.name in timed and not row.is_reported:
            how = "runs" if row.truth.by_runs is not None else "bytes"
            if not row.truth.is_timed:
                how = "another machine"
            lines.append(_reproduced(row, f"by {how}: {row.truth.what}"))
    lines += ["", "# Reports on right programs", ""]
    for row in wrong:
        lines.append(_reproduced(row, f"{row.hazards.findings} findings"))
    lines += ["", "# Reported without a witness", ""]
    for row in rows:
        ends = row.truth.end in ("right", "wrong")
        if row.is_reported and row.mutant.name not in timed and ends:
            lines.append(_reproduced(row, f"{row.hazards.findings} findings"))
    return "\n".join(lines) + "\n"


def _reproduced(row: Judged, what: str) -> str:
    """One line of a listing."""
    mutant = row.mutant
    numbers = ", ".join(map(str, mutant.lines))
    command = f"--only '{mutant.name}' --machine {row.machine} --keep /tmp/mutant"
    return (
        f"- {mutant.program.name}, {mutant.kind}, line {numbers}, {row.machine}; {what}"
        f"\n  `python tests/mutations/score.py {command}`"
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


def command() -> int:
    """Score what the arguments choose; exit code 1 for what is missed or wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names that have this text")
    parser.add_argument("--machine", choices=MACHINES, help="this machine only")
    parser.add_argument("--share", type=float, default=1.0, help="this part of all")
    parser.add_argument("--seed", type=int, default=0, help="which part that is")
    parser.add_argument("--anew", action="store_true", help="find out the truth again")
    parser.add_argument("--keep", type=Path, help="leave mutant and trace in a folder")
    parser.add_argument("--listing", type=Path, help="write what is missed to a file")
    args = parser.parse_args()
    if args.keep is not None:
        args.keep.mkdir(parents=True, exist_ok=True)
    witnesses = Witnesses()
    machines = [args.machine] if args.machine else [*MACHINES]
    gc.collect()
    gc.freeze()
    rows = []
    mutants = chosen(args.only, args.share, args.seed)
    for number, mutant in enumerate(mutants, 1):
        for machine in machines:
            row = judged(mutant, machine, witnesses, args.anew, args.keep)
            rows.append(row)
            found = row.hazards
            print(
                f"{number} of {len(mutants)}: {mutant.name} on {machine}: "
                f"{row.truth}, {found}, {row.diagnosis}",
                file=sys.stderr,
                flush=True,
            )
        witnesses.save(all_mutants())
    wrong = []
    for program in PROGRAMS:
        if args.only and not any(m.program == program for m in mutants):
            continue
        for machine in machines:
            row = judged(right(program), machine, Witnesses())
            if row.truth.end != "right" or row.truth.is_timed:
                raise RuntimeError(f"{program.name} on {machine}: {row.truth}")
            if row.is_reported:
                wrong.append(row)
    print(table(rows))
    print(f"right programs reported: {len(wrong)}")
    if args.listing:
        args.listing.write_text(listing(rows, wrong))
    timed = [m for m in of_mutants(rows) if m.by_runs or m.by_bytes]
    return int(bool(wrong) or not all(m.is_reported for m in timed))


if __name__ == "__main__":
    sys.exit(command())
