"""A table as comma-separated values, the names in the first line."""

from __future__ import annotations

import csv
from pathlib import Path

from kernbench.trace.schema import Columns

_ROWS = 8192  # at once, so that memory does not grow with the table


def write_csv(table: Columns, path: Path) -> None:
    """Write one file."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(table)
        for at in range(0, len(next(iter(table.values()))), _ROWS):
            chunk = (column[at : at + _ROWS].tolist() for column in table.values())
            rows.writerows(zip(*chunk, strict=True))
