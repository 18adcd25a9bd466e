"""A trace is read behind a screen that says how far that is, and can be given up."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest
from terminals import ROOT, opened

from kernbench.errors import KernbenchError
from kernbench.trace.frames import Frame, FrameFile, ignore_frame
from tui.__main__ import open_session
from tui.opening import OpeningApp


@pytest.fixture(autouse=True)
def _state(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Slow:
    """Reads when it is let; ``told`` is what the reader calls."""

    def __init__(self) -> None:
        self.begun, self.go, self.told = Event(), Event(), ignore_frame

    def __call__(self, path: Path, told=ignore_frame):
        self.told = told
        self.begun.set()
        assert self.go.wait(20)
        told(Frame(0, "ops", 0, 1))
        return open_session(path, None)


async def shows(pilot, as_text_of, text: str) -> str:
    for _ in range(200):
        await pilot.pause(0.02)
        if text in as_text_of(pilot.app):
            break
    assert text in as_text_of(pilot.app)
    return as_text_of(pilot.app)


async def test_the_first_frame_is_there_before_the_file_is_read(
    trace_path, as_text_of
) -> None:
    read = Slow()
    app = OpeningApp(trace_path, {}, read)
    async with app.run_test(size=(80, 24)) as pilot:
        assert "opening matmul.msgpack" in await shows(
            pilot, as_text_of, "0.0 of 0.2 MB read, 0%"
        )
        assert not hasattr(app, "debugger")
        read.begun.wait(20)
        read.told(Frame(0, "ops", 60_000, trace_path.stat().st_size // 2 - 60_000))
        text = await shows(pilot, as_text_of, "0.1 of 0.2 MB read, 50%")
        assert "#" * 39 in text
        read.go.set()
        await shows(pilot, as_text_of, "op 16/151")


async def test_escape_gives_up(trace_path, as_text_of) -> None:
    read = Slow()
    app = OpeningApp(trace_path, {}, read)
    async with app.run_test(size=(80, 24)) as pilot:
        read.begun.wait(20)
        await pilot.press("escape")
        await shows(pilot, as_text_of, "giving up")
        read.go.set()
        for _ in range(200):
            await pilot.pause(0.02)
            if app._exit:
                break
    assert (app.return_code, app.failure) == (0, "")


def test_progress_comes_with_the_frames_that_are_read(trace_path: Path) -> None:
    told: list[Frame] = []
    session = open_session(trace_path, None, told.append)
    ops = [frame.start + frame.size for frame in told if frame.tag == "ops"]
    assert ops == sorted(ops)
    assert ops[-1] <= trace_path.stat().st_size
    assert len(session) == 152


def test_reading_stops_when_the_one_who_is_told_raises(trace_path: Path) -> None:
    class Enough(Exception):
        pass

    def told(frame: Frame) -> None:
        if frame.tag == "ops":
            raise Enough

    with pytest.raises(Enough):
        open_session(trace_path, None, told)


async def test_the_picker_lists_traces_and_opens_one(trace_path, as_text_of) -> None:
    paths = {
        trace_path: "opened before",
        trace_path.with_name("fault_overflow.msgpack"): "bundled",
    }
    app = OpeningApp(None, paths, lambda path, told: open_session(path, None, told))
    async with app.run_test(size=(80, 24)) as pilot:
        text = await shows(pilot, as_text_of, "which trace?")
        assert text.index("matmul.msgpack") < text.index("fault_overflow.msgpack")
        await pilot.press("j", "enter")
        await shows(pilot, as_text_of, " fault_overflow.msgpack  op")


async def test_a_row_of_the_picker_is_one_line_however_narrow(
    trace_path, as_text_of
) -> None:
    app = OpeningApp(
        None,
        {trace_path: "opened before", trace_path.parent / "README.md": "x"},
        Slow(),
    )
    async with app.run_test(size=(40, 15)) as pilot:
        text = await shows(pilot, as_text_of, "which trace?")
        rows = [line.split()[0] for line in text.splitlines()[3:] if line.strip()]
        assert rows == ["matmul.msgpack", "README.md"]


async def test_keys_of_the_picker_help_and_open_no_empty_palette(
    trace_path, as_text_of
) -> None:
    app = OpeningApp(None, {trace_path: "opened before"}, Slow())
    async with app.run_test(size=(100, 24)) as pilot:
        await shows(pilot, as_text_of, "? helps")
        await pilot.press("ctrl+p")
        assert "which trace?" in as_text_of(app)
        await pilot.press("?")
        await shows(pilot, as_text_of, "Ctrl+Z suspends")


@pytest.mark.parametrize("key", ["q", "escape", "ctrl+c"])
async def test_the_picker_ends_by_the_keys_of_back_and_quit(
    key, trace_path, as_text_of
) -> None:
    app = OpeningApp(None, {trace_path: "opened before"}, Slow())
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, as_text_of, "which trace?")
        await pilot.press(key)
        assert app._exit


@pytest.mark.parametrize("fault", ["unreadable", "empty", "gone"])
async def test_the_picker_says_why_a_trace_does_not_open(
    fault: str, trace_path, tmp_path: Path, as_text_of
) -> None:
    bad = tmp_path / "bad.msgpack"
    bad.write_bytes(b"no trace" if fault != "empty" else b"")
    app = OpeningApp(
        None, {bad: "bundled"}, lambda path, told: open_session(path, None, told)
    )
    async with app.run_test(size=(120, 24)) as pilot:
        await shows(pilot, as_text_of, "which trace?")
        if fault == "gone":
            bad.unlink()
        await pilot.press("enter")
        said = "No such file" if fault == "gone" else "no kernbench trace"
        text = await shows(pilot, as_text_of, said)
        assert "which trace?" in text
        await pilot.press("q")
    assert app.return_code == 0


def test_without_a_file_the_bundled_traces_and_those_opened_before(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.msgpack"
    shutil.copy(ROOT / "traces" / "matmul.msgpack", path)
    with opened(path, state=tmp_path) as terminal:
        terminal.until("op 16/151")
        terminal.press("q")
        assert terminal.end() == 0
    with opened(state=tmp_path) as terminal:
        text = terminal.until("which trace?")
        assert text.index("mine.msgpack") < text.index("ccl_allreduce.msgpack")
        terminal.press("\r")
        terminal.until("kernbench mine.msgpack  op 16/151")


def test_demo_opens_a_bundled_trace(tmp_path: Path) -> None:
    with opened("--demo", state=tmp_path) as terminal:
        terminal.until("kernbench matmul.msgpack  op 16/151")


def test_a_truncated_file_opens_up_to_its_last_good_frame(
    trace_path, tmp_path: Path
) -> None:
    path = tmp_path / "cut.msgpack"
    path.write_bytes(trace_path.read_bytes()[:-4000])
    with opened(path, state=tmp_path) as terminal:
        terminal.until("cut.msgpack  op")
        assert "file cut off" in terminal.text


def new_version(path: Path) -> bytes:
    return path.read_bytes().replace(b"\xa7version\x92\x01", b"\xa7version\x92\x07", 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: b"",
        lambda path: b"not a trace at all" * 9,
        lambda path: path.read_bytes()[:40],
        new_version,
    ],
    ids=["empty", "other", "cut in its first frame", "another version"],
)
def test_a_bad_file_ends_in_one_line_before_the_screen_is_taken(
    make, trace_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "bad.msgpack"
    path.write_bytes(make(trace_path))
    with opened(path, state=tmp_path) as terminal:
        assert terminal.end() == 1
        assert terminal.raw.startswith(
            f"error: {path}: no kernbench trace that can".encode()
        )
        assert terminal.raw.count(b"\n") == 1
        assert b"\x1b" not in terminal.raw


def test_what_goes_wrong_later_is_one_line_too(
    trace_path: Path, tmp_path: Path
) -> None:
    with opened(trace_path, "--op", 9999, state=tmp_path) as terminal:
        assert terminal.end() == 1
        assert terminal.restored()
        last = terminal.raw.decode().rpartition("\x1b")[2].split("error: ")[1]
        assert last.startswith("no op 9999; this trace has ops 0 to 151")


def test_the_check_of_the_first_frame_looks_at_no_other(trace_path: Path) -> None:
    assert FrameFile(trace_path, scan=False).by_tag == {}
    with pytest.raises(KernbenchError, match="it is a directory"):
        FrameFile(trace_path.parent, scan=False)


def test_nothing_heavy_is_imported_before_the_first_frame() -> None:
    heavy = (
        "kernbench.replay",
        "kernbench.sim_engine.data_executor",
        "tui.screens.debugger",
    )
    code = f"import sys, tui.opening; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
