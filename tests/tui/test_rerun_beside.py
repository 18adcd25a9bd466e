"""The process beside the debugger that runs a trace again: its trace, its end."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest
from desks import TRACES
from fake_reruns import COPIES, WAITS, failing, noting, play
from platformdirs import user_state_path
from terminals import ROOT

from kernbench.errors import KernbenchError
from kernbench.replay.progress import Cancelled
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace
from tui import rerun
from tui.rerun import Reruns

LIMIT_S = 30.0
FASTER = (["pe.clock_ghz=2"], [])
BIG = {"m": 256, "k": 256, "n": 128, "tile": 16}


@pytest.fixture
def reruns(trace_path: Path) -> Reruns:
    """Re-runs of the matmul."""
    return Reruns(Trace.open(trace_path))


@contextmanager
def begun(reruns: Reruns) -> Iterator[Future[Path]]:
    """A re-run that a thread waits for; it is cancelled at the end."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(reruns, *FASTER)
        reruns.cancel()


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


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and nobody waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


# -- the trace ----------------------------------------------------------------------


def test_the_new_trace_is_the_users_alone(reruns, monkeypatch) -> None:
    play(monkeypatch, COPIES)
    path = reruns(*FASTER)
    assert path == reruns.last
    assert names() == [path.name]
    assert path.name.startswith("matmul-")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_is_not_there_before_the_process_has_ended(reruns, monkeypatch) -> None:
    play(monkeypatch, f"{COPIES}; {WAITS}")
    with begun(reruns) as ended:
        until(lambda: list(folder().glob("making-*/*.msgpack")))
        assert not list(folder().glob("*.msgpack"))
        reruns.cancel()
        with pytest.raises(Cancelled, match=r"^re-run unchanged was cancelled at 0%"):
            ended.result(LIMIT_S)
    assert names() == []


def test_it_goes_on_after_it_was_cancelled(reruns, monkeypatch) -> None:
    play(monkeypatch, COPIES)
    reruns.cancel()
    with pytest.raises(Cancelled):
        reruns(*FASTER)
    reruns.renew()
    assert reruns(*FASTER).is_file()


def test_the_same_rerun_has_the_same_file_and_another_has_another(
    reruns, monkeypatch
) -> None:
    play(monkeypatch, COPIES)
    paths = [reruns(["a=1"], []), reruns(["a=1"], []), reruns([], [(5, 1.0)])]
    assert paths[0] == paths[1] != paths[2]
    assert len(names()) == 2


@pytest.mark.slow
def test_the_oldest_make_room(reruns, monkeypatch) -> None:
    monkeypatch.setattr("tui.rerun.KEPT", 2)
    play(monkeypatch, COPIES)
    paths = []
    for number in range(4):
        paths.append(reruns([f"a={number}"], []))
        os.utime(paths[-1], (number, number))
    assert names() == sorted(path.name for path in paths[2:])


def test_what_was_left_by_a_debugger_that_is_no_more_is_removed(
    reruns, monkeypatch
) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = folder() / f"making-{gone.pid}-x"
    others = folder() / f"making-{os.getpid()}-x"
    for place in (left, others):
        place.mkdir(parents=True)
        (place / "half.msgpack.partial").touch()
    play(monkeypatch, COPIES)
    assert names() == sorted([others.name, left.name])
    path = reruns(*FASTER)
    assert names() == sorted([others.name, path.name])


# -- what is run --------------------------------------------------------------------


def test_the_run_is_repeated_without_a_change_before_the_first(
    reruns, monkeypatch, tmp_path
) -> None:
    note = tmp_path / "asked"
    asks = f"open({str(note)!r}, 'a').write(' '.join(sys.argv[5:]) + '|')"
    play(monkeypatch, f"{COPIES}; {asks}")
    reruns(["a=1"], [])
    reruns([], [(5, 0.25)])
    assert note.read_text().split("|")[:-1] == [
        "--beside --json",
        "--beside --json --spec a=1",
        "--beside --json --delay op 5 0.25ns",
    ]


REFUSED = {
    "not the same": (
        {"same": False, "parting": "frame 3 \n is another", "other_code": "x 1"},
        "no proof: NOT the recorded run: frame 3 is another; "
        "recorded by other code: x 1",
    ),
    "an error": (
        {"error": "Deadlock: of\nall"},
        "no proof: the changed run ended with Deadlock: of all",
    ),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_proves_nothing_is_said_in_a_line(how, reruns, monkeypatch) -> None:
    said, why = REFUSED[how]
    other = TRACES / "flash_attention.msgpack"
    copies = f"import shutil, sys; shutil.copyfile({str(other)!r}, sys.argv[4])"
    play(monkeypatch, f"{copies}; print({json.dumps(said)!r})")
    with pytest.raises(KernbenchError) as raised:
        reruns(*FASTER)
    assert str(raised.value) == why
    assert names() == []


def test_numbers_that_are_rounded_otherwise_move_no_time(reruns, monkeypatch) -> None:
    said = json.dumps({"same": False, "parting": "the last frame"})
    play(monkeypatch, f"{COPIES}; print({said!r})")
    assert reruns(*FASTER).is_file()


ENDS = {
    "an error": (failing("no field"), "re-run: no field"),
    "no trace": (
        "print('x')",
        "the re-run left no trace, and exited with 0: it said nothing",
    ),
    "no answer": (
        "import shutil, sys; shutil.copyfile(sys.argv[2], sys.argv[4]); sys.exit('a')",
        "the re-run left no trace, and exited with 1: a",
    ),
    "a signal": (
        "import os; os.kill(os.getpid(), 9)",
        "the re-run was ended by SIGKILL",
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_an_end_without_a_trace_says_why_in_a_line(how, reruns, monkeypatch) -> None:
    code, why = ENDS[how]
    play(monkeypatch, code)
    with pytest.raises(KernbenchError) as raised:
        reruns(*FASTER)
    assert str(raised.value) == why
    assert names() == []


def test_a_program_that_is_not_there_is_an_error_in_a_line(reruns, monkeypatch) -> None:
    monkeypatch.setattr("tui.rerun.PROGRAM", ("/no/such/program",))
    with pytest.raises(
        KernbenchError, match=r"^/no/such/program: No such file or directory$"
    ):
        reruns(*FASTER)


SHARES = {
    "1,000 ns simulated, 38 ops, 1% of 9 tiles": 0.25,
    "Phase 2: 76 of 152 ops": 0.5,
    "debug: 300 ops checked": 1.0,
}


@pytest.mark.parametrize("text", SHARES)
def test_it_is_known_how_far_it_is(text, reruns, monkeypatch) -> None:
    line = json.dumps({"progress": text, "count": 1, "unit": "x"})
    says = f"import sys; print({line!r}, file=sys.stderr, flush=True)"
    play(monkeypatch, f"{says}; {WAITS}")
    with begun(reruns):
        until(lambda: reruns.done)
        assert reruns.done == SHARES[text]


# -- its end ------------------------------------------------------------------------


def test_nothing_is_left_of_one_that_was_cancelled(
    reruns, monkeypatch, tmp_path
) -> None:
    note = tmp_path / "pid"
    play(monkeypatch, noting(note))
    with begun(reruns) as ended:
        until(lambda: note.exists() and note.read_text())
        process = Path(f"/proc/{note.read_text()}")
        assert process.exists()
        reruns.cancel()
        assert isinstance(ended.exception(LIMIT_S), Cancelled)
    assert not process.exists()
    assert names() == []


@pytest.mark.slow
def test_kernbench_ends_when_whoever_began_it_is_killed(tmp_path) -> None:
    """Since the system closes its stdin then."""
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
