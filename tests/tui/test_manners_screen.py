"""What is written to the terminal and how it looks there: bytes, sizes, colours, copies."""

from __future__ import annotations

import base64
import os
import re
import stat
from pathlib import Path
from statistics import median

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from terminals import Terminal, opened
from textual._compositor import CompositorUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from tui.cells import Cells

READY = "op 40/"
STEPS = "sssSSnnNss"


def ready(terminal: Terminal) -> None:
    terminal.until(READY)
    terminal.read(0.4)


@pytest.mark.parametrize(("size", "step"), [((120, 40), 2048), ((200, 50), 6144)])
def test_few_bytes_are_written(size, step: int, trace_path: Path, tmp_path: Path) -> None:
    with opened(trace_path, "--op", 40, size=size, state=tmp_path) as terminal:
        ready(terminal)
        assert terminal.read(1.0) == b""  # idle
        assert median(len(terminal.press(key, 0.3)) for key in STEPS) <= step
        assert 5000 < len(terminal.press("\x0c", 0.6)) <= 61_440  # a whole redraw
        hovers = "".join(f"\x1b[<35;{x};{y}M" for x in range(2, size[0], 9) for y in (3, 12, 30))
        assert terminal.press(hovers) == b""


def test_a_redraw_repairs_the_screen(trace_path: Path, tmp_path: Path) -> None:
    with opened(trace_path, "--op", 40, state=tmp_path) as terminal:
        ready(terminal)
        before = terminal.text
        terminal.screen.reset()  # another program has written there
        terminal.press("\x0c", 0.6)
        assert terminal.text == before


def test_a_resize_storm_keeps_cursor_and_selection(trace_path: Path, tmp_path: Path) -> None:
    with opened(trace_path, "--op", 40, state=tmp_path) as terminal:
        ready(terminal)
        terminal.press("2jj")
        before = terminal.text.splitlines()
        for columns, lines in [(60, 16), (5, 2), (1, 1), (200, 50), (33, 7), (5, 2), (120, 40)] * 4:
            terminal.resize(columns, lines)
        terminal.press("jk")
        terminal.resize(80, 24)
        terminal.until("op 40/151")
        terminal.read(0.5)
        assert terminal.text.splitlines()[:6] == before[:6]  # status, focus, window of time
        assert "[2 Ops]" in terminal.text
        terminal.press("\r")  # goes to the picked row
        terminal.until("op 42/151")


MODES = {
    "16 colours": {"TERM": "xterm"},
    "256 colours": {"TERM": "xterm-256color"},
    "truecolor": {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
    "no colours": {"TERM": "xterm-256color", "NO_COLOR": "1"},
}


@pytest.mark.parametrize("mode", MODES)
def test_all_is_legible(mode: str, trace_path: Path, tmp_path: Path) -> None:
    with opened(trace_path, "--op", 40, size=(200, 50), state=tmp_path, **MODES[mode]) as terminal:
        ready(terminal)
        for key in ("", "4v", "8", "?"):
            terminal.press(key)
            unseen = [
                (y, x, cell.data, cell.fg)
                for y in range(50)
                for x, cell in terminal.screen.buffer[y].items()
                if cell.data.strip() and cell.fg == cell.bg != "default"
            ]
            assert unseen == []
        if mode == "no colours":
            codes = b";".join(re.findall(rb"\x1b\[([0-9;]*)m", terminal.raw)).split(b";")
            assert not {int(code or 0) for code in codes} & {*range(30, 39), *range(40, 49)}
        hues = {c.fg for row in terminal.screen.buffer.values() for c in row.values()}
        assert (hues == {"default"}) is (mode == "no colours")


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [(["--ascii"], {}), ([], {"LANG": "C"}), ([], {"LC_ALL": "POSIX"})],
    ids=["--ascii", "LANG=C", "LC_ALL=POSIX"],
)
def test_ascii_where_it_is_asked_for(arguments, environ, trace_path, tmp_path: Path) -> None:
    path = trace_path
    with opened(
        path, "--op", 40, *arguments, size=(200, 50), state=tmp_path, **environ
    ) as terminal:
        ready(terminal)
        terminal.press("4vv1+l")
        assert terminal.raw.isascii()
        assert "Timeline" in terminal.text


def fake_tmux(folder: Path) -> Path:
    program = folder / "bin" / "tmux"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {folder}/called\ncat > {folder}/copied\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program.parent


def test_y_copies_by_osc_52(trace_path: Path, tmp_path: Path) -> None:
    with opened(trace_path, "--op", 40, state=tmp_path) as terminal:
        ready(terminal)
        terminal.press("y")
        terminal.until("copied by OSC 52")
        (data,) = re.findall(rb"\x1b\]52;c;([^\x07\x1b]+)", terminal.raw)
        assert "Timeline" in base64.b64decode(data).decode()


def test_y_copies_into_the_buffer_of_tmux(trace_path: Path, tmp_path: Path) -> None:
    path = f"{fake_tmux(tmp_path)}:{os.environ['PATH']}"
    environ = {"TMUX": "/tmp/none,1,0", "PATH": path}
    with opened(trace_path, "--op", 40, state=tmp_path, **environ) as terminal:
        ready(terminal)
        terminal.press("y")
        terminal.until("copied by tmux")
    assert (tmp_path / "called").read_text() == "load-buffer -w -\n"
    assert "Timeline" in (tmp_path / "copied").read_text(encoding="utf-8")


def test_y_copies_to_a_file_where_nothing_else_can(trace_path: Path, tmp_path: Path) -> None:
    with opened(trace_path, "--op", 40, state=tmp_path, size=(160, 40), TERM="linux") as terminal:
        ready(terminal)
        terminal.press("y")
        terminal.until("copied to ")
    copied = (tmp_path / "kernbench" / "copied.txt").read_text(encoding="utf-8")
    assert "Timeline" in copied


# -- only what differs is written, and it looks as if all were --

STYLES = [Style.null(), Style(bold=True), Style(color="red"), Style(reverse=True, bgcolor="blue")]
STYLES += [Style(bold=True, underline=True), Style(color="#123456", bgcolor="blue", italic=True)]
RUNS = st.lists(
    st.tuples(st.text("ab 1界", min_size=1, max_size=9), st.sampled_from(STYLES)), max_size=3
)
UPDATES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), RUNS), max_size=8)


@given(UPDATES)
def test_changes_look_like_whole_lines(updates) -> None:
    console = Console(force_terminal=True, color_system="truecolor")
    cells, screens = Cells(), [pyte.Screen(70, 4), pyte.Screen(70, 4)]
    streams = [pyte.Stream(screen) for screen in screens]
    for x, y, runs in updates:
        strip = Strip([Segment(text, style) for text, style in runs])
        update: CompositorUpdate = LayoutUpdate([[strip]], Region(x, y, strip.cell_length, 1))
        streams[0].feed(update.render_segments(console))
        cells.update = update
        streams[1].feed(cells.render_segments(console))
        cells.update = update
        assert cells.render_segments(console) == ""  # it stands there
    assert screens[0].buffer == screens[1].buffer
