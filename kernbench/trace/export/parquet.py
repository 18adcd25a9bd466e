"""Tables as Apache Parquet, for DuckDB, Polars and pandas.

pyarrow, which this needs, is imported when the first table is written.
"""

from __future__ import annotations

from pathlib import Path

from kernbench.common.progress import Progress
from kernbench.trace.export.tables import write_tables
from kernbench.trace.reader import Trace
from kernbench.trace.schema import Columns


def export_parquet(trace: Trace, folder: Path, progress: Progress) -> dict[str, int]:
    """Write each table to a file of its own; how many rows it has."""
    return write_tables(trace, folder, "parquet", _write_table, progress)


def _write_table(table: Columns, path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    columns = {}
    for name, column in table.items():
        kind = pyarrow.string() if column.dtype == object else None
        columns[name] = pyarrow.array(column, kind)
    parquet.write_table(pyarrow.table(columns), path)
