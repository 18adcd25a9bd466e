"""Random programs, each asked every command whose answer somebody else knows as well.

``python tests/oracles/check.py FIRST COUNT`` runs the programs of seeds FIRST to FIRST
+ COUNT - 1 and prints a table: command, number of independent checks, number wrong.
What was wrong goes to standard error, and the exit code is 1.
"""

import random
import sys
import tempfile
from pathlib import Path

import asked_of_data
import asked_of_files
import asked_of_ops
import asked_of_time
import plain_frames
import plain_ops
import random_kernels
from plain_memory import Memory
from tally import Tally

from kernbench.replay import ReplaySession
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

CHECKS = (
    *asked_of_data.CHECKS,
    *asked_of_ops.CHECKS,
    *asked_of_time.CHECKS,
    *asked_of_files.CHECKS,
)


class Case:
    """One program that has run: its trace for the debugger, and read plainly."""

    def __init__(self, path, seed):
        self.path = path
        self.accesses = plain_ops.accesses
        self.rng = random.Random(seed)
        self.tally = Tally()
        self.reasons = plain_frames.REASONS
        self.recording = plain_frames.read(path)
        self.memory = Memory(self.recording)
        self.session = self.opened(path)

    def opened(self, path):
        """The debugger on a trace."""
        return ReplaySession(Trace.open(path))

    def ask(self, line, position):
        """The debugger's answer to a line, with its cursor on an op."""
        self.session.goto(position)
        return self.session.run_line(line)

    def equal(self, command, got, wanted, what):
        """Count one check."""
        self.tally.equal(command, got, wanted, what)


def recorded(seed, folder):
    """Run the program of a seed; the path of its trace."""
    bench = Path(folder) / f"random_{seed}.py"
    bench.write_text(random_kernels.program(seed))
    trace = Path(folder) / f"random_{seed}.msgpack"
    run_bench(str(bench), trace=trace)
    return trace


def checked(seed, folder, checks=CHECKS):
    """What was counted of the program of a seed."""
    case = Case(recorded(seed, folder), seed)
    for check in checks:
        check(case)
    case.tally.found = [f"program {seed}: {text}" for text in case.tally.found]
    return case.tally


def checked_trace(path, checks=CHECKS):
    """What was counted of a trace that is there; parts of it are written beside it."""
    case = Case(path, 0)
    for check in checks:
        check(case)
    return case.tally


def checked_all(seeds, checks=CHECKS):
    """What was counted of the programs of some seeds together."""
    total = Tally()
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            total.add(checked(seed, folder, checks))
    return total


def main(first, count):
    """Print the table; 1 if something was wrong."""
    total = checked_all(range(first, first + count))
    for text in total.found:
        print(text[:400], file=sys.stderr)
    print(total.table())
    return 1 if total.found else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
