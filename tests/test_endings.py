"""Programs that are told to end: by Ctrl-C, SIGTERM or SIGHUP, at any moment.

The exit code says by what, one line says it in words, and a trace is whole up to there.
"""

import fcntl
import importlib
import os
import pty
import random
import signal
import subprocess
import sys
import termios
import time

import pytest
import simpy
from child_signals import reset_signals
from pace import first_fast

from kernbench.common.interrupts import EndedBySignal, interruptible
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

MATMUL = ["matmul", "--set", "m=256", "k=256", "n=256", "tile=16", "pes=8"]
CODES = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}
LINES = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "ended by SIGTERM",
    signal.SIGHUP: "ended by SIGHUP",
}
DURATION_S = 4.0  # of a run, about


def start(*words, **options):
    """A process of ours, whose stderr is read."""
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=reset_signals,
        **options,
    )


def wait_for(condition, seconds=60.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def ended_by(process, number):
    """Send a signal; (code as a shell has it, stderr)."""
    process.send_signal(number)
    _, stderr = process.communicate(timeout=100)
    code = process.returncode
    if code < 0:
        code = 128 - code
    return code, stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", CODES)
def test_a_signal_ends_a_run_and_its_trace_is_whole(tmp_path, number):
    path = tmp_path / "x.msgpack"
    partial = tmp_path / "x.msgpack.partial"
    run = start("kernbench.cli", "run", *MATMUL, "--trace", str(path))
    wait_for(lambda: partial.exists() and partial.stat().st_size > 200_000)
    code, stderr = ended_by(run, number)
    assert code == CODES[number]
    (line,) = stderr.splitlines()
    assert line.startswith(f"{LINES[number]}; trace up to ")
    assert os.listdir(tmp_path) == ["x.msgpack"]
    trace = Trace.open(path)
    assert trace.check() == []
    assert (trace.complete, trace.end["ok"]) == (True, False)
    assert len(trace.ops) > 0


@pytest.mark.slow
def test_a_terminal_that_goes_away_ends_a_run_and_its_trace_is_whole(tmp_path):
    def on_the_terminal():
        reset_signals()
        os.setsid()
        fcntl.ioctl(2, termios.TIOCSCTTY, 0)

    path = tmp_path / "x.msgpack"
    partial = tmp_path / "x.msgpack.partial"
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-m", "kernbench.cli", "run", *MATMUL, "--trace", str(path)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=on_the_terminal,
    )
    os.close(theirs)
    wait_for(lambda: partial.exists() and partial.stat().st_size > 200_000)
    os.close(ours)
    assert run.wait(timeout=100) == 129
    trace = Trace.open(path)
    assert (trace.complete, trace.check()) == (True, [])
    assert trace.end["error"] == "EndedBySignal: SIGHUP"


@pytest.mark.slow
def test_a_signal_that_is_ignored_stays_ignored(tmp_path):
    def as_nohup():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    path = tmp_path / "x.msgpack"
    command = [sys.executable, "-m", "kernbench.cli", "run", "matmul", "--trace", path]
    run = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, preexec_fn=as_nohup, cwd=tmp_path
    )
    wait_for((tmp_path / "x.msgpack.partial").exists)
    run.send_signal(signal.SIGHUP)
    assert run.wait(timeout=100) == 0
    assert Trace.open(path).end["ok"] is True


IMPORTING = """
import os, signal, sys
from importlib.abc import MetaPathFinder
class Signal(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Signal())
sys.argv = [{program!r}, *{words!r}]
from {entry} import main
main()
"""


@pytest.mark.parametrize(
    "case",
    first_fast(
        [
            ("kernbench", "kernbench.cli", ["info"], "numpy._core.multiarray"),
            ("kernbench", "kernbench.cli", ["list"], "click"),
            ("kernbench", "kernbench.cli", ["run", "matmul"], "simpy"),
            ("kernbench-tui", "tui.__main__", ["--demo"], "click"),
            ("kernbench-tui", "tui.__main__", ["--demo"], "numpy._core.multiarray"),
        ]
    ),
)
def test_ctrl_c_while_modules_are_imported_is_one_line(case):
    program, entry, words, module = case
    code = IMPORTING.format(program=program, entry=entry, words=words, module=module)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        preexec_fn=reset_signals,
        stdin=subprocess.DEVNULL,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_who_imports_us_keeps_python_s_own_ctrl_c():
    code = "import signal, kernbench, tui; print(signal.getsignal(signal.SIGINT))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        preexec_fn=reset_signals,
        check=True,
    )
    assert "default_int_handler" in done.stdout


def signalled(folder, count, seed):
    """Runs that get a signal at random moments; how many had a trace with ops."""
    rng = random.Random(seed)
    with_ops = 0
    for _ in range(count):
        for left in folder.iterdir():
            left.unlink()
        path = folder / "x.msgpack"
        run = start("kernbench.cli", "run", *MATMUL, "--trace", str(path))
        time.sleep(rng.uniform(0.15, DURATION_S))
        number = rng.choice([*CODES, signal.SIGKILL])
        code, stderr = ended_by(run, number)
        assert code in (0, CODES.get(number, 137)), stderr
        assert "Traceback" not in stderr
        assert len(stderr.splitlines()) <= 1
        names = {place.name for place in folder.iterdir()}
        if number != signal.SIGKILL:
            assert names <= {"x.msgpack"}
        for place in folder.glob("x.msgpack*"):
            is_trace = place.suffix in (".msgpack", ".partial")
            if is_trace and place.stat().st_size:
                trace = Trace.open(place)
                assert trace.check() == []
                # One that is killed as it names its file has written all there is.
                assert trace.complete or place.suffix == ".partial"
                with_ops += len(trace.ops) > 0
    return with_ops


@pytest.mark.parametrize(
    "where",
    [
        "kernbench.trace.writer.TailThread",
        "kernbench.runtime_api.run._simulation_progress",
    ],
)
def test_a_signal_as_a_run_begins_leaves_no_file(where, tmp_path, monkeypatch):
    module, _, name = where.rpartition(".")
    module = importlib.import_module(module)
    as_it_is = getattr(module, name)

    def told(*args):
        made = as_it_is(*args)
        signal.raise_signal(signal.SIGTERM)
        return made

    monkeypatch.setattr(module, name, told)
    with interruptible(), pytest.raises(EndedBySignal):
        run_bench("matmul", trace=tmp_path / "x.msgpack")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_signals_at_random_moments_leave_whole_traces(tmp_path):
    assert signalled(tmp_path, count=6, seed=0) > 0


@pytest.mark.soak
def test_three_hundred_signals_at_random_moments_leave_whole_traces(tmp_path):
    assert signalled(tmp_path, count=300, seed=1) > 30


def test_a_signal_in_one_process_of_the_simulation_ends_all_that_wait_for_it():
    env = simpy.Environment()

    def inner():
        yield env.timeout(1)
        raise EndedBySignal(signal.SIGHUP)

    def outer():
        yield env.process(inner())

    env.process(outer())
    with pytest.raises(EndedBySignal, match="SIGHUP") as ended:
        env.run()
    assert ended.value.number == signal.SIGHUP
