"""Foreign formats: the table ``EXPORTERS``, and ``export``, which leaves all or none.

To add a format, write its function in a file of its own and give it a row here. Nothing
else knows the formats by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, TypeAlias

from kernbench.common.progress import Progress, no_progress
from kernbench.errors import KernbenchError, UsageError
from kernbench.trace.export.csv import export_csv
from kernbench.trace.export.folded import export_folded
from kernbench.trace.export.konata import export_konata
from kernbench.trace.export.ndjson import export_ndjson
from kernbench.trace.export.parquet import export_parquet
from kernbench.trace.export.perfetto import export_perfetto
from kernbench.trace.export.pftrace import export_pftrace
from kernbench.trace.reader import Trace

Counts: TypeAlias = dict[str, int]
"""How many rows or events of each kind were written."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """A format that a trace can be written in.

    ``write`` makes the file or the folder at a path that is free. What it ``requires``
    is a module that kernbench does not depend on; the ``extra`` of kernbench installs
    it.
    """

    name: str
    help: str
    write: Callable[[Trace, Path, Progress], Counts]
    makes: Literal["file", "folder"]
    requires: str = ""
    extra: str = ""


_ROWS = (
    Exporter(
        "perfetto", "events that Perfetto and Chrome draw", export_perfetto, "file"
    ),
    Exporter(
        "pftrace",
        "the same in Perfetto's own protobuf, tracks nested",
        export_pftrace,
        "file",
        "perfetto",
        "perfetto",
    ),
    Exporter(
        "parquet",
        "tables for DuckDB, Polars, pandas",
        export_parquet,
        "folder",
        "pyarrow",
        "parquet",
    ),
    Exporter("csv", "tables as text", export_csv, "folder"),
    Exporter("ndjson", "all tables, a row a line, as JSON", export_ndjson, "file"),
    Exporter(
        "folded", "time by kernel line: speedscope, flame graphs", export_folded, "file"
    ),
    Exporter("konata", "the stages of tiles as a pipeline", export_konata, "file"),
)
EXPORTERS = {row.name: row for row in _ROWS}
"""All formats, by name."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written to ``out``: rows or events by kind."""

    format: str
    out: str
    counts: Counts

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        rows = [f"{count:>11,} {name}" for name, count in self.counts.items()]
        return [f"{self.out}:", *rows]


def export(
    trace: Trace, name: str, out: str, progress: Progress = no_progress
) -> Exported:
    """Write ``trace`` to ``out`` in the format ``name``.

    A file replaces a file; a folder replaces nothing. UsageError for an unknown format,
    KernbenchError if ``out`` cannot be made or something that the format requires is
    not installed. Then, and when ``progress`` raises, nothing is left behind.
    """
    exporter = EXPORTERS.get(name)
    if exporter is None:
        raise UsageError(f"unknown format {name!r}; valid: {', '.join(EXPORTERS)}")
    path = Path(out).resolve()
    if path.exists():
        _check_replaceable(exporter, path, out)
    if exporter.requires:
        _check_installed(exporter)
    try:
        with TemporaryDirectory(".partial", f"{path.name}.", path.parent) as folder:
            made = Path(folder) / path.name
            counts = exporter.write(trace, made, progress)
            os.replace(made, path)
    except OSError as error:
        reason = error.strerror or error
        raise KernbenchError(
            f"cannot export to {out}: {reason}; name another place"
        ) from None
    return Exported(name, out, counts)


def _check_replaceable(exporter: Exporter, path: Path, out: str) -> None:
    """KernbenchError if what is at ``path`` must stay."""
    reason = "exists already"
    if exporter.makes == "file":
        if path.is_file():
            return
        reason = "is no regular file"
    raise KernbenchError(f"cannot export to {out}: it {reason}; name another")


def _check_installed(exporter: Exporter) -> None:
    """KernbenchError if what the format requires cannot be imported."""
    try:
        import_module(exporter.requires)
    except ImportError:
        alike = [
            other.name
            for other in EXPORTERS.values()
            if other.makes == exporter.makes and not other.requires
        ]
        raise KernbenchError(
            f"{exporter.name} needs {exporter.requires}: "
            f"pip install 'kernbench[{exporter.extra}]', or export {' or '.join(alike)}"
        ) from None
