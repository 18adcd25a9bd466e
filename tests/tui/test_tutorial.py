"""The keys of the README's three faults, pressed: each ends where the text says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tui.__main__ import open_session

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
TEXT = TEXT.partition("## Three faults, found")[2].partition("\n## ")[0]
KEYS = re.findall(r"[Ww]ith keys: ((?:`[^`]+`(?: \([^)]*\)| and)?\s*)+)", TEXT)
FAULTS = dict(zip(("missing_wait", "overflow", "wrong_root"), KEYS, strict=True))


@pytest.fixture
def session(request):
    return open_session(ROOT / "traces" / f"fault_{request.param}.msgpack", None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("session", "op", "shown"),
    [
        ("missing_wait", 2, "tl.store(y_ptr, x + x)"),
        ("overflow", 2, "e = tl.exp(x)"),
        ("wrong_root", 9, "benches/faults/wrong_root.py:23"),
    ],
    indirect=["session"],
)
async def test_a_fault_is_found_with_the_keys_that_are_shown(
    session, op, shown, drive, settle, as_text_of, request
) -> None:
    file = shown.rpartition("/")[2].partition(":")[0]
    assert file in TEXT or shown in TEXT
    name = request.node.callspec.params["session"]
    async with drive(120, 40) as pilot:
        for word in re.findall(r"`([^`]+)`", FAULTS[name]):
            keys = ["enter"] if word == "Enter" else [*word]
            await pilot.press(*keys)
            await settle(pilot)
        assert session.cursor == op
        assert shown in as_text_of(pilot.app)
