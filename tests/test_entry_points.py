"""What every program of the project does first, before numpy is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TRACE = str(ROOT / "traces" / "matmul.msgpack")
SCRIPTS = Path(sys.executable).parent

# Stands in for numpy: says what it would be imported with, and ends the program.
FAKE_NUMPY = """
import os
os.write(1, os.environ.get("OPENBLAS_NUM_THREADS", "unset").encode())
os._exit(0)
"""

PROGRAMS = {
    "kernbench": [str(SCRIPTS / "kernbench"), "trace", "info", TRACE],
    "kernbench-tui": [str(SCRIPTS / "kernbench-tui"), TRACE],
    "python -m kernbench": [sys.executable, "-m", "kernbench", "trace", "info", TRACE],
    "python -m tui": [sys.executable, "-m", "tui", TRACE],
}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment in which numpy is the fake one, and the variable is not set."""
    package = tmp_path / "numpy"
    package.mkdir()
    (package / "__init__.py").write_text(FAKE_NUMPY)
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    environ.pop("OPENBLAS_NUM_THREADS", None)
    return environ


def output(command: list[str], environ: dict[str, str]) -> str:
    """What a program writes that has no terminal."""
    done = subprocess.run(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_numpy_is_imported_with_one_blas_thread(program, environ) -> None:
    assert output(PROGRAMS[program], environ) == "1"


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_users_number_of_blas_threads_is_kept(program, environ) -> None:
    environ["OPENBLAS_NUM_THREADS"] = "3"
    assert output(PROGRAMS[program], environ) == "3"
