"""The debugger's answers about real kernels: the traces that come with kernbench."""

import shutil
from pathlib import Path

import pytest
from check import checked_trace

FOLDER = Path(__file__).parents[2] / "traces"
QUICK = ("fault_overflow", "fault_missing_wait", "fault_wrong_root")
NEVER_ENDED = ("fault_ring_by_name",)
"""Runs whose launches have no end, which the oracles take for granted."""

SLOW = tuple(
    path.stem
    for path in sorted(FOLDER.glob("*.msgpack"))
    if path.stem not in (*QUICK, *NEVER_ENDED)
)


def wrong(name, folder):
    """What is found wrong in the answers about a bundled trace."""
    copied = folder / f"{name}.msgpack"
    shutil.copy(FOLDER / copied.name, copied)
    tally = checked_trace(copied)
    assert sum(tally.checks.values()) > 300
    return [text[:400] for text in tally.found]


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_every_answer_about_a_small_one_is_right(name, tmp_path):
    assert not wrong(name, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("name", SLOW)
def test_every_answer_about_a_large_one_is_right(name, tmp_path):
    assert not wrong(name, tmp_path)
