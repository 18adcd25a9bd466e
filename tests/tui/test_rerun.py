"""The process beside the debugger that runs a trace again: its trace, its end."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from time import monotonic, sleep

import pytest
from platformdirs import user_state_path
from terminals import ROOT

from kernbench.replay.progress import Cancelled
from kernbench.runtime_api import run_bench
from tui import rerun
from tui.rerun import Ended, Rerun

LIMIT_S = 30.0
COPIES = "import shutil, sys; shutil.copy(sys.argv[2], sys.argv[4])"
WAITS = "import sys; sys.stdin.read()"

Play = Callable[[str], None]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """``play(code)``: what runs in place of kernbench, with the same arguments."""

    def set_to(code: str) -> None:
        program = (sys.executable, "-S", "-c", code)
        monkeypatch.setattr("tui.rerun.PROGRAM", program)

    return set_to


@pytest.fixture
def begin(trace_path: Path) -> Iterator[Callable[..., tuple[Rerun, Queue[Ended]]]]:
    """``begin("--spec", "a=1")``: a re-run of the matmul, and where its end comes."""
    begun: list[Rerun] = []

    def make(*options: str, ops: int = 152) -> tuple[Rerun, Queue[Ended]]:
        ended: Queue[Ended] = Queue()
        made = Rerun(trace_path, options, ops, ended.put)
        begun.append(made)
        made.start()
        return made, ended

    yield make
    for made in begun:
        made.close()


def folder() -> Path:
    return user_state_path("kernbench") / rerun.FOLDER


def names() -> list[str]:
    """What lies in the folder of the new traces."""
    return sorted(path.name for path in folder().iterdir())


def until(holds: Callable[[], object]) -> None:
    end = monotonic() + LIMIT_S
    while not holds():
        assert monotonic() < end, "it never came"
        sleep(0.002)


BIG = {"m": 256, "k": 256, "n": 256, "tile": 16}


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and nobody waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


# -- the trace ----------------------------------------------------------------------


def test_the_new_trace_is_the_users_alone(begin, play) -> None:
    play(COPIES)
    _, ended = begin("--spec", "pe.clock_ghz=2")
    path = ended.get(timeout=LIMIT_S).path
    assert names() == [path.name]
    assert path.name.startswith("matmul-")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_it_is_not_there_before_the_process_has_ended(begin, play) -> None:
    play(f"{COPIES}; print('error: half of it', file=sys.stderr); {WAITS}")
    made, ended = begin()
    until(lambda: list(folder().glob("making-*/*.msgpack")))
    assert not list(folder().glob("*.msgpack"))
    made.cancel()
    assert isinstance(ended.get(timeout=LIMIT_S).error, Cancelled)
    assert names() == []


def test_the_same_rerun_has_the_same_file_and_another_has_another(begin, play) -> None:
    play(COPIES)
    paths = []
    for options in (("--spec", "a=1"), ("--spec", "a=1"), ("--spec", "a=2")):
        _, ended = begin(*options)
        paths.append(ended.get(timeout=LIMIT_S).path)
    assert paths[0] == paths[1] != paths[2]
    assert len(names()) == 2


def test_the_oldest_make_room(begin, play, monkeypatch) -> None:
    monkeypatch.setattr("tui.rerun.KEPT", 2)
    play(COPIES)
    paths = []
    for number in range(4):
        _, ended = begin(str(number))
        paths.append(ended.get(timeout=LIMIT_S).path)
        os.utime(paths[-1], (number, number))
    assert names() == sorted(path.name for path in paths[2:])


def test_what_was_left_by_a_debugger_that_is_no_more_is_removed(begin, play) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = folder() / f"making-{gone.pid}-x"
    others = folder() / f"making-{os.getpid()}-x"
    for place in (left, others):
        place.mkdir(parents=True)
        (place / "half.msgpack.partial").touch()
    play(COPIES)
    _, ended = begin()
    path = ended.get(timeout=LIMIT_S).path
    assert names() == sorted([others.name, path.name])


# -- what is said -------------------------------------------------------------------

ENDS = {
    "an error": (
        "import sys; print('noise\\nerror: no field\\x1b[2J', file=sys.stderr);"
        "sys.exit(2)",
        "re-run: no field\x1b[2J",
    ),
    "no trace": ("print('x')", "the re-run left no trace, and exited with 0"),
    "a signal": (
        "import os; os.kill(os.getpid(), 9)",
        "the re-run was ended by SIGKILL",
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_an_end_without_a_trace_says_why_in_a_line(how, begin, play) -> None:
    code, why = ENDS[how]
    play(code)
    _, ended = begin()
    result = ended.get(timeout=LIMIT_S)
    assert result.path is None
    assert str(result.error).startswith(why)
    assert len(str(result.error).splitlines()) == 1
    assert names() == []


def test_a_program_that_is_not_there_is_an_error_in_a_line(begin, monkeypatch) -> None:
    monkeypatch.setattr("tui.rerun.PROGRAM", ("/no/such/program",))
    _, ended = begin()
    error = ended.get(timeout=LIMIT_S).error
    assert str(error) == "/no/such/program: No such file or directory"


def test_a_changed_run_that_verifies_no_more_is_a_proof_too(begin, play) -> None:
    play(f"{COPIES}; sys.exit(1)")
    _, ended = begin()
    assert ended.get(timeout=LIMIT_S).path is not None


SAYS = {
    "1,000 ns simulated, 60 ops, 1% of 9 tiles": ("re-run", 0.25),
    "Phase 2: 120 of 150 ops": ("re-run, Phase 2", 0.5),
    "debug: 300 ops checked": ("re-run", 1.0),
}


@pytest.mark.parametrize("text", SAYS)
def test_it_says_how_far_it_is(text, begin, play) -> None:
    line = json.dumps({"progress": text, "count": 1, "unit": "x"})
    play(f"import sys; print({line!r}, file=sys.stderr, flush=True); {WAITS}")
    made, _ = begin(ops=240)
    until(lambda: made.done)
    assert (made.phase, made.done) == SAYS[text]


# -- its end ------------------------------------------------------------------------


def test_closing_it_leaves_no_process_and_no_file(begin, play, tmp_path) -> None:
    note = tmp_path / "pid"
    play(f"import os; open({str(note)!r}, 'w').write(str(os.getpid())); {WAITS}")
    made, ended = begin()
    until(lambda: note.exists() and note.read_text())
    process = Path(f"/proc/{note.read_text()}")
    assert process.exists()
    made.close()
    assert not process.exists()
    assert names() == []
    assert ended.empty()


@pytest.mark.slow
def test_it_ends_when_whoever_started_it_is_killed(tmp_path) -> None:
    """The command itself; its stdin is closed by the system."""
    out = tmp_path / "out.msgpack"
    big = tmp_path / "big.msgpack"
    run_bench("matmul", trace=big, verify=False, params=BIG)
    starter = (
        "import subprocess, sys, time;"
        f"command = {[*rerun.PROGRAM]!r} + ['rerun', {str(big)!r}, '-o', {str(out)!r}];"
        "process = subprocess.Popen([*command, '--beside'], stdin=-1);"
        "print(process.pid, flush=True); time.sleep(100)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", starter],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    ) as process:
        pid = int(process.stdout.readline())
        first = process.stderr.readline()
        assert json.loads(first)["progress"].endswith(" tiles")
        assert is_alive(pid)
        process.kill()
        until(lambda: not is_alive(pid))
        *_, last = process.stderr.read().splitlines()
    assert last.startswith("ended by SIGTERM")
