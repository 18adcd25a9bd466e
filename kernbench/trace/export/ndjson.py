"""All tables in one file of newline-delimited JSON, for jq, DuckDB, Polars."""

from __future__ import annotations

import json
from pathlib import Path

from kernbench.common.progress import Progress
from kernbench.trace.export.tables import TABLES, length_of, rows_of
from kernbench.trace.reader import Trace

_ROWS = 8192  # at once, so that memory does not grow with the table


def export_ndjson(trace: Trace, path: Path, progress: Progress) -> dict[str, int]:
    """Write an object a line for each row; how many rows each table has.

    An object names its table in "table". What is null is left null. Metadata come
    first.
    """
    counts: dict[str, int] = {}
    names = ["metadata", *(name for name in TABLES if name != "metadata")]
    with open(path, "w", encoding="utf-8") as file:
        for name in names:
            table = TABLES[name].make(trace)
            counts[name] = length_of(table)
            for first in range(0, counts[name], _ROWS):
                for row in rows_of(table, first, first + _ROWS):
                    cells = {"table": name, **dict(zip(table, row, strict=True))}
                    file.write(json.dumps(cells) + "\n")
            progress(len(counts) / len(TABLES))
    return counts
