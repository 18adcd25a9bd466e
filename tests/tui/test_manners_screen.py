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
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from terminals import Terminal, opened
from textual._compositor import CompositorUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip
from tui.widgets.draw import STYLES as DRAWN

from tui.cells import Cells

READY = "op 40/"
STEPS = "sssSSnnNss"


def ready(terminal: Terminal) -> None:
    terminal.until(READY)
    terminal.read(0.4)


@pytest.mark.parametrize(("size", "step"), [((120, 40), 2048), ((200, 50), 6144)])
def test_few_bytes_are_written(
    size, step: int, trace_path: Path, tmp_path: Path
) -> None:
    with opened(trace_path, "--op", 40, size=size, state=tmp_path) as terminal:
        ready(terminal)
        terminal.read(2.5)  # what nobody asked for is computed too
        assert terminal.read(1.0) == b""  # idle
        assert median(len(terminal.press(key, 0.3)) for key in STEPS) <= step
        assert 5000 < len(terminal.press("\x0c", 0.6)) <= 61_440  # a whole redraw
        terminal.read(2.5)
        hovers = "".join(
            f"\x1b[<35;{x};{y}M" for x in range(2, size[0], 9) for y in (3, 12, 30)
        )
        assert terminal.press(hovers) == b""


QUIET = {"a command line": ":", "a page": "?", "the palette": "\x10"}


@pytest.mark.parametrize("over", QUIET)
def test_nothing_is_written_while_nothing_is_done(
    over, trace_path, tmp_path: Path
) -> None:
    """A mouse that only moves does nothing."""
    with opened(trace_path, "--op", 40, state=tmp_path) as terminal:
        ready(terminal)
        terminal.press(QUIET[over], 0.8)
        assert terminal.read(1.5) == b""
        hovers = "".join(
            f"\x1b[<35;{x};{y}M" for x in range(2, 80, 9) for y in (3, 12, 24)
        )
        assert terminal.press(hovers) == b""


def test_nothing_is_written_over_the_picker_either(tmp_path: Path) -> None:
    with opened(state=tmp_path) as terminal:
        terminal.until("which trace?")
        terminal.read(0.4)
        assert terminal.read(1.0) == b""
        hovers = "".join(
            f"\x1b[<35;{x};{y}M" for x in range(2, 80, 9) for y in (3, 4, 5, 12)
        )
        assert terminal.press(hovers) == b""


def test_keys_that_come_in_one_go_are_typed_into_the_line_they_open(
    trace_path, tmp_path
) -> None:
    with opened(trace_path, "--op", 40, state=tmp_path) as terminal:
        ready(terminal)
        terminal.press(":goto 7\r")
        terminal.until("op 7/151")


def test_a_redraw_repairs_the_screen(trace_path: Path, tmp_path: Path) -> None:
    with opened(trace_path, "--op", 40, state=tmp_path) as terminal:
        ready(terminal)
        before = terminal.text
        terminal.screen.reset()  # another program has written there
        terminal.press("\x0c", 0.6)
        assert terminal.text == before


def test_a_resize_storm_keeps_cursor_and_selection(
    trace_path: Path, tmp_path: Path
) -> None:
    with opened(trace_path, "--op", 40, state=tmp_path) as terminal:
        ready(terminal)
        terminal.press("2jj")
        before = terminal.text.splitlines()
        for columns, lines in [
            (60, 16),
            (5, 2),
            (1, 1),
            (200, 50),
            (33, 7),
            (5, 2),
            (120, 40),
        ] * 4:
            terminal.resize(columns, lines)
        terminal.press("jk")
        terminal.resize(80, 24)
        terminal.until("op 40/151")
        terminal.read(0.5)
        assert (
            terminal.text.splitlines()[:6] == before[:6]
        )  # status, focus, window of time
        assert "[2 Ops]" in terminal.text
        terminal.press("\r")  # goes to the picked row
        terminal.until("op 42/151")


MODES = {
    "16 colours": {"TERM": "xterm"},
    "256 colours": {"TERM": "xterm-256color"},
    "truecolor": {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
    "no colours": {"TERM": "xterm-256color", "NO_COLOR": "1"},
}


XTERM = "black 000000 red cd0000 green 00cd00 brown cdcd00 blue 0000ee magenta cd00cd cyan 00cdcd"
XTERM += " white e5e5e5 brightblack 7f7f7f brightred ff0000 brightgreen 00ff00 brightbrown ffff00"
XTERM += " brightblue 5c5cff brightmagenta ff00ff brightcyan 00ffff brightwhite ffffff"
HEX: dict[str, str] = dict(zip(XTERM.split()[::2], XTERM.split()[1::2], strict=True))
_RGB = [tuple(bytes.fromhex(text)) for text in HEX.values()]
XTERM_THEME = TerminalTheme((0, 0, 0), (255, 255, 255), _RGB[:8], _RGB[8:])  # type: ignore[arg-type]
PAGES = {
    "all panes": "",
    "numbers": "4 v",
    "diff": "6 v",
    "critical path": "1 v",
    "help": "?",
}
PAGES |= {
    "command line": "\x1b :",
    "a hint": "\t",
    "a word": "zz",
    "message": "\x1b \x1b[15~ '",
}
PAGES |= {"palette": "\x1b \x10", "a word in it": "st"}


def luminance(colour: str) -> float:
    parts = [int(HEX.get(colour, colour)[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts
    ]
    return sum(
        c * weight for c, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True)
    )


def contrast(cell, ink: str, paper: str) -> float:
    """Of a cell, on a terminal with these default colours."""
    fg = ink if cell.fg == "default" else cell.fg
    bg = paper if cell.bg == "default" else cell.bg
    low, high = sorted((luminance(fg), luminance(bg)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", MODES)
def test_all_is_legible(mode: str, trace_path: Path, tmp_path: Path) -> None:
    with opened(
        trace_path, "--op", 40, size=(200, 50), state=tmp_path, **MODES[mode]
    ) as terminal:
        ready(terminal)
        for page, keys in PAGES.items():
            for key in keys.split(" "):
                terminal.press(key)
            cells = [
                (y, x, cell)
                for y in range(50)
                for x, cell in terminal.screen.buffer[y].items()
            ]
            for colours in (("ffffff", "000000"), ("000000", "ffffff")):  # dark, light
                unseen = {
                    (cell.fg, cell.bg): (
                        y,
                        x,
                        cell.data,
                        round(contrast(cell, *colours), 1),
                    )
                    for y, x, cell in cells
                    if cell.data.strip() and contrast(cell, *colours) < 3
                }
                assert unseen == {}, page
        if mode == "no colours":
            codes = b";".join(re.findall(rb"\x1b\[([0-9;]*)m", terminal.raw)).split(
                b";"
            )
            assert not {int(code or 0) for code in codes} & {
                *range(30, 39),
                *range(40, 49),
            }
        hues = {c.fg for row in terminal.screen.buffer.values() for c in row.values()}
        assert (hues == {"default"}) is (mode == "no colours")


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [(["--ascii"], {}), ([], {"LANG": "C"}), ([], {"LC_ALL": "POSIX"})],
    ids=["--ascii", "LANG=C", "LC_ALL=POSIX"],
)
def test_ascii_where_it_is_asked_for(
    arguments, environ, trace_path, tmp_path: Path
) -> None:
    path = trace_path
    with opened(
        path, "--op", 40, *arguments, size=(200, 50), state=tmp_path, **environ
    ) as terminal:
        ready(terminal)
        terminal.press("4vv1+l")
        assert "Timeline" in terminal.text
        terminal.press("\x10", 0.8)
        assert "an action" in terminal.text
        terminal.press("st", 0.8)
        assert "step: one op forward" in terminal.text
        assert terminal.raw.isascii()


def fake_tmux(folder: Path) -> Path:
    program = folder / "bin" / "tmux"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" > {folder}/called\ncat > {folder}/copied\n'
    )
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


def test_y_copies_to_a_file_where_nothing_else_can(
    trace_path: Path, tmp_path: Path
) -> None:
    with opened(
        trace_path, "--op", 40, state=tmp_path, size=(160, 40), TERM="linux"
    ) as terminal:
        ready(terminal)
        terminal.press("y")
        terminal.until("copied to ")
    copied = (tmp_path / "kernbench" / "copied.txt").read_text(encoding="utf-8")
    assert "Timeline" in copied


# -- only what differs is written, and it looks as if all were --

STYLES = [
    Style.null(),
    Style(bold=True),
    Style(color="red"),
    Style(reverse=True, bgcolor="blue"),
]
STYLES += [
    Style(bold=True, underline=True),
    Style(color="#123456", bgcolor="blue", italic=True),
]
RUNS = st.lists(
    st.tuples(st.text("ab 1界", min_size=1, max_size=9), st.sampled_from(STYLES)),
    max_size=3,
)
UPDATES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), RUNS), max_size=8)


@given(UPDATES)
def test_changes_look_like_whole_lines(updates) -> None:
    console = Console(force_terminal=True, color_system="truecolor")
    cells, screens = Cells(), [pyte.Screen(70, 4), pyte.Screen(70, 4)]
    streams = [pyte.Stream(screen) for screen in screens]
    for x, y, runs in updates:
        strip = Strip([Segment(text, style) for text, style in runs])
        update: CompositorUpdate = LayoutUpdate(
            [[strip]], Region(x, y, strip.cell_length, 1)
        )
        streams[0].feed(update.render_segments(console))
        cells.update = update
        streams[1].feed(cells.render_segments(console))
        cells.update = update
        assert cells.render_segments(console) == ""  # it stands there
    assert screens[0].buffer == screens[1].buffer


# -- inks --


@pytest.mark.parametrize(
    "system", [ColorSystem.STANDARD, ColorSystem.EIGHT_BIT, ColorSystem.TRUECOLOR]
)
def test_every_style_is_legible(system) -> None:
    for name, style in DRAWN.items():
        pair = [
            c.downgrade(system).get_truecolor(XTERM_THEME)
            for c in (style.color, style.bgcolor)
        ]
        low, high = sorted(luminance(colour.hex[1:]) for colour in pair)
        assert (high + 0.05) / (low + 0.05) >= 3, name


@pytest.mark.parametrize("sequence", ["\x1b[1;2R", "\x1b[13;2~"])
def test_shift_f3_as_terminals_send_it(
    sequence: str, trace_path: Path, tmp_path: Path
) -> None:
    """Of xterm, tmux and screen; of kitty's protocol."""
    with opened(trace_path, "--op", 40, state=tmp_path) as terminal:
        ready(terminal)
        terminal.press("/gemm\r")
        terminal.until("op 72/")
        terminal.press("\x1bOR")
        terminal.until("op 73/")
        terminal.press(sequence)
        terminal.until("op 72/")
