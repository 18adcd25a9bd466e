"""Foreign formats: the table ``EXPORTERS``, and ``export``, which leaves a whole file or none."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from kernbench.common.progress import Progress, no_progress
from kernbench.errors import KernbenchError, UsageError
from kernbench.trace.export.csv import write_csv
from kernbench.trace.export.parquet import write_parquet
from kernbench.trace.export.perfetto import write_perfetto
from kernbench.trace.export.tables import TABLES
from kernbench.trace.reader import Trace
from kernbench.trace.schema import Columns


def _write_folder(
    write: Callable[[Columns, Path], None],
    suffix: str,
    trace: Trace,
    folder: Path,
    progress: Progress,
) -> dict[str, int]:
    """A file a table, as ``write`` makes it."""
    folder.mkdir()
    counts: dict[str, int] = {}
    for name, make in TABLES.items():
        write(table := make(trace), folder / f"{name}.{suffix}")
        counts[name] = len(next(iter(table.values())))
        progress(len(counts) / len(TABLES))
    return counts


# (trace, path to make, progress) -> how many rows or events of each kind were written
EXPORTERS: dict[str, Callable[[Trace, Path, Progress], dict[str, int]]] = {
    "perfetto": write_perfetto,  # a file, the others a folder
    "parquet": partial(_write_folder, write_parquet, "parquet"),
    "csv": partial(_write_folder, write_csv, "csv"),
}


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written to ``out``: rows or events by kind."""

    format: str
    out: str
    counts: dict[str, int]

    def lines(self, width: int) -> list[str]:
        """As text for ``width`` columns."""
        return [
            f"{self.out}:",
            *(f"{count:>11,} {name}" for name, count in self.counts.items()),
        ]


def export(
    trace: Trace, name: str, out: str, progress: Progress = no_progress
) -> Exported:
    """Write ``trace`` to ``out`` in the format ``name``: a file, or a folder of tables.

    A file is replaced, a folder is not. KernbenchError if ``out`` cannot be made, UsageError for
    an unknown format; then, and when ``progress`` raises, nothing is left behind.
    """
    if name not in EXPORTERS:
        raise UsageError(f"unknown format {name!r}; valid: {', '.join(EXPORTERS)}")
    path = Path(out).resolve()
    if path.exists() and (name != "perfetto" or not path.is_file()):
        what = "is no regular file" if name == "perfetto" else "exists already"
        raise KernbenchError(f"cannot export to {out}: it {what}; name another")
    try:
        with TemporaryDirectory(".partial", f"{path.name}.", path.parent) as folder:
            made = Path(folder) / path.name
            counts = EXPORTERS[name](trace, made, progress)
            os.replace(made, path)
    except OSError as error:
        reason = error.strerror or error
        raise KernbenchError(
            f"cannot export to {out}: {reason}; name another place"
        ) from None
    return Exported(name, out, counts)
