"""``kernbench-tui --follow``: a run that goes on is shown as it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from desks import TRACES
from live_runs import LiveRun
from pilots import ask, piloted, settled, still, until
from terminals import opened

from kernbench.errors import KernbenchError
from tui.__main__ import main, open_session
from tui.ansi import screen_lines
from tui.follow import FollowingApp, Run, RunFile

SIZE = (110, 32)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LiveRun]:
    run = LiveRun(tmp_path / "x.msgpack")
    yield run
    with suppress(Exception):  # some tests take its file away
        run.writer.abandon()


@pytest.fixture(autouse=True)
def _looks_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An app looks at the file when a test tells it to, and needs no calm before."""
    monkeypatch.setattr("tui.follow.LOOK_S", 3600.0)
    monkeypatch.setattr("tui.follow.CALM_S", 0.0)


@asynccontextmanager
async def following(run: LiveRun, op: int | None = None) -> AsyncIterator[Any]:
    def read(path: Path, on_frame: Any) -> Any:
        return open_session(path, op, on_frame)

    app = FollowingApp(RunFile(run.path), read, stay=op is not None)
    async with piloted(app, SIZE) as pilot:
        await until(pilot, lambda: hasattr(app, "debugger"))
        await settled(pilot)
        yield pilot


async def follow(pilot: Any) -> None:
    await pilot.app.follow()
    await settled(pilot)


def status(pilot: Any) -> str:
    return screen_lines(pilot.app.screen)[0]


def op_of(pilot: Any) -> Any:
    """The op under the cursor, as it was recorded."""
    session = pilot.app.debugger.desk.replay
    return session.trace.ops[session.cursor]


def ops_shown(pilot: Any) -> int:
    return len(pilot.app.debugger.desk.index.ops)


# -- the file ----------------------------------------------------------------------


def test_how_a_run_stands_that_goes_on_and_ends(run: LiveRun) -> None:
    file = RunFile(run.path)
    run.record(3)
    assert (file.look(), file.now) == (Run.MORE, run.partial)
    assert file.look() is Run.SAME
    run.record(3)
    assert file.look() is Run.MORE
    run.writer.flush()
    assert file.look() is Run.MORE
    assert file.look() is Run.SAME
    run.end()
    assert (file.look(), file.now) == (Run.ENDED, run.path)


def test_a_run_that_was_killed_holds_no_lock(run: LiveRun) -> None:
    run.record(3)
    file = RunFile(run.path)
    assert file.look() is Run.MORE
    run.be_killed()
    assert file.look() is Run.KILLED


def test_a_run_that_left_no_file_is_gone(run: LiveRun) -> None:
    run.record(3)
    file = RunFile(run.partial)
    assert file.path == run.path
    assert file.look() is Run.MORE
    run.path.write_bytes(b"an older trace")
    run.writer.abandon()
    assert file.look() is Run.GONE
    run.path.unlink()
    assert file.look() is Run.GONE


def test_to_look_takes_no_file_from_a_run(run: LiveRun) -> None:
    file = RunFile(run.path)
    for _ in range(3):
        file.look()
        run.record(1)
    run.end()
    assert len(open_session(run.path, None).trace.ops) == 3


def test_a_file_that_no_run_writes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KernbenchError, match="no such file, and no run that writes it"):
        RunFile(tmp_path / "none.msgpack")


# -- the screen --------------------------------------------------------------------


@pytest.mark.slow
async def test_the_cursor_stays_on_the_end(run: LiveRun) -> None:
    run.record(30)
    async with following(run) as pilot:
        assert "op 29/29" in status(pilot)
        assert "live" in status(pilot)
        run.record(40)
        await follow(pilot)
        assert "op 69/69" in status(pilot)
        assert "live" in status(pilot)
        window = pilot.app.debugger.desk.window
        assert window[0] <= op_of(pilot).t_start <= window[1]


@pytest.mark.slow
async def test_moving_off_the_end_leaves_it_and_l_comes_back(run: LiveRun) -> None:
    run.record(30)
    async with following(run) as pilot:
        await pilot.press("S", "S")
        assert "goes on" in status(pilot)
        here = op_of(pilot)
        run.record(40)
        await follow(pilot)
        assert ops_shown(pilot) == 70
        assert op_of(pilot).t_start == here.t_start
        assert op_of(pilot).component_id == here.component_id
        await pilot.press("L")
        assert "op 69/69" in status(pilot)
        run.record(10)
        await follow(pilot)
        assert "op 79/79" in status(pilot)


@pytest.mark.slow
async def test_cursor_and_marks_stay_on_their_ops(run: LiveRun) -> None:
    # Ops are recorded as they complete: some that come in later began before these.
    run.record(60)
    async with following(run, op=40) as pilot:
        await pilot.press("m", "a")
        await ask(pilot, "goto 55")
        before = {}
        session = pilot.app.debugger.desk.replay
        before["cursor"] = repr(op_of(pilot).params)
        before["mark"] = repr(session.trace.ops[session.marks["a"]].params)
        was = session.cursor, session.marks["a"]
        moves = 0  # of these to another position
        while run.recorded < len(run.trace.ops):
            run.record(min(23, len(run.trace.ops) - run.recorded))
            await follow(pilot)
            session = pilot.app.debugger.desk.replay
            assert repr(op_of(pilot).params) == before["cursor"]
            assert repr(session.trace.ops[session.marks["a"]].params) == before["mark"]
            moves += (session.cursor, session.marks["a"]) != was
        assert moves > 0, "no op came in before the cursor, so nothing was tried"


@pytest.mark.slow
async def test_what_is_set_on_the_screen_survives(run: LiveRun) -> None:
    run.record(60)
    async with following(run, op=40) as pilot:
        await pilot.press("4", "v", "1", "+", "+", "z")
        await ask(pilot, "break kind=gemm")
        screen = pilot.app.debugger
        window = screen.desk.window
        stops = [stop.what for stop in screen.session.stops]
        views = {key: pane.view(screen.desk.states[key])
                 for key, pane in screen.desk.panes.items()}  # fmt: skip
        run.record(20)
        await follow(pilot)
        new = pilot.app.debugger
        assert new is not screen
        assert new.desk.window == window
        assert new.maximised
        assert new.active == "timeline"
        assert [stop.what for stop in new.session.stops] == stops
        for key, pane in new.desk.panes.items():
            assert pane.view(new.desk.states[key]) == views[key]


@pytest.mark.slow
async def test_a_whole_trace_takes_over_without_a_move(run: LiveRun) -> None:
    run.record(100)
    async with following(run, op=40) as pilot:
        here = repr(op_of(pilot).params)
        run.record(len(run.trace.ops) - 100)
        run.end()
        await follow(pilot)
        assert repr(op_of(pilot).params) == here
        assert pilot.app.debugger.desk.index.trace.complete
        assert "kernbench x.msgpack " in status(pilot)
        assert "goes on" not in status(pilot)
        shown = "\n".join(screen_lines(pilot.app.screen))
        assert "the run has ended: this is x.msgpack, whole" in shown
        ended = pilot.app.debugger
        await follow(pilot)  # there is nothing more to look at
        assert pilot.app.debugger is ended


@pytest.mark.slow
async def test_a_run_that_is_killed_says_so(run: LiveRun) -> None:
    run.record(30)
    async with following(run) as pilot:
        run.be_killed()
        await follow(pilot)
        shown = "\n".join(screen_lines(pilot.app.screen))
        assert "the run was killed: this is all that it had recorded" in shown
        assert "run killed" in status(pilot)
        await pilot.press("L")
        assert "has ended" in "\n".join(screen_lines(pilot.app.screen))


@pytest.mark.slow
async def test_a_line_that_is_typed_is_not_taken_away(run: LiveRun) -> None:
    run.record(30)
    async with following(run) as pilot:
        await pilot.press("colon", *"goto 3")
        run.record(10)
        task = asyncio.create_task(pilot.app.follow())
        typed = pilot.app.debugger
        for _ in range(20):
            await still(pilot)
        await pilot.press("enter")
        assert pilot.app.debugger is typed or ops_shown(pilot) == 40
        await asyncio.wait_for(task, 60)
        await settled(pilot)
        assert "op 3/39" in status(pilot)


@pytest.mark.slow
async def test_another_trace_that_is_opened_stays(run: LiveRun) -> None:
    run.record(30)
    async with following(run) as pilot:
        await pilot.press(*f":open {TRACES / 'matmul.msgpack'}", "enter")
        app = pilot.app
        await until(pilot, lambda: "matmul" in app.trace_name)
        await settled(pilot)
        opened = app.debugger
        run.record(10)
        await follow(pilot)
        assert app.debugger is opened
        assert "matmul" in status(pilot)
        assert "goes on" not in status(pilot)
        assert "live" not in status(pilot)
        await pilot.press("L")
        assert "no run is followed" in "\n".join(screen_lines(app.screen))


@pytest.mark.slow
async def test_a_message_stays_until_a_key(run: LiveRun) -> None:
    run.record(30)
    async with following(run) as pilot:
        await pilot.press("P")
        said = pilot.app.debugger.said
        assert said
        run.record(10)
        await follow(pilot)
        assert pilot.app.debugger.said == said
        assert said[:30] in "\n".join(screen_lines(pilot.app.screen))


@pytest.mark.slow
async def test_a_run_without_an_op_yet_can_be_followed(run: LiveRun) -> None:
    run.writer.flush()
    async with following(run) as pilot:
        assert ops_shown(pilot) == 0
        run.record(30)
        await follow(pilot)
        assert "op 29/29" in status(pilot)


# -- the program -------------------------------------------------------------------


def test_wrong_calls_end_in_a_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--follow", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "no such file, and no run that writes it" in result.stderr
    assert result.stderr.count("\n") == 1
    result = CliRunner().invoke(main, ["--follow"])
    assert result.exit_code == 2
    assert "it takes FILE" in result.stderr


@pytest.mark.slow
def test_without_a_terminal_what_there_is_is_printed(run: LiveRun) -> None:
    run.record(30)
    result = CliRunner().invoke(main, ["--follow", str(run.path)])
    assert result.exit_code == 0
    assert "ops        30\n" in result.stdout


@pytest.mark.slow
def test_in_a_terminal_the_screen_goes_on_by_itself(
    run: LiveRun, tmp_path: Path
) -> None:
    run.record(30)
    with opened("--follow", run.path, state=tmp_path, size=SIZE) as terminal:
        terminal.until("op 29/29")
        run.record(40)
        terminal.until("op 69/69")
        terminal.press("S")
        terminal.until("op 68/69")
        run.record(len(run.trace.ops) - run.recorded)
        run.end()
        terminal.until("the run has ended")
        assert f"/{len(run.trace.ops) - 1}" in terminal.text.splitlines()[0]
        terminal.press("q")
        assert terminal.end() == 0
