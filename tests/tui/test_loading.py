"""A trace is read behind a screen that says how far that is, and can be given up."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest
from pilots import piloted, shows, still, until
from terminals import ROOT, opened
from textual import events

from kernbench.errors import KernbenchError
from kernbench.trace.frames import Frame, FrameFile
from tui.__main__ import open_session
from tui.opening import OpeningApp


@pytest.fixture(autouse=True)
def _state(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class SlowReader:
    """Reads when it is let; ``on_frame`` is what it would call with every frame."""

    def __init__(self) -> None:
        self.begun = Event()
        self.go = Event()
        self.on_frame = None

    def __call__(self, path: Path, on_frame):
        self.on_frame = on_frame
        self.begun.set()
        assert self.go.wait(20)
        on_frame(Frame(0, "ops", 0, 1))
        return open_session(path, None)


def read(path: Path, on_frame):
    """Reads as the program does."""
    return open_session(path, None, on_frame)


async def until_ended(pilot) -> None:
    """Wait until the App was told to end."""
    for _ in range(200):
        if pilot.app.return_code is not None:
            break
        await pilot.pause(0.02)
    assert pilot.app.return_code is not None


# -- progress ----------------------------------------------------------------------


@pytest.mark.slow
async def test_the_first_frame_is_there_before_the_file_is_read(
    trace_path, as_text_of
) -> None:
    reader = SlowReader()
    app = OpeningApp(trace_path, {}, reader)
    async with piloted(app, (80, 24)) as pilot:
        text = await shows(pilot, "0 kB of 183 kB read, 0%", as_text_of)
        assert "opening matmul.msgpack" in text
        assert not hasattr(app, "debugger")
        reader.begun.wait(20)
        half = trace_path.stat().st_size // 2
        reader.on_frame(Frame(0, "ops", 60_000, half - 60_000))
        text = await shows(pilot, "91 kB of 183 kB read, 50%", as_text_of)
        assert "#" * 39 in text
        reader.on_frame(Frame(0, "ops", 0, 4 * half))
        await shows(pilot, "kB read, 100%", as_text_of)
        reader.go.set()
        await shows(pilot, "op 16/151", as_text_of)


async def test_escape_gives_up(trace_path, as_text_of) -> None:
    reader = SlowReader()
    app = OpeningApp(trace_path, {}, reader)
    async with piloted(app, (80, 24)) as pilot:
        reader.begun.wait(20)
        await pilot.press("escape")
        await shows(pilot, "giving up", as_text_of)
        reader.go.set()
        await until_ended(pilot)
    assert (app.return_code, app.failure) == (0, "")


async def test_it_is_not_too_late_to_give_up_what_was_just_read(trace_path) -> None:
    prepared = Event()
    go = Event()

    def read_and_wait(path: Path, on_frame):
        session = open_session(path, None, on_frame)
        session.index.prepare()
        prepared.set()
        assert go.wait(20)
        return session

    app = OpeningApp(trace_path, {}, read_and_wait)
    async with piloted(app, (80, 24)) as pilot:
        assert prepared.wait(20)
        await pilot.press("escape")
        await still(pilot)
        go.set()
        await until_ended(pilot)
    assert (app.return_code, app.failure, app.crash) == (0, "", "")


async def test_a_key_that_comes_as_a_trace_was_read_is_not_lost(trace_path) -> None:
    reader = SlowReader()
    app = OpeningApp(trace_path, {}, reader)
    async with piloted(app, (80, 24)) as pilot:
        loading = app.screen
        reader.begun.wait(20)
        await pilot.press("g")
        show = app.switch_screen

        def show_and_type(screen):
            loading.post_message(events.Key("s", "s"))
            return show(screen)

        app.switch_screen = show_and_type
        reader.go.set()
        await until(pilot, lambda: hasattr(app, "debugger"))
        await until(pilot, lambda: app.debugger.session.cursor == 1)


def test_the_reader_reports_every_part_of_the_op_log(trace_path: Path) -> None:
    frames: list[Frame] = []
    session = open_session(trace_path, None, frames.append)
    ends = [frame.start + frame.size for frame in frames if frame.tag == "ops"]
    assert ends == sorted(ends)
    assert ends[-1] <= trace_path.stat().st_size
    assert len(session) == 152


def test_reading_stops_when_on_frame_raises(trace_path: Path) -> None:
    class Enough(Exception):
        pass

    def stop(frame: Frame) -> None:
        if frame.tag == "ops":
            raise Enough

    with pytest.raises(Enough):
        open_session(trace_path, None, stop)


# -- the picker --------------------------------------------------------------------


@pytest.mark.slow
async def test_the_picker_lists_traces_and_opens_one(trace_path, as_text_of) -> None:
    other = trace_path.with_name("fault_overflow.msgpack")
    paths = {trace_path: "opened before", other: "bundled"}
    app = OpeningApp(None, paths, read)
    async with piloted(app, (80, 24)) as pilot:
        text = await shows(pilot, "which trace?", as_text_of)
        assert text.index("matmul.msgpack") < text.index("fault_overflow.msgpack")
        await pilot.press("j", "enter")
        await shows(pilot, " fault_overflow.msgpack  op", as_text_of)


async def test_k_goes_up_in_the_picker(trace_path, monkeypatch) -> None:
    names = ["matmul", "fault_overflow", "fault_wrong_root"]
    paths = {trace_path.with_name(f"{name}.msgpack"): "bundled" for name in names}
    opened: list[str] = []
    monkeypatch.setattr(OpeningApp, "open", lambda app, path: opened.append(path.stem))
    app = OpeningApp(None, paths, read)
    async with piloted(app, (80, 24)) as pilot:
        await still(pilot)
        await pilot.press("j", "j", "k", "enter")
        await still(pilot)
    assert opened == ["fault_overflow"]


async def test_traces_of_one_name_are_told_apart_by_their_folders(
    trace_path, tmp_path, as_text_of
) -> None:
    """Both rows were the same."""
    paths = {trace_path: "opened before"}
    for folder in ("old", "new"):
        copy = tmp_path / folder / "run.msgpack"
        copy.parent.mkdir()
        copy.write_bytes(trace_path.read_bytes())
        paths[copy] = "opened before"
    app = OpeningApp(None, paths, read)
    async with piloted(app, (80, 24)) as pilot:
        text = await shows(pilot, "which trace?", as_text_of)
    rows = [line.split()[0] for line in text.splitlines()[3:] if line.strip()]
    assert rows == ["matmul.msgpack", "old/run.msgpack", "new/run.msgpack"]


async def test_the_size_of_a_small_trace_is_not_0(
    trace_path, tmp_path, as_text_of
) -> None:
    small = tmp_path / "small.msgpack"
    small.write_bytes(b"x" * 38_400)
    app = OpeningApp(None, {small: "opened before", trace_path: "bundled"}, read)
    async with piloted(app, (80, 24)) as pilot:
        text = await shows(pilot, "which trace?", as_text_of)
        assert " 38 kB  opened before" in text


async def test_a_row_of_the_picker_is_one_line_however_narrow(
    trace_path, as_text_of
) -> None:
    paths = {trace_path: "opened before", trace_path.parent / "README.md": "x"}
    app = OpeningApp(None, paths, read)
    async with piloted(app, (40, 15)) as pilot:
        text = await shows(pilot, "which trace?", as_text_of)
        rows = [line.split()[0] for line in text.splitlines()[3:] if line.strip()]
        assert rows == ["matmul.msgpack", "README.md"]


async def test_the_picker_helps_and_opens_no_empty_palette(
    trace_path, as_text_of
) -> None:
    app = OpeningApp(None, {trace_path: "opened before"}, read)
    async with piloted(app, (100, 24)) as pilot:
        await shows(pilot, "? helps", as_text_of)
        await pilot.press("ctrl+p")
        assert "which trace?" in as_text_of(app)
        await pilot.press("?")
        await shows(pilot, "Ctrl+Z suspends", as_text_of)


@pytest.mark.parametrize("key", ["q", "escape", "ctrl+c"])
async def test_the_picker_ends_by_the_keys_of_back_and_quit(
    key, trace_path, as_text_of
) -> None:
    app = OpeningApp(None, {trace_path: "opened before"}, read)
    async with piloted(app, (80, 24)) as pilot:
        await shows(pilot, "which trace?", as_text_of)
        await pilot.press(key)
        await until_ended(pilot)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"no trace", "no kernbench trace"),
        (b"", "no kernbench trace"),
        (None, "No such file"),
    ],
    ids=["unreadable", "empty", "gone"],
)
async def test_the_picker_says_why_a_trace_does_not_open(
    data: bytes | None, why: str, tmp_path: Path, as_text_of
) -> None:
    bad = tmp_path / "bad.msgpack"
    bad.write_bytes(data or b"")
    app = OpeningApp(None, {bad: "bundled"}, read)
    async with piloted(app, (120, 24)) as pilot:
        await shows(pilot, "which trace?", as_text_of)
        if data is None:
            bad.unlink()
        await pilot.press("enter")
        text = await shows(pilot, why, as_text_of)
        assert "which trace?" in text
        await pilot.press("q")
    assert app.return_code == 0


@pytest.mark.slow
def test_the_picker_has_the_bundled_traces_behind_those_opened_before(
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


# -- files -------------------------------------------------------------------------


@pytest.mark.slow
def test_demo_opens_a_bundled_trace(tmp_path: Path) -> None:
    with opened("--demo", state=tmp_path) as terminal:
        terminal.until("kernbench matmul.msgpack  op 16/151")


@pytest.mark.slow
def test_a_truncated_file_opens_up_to_its_last_good_frame(
    trace_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "cut.msgpack"
    path.write_bytes(trace_path.read_bytes()[:-4000])
    with opened(path, state=tmp_path) as terminal:
        terminal.until("cut.msgpack  op")
        assert "file cut off" in terminal.text


def of_version_7(data: bytes) -> bytes:
    return data.replace(b"\xa7version\x92\x01", b"\xa7version\x92\x07", 1)


BAD_FILES = {
    "empty": lambda data: b"",
    "other": lambda data: b"not a trace at all" * 9,
    "cut in its first frame": lambda data: data[:40],
    "another version": of_version_7,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_file_ends_in_one_line_before_the_screen_is_taken(
    kind: str, trace_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "bad.msgpack"
    path.write_bytes(BAD_FILES[kind](trace_path.read_bytes()))
    with opened(path, state=tmp_path) as terminal:
        assert terminal.end() == 2
        error = f"error: {path}: no kernbench trace that can"
        assert terminal.raw.startswith(error.encode())
        assert terminal.raw.count(b"\n") == 1
        assert b"\x1b" not in terminal.raw


@pytest.mark.slow
def test_what_goes_wrong_later_is_one_line_too(
    trace_path: Path, tmp_path: Path
) -> None:
    with opened(trace_path, "--op", 9999, state=tmp_path) as terminal:
        assert terminal.end() == 2
        assert terminal.restored()
        last = terminal.raw.decode().rpartition("\x1b")[2].split("error: ")[1]
        assert last.startswith("no op 9999; this trace has ops 0 to 151")


def test_the_check_of_the_first_frame_looks_at_no_other(trace_path: Path) -> None:
    assert FrameFile(trace_path, scan=False).by_tag == {}
    with pytest.raises(KernbenchError, match="it is a directory"):
        FrameFile(trace_path.parent, scan=False)


@pytest.mark.slow
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
