"""What `kernbench perf tui` measures, on a small trace; the milliseconds are its own
affair.
"""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.errors import KernbenchError
from kernbench.perf import tui
from kernbench.perf.sim import PerfRow

LIMIT_S = 10.0
"""For anything that is waited for."""


@pytest.fixture
def program(tmp_path):
    return lambda text: tui.Terminal(["-c", text], (120, 40), str(tmp_path))


def test_the_sizes_are_those_of_the_goals():
    assert tui.SIZES == (100_000, 1_000_000, 10_000_000)
    assert set(tui.SCREENS) == set(tui.STEP_BYTES) == {(120, 40), (200, 50)}
    assert tui.STEPS >= 200
    assert len(set(tui.MIX)) > 20


@pytest.mark.slow
def test_every_goal_has_a_figure(monkeypatch):
    monkeypatch.setattr(tui, "MIX", "s2")
    for name in ("IDLE_S", "SETTLE_S"):
        monkeypatch.setattr(tui, name, 0.3)
    rows = [
        r for r in tui.measure([300], [(120, 40)], steps=4) if "as a job" not in r.name
    ]
    assert {row.name.removesuffix(", 300 ops at 120x40"): row.goal for row in rows} == {
        "first frame": 3,
        "step p50": 10,
        "step p99": 35,
        "mixed keys p50": 10,
        "mixed keys p99": 35,
        "mixed keys to their answers p50": 10,
        "mixed keys to their answers p99": 35,
        "bytes of a step": 2048,
        "bytes of a redraw": 61_440,
        "bytes when idle": 0,
        "bytes of a hover": 0,
        "private memory": 1228.8,
        "step, 300 / 300 ops at 120x40": 1.5,
    }
    assert all(math.isfinite(row.measured) for row in rows)
    assert all(
        row.measured > 0 for row in rows if "redraw" in row.name or "memory" in row.name
    )


@pytest.mark.slow
def test_the_do_nothing_screen_answers_every_key(program):
    with program(tui.NOTHING) as screen:
        screen.read(30.0, 0.3, b"line 39 nothing 0")
        assert screen.press("s") > 0
        assert b"line 0 nothing 1" in screen.data
        assert b"line 1 " not in screen.data


MEASURES = """
import sys
from kernbench.perf import tui
with tui.Terminal(["-c", tui.NOTHING], (80, 24), sys.argv[1]) as screen:
    screen.read(30.0, 0.3, b"nothing 0")
    print(screen.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_the_do_nothing_screen_ends_with_the_program_that_measures_it(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", MEASURES, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as measures:
        screen = int(measures.stdout.readline())
        measures.kill()
    end = time.monotonic() + LIMIT_S
    while _runs(screen) and time.monotonic() < end:
        time.sleep(0.02)
    spins = _runs(screen)
    if spins:
        os.kill(screen, signal.SIGKILL)
    assert not spins


def _runs(pid):
    """Whether a process has not ended; one that nobody has waited for yet has."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
def test_a_key_that_makes_no_byte_takes_no_time(program):
    with program(
        "import tty; tty.setraw(0); print('raw', flush=True); input()"
    ) as silent:
        silent.read(30.0, 0.1, b"raw")
        assert (silent.press("x"), silent.data) == (0.0, b"")


COUNTING = """
import sys, threading, time, tty
from itertools import count
tty.setraw(0)
def tick():
    for n in count():
        sys.stdout.write(f"\\x1b[1;38;2;240;198;116m\\x1b[1;40H{n % 100}%\\x1b[m")
        sys.stdout.write("\\x1b[3;4H" * (n % 3))  # where the cursor goes back to
        sys.stdout.flush()
        time.sleep(0.03)
threading.Thread(target=tick, daemon=True).start()
while key := sys.stdin.read(1):
    if key == "s":
        print("\\x1b[2;1Hdrawn", flush=True)
"""


@pytest.mark.slow
def test_per_cents_of_a_job_are_of_no_key(program):
    with program(COUNTING) as counting:
        counting.read(30.0, 0.0, b"%")
        assert (counting.press("x"), counting.data) == (0.0, b"")
        assert counting.press("s") > 0
        assert b"drawn" in counting.data
        counting.read(LIMIT_S, 0.0, b"%")  # it went on


LATE = """
import sys, time, tty
tty.setraw(0)
print("raw", flush=True)
while sys.stdin.read(1):
    print("computing", flush=True)
    time.sleep(0.2)
    print("an answer", flush=True)
"""


@pytest.mark.slow
def test_a_key_that_is_answered_late_is_measured_up_to_its_answer(program):
    with program(LATE) as late:
        late.read(30.0, 0.1, b"raw")
        assert late.press("x") < 200  # the answer is not among it
        assert b"answer" not in late.data
        late.read(1.0, 0.3)
        assert late.press("x", tui.ANSWERED_S) >= 200
        assert late.data.endswith(b"an answer\n")


@pytest.mark.slow
def test_a_key_that_is_answered_without_end_is_left_to_itself(program, monkeypatch):
    monkeypatch.setattr(tui, "MOST_S", 0.5)
    with program(LATE.replace("while sys.stdin.read(1):", "while True:")) as endless:
        endless.read(30.0, 0.01, b"raw")
        assert 300 < endless.press("x", tui.ANSWERED_S) <= 500


def test_a_program_that_ends_is_an_error_with_its_last_words(program):
    with (
        program("print('out of order')") as ended,
        pytest.raises(KernbenchError, match="of order"),
    ):
        ended.read(30.0, 0.1, b"never")


def test_a_screen_that_never_comes_is_an_error(program):
    with (
        program("input()") as empty,
        pytest.raises(KernbenchError, match="never showed b'x'"),
    ):
        empty.read(0.1, 0.1, b"x")


def test_what_is_compared_is_what_goes_beyond_the_do_nothing_screen():
    taken = {"step": [30.0, 0.0, 10.0, 20.0], "silent": [0.0]}
    rows = list(tui.beyond(taken, {"step": [4.0] * 4, "silent": [4.0]}, "here"))
    assert [(r.name, r.goal) for r in rows] == [
        ("step p50, here", 10),
        ("step p99, here", 35),
    ]
    assert rows[0].measured == 16.0  # the key that wrote nothing is left out
    assert rows[1].measured == pytest.approx(25.8)


class Computing:
    """A terminal whose job is on the status line of its first ``redraws`` whole
    screens.
    """

    def __init__(self, redraws):
        self.redraws = redraws
        self.data = b""
        self.keys = []

    def press(self, keys):
        self.keys.append(keys)
        shown = keys == tui.REDRAW and self.keys.count(keys) <= self.redraws
        self.data = b"op 9  critical 12%" if shown else b"op 9"
        return 5.0

    def read(self, first_s, gap_s):
        """Nothing comes."""


@pytest.mark.parametrize(("redraws", "batches"), [(0, 0), (1, 0), (3, 2), (99, 4)])
def test_steps_count_if_the_job_runs_before_and_after_them(redraws, batches):
    screen = Computing(redraws)
    assert tui.while_computing(screen, 4 * tui.BATCH) == [5.0] * batches * tui.BATCH
    assert screen.keys[0] == ":critical\r"
    assert screen.keys[-1] == "\x1b"


def test_the_command_exits_1_where_a_goal_is_not_met(monkeypatch):
    monkeypatch.setattr(tui, "measure", lambda: [PerfRow("a key", 11.0, 10.0, "ms")])
    result = CliRunner().invoke(main, ["perf", "tui"])
    assert result.exit_code == 1
    assert "NOT MET" in result.output


COMPUTING = """
import sys, time, tty
from pathlib import Path
tty.setraw(0)
print("raw", flush=True)
while time.process_time() < 1.5:
    pass
Path(sys.argv[1]).touch()
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_program_has_settled_when_it_computes_no_more(monkeypatch, tmp_path):
    monkeypatch.setattr(tui, "SETTLE_S", 0.3)
    done = tmp_path / "done"
    command = ["-c", COMPUTING, str(done)]
    with tui.Terminal(command, (80, 24), str(tmp_path)) as silent:
        silent.read(30.0, 0.0, b"raw")
        tui.settle(silent)
        assert done.exists()
