"""Tables as comma-separated values, the names of columns in the first line."""

from __future__ import annotations

import csv
from pathlib import Path

from kernbench.common.progress import Progress
from kernbench.trace.export.tables import length_of, rows_of, write_tables
from kernbench.trace.reader import Trace
from kernbench.trace.schema import Columns

_ROWS = 8192  # at once, so that memory does not grow with the table


def export_csv(trace: Trace, folder: Path, progress: Progress) -> dict[str, int]:
    """Write each table to a file of its own; how many rows each has.

    Numbers are written so that they can be read back exactly. Null is an empty cell.
    """
    return write_tables(trace, folder, "csv", _write_table, progress)


def _write_table(name: str, table: Columns, path: Path) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(table)
        for first in range(0, length_of(table), _ROWS):
            rows.writerows(rows_of(table, first, first + _ROWS))
