"""A table as Apache Parquet, for DuckDB, Polars and pandas; needs pyarrow."""

from __future__ import annotations

from pathlib import Path

from kernbench.errors import KernbenchError
from kernbench.trace.schema import Columns


def write_parquet(table: Columns, path: Path) -> None:
    """Write one file; KernbenchError where there is no pyarrow."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise KernbenchError(
            "parquet needs pyarrow: pip install 'kernbench[parquet]', or export csv"
        ) from None
    kinds = {
        name: pyarrow.string() if c.dtype == object else None
        for name, c in table.items()
    }
    columns = {
        name: pyarrow.array(column, kinds[name]) for name, column in table.items()
    }
    parquet.write_table(pyarrow.table(columns), path)
