"""Whatever a kernel does, a run ends with one line, and with a trace up to there."""

import inspect
import os
import re
import subprocess
import sys
from itertools import chain
from types import SimpleNamespace

import hostile_kernels
import pytest
from child_signals import reset_signals
from click.testing import CliRunner
from hostile_kernels import HOSTILE

from kernbench.cli import main
from kernbench.trace import Trace

BENCH = hostile_kernels.__file__
ONE_CUBE = ("sips.count=1", "sip.cube_mesh.w=1", "sip.cube_mesh.h=1")

REFUSED = 2
"""What a launch that cannot be begun exits with; it leaves no trace."""


ONE_OF_EACH_CLASS = (
    "raises_system_exit",
    "raises_a_base_exception",
    "raises_greenlet_exit",
    "is_interrupted",
    "raises_what_cannot_be_shown",
    "raises_ten_megabytes",
    "yields",
    "is_an_object",
    "switches_to_the_simulator",
    "loads_in_a_greenlet",
    "leaves_a_thread",
    "loads_from_nan",
    "raises_as_it_is_stopped",
)


def cases():
    """The rows of the table; all but one of each class of faults in CI alone."""
    for name in HOSTILE:
        marks = () if name in ONE_OF_EACH_CLASS else pytest.mark.slow
        yield pytest.param(name, marks=marks)


def ran(args, own_process, folder):
    """How ``kernbench`` ends: its code, and the lines of stderr."""
    if not own_process:
        result = CliRunner().invoke(main, args)
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return SimpleNamespace(
            code=result.exit_code, stdout=result.stdout, stderr=result.stderr
        )
    program = [sys.executable, "-m", "kernbench.cli", *args]
    end = subprocess.run(
        program,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        check=False,
        preexec_fn=reset_signals,
    )
    return SimpleNamespace(code=end.returncode, stdout=end.stdout, stderr=end.stderr)


def lines_of(kernel):
    """The lines that a kernel has in its file; None if it has none."""
    try:
        source, first = inspect.getsourcelines(kernel)
    except (OSError, TypeError):
        return None
    return range(first, first + len(source))


def test_there_are_forty_at_least():
    assert len(HOSTILE) >= 40


@pytest.mark.parametrize("name", cases())
@pytest.mark.slow
def test_a_hostile_kernel_ends_its_run_with_one_line(name, tmp_path):
    row = HOSTILE[name]
    out = tmp_path / "out.msgpack"
    trace = out.name if row.own_process else str(out)
    settings = (f"kernel={name}", f"folder={tmp_path}")
    args = ["run", BENCH, "--set", *settings, "--spec", *ONE_CUBE, "--trace", trace]
    end = ran(args, row.own_process, tmp_path)

    assert end.code == row.code, end.stderr
    if row.code == REFUSED and not row.own_process:
        (line,) = end.stderr.splitlines()
        assert row.error in line
        assert [*tmp_path.iterdir()] == []
        return

    recorded = Trace.open(out)
    assert recorded.complete
    assert recorded.check() == []
    assert recorded.ops
    assert [path.name for path in tmp_path.iterdir()] == ["out.msgpack"]
    if row.error is None:
        assert end.stderr == ""
        assert end.stdout.count(" ns simulated") == 1
        return

    (line,) = end.stderr.splitlines()
    assert row.error in line
    assert len(line) < 20_000
    if "standard output" in row.error:
        assert recorded.end["ok"]
        return
    assert f"kernbench-tui {trace}" in line
    if row.code == 1:
        assert "Error: sip0.cube0.pe0.pe_cpu: kernel k at" in recorded.end["error"]
        place = re.search(r"sip0\.cube0\.pe0\.pe_cpu: kernel k at (\S+):(\d+): ", line)
        lines = lines_of(row.kernel)
        if lines is not None:
            assert place[1] in (BENCH, os.path.relpath(BENCH))
            callees = (hostile_kernels.load, hostile_kernels.Unshown)
            assert int(place[2]) in {*lines, *chain(*map(lines_of, callees))}
