"""A table of the validation: what the model gave beside what it ought to give."""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap


@dataclass(frozen=True, slots=True)
class Bound:
    """How far a row may be from its reference.

    ``amount`` is per cent of the reference, or points where the row itself is in per
    cent. With ``never_above`` the model may be below it only.
    """

    amount: float = 0.0
    never_above: bool = False

    def allows(self, difference: float) -> bool:
        """Whether a row may differ so much, in the unit of ``amount``."""
        if self.never_above and difference > 0:
            return False
        return abs(difference) <= self.amount


EXACT = Bound()


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison, of two numbers in ``unit``.

    ``source`` says where the reference is from. ``standard_error`` is that of the
    model's number, in ``unit``, where it is a mean of random samples.
    """

    what: str
    source: str
    reference: float
    model: float
    unit: str
    bound: Bound = EXACT
    standard_error: float | None = None

    @property
    def difference(self) -> float:
        """Model less reference: in points if both are per cent, else in per cent."""
        difference = self.model - self.reference
        if self.unit == "%":
            return difference
        return 100 * difference / self.reference

    @property
    def ok(self) -> bool:
        """Whether the model is within the bound."""
        return self.bound.allows(self.difference)

    def cells(self) -> tuple[str, ...]:
        """The columns of its line of the table."""
        of_difference = " points" if self.unit == "%" else " %"
        model = f"{_number(self.model)} {self.unit}"
        if self.standard_error is not None:
            model = f"{model} ± {self.standard_error:.3f}"
        difference = "0"
        if self.model != self.reference:
            difference = f"{self.difference:+.2f}{of_difference}"
        allowed = "exact"
        if self.bound.amount:
            allowed = f"{self.bound.amount:.3g}{of_difference}"
        if self.bound.never_above:
            allowed = f"{allowed} below"
        if not self.ok:
            allowed = f"{allowed}, NOT MET"
        reference = f"{_number(self.reference)} {self.unit}"
        return (self.what, self.source, reference, model, difference, allowed)


def _number(value: float) -> str:
    """A number with at most two decimals."""
    return f"{value:,.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under one title; the notes below say what else is to be known of them."""

    title: str
    rows: Sequence[Row]
    notes: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """Whether all rows are within their bounds."""
        return all(row.ok for row in self.rows)

    def as_markdown(self) -> str:
        """The table as docs/machine.md has it, without the title."""
        lines = [
            "| what | compared with | reference | model | difference | allowed |",
            "|---|---|---|---|---|---|",
        ]
        lines += [f"| {' | '.join(row.cells())} |" for row in self.rows]
        if self.notes:
            lines.append("")
        for note in self.notes:
            lines += wrap(f"- {note}", 88, subsequent_indent="  ")
        return "\n".join(lines)
