"""Re-runs beside the debugger: ``kernbench rerun`` as a process of its own.

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
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock, Thread
from typing import Any

import kernbench
from kernbench.errors import KernbenchError
from kernbench.replay.progress import Cancelled
from kernbench.trace import Trace
from kernbench.trace.same_times import same_times
from tui.private_file import private_folder

PROGRAM = (sys.executable, "-P", "-m", "kernbench")
FOLDER = "proofs"
"""Of the state directory: the new traces, and folders of those that are being made."""
KEPT = 8
"""New traces; the oldest make room for others."""
_FILE_MODE = 0o600
_LAST_LINES = 50
"""Of stderr, in which an error is looked for."""
_PATIENCE_S = 2.0
"""For what a process has written last."""
_STEM = 40
"""Characters of the old trace's name that are in that of the new one."""
_OPS = re.compile(r"([\d,]+)(?: of [\d,]+)? ops")
_MAKING = re.compile(r"making-(\d+)-.*")


class Reruns:
    """Runs ``trace`` again for whoever proves something: a process at a time.

    Before the first the run is repeated without a change, since one that is not
    deterministic proves nothing. ``last`` is the trace of the last one; ``phase`` says
    what is being done, and ``done`` how far that is, 0 to 1.
    """

    def __init__(self, trace: Trace) -> None:
        self.phase = "re-run"
        self.done = 0.0
        self.last: Path | None = None
        self._trace = trace
        self._is_same = False
        self._lock = Lock()
        self._process: subprocess.Popen[str] | None = None
        self._cancelled = False

    def __call__(
        self, spec: Sequence[str], delays: Sequence[tuple[int, float]]
    ) -> Path:
        """The new trace of a run with fields of its machine changed, and ops held back.

        ``spec`` are FIELD=VALUE, ``delays`` positions of ops with ns. Raises Cancelled,
        and KernbenchError for what cannot be run again or is not deterministic.
        """
        options: list[str] = []
        for field in spec:
            options += ["--spec", field]
        for op, ns in delays:
            options += ["--delay", f"op {op}", f"{ns!r}ns"]
        try:
            if not self._is_same:
                self._made([])
                self._is_same = True
            self.last = self._made(options)
        except OSError as error:
            place = error.filename or PROGRAM[0]
            raise KernbenchError(f"{place}: {error.strerror}") from None
        return self.last

    def renew(self) -> None:
        """What was cancelled is over."""
        self._cancelled = False
        self.phase = "re-run"
        self.done = 0.0

    def cancel(self) -> None:
        """End the process, and begin no other until ``renew``."""
        with self._lock:
            self._cancelled = True
            if self._process is not None:
                self._process.kill()

    # -- one process --------------------------------------------------------------

    def _made(self, options: Sequence[str]) -> Path:
        """The new trace of one re-run; without options it has to do what was recorded.

        Raises KernbenchError, or OSError, if there is none. That of a run without a
        change is gone again.
        """
        folder = private_folder(FOLDER)
        _remove_left(folder)
        place = Path(mkdtemp(prefix=f"making-{os.getpid()}-", dir=folder))
        self.phase = "re-run" if options else "re-run unchanged"
        self.done = 0.0
        try:
            made = place / _name(self._trace.path, options)
            self._check(self._run(made, options), made)
            path = folder / made.name
            if options:
                made.chmod(_FILE_MODE)
                made.replace(path)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        with suppress(OSError):  # another debugger may make room, too
            _make_room(folder, kept=(path, self._trace.path))
        return path

    def _check(self, said: dict[str, Any], made: Path) -> None:
        """KernbenchError where what was run proves nothing: something else without a
        change, or with one what has come to an end of another kind.
        """
        recorded = self._trace.end or {}
        why = ""
        same = said.get("same")
        if same is False and not same_times(self._trace, Trace.open(made)):
            why = f"NOT the recorded run: {said.get('parting')}"
        elif said.get("error") is not None and recorded.get("error") is None:
            why = f"the changed run ended with {said['error']}"
        if why and said.get("other_code"):
            why += f"; recorded by other code: {said['other_code']}"
        if why:
            raise KernbenchError(f"no proof: {' '.join(why.split())}")

    def _run(self, out: Path, options: Sequence[str]) -> dict[str, Any]:
        """Run one process to its end; what it says of its run.

        KernbenchError if it leaves no trace ``out``, or says nothing.
        """
        lines: deque[str] = deque(maxlen=_LAST_LINES)
        answer = out.with_suffix(".json")
        process = self._start(out, options, answer)
        assert process.stdin is not None
        reader = Thread(target=self._read, args=(process, lines), daemon=True)
        reader.start()
        code = process.wait()
        process.stdin.close()
        # A process that the bench has left behind may keep the pipe open.
        reader.join(_PATIENCE_S)
        if self._cancelled:
            raise self._cancelled_here()
        if code < 0:
            raise KernbenchError(f"the re-run was ended by {_signal_name(-code)}")
        said = _last_object(answer)
        if said is not None and out.is_file():
            return said
        errors = [line for line in lines if line.startswith("error: ")]
        if errors:
            raise KernbenchError(f"re-run: {errors[-1].removeprefix('error: ')}")
        last = lines[-1] if lines else "it said nothing"
        raise KernbenchError(
            f"the re-run left no trace, and exited with {code}: {last}"
        )

    def _cancelled_here(self) -> Cancelled:
        return Cancelled(f"{self.phase} was cancelled at {self.done:.0%}")

    def _start(
        self, out: Path, options: Sequence[str], answer: Path
    ) -> subprocess.Popen[str]:
        """The process, whose stdout is the file ``answer``; Cancelled if it is not
        wanted any more.
        """
        command = [*PROGRAM, "rerun", str(self._trace.path), "-o", str(out)]
        with self._lock, answer.open("wb") as stdout:
            if self._cancelled:
                raise self._cancelled_here()
            self._process = subprocess.Popen(
                [*command, "--beside", "--json", *options],
                stdin=subprocess.PIPE,
                stdout=stdout,
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
            ops = _OPS.search(json.loads(line)["progress"])
            if ops is not None:
                count = int(ops[1].replace(",", ""))
                self.done = min(count / max(len(self._trace.order), 1), 1.0)
        return True


def _last_object(answer: Path) -> dict[str, Any] | None:
    """The object of JSON that a file ends with; None if it does not.

    What the bench has printed comes before it.
    """
    lines = answer.read_text(encoding="utf-8", errors="replace").splitlines()
    with suppress(ValueError, RecursionError):
        said = json.loads(lines[-1] if lines else "")
        if isinstance(said, dict):
            return said
    return None


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
