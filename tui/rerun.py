"""A re-run beside the debugger: ``kernbench rerun`` as a process of its own.

Nothing is simulated in this process. The other one says how far it is on its stderr,
and ends when its stdin is closed, so it does not outlive this one, however that ends.

A new trace is the user's alone, and comes into being as a whole: it is written in a
folder that is removed with whatever is in it, and moved once the process has ended.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock, Thread
from time import monotonic

import kernbench
from kernbench.errors import KernbenchError
from kernbench.replay.progress import Cancelled
from tui.private_file import private_folder

PROGRAM = (sys.executable, "-P", "-m", "kernbench")
FOLDER = "proofs"
"""Of the state directory: the new traces, and folders of those that are being made."""
KEPT = 8
"""New traces; the oldest make room for others."""
_LAST_LINES = 50
"""Of stderr, in which an error is looked for."""
_PATIENCE_S = 2.0
"""For the end of what was killed, and for what it has written last."""
_FILE_MODE = 0o600
_STEM = 40
"""Characters of the old trace's name that are in that of the new one."""
_OPS = re.compile(r"([\d,]+)(?: of [\d,]+)? ops")
_MAKING = re.compile(r"making-(\d+)-.*")


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a re-run: the new trace, or else why there is none."""

    path: Path | None
    error: KernbenchError | None = None


class Rerun:
    """One re-run of ``trace``; ``options`` are those of its command.

    ``ops`` is how many the trace has, by which it is known how far the re-run is.
    ``ended(result)`` is called once, by a thread, unless it was closed before.
    """

    def __init__(
        self,
        trace: Path,
        options: Sequence[str],
        ops: int,
        ended: Callable[[Ended], None],
    ) -> None:
        self.begun = monotonic()
        self.done = 0.0
        self.phase = "re-run"
        self._trace = trace
        self._options = tuple(options)
        self._ops = max(ops, 1)
        self._ended = ended
        self._lock = Lock()
        self._process: subprocess.Popen[str] | None = None
        self._cancelled = False
        self._closed = False
        self._worker = Thread(target=self._work, daemon=True)

    def start(self) -> None:
        """Begin it."""
        self._worker.start()

    def cancel(self) -> None:
        """End it; there is no new trace then, and that is said."""
        with self._lock:
            self._cancelled = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """End it and leave nothing of it; nobody is told."""
        self._closed = True
        self.cancel()
        self._worker.join(_PATIENCE_S)

    # -- in the thread ------------------------------------------------------------

    def _work(self) -> None:
        try:
            result = Ended(self._made())
        except OSError as error:
            place = error.filename or PROGRAM[0]
            result = Ended(None, KernbenchError(f"{place}: {error.strerror}"))
        except KernbenchError as error:
            result = Ended(None, error)
        if not self._closed:
            self._ended(result)

    def _made(self) -> Path:
        """The new trace; raises KernbenchError, or OSError, if there is none."""
        folder = private_folder(FOLDER)
        _remove_left(folder)
        place = mkdtemp(prefix=f"making-{os.getpid()}-", dir=folder)
        try:
            made = Path(place) / _name(self._trace, self._options)
            self._run(made)
            made.chmod(_FILE_MODE)
            path = folder / made.name
            made.replace(path)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        with suppress(OSError):  # another debugger may make room, too
            _make_room(folder, kept=(path, self._trace))
        return path

    def _run(self, out: Path) -> None:
        """Run the process to its end; KernbenchError if it leaves no trace ``out``."""
        process = self._start(out)
        assert process.stdin is not None
        lines: deque[str] = deque(maxlen=_LAST_LINES)
        reader = Thread(target=self._read, args=(process, lines), daemon=True)
        reader.start()
        code = process.wait()
        process.stdin.close()
        # A process that the bench has left behind may keep the pipe open.
        reader.join(_PATIENCE_S)
        if self._cancelled:
            raise Cancelled(f"{self.phase} was cancelled at {self.done:.0%}")
        if code < 0:
            raise KernbenchError(f"the re-run was ended by {_signal_name(-code)}")
        errors = [line for line in lines if line.startswith("error: ")]
        if code and errors:
            raise KernbenchError(f"re-run: {errors[-1].removeprefix('error: ')}")
        if not out.is_file():
            said = lines[-1] if lines else "it said nothing"
            raise KernbenchError(
                f"the re-run left no trace, and exited with {code}: {said}"
            )

    def _start(self, out: Path) -> subprocess.Popen[str]:
        """The process; Cancelled if it is not wanted any more."""
        command = [*PROGRAM, "rerun", str(self._trace), "-o", str(out)]
        with self._lock:
            if self._cancelled:
                raise Cancelled(f"{self.phase} was cancelled at 0%")
            self._process = subprocess.Popen(
                [*command, "--beside", *self._options],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=_environment(),
                text=True,
                encoding="utf-8",
                errors="replace",
            )
            return self._process

    def _read(self, process: subprocess.Popen[str], lines: deque[str]) -> None:
        """Note how far it says it is, and keep what else it says. Runs in a thread."""
        assert process.stderr is not None
        with process.stderr as stderr:
            for line in stderr:
                if not self._note(line):
                    lines.append(line.strip())

    def _note(self, line: str) -> bool:
        """Whether a line says how far it is; then that is known."""
        if not line.startswith('{"progress": '):
            return False
        with suppress(ValueError, TypeError, KeyError):
            text = json.loads(line)["progress"]
            self.phase = "re-run"
            if text.startswith("Phase 2"):
                self.phase = "re-run, Phase 2"
            ops = _OPS.search(text)
            if ops is not None:
                self.done = min(int(ops[1].replace(",", "")) / self._ops, 1.0)
        return True


def _environment() -> dict[str, str]:
    """That of this process; with its kernbench in front of any other.

    ``-P`` keeps modules of the folder that the user is in from being taken for others.
    """
    package = str(Path(kernbench.__file__).parents[1])
    others = os.environ.get("PYTHONPATH")
    places = package if not others else os.pathsep.join([package, others])
    return {**os.environ, "PYTHONPATH": places}


def _signal_name(number: int) -> str:
    """What a signal is called; those of real time have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _name(trace: Path, options: Iterable[str]) -> str:
    """The file name of a new trace, the same for the same re-run of the same file."""
    asked = "\0".join([str(trace.resolve()), *options])
    digest = blake2b(os.fsencode(asked), digest_size=4).hexdigest()
    return f"{trace.stem[:_STEM]}-{digest}.msgpack"


def _remove_left(folder: Path) -> None:
    """Remove what re-runs have left whose debugger is no more."""
    for place in folder.iterdir():
        made_by = _MAKING.fullmatch(place.name)
        if made_by is not None and not _runs(int(made_by[1])):
            shutil.rmtree(place, ignore_errors=True)


def _runs(pid: int) -> bool:
    """Whether there is a process of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _make_room(folder: Path, kept: Iterable[Path]) -> None:
    """Remove the oldest new traces, but for those to be kept."""
    spared = {path.resolve() for path in kept}
    traces = sorted(folder.glob("*.msgpack"), key=os.path.getmtime)
    for old in traces[:-KEPT]:
        if old.resolve() not in spared:
            old.unlink(missing_ok=True)
