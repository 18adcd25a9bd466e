"""Counts checks by command, and keeps what was found wrong."""

from collections import Counter


class Tally:
    """How often each command was checked, how often it was wrong, and with what."""

    def __init__(self):
        self.checks = Counter()
        self.wrong = Counter()
        self.found = []

    def equal(self, command, got, wanted, what):
        """Count one check; what is wrong is kept with ``what`` was asked."""
        self.checks[command] += 1
        if got != wanted:
            self.wrong[command] += 1
            self.found.append(f"{command}: {what}: got {got!r}, expected {wanted!r}")

    def add(self, other):
        """Add what another has counted."""
        self.checks += other.checks
        self.wrong += other.wrong
        self.found += other.found

    def rows(self):
        """(command, checks, wrong) in the order of the commands' names."""
        return [(name, self.checks[name], self.wrong[name]) for name in self.checks]

    def table(self):
        """The table of docs/debugger.md, in Markdown."""
        lines = ["| command | checks | wrong |", "|---|---:|---:|"]
        for name, checks, wrong in sorted(self.rows()):
            lines.append(f"| `{name}` | {checks:,} | {wrong:,} |")
        return "\n".join(lines)
