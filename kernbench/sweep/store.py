"""The folder of a sweep: ``points.jsonl``, one line a point, and what lies beside it.

A line is appended, and synced before the next points are waited for, so a kill loses at
most what is being run. When all points are there the file is written anew, sorted by
key: the same bytes, however often the sweep was interrupted. Times by the clock differ
from run to run, so they have a log of their own, ``wall.jsonl``.

Lines of points that are not of this sweep, but were of an earlier one in the folder,
are moved to ``older.jsonl``, and used again if a later one asks for them.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kernbench.common.interrupts import Uninterrupted
from kernbench.errors import KernbenchError, RefusedError, UsageError
from kernbench.replay.plain import as_data
from kernbench.sweep.point import Outcome
from kernbench.sweep.space import Point

POINTS = "points.jsonl"
OLDER = "older.jsonl"
WALL = "wall.jsonl"
SWEEP = "sweep.json"
WORKERS_LOG = "workers.log"
PARQUET = "points.parquet"
TRACES = "traces"


class Row(NamedTuple):
    """A point that was run: its key, what it was, and its result or its error."""

    key: str
    point: Point
    result: dict[str, Any] | None
    error: str | None

    def line(self) -> bytes:
        """The row as a line of ``points.jsonl``; NaN and infinities are text."""
        data = {
            "key": self.key,
            "set": dict(self.point.params),
            "spec": dict(self.point.spec),
            "seed": self.point.seed,
            "result": self.result,
            "error": self.error,
        }
        return json.dumps(as_data(data)).encode() + b"\n"


def row_of(line: bytes) -> Row | None:
    """The row of a line; None of one that is damaged, or was not written to its end."""
    if not line.endswith(b"\n"):
        return None
    try:
        data = json.loads(line)
        point = Point(dict(data["set"]), dict(data["spec"]), int(data["seed"]))
        result = data["result"]
        if result is not None:
            result = dict(result)
        row = Row(str(data["key"]), point, result, data["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_known = (row.result is None) != (row.error is None)
    says_ok = row.result is None or isinstance(row.result.get("ok"), bool)
    if is_known and says_ok:
        return row
    return None


@dataclass(frozen=True, slots=True)
class Read:
    """The rows of a file by key, and the numbers of the lines that are none."""

    rows: dict[str, Row]
    damaged: tuple[int, ...]


def read_rows(path: Path) -> Read:
    """The rows of a file, none if it is not there; KernbenchError if it is unreadable.

    The last line may be cut, and is no damage.
    """
    rows = {}
    damaged = []
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        lines = []
    except OSError as error:
        raise RefusedError(f"{path}: cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        row = row_of(line)
        if row is not None:
            rows[row.key] = row
        elif line.endswith(b"\n"):
            damaged.append(number)
    return Read(rows, tuple(damaged))


class Store:
    """The folder of one sweep, while it runs.

    ``rows`` are all that the folder has, by key.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        found = read_rows(folder / POINTS)
        self.damaged = found.damaged
        self._there = found.rows.keys()
        self._older = read_rows(folder / OLDER).rows
        self.rows = self._older | found.rows
        with _faults(folder / POINTS, self._kept):
            self._cut_last_line()
            self._file = (folder / POINTS).open("ab", buffering=0)
            self._wall = (folder / WALL).open("ab", buffering=0)

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        self._wall.close()

    def right(self) -> dict[str, Row]:
        """The rows that have a result."""
        return {key: row for key, row in self.rows.items() if row.error is None}

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows and sync them.

        KernbenchError if the disk is full or fails; what was written before stays.
        """
        added = list(rows)
        if not added:
            return
        lines = b"".join(row.line() for row in added)
        file = self._file.fileno()
        with (
            Uninterrupted(),
            _faults(self.folder / POINTS, self._kept),
            _whole(file),
        ):
            _write_all(file, lines)
            os.fsync(file)
        self.rows |= {row.key: row for row in added}

    def log(self, key: str, attempt: int, outcome: Outcome) -> None:
        """Append when and where a point was run, and for how long."""
        data = {
            "key": key,
            "attempt": attempt,
            "worker": outcome.worker,
            "began": outcome.began,
            "seconds": outcome.seconds,
            "error": outcome.error,
        }
        file = self._wall.fileno()
        with _faults(self.folder / WALL, self._kept), _whole(file):
            _write_all(file, json.dumps(data).encode() + b"\n")

    def begin(self, keys: Iterable[str]) -> None:
        """Put the rows of earlier sweeps aside, and bring back what has these keys.

        So whoever looks while a sweep runs, or after a kill, sees rows of it alone.
        """
        wanted = self.rows.keys() & set(keys)
        if wanted == self._there:
            return
        self._file.close()
        try:
            self._leave(wanted)
        finally:
            with _faults(self.folder / POINTS, self._kept):
                self._file = (self.folder / POINTS).open("ab", buffering=0)

    def finish(self, keys: Iterable[str]) -> list[Row]:
        """Write ``points.jsonl`` anew, with just these keys, sorted; its rows."""
        wanted = set(keys)
        self._leave(wanted)
        return [self.rows[key] for key in sorted(wanted)]

    def _leave(self, wanted: Set[str]) -> None:
        """Write ``points.jsonl`` anew, with just these keys; others are kept aside."""
        others = {key: row for key, row in self.rows.items() if key not in wanted}
        if not others.keys() <= self._older.keys():
            self._older |= others
            replace_file(self.folder / OLDER, _lines(self._older))
        replace_file(
            self.folder / POINTS, _lines({key: self.rows[key] for key in wanted})
        )

    def _cut_last_line(self) -> None:
        """Cut off what a kill has left of a last line."""
        path = self.folder / POINTS
        if not path.exists():
            return
        text = path.read_bytes()
        whole = text.rfind(b"\n") + 1
        if whole != len(text):
            os.truncate(path, whole)

    def _kept(self) -> str:
        return f"{len(self.rows):,} points are kept"


def _lines(rows: Mapping[str, Row]) -> bytes:
    """The lines of rows, sorted by key."""
    return b"".join(rows[key].line() for key in sorted(rows))


@contextmanager
def _whole(file: int) -> Iterator[None]:
    """Append to a file or not: what a full disk took of it is cut off again."""
    end = os.fstat(file).st_size
    try:
        yield
    except OSError:
        os.ftruncate(file, end)
        raise


def _write_all(file: int, data: bytes) -> None:
    """Write bytes to a file; a disk that is nearly full takes some of them only."""
    while data:
        data = data[os.write(file, data) :]


@contextmanager
def _faults(path: Path, kept: Callable[[], str] | None = None) -> Iterator[None]:
    """Make an error of ours of a disk that is full or fails."""
    try:
        yield
    except OSError as error:
        ending = "" if kept is None else f"; {kept()}, the same command goes on"
        raise KernbenchError(f"{path}: {error.strerror or error}{ending}") from None


@contextmanager
def _new_beside(path: Path) -> Iterator[Path]:
    """Where to write what is to take the place of a file; gone if it has not."""
    new = path.with_name(f"{path.name}.new")
    try:
        yield new
    finally:
        new.unlink(missing_ok=True)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file as a whole: it is the old one or the new one, never half of it.

    KernbenchError if the disk is full or fails; then nothing is left of the new one.
    """
    with _faults(path), _new_beside(path) as new:
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder, and keep other sweeps out of it.

    UsageError if there is one in it; KernbenchError if it cannot be made.
    """
    with _faults(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _lock(file, folder)
        yield
    finally:
        os.close(file)


def _lock(file: int, folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(
            f"{folder}: another sweep writes there; wait for it, or give another folder"
        ) from None


def write_parquet(rows: Iterable[Mapping[str, Any]], path: Path) -> bool:
    """Write a table of rows; whether pyarrow, which that needs, is there."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return False
    listed = list(rows)
    names = dict.fromkeys(name for row in listed for name in row)
    columns = {}
    for name in names:
        values = [row.get(name) for row in listed]
        kinds = {type(value) for value in values if value is not None}
        if len(kinds) > 1 and not kinds <= {int, float}:
            values = [value if value is None else str(value) for value in values]
        elif kinds == {int, float}:
            values = [value if value is None else float(value) for value in values]
        columns[name] = pyarrow.array(values)
    with _faults(path), _new_beside(path) as new:
        parquet.write_table(pyarrow.table(columns), new)
        os.replace(new, path)
    return True
