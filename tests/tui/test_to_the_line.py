"""From opening a trace to the guilty line in at most four keys, at 120x40, by what the
screen says alone: docs/debugger.md has the table.

The guilty line is the one that a comment in the bench marks. Nothing that the screen
shows is made with that comment.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pilots import piloted, settled

import kernbench.benches
from kernbench.errors import DeadlockError
from kernbench.runtime_api import run_bench
from tui.__main__ import open_session
from tui.app import KernbenchApp

BENCHES = Path(kernbench.benches.__file__).parent
DOCS = BENCHES.parent / "docs/debugger.md"
MOST_KEYS = 4


class Way(NamedTuple):
    """The keys, and words that the screen says on the way. ``mark`` is the comment of
    the guilty line; where a component is at fault, of the kernel's line that meets it.
    """

    keys: tuple[str, ...]
    says: str
    params: tuple[tuple[str, str], ...] = ()
    warns: bool = False
    mark: str = ""


WAYS = {
    "fault_early_credit": Way(("8",), "in flight together", mark="# reads"),
    "fault_low_bits": Way(("8",), "VerificationError", (("table", "coarse"),)),
    "fault_missing_wait": Way(("8",), "whose writer is in flight"),
    "fault_never_written": Way(("8",), "never written", warns=True),
    "fault_overflow": Way(("6",), "1 of 64 overflow"),
    "fault_past_shard": Way(("8",), "outside its allocation", warns=True),
    "fault_ring_by_name": Way(("8", "enter", "7"), "DeadlockError"),
    "fault_scratch_reused": Way(("8",), "write over bytes that are being read"),
    "fault_wrong_root": Way(("6", "7"), "expected 2, is 1"),
    "slow_serial_loads": Way(("8",), "loads hardly overlap compute"),
    "slow_refetched": Way(("8",), "w 16 times: 240 KiB of 256 KiB are refetches"),
    "slow_uneven": Way(("8",), "pe7 works 3.7x the median"),
}


def source_of(bench: str) -> Path:
    kind, _, name = bench.partition("_")
    folder = {"fault": "faults", "slow": "slow"}[kind]
    return BENCHES / folder / f"{name}.py"


def guilty_line(bench: str) -> tuple[int, str]:
    """The number of the line that is marked, and its code."""
    kind, _, _ = bench.partition("_")
    for number, line in enumerate(source_of(bench).read_text().splitlines(), 1):
        code, mark, _ = line.partition(WAYS[bench].mark or f"# {kind}:")
        if mark:
            return number, code.strip()
    raise AssertionError(f"{bench} marks no line")


def is_shown(screen: str, bench: str) -> bool:
    """Whether a screen names the line, or has its code with its number."""
    number, code = guilty_line(bench)
    site = rf"{re.escape(source_of(bench).name)}:{number}\b"
    text = rf"\b{number} +{re.escape(code[:10])}"
    return bool(re.search(site, screen) or re.search(text, screen))


@pytest.mark.slow
@pytest.mark.parametrize("bench", WAYS)
async def test_the_guilty_line_is_on_screen_after_these_keys(
    bench: str, tmp_path: Path, as_text_of: Callable[[Any], str]
) -> None:
    way = WAYS[bench]
    path = tmp_path / f"{bench}.msgpack"
    with suppress(DeadlockError):
        run_bench(bench, params=dict(way.params), trace=path, warn_memory=way.warns)
    app = KernbenchApp(open_session(path, None), path.name)
    seen = ""
    async with piloted(app, (120, 40)) as pilot:
        await settled(pilot)
        for key in way.keys:
            await pilot.press(key)
            await settled(pilot)
            seen += as_text_of(app)
        assert is_shown(as_text_of(app), bench)
    assert len(way.keys) <= MOST_KEYS
    assert way.says in " ".join(seen.split())


def test_the_table_of_the_docs_has_these_keys() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for bench, way in WAYS.items():
        number, _ = guilty_line(bench)
        keys = " ".join(key.title() if len(key) > 1 else key for key in way.keys)
        row = f"| `{bench}` | `{keys}` |"
        assert row in text
        assert f"{source_of(bench).name}:{number} |" in text
