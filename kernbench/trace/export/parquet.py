"""Tables as Apache Parquet, for DuckDB, Polars and pandas.

pyarrow, which this needs, is imported when the first table is written.
"""

from __future__ import annotations

from pathlib import Path

from kernbench.common.progress import Progress
from kernbench.trace.export.tables import TABLES, metadata, write_tables
from kernbench.trace.reader import Trace
from kernbench.trace.schema import Columns


def export_parquet(trace: Trace, folder: Path, progress: Progress) -> dict[str, int]:
    """Write each table to a file of its own; how many rows it has.

    The metadata of each file are those of the trace, and of each column its meaning and
    its unit.
    """
    import pyarrow
    from pyarrow import parquet

    of_trace = metadata(trace)

    def write(name: str, table: Columns, path: Path) -> None:
        fields = []
        arrays = []
        for heading, column in table.items():
            # None means that pyarrow takes the type that numpy has.
            kind = pyarrow.string() if column.dtype == object else None
            array = pyarrow.array(column, kind)
            about = TABLES[name].columns[heading]
            notes = {"meaning": about.meaning}
            if about.unit:
                notes["unit"] = about.unit
            arrays.append(array)
            fields.append(pyarrow.field(heading, array.type, metadata=notes))
        schema = pyarrow.schema(fields, metadata=of_trace)
        parquet.write_table(pyarrow.table(arrays, schema=schema), path)

    return write_tables(trace, folder, "parquet", write, progress)
