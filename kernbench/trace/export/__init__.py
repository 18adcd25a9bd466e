"""Foreign formats: the table ``EXPORTERS``, and ``export``, which leaves all or none.

To add a format, write its function in a file of its own and give it a row here. Nothing
else knows the formats by name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Literal, TypeAlias

from kernbench.common.near import instead_of
from kernbench.common.progress import Progress, no_progress
from kernbench.errors import RefusedError, UsageError
from kernbench.trace.export.csv import export_csv
from kernbench.trace.export.folded import export_folded
from kernbench.trace.export.konata import export_konata
from kernbench.trace.export.ndjson import export_ndjson
from kernbench.trace.export.parquet import export_parquet
from kernbench.trace.export.perfetto import export_perfetto
from kernbench.trace.export.pftrace import export_pftrace
from kernbench.trace.reader import Trace
from kernbench.trace.tail import tail_of

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
    trace: Trace,
    name: str,
    out: str,
    progress: Progress = no_progress,
    force: bool = False,
) -> Exported:
    """Write ``trace`` to ``out`` in the format ``name``.

    A file replaces a regular file, but not the trace or its tail; a folder replaces
    nothing, or with ``force`` one that holds files of that format only. UsageError for
    an unknown format, RefusedError if ``out`` cannot be made or something that the
    format requires is not installed. Then, and when ``progress`` raises, nothing is
    left behind.
    """
    exporter = _exporter(name)
    path = Path(out).resolve()
    if path == tail_of(Path(trace.path).resolve()):  # a run may be about to write it
        raise RefusedError(
            f"cannot export to {out}: it is the tail of the trace, which has its last "
            "rows; name another"
        )
    if path.exists():
        _check_replaceable(exporter, trace, path, out, force)
    try:
        with TemporaryDirectory(".partial", "kernbench-", path.parent) as folder:
            made = Path(folder) / "made"
            counts = exporter.write(trace, made, progress)
            if path.is_dir():
                os.replace(path, Path(folder) / "replaced")
            os.replace(made, path)
    except OSError as error:
        reason = error.strerror or error
        raise RefusedError(
            f"cannot export to {out}: {reason}; name another place"
        ) from None
    return Exported(name, out, counts)


def export_to_stream(
    trace: Trace, name: str, stream: BinaryIO, progress: Progress = no_progress
) -> Counts:
    """Write ``trace`` to ``stream`` in the format ``name``, when all of it is made.

    UsageError for an unknown format, and for one that makes a folder.
    """
    exporter = _exporter(name)
    if exporter.makes == "folder":
        files = [row.name for row in EXPORTERS.values() if row.makes == "file"]
        raise UsageError(
            f"{name} writes a folder, which the standard output cannot take; "
            f"name one, or export {', '.join(files)}"
        )
    with TemporaryDirectory(prefix="kernbench-") as folder:
        made = Path(folder) / "export"
        counts = exporter.write(trace, made, progress)
        with open(made, "rb") as file:
            shutil.copyfileobj(file, stream)
    stream.flush()
    return counts


def _exporter(name: str) -> Exporter:
    """The row of a format that can be written here, or what ``export`` raises."""
    exporter = EXPORTERS.get(name)
    if exporter is None:
        raise UsageError(f"unknown format {name!r}; {instead_of(name, EXPORTERS)}")
    if exporter.requires:
        _check_installed(exporter)
    return exporter


def _check_replaceable(
    exporter: Exporter, trace: Trace, path: Path, out: str, force: bool
) -> None:
    """RefusedError if what is at ``path`` must stay."""
    reason = ""
    if exporter.makes == "file":
        if not path.is_file():
            reason = "it is no regular file"
        elif path.samefile(trace.path):
            reason = "it is the trace itself"
    elif not path.is_dir():
        reason = "it exists already"
    elif not force:
        reason = "it exists already, and --force replaces a folder of exports"
    else:
        others = [
            file.name
            for file in sorted(path.iterdir())
            if file.suffix != f".{exporter.name}" or not file.is_file()
        ]
        if others:
            reason = f"{others[0]} in it is no file of this format"
    if reason:
        raise RefusedError(f"cannot export to {out}: {reason}; name another")


def _check_installed(exporter: Exporter) -> None:
    """RefusedError if what the format requires cannot be imported."""
    try:
        import_module(exporter.requires)
    except ImportError:
        alike = [
            other.name
            for other in EXPORTERS.values()
            if other.makes == exporter.makes and not other.requires
        ]
        raise RefusedError(
            f"{exporter.name} needs {exporter.requires}: "
            f"pip install 'kernbench[{exporter.extra}]', or export {' or '.join(alike)}"
        ) from None
