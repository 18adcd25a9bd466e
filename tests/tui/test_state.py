"""What is set on a trace is there again later; nothing that is kept does harm."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any, NoReturn

import pytest
from hypothesis import strategies as st
from pace import for_all
from pilots import (
    ask,
    fast_keys,
    pane_of,
    piloted,
    run,
    settled,
    state_of,
    still,
    until,
)

from kernbench.replay import ReplaySession
from kernbench.replay.progress import Progress
from kernbench.replay.races.findings import Hazards
from kernbench.trace import Trace
from kernbench.trace.frames import FrameFile
from tui import state
from tui.__main__ import open_session
from tui.draw import UNICODE
from tui.keymap import Keymap
from tui.opening import OpeningApp
from tui.panes import PANES
from tui.screens.debugger import DebuggerScreen

TIMELINE = 1
MEMORY = 4
STATS = 8


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the program keeps its state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "kernbench"


@pytest.fixture
def kept_file(home: Path, trace_path: Path) -> Path:
    """The file with what is kept of the trace; it is not there yet."""
    path = home / "traces" / f"{Trace.open(trace_path).fingerprint()}.json"
    path.parent.mkdir(parents=True)
    return path


@asynccontextmanager
async def opened(path: Path, *keys: str, op: int | None = None) -> AsyncIterator[Any]:
    """The program on a trace, after some keys; ``op`` as in ``--op``."""

    def read(path: Path, on_frame: Any) -> ReplaySession:
        return open_session(path, op, on_frame)

    app = OpeningApp(path, {}, read, stay=op is not None)
    async with piloted(app, (80, 24)) as pilot:
        await until(pilot, lambda: app.screen is getattr(app, "debugger", None))
        with fast_keys(app):
            await still(pilot)
            await pilot.press(*keys)
            await still(pilot)
            yield pilot


async def left(path: Path, *keys: str) -> dict[str, Any]:
    """Open a trace, press some keys and quit; what there was to keep."""
    async with opened(path, *keys) as pilot:
        kept = state.state(pilot.app.debugger)
        await pilot.press("q")
    return kept


# -- what comes back ------------------------------------------------------------------


@pytest.mark.slow
async def test_another_trace_is_set_as_this_one_until_it_was_left_itself(
    trace_path: Path,
) -> None:
    other = trace_path.with_name("flash_attention.msgpack")

    async def shown(pilot: Any, path: Path) -> None:
        """Wait until that trace is shown."""
        app = pilot.app
        await until(pilot, lambda: app.debugger.desk.index.trace.path.name == path.name)
        await still(pilot)

    def view() -> Any:
        return state_of(pilot, STATS).view

    async with opened(trace_path, str(STATS), "v", "u") as pilot:
        run(pilot, f"open {other}")
        await shown(pilot, other)
        assert (view(), pilot.app.debugger.session.level) == (1, 1)
        assert state.recent()[:2] == [other, trace_path]
        await pilot.press("v")
        run(pilot, "open")
        await shown(pilot, trace_path)
        assert view() == 1
        run(pilot, "open")
        await shown(pilot, other)
        assert view() == 2


@pytest.mark.slow
async def test_all_that_was_set_is_there_again(trace_path: Path) -> None:
    moves = ("g", "s", "m", "a", "G", "m", "b", "u", "+", "+", "p")
    async with opened(trace_path, *moves) as pilot:
        await ask(pilot, "break name = dma_write", "watch c[0,1] w")
        await pilot.press("4", "v", "z")
        before = state.state(pilot.app.debugger)
        await pilot.press("q")
    async with opened(trace_path) as pilot:
        assert state.state(pilot.app.debugger) == before
    assert before["cursor"] == 151
    assert before["marks"] == {"a": 1, "b": 151}
    assert before["stops"] == ["break name = dma_write", "watch c[0,1] w"]
    assert before["level"] == 1
    assert before["active"] == MEMORY
    assert before["maximised"] is True
    assert before["views"]["4"] == 1
    assert before["pins"] != []


async def test_stops_are_made_again_as_soon_as_their_ops_are_found(
    trace_path: Path, kept_file: Path
) -> None:
    lines = ["break kind=gemm", "watch c[0,1] w", "catch hazards"]
    kept_file.write_text(json.dumps({"stops": lines}))
    async with opened(trace_path) as pilot:
        screen = pilot.app.debugger
        await until(pilot, lambda: not screen.pending_stops)
        assert [f"{stop.kind} {stop.what}" for stop in screen.session.stops] == lines


@pytest.mark.parametrize("how", ["a redraw", "a question that is asked again"])
async def test_stops_whose_ops_are_not_looked_for_any_more_wait_for(
    how: str, trace_path: Path, kept_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Hazards.ops
    let_go = Event()

    def slow(self: Hazards, progress: Progress) -> Any:
        while not let_go.wait(0.001):
            progress(0.5)
        return found(self, progress)

    monkeypatch.setattr(Hazards, "ops", slow)
    lines = ["catch hazards", "break kind=gemm"]
    kept_file.write_text(json.dumps({"stops": lines}))
    async with opened(trace_path) as pilot:
        screen = pilot.app.debugger
        await until(pilot, lambda: screen.awaited)
        await pilot.press("escape")
        await until(pilot, lambda: not screen.awaited)
        assert state.state(screen)["stops"] == lines
        let_go.set()
        if how == "a redraw":
            await pilot.press("ctrl+l")
        else:  # what was cancelled is forgotten then, whatever it was
            screen.runner.forget()
        await until(pilot, lambda: not screen.pending_stops)
        assert [f"{stop.kind} {stop.what}" for stop in screen.session.stops] == lines


async def test_a_stop_that_this_trace_cannot_have_is_left_out(
    trace_path: Path, kept_file: Path
) -> None:
    lines = ["watch nothing[0]", "goto 7", "break", 3, "break kind=gemm"]
    kept_file.write_text(json.dumps({"stops": lines}))
    async with opened(trace_path) as pilot:
        screen = pilot.app.debugger
        await until(pilot, lambda: not screen.pending_stops)
        assert [stop.what for stop in screen.session.stops] == ["kind=gemm"]
        assert screen.session.cursor == 16


@pytest.mark.slow
async def test_the_window_of_time_is_there_again_though_the_cursor_is_out_of_it(
    trace_path: Path,
) -> None:
    kept = await left(trace_path, *"+++llllllll")
    async with opened(trace_path) as pilot:
        desk = pilot.app.debugger.desk
        assert desk.window == (kept["t0"], kept["t1"])
        assert not kept["t0"] <= desk.replay.time < kept["t1"]


@pytest.mark.slow
async def test_what_was_folded_is_folded_again(trace_path: Path) -> None:
    async with opened(trace_path, "1", "z", "home") as pilot:
        await settled(pilot)
        await pilot.press("j", "enter")
        folds = state_of(pilot, TIMELINE).folds
        assert folds == {"-pe0"}
        await pilot.press("q")
    async with opened(trace_path) as pilot:
        await settled(pilot)
        assert state_of(pilot, TIMELINE).folds == folds
        await pilot.press("home")
        await settled(pilot)
        names = [line[:22] for line in pane_of(pilot, TIMELINE).text.splitlines()]
        (folded,) = [i for i, name in enumerate(names) if "▸pe0" in name]
        assert "pe1" in names[folded + 1]  # nothing of pe0 is between them


@pytest.mark.slow
async def test_a_history_that_was_shown_is_there_again(trace_path: Path) -> None:
    kept = await left(trace_path, "4", "V")
    assert kept["views"]["4"] > 0
    async with opened(trace_path) as pilot:
        await settled(pilot)
        assert "accesses to " in pane_of(pilot, MEMORY).text


# -- when what was kept does not hold -------------------------------------------------


@pytest.mark.slow
async def test_it_goes_with_what_the_file_holds_not_with_its_name(
    trace_path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "other-name.msgpack"
    shutil.copy(trace_path, copy)
    await left(trace_path, "G")
    async with opened(copy) as pilot:
        assert pilot.app.debugger.session.cursor == 151
    async with opened(trace_path.with_name("fault_overflow.msgpack")) as pilot:
        assert pilot.app.debugger.session.cursor != 151


@pytest.mark.slow
async def test_an_op_that_is_asked_for_comes_before_the_one_that_is_kept(
    trace_path: Path,
) -> None:
    await left(trace_path, "G", "m", "a")
    async with opened(trace_path, op=7) as pilot:
        session = pilot.app.debugger.session
        assert session.cursor == 7
        assert session.marks == (("a", 151),)


@pytest.mark.slow
async def test_an_op_that_is_asked_for_is_in_the_window_of_time(
    trace_path: Path,
) -> None:
    await left(trace_path, *"+++llllllll")
    async with opened(trace_path, op=2) as pilot:
        desk = pilot.app.debugger.desk
        t0, t1 = desk.window
        assert t0 <= desk.replay.time < t1


@pytest.mark.slow
async def test_after_a_crash_it_is_not_opened_where_that_was(trace_path: Path) -> None:
    async with opened(trace_path, "m", "a", "G") as pilot:
        pilot.app.crash = "of a test"
        await pilot.press("q")
    async with opened(trace_path) as pilot:
        session = pilot.app.debugger.session
        assert session.cursor == 16
        assert session.marks == (("a", 16),)


async def test_a_file_of_state_that_is_damaged_is_left_out_and_said(
    trace_path: Path, kept_file: Path
) -> None:
    kept_file.write_text('{"cursor": 12')
    async with opened(trace_path) as pilot:
        screen = pilot.app.debugger
        assert screen.session.cursor == 16
        assert f"{kept_file}: not read, so left out" in str(screen.notice.render())


async def test_what_does_not_fit_is_left_out_and_said(
    trace_path: Path, kept_file: Path
) -> None:
    kept_file.write_text(json.dumps({"cursor": 100_000, "marks": {"a": 3}}))
    async with opened(trace_path) as pilot:
        screen = pilot.app.debugger
        assert screen.session.cursor == 16
        assert screen.session.marks == (("a", 3),)
        assert "cursor 100000 does not fit" in str(screen.notice.render())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner)
    ),
    max_leaves=6,
)
NUMBERS = ("cursor", "level", "t0", "t1", "active", "tab", "maximised")
MAPS = ("marks", "views")
LISTS = ("pins", "folds", "stops")


@pytest.fixture(scope="module")
def untouched(trace_path: Path) -> ReplaySession:
    """A session whose index is made once."""
    return open_session(trace_path, None)


@pytest.fixture
def sessions(untouched: ReplaySession) -> Iterator[ReplaySession]:
    """The same session, as it was."""
    before = untouched.state
    yield untouched
    untouched.state = before


@for_all(
    kept=st.dictionaries(st.sampled_from((*NUMBERS, *MAPS, *LISTS)), JSON),
    fast=15,
    whole=100,
)
def test_whatever_is_kept_restores_to_a_sound_screen(
    kept: dict[str, Any], sessions: ReplaySession
) -> None:
    screen = DebuggerScreen(sessions, "x", UNICODE, Keymap())
    screen.runner.close()
    notes = state.restore(screen, kept)
    again = state.state(screen)
    assert -1 <= again["cursor"] < 152
    assert all(-1 <= op < 152 for op in again["marks"].values())
    assert again["t0"] < again["t1"]
    assert screen.active in screen.views
    assert screen.tab in screen.views
    for row in PANES:
        views = screen.desk.panes[row.key].views
        assert 0 <= again["views"][str(row.number)] < max(len(views), 1)
    assert all("left out" in note for note in notes)
    json.dumps(again)


# -- files ----------------------------------------------------------------------------


def test_a_write_that_fails_leaves_what_was_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: Any) -> NoReturn:
        raise OSError("disk full")

    state.write("x.json", {"a": 1})
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        state.write("x.json", {"a": 2})
    assert state.read("x.json") == ({"a": 1}, "")


def test_recent_files_are_few_and_those_that_are_there(
    tmp_path: Path, home: Path
) -> None:
    paths = [tmp_path / f"{n}.msgpack" for n in range(25)]
    for path in paths:
        path.touch()
        state.remember(path)
    state.remember(paths[7])
    paths[23].unlink()
    assert state.recent()[:3] == [paths[7], paths[24], paths[22]]
    assert len(state.recent()) == 19
    (home / "recent.json").write_text('{"files": [1, {}, "/none"]}')
    assert state.recent() == []


def test_what_was_kept_of_traces_long_ago_is_dropped(
    tmp_path: Path, home: Path
) -> None:
    for n in range(205):
        state.write(f"traces/{n}.json", {})
        os.utime(home / "traces" / f"{n}.json", (n, n))
    state.remember(tmp_path / "x")
    found = {int(path.stem) for path in (home / "traces").iterdir()}
    assert found == {*range(5, 205)}


def test_the_hash_is_of_the_heads_alone(trace_path: Path, tmp_path: Path) -> None:
    data = bytearray(trace_path.read_bytes())
    copy = tmp_path / "x.msgpack"
    whole = Trace.open(trace_path)
    frame = FrameFile(trace_path).by_tag["ops"][0]
    data[frame.start + 5] ^= 1
    copy.write_bytes(data)
    assert Trace.open(copy).fingerprint() == whole.fingerprint()  # no body is read
    copy.write_bytes(data[: frame.start + frame.size])
    assert Trace.open(copy).fingerprint() != whole.fingerprint()
