"""What is set on a trace is there again when it is opened again; and nothing kept can do harm."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tui.widgets.draw import UNICODE

from kernbench.replay import ReplaySession
from kernbench.trace import Trace
from tui import state
from tui.__main__ import open_session
from tui.keymap import Keymap
from tui.opening import OpeningApp
from tui.screens.debugger import DebuggerScreen


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "kernbench"


@asynccontextmanager
async def running(path: Path, *keys: str, op: int | None = None):
    app = OpeningApp(
        path, {}, lambda path, told: open_session(path, op, told), stay=op is not None
    )
    async with app.run_test(size=(80, 24)) as pilot:
        for _ in range(300):
            await pilot.pause(0.02)
            if hasattr(app, "debugger") and app.screen is app.debugger:
                break
        await pilot.pause()
        await pilot.press(*keys)
        await pilot.pause()
        yield app.debugger


async def test_all_that_was_set_is_there_again(trace_path: Path) -> None:
    async with running(
        trace_path, "g", "s", "m", "a", "G", "m", "b", "u", "+", "+", "p"
    ) as was:
        was.run("break name = dma_write")
        was.run("watch c[0,1] w")
        for key in ("4", "v", "z"):
            was.action_act({"4": "pane_4", "v": "next_view", "z": "maximise"}[key])
        before = state.state(was)
        was.action_act("quit")
    async with running(trace_path) as now:
        for job in now.jobs.running():
            assert job.title == "stops"
        now.jobs.ask(("memory", "wait"), "wait", lambda tell: None, wait_s=20)
        assert state.state(now) == before
    assert before["cursor"] == 151
    assert before["marks"] == {"a": 1, "b": 151}
    assert before["stops"] == ["break name = dma_write", "watch c[0,1] w"]
    assert (before["level"], before["active"], before["maximised"]) == (1, 4, True)
    assert before["pins"] != []


async def test_it_goes_with_what_the_file_holds_not_with_its_name(
    trace_path, tmp_path
) -> None:
    copy = tmp_path / "other-name.msgpack"
    shutil.copy(trace_path, copy)
    async with running(trace_path, "G") as was:
        was.action_act("quit")
    async with running(copy) as now:
        assert now.session.cursor == 151
    async with running(trace_path.with_name("fault_overflow.msgpack")) as other:
        assert other.session.cursor != 151


async def test_an_op_that_is_asked_for_comes_before_the_one_that_is_kept(
    trace_path,
) -> None:
    async with running(trace_path, "G", "m", "a") as was:
        was.action_act("quit")
    async with running(trace_path, op=7) as now:
        assert (now.session.cursor, now.session.marks) == (7, {"a": 151})


async def test_a_file_of_state_that_is_damaged_is_left_out_and_said(
    trace_path, home
) -> None:
    path = home / "traces" / f"{Trace.open(trace_path).fingerprint()}.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"cursor": 12')
    async with running(trace_path) as screen:
        assert screen.session.cursor == 16
        said = str(screen.notice.render())
        assert f"{path}: not read, so left out" in said


async def test_what_does_not_fit_is_left_out_and_said(trace_path, home) -> None:
    path = home / "traces" / f"{Trace.open(trace_path).fingerprint()}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"cursor": 100_000, "marks": {"a": 3}}))
    async with running(trace_path) as screen:
        assert (screen.session.cursor, screen.session.marks) == (16, {"a": 3})
        assert "cursor 100000 does not fit" in str(screen.notice.render())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner)
    ),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        "cursor",
        "level",
        "marks",
        "pins",
        "folds",
        "t0",
        "t1",
        "active",
        "tab",
        "views",
        "stops",
    ]
)


@given(kept=st.dictionaries(NAMES, JSON))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whatever_is_kept_restores_to_a_sound_screen(
    kept, session: ReplaySession
) -> None:
    screen = DebuggerScreen(session, "x", UNICODE, Keymap())
    notes = state.restore(screen, kept)
    screen.jobs.close()
    again = state.state(screen)
    assert -1 <= again["cursor"] < 152
    assert all(-1 <= op < 152 for op in again["marks"].values())
    assert again["t0"] < again["t1"]
    assert again["active"] in screen.panes
    assert all(
        0 <= pane.view < max(len(pane.views), 1) for pane in screen.panes.values()
    )
    assert all("left out" in note for note in notes)


def test_a_write_that_fails_leaves_what_was_there(monkeypatch, home: Path) -> None:
    state.write("x.json", {"a": 1})
    monkeypatch.setattr(
        Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full"))
    )
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
    assert {int(path.stem) for path in (home / "traces").iterdir()} == {*range(5, 205)}


def test_the_hash_is_of_the_heads_alone(trace_path: Path, tmp_path: Path) -> None:
    data, copy = bytearray(trace_path.read_bytes()), tmp_path / "x.msgpack"
    whole = Trace.open(trace_path)
    frame = whole._file.by_tag["ops"][0]
    data[frame.start + 5] ^= 1
    copy.write_bytes(data)
    assert Trace.open(copy).fingerprint() == whole.fingerprint()  # no body is read
    copy.write_bytes(data[: frame.start + frame.size])
    assert Trace.open(copy).fingerprint() != whole.fingerprint()


async def test_after_a_crash_it_is_not_opened_where_that_was(trace_path: Path) -> None:
    async with running(trace_path, "m", "a", "G") as was:
        was.app.crash = "of a test"
        was.action_act("quit")
    async with running(trace_path) as now:
        assert (now.session.cursor, now.session.marks) == (16, {"a": 16})


async def test_the_window_of_time_is_there_again_though_the_cursor_is_out_of_it(
    trace_path,
) -> None:
    async with running(trace_path, *"+++llllllll") as was:
        window = was.timeline.t0, was.timeline.t1
        assert not window[0] <= was.session.time < window[1]
        was.action_act("quit")
    async with running(trace_path) as now:
        assert (now.timeline.t0, now.timeline.t1) == window


async def test_an_op_that_is_asked_for_is_in_the_window_of_time(trace_path) -> None:
    async with running(trace_path, *"+++llllllll") as was:
        was.action_act("quit")
    async with running(trace_path, op=2) as now:
        assert now.timeline.t0 <= now.session.time < now.timeline.t1


async def test_a_history_that_was_shown_is_there_again(trace_path, as_text_of) -> None:
    async with running(trace_path, "4", "V") as was:
        assert was.panes[4].mode == "history"
        was.action_act("quit")
    async with running(trace_path) as now:
        for _ in range(100):
            await now.app.animator.wait_for_idle()
            now.look()
            if "accesses to" in now.panes[4].text:
                break
            now.jobs.ask(("memory", "wait"), "wait", lambda tell: None, wait_s=1)
        assert "accesses to " in now.panes[4].text
