"""Kernels that are right and slow on purpose: what is found about each."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernbench.benches
from kernbench.benches import SLOW
from kernbench.replay import ReplaySession
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

FOUND = {
    "slow_serial_loads": "loads hardly overlap compute",
    "slow_refetched": "w 16 times: 240 KiB of 256 KiB are refetches",
    "slow_uneven": "pe7 works 3.7x the median",
}


def marked_line(bench: str) -> str:
    """The line that is slow, as its comment says."""
    folder = Path(kernbench.benches.__file__).parent / "slow"
    path = folder / f"{bench.removeprefix('slow_')}.py"
    lines = path.read_text().splitlines()
    (number,) = [i for i, line in enumerate(lines, 1) if "# slow:" in line]
    return f"{path.name}:{number}"


def test_each_has_something_to_be_found() -> None:
    assert {*SLOW} == {*FOUND}


@pytest.mark.slow
@pytest.mark.parametrize("bench", FOUND)
def test_it_is_right_and_diagnosis_finds_why_it_is_slow(
    bench: str, tmp_path: Path
) -> None:
    path = tmp_path / "slow.msgpack"
    report = run_bench(bench, trace=path).report
    assert report is not None
    assert report.ok
    found = ReplaySession(Trace.open(path)).run_line("diagnose")
    assert not [one for one in found if one.kind == "wrong"]
    assert any(FOUND[bench] in one.title for one in found)
    named = [line for one in found for line in one.lines]
    assert any(line.endswith(marked_line(bench)) for line in named)
    for one in found:
        if "refetches" in one.title:
            (line,) = one.lines
            (op,) = one.ops
            assert line.endswith(marked_line(bench))
            assert ReplaySession(Trace.open(path)).index.ops.row(op).site == line
